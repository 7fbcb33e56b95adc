package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// openly are bodies whose executor says what it would start, and that reach nothing which is not declared.
type openly struct {
	*bodies
	tool  atomic.Value // string: the interpreter's digest
	leaks atomic.Bool  // something else could be reached
}

func (o *openly) Describe(context.Context, *executor.Call) (*executor.Program, *events.Failure) {
	tool, _ := o.tool.Load().(string)
	return &executor.Program{Toolchain: []events.Pair{{Name: "interpreter_digest", Value: tool}}}, nil
}

func (o *openly) Execute(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
	r, f := o.bodies.Execute(ctx, c)
	r.Hermetic = !o.leaks.Load()
	return r, f
}

// sharing is a world in which runs take over each other's results.
type sharing struct {
	*world
	ex *openly
}

func newSharing(t *testing.T, by map[string]body, plans ...*events.Plan) *sharing {
	t.Helper()
	s := &sharing{world: newWorld(t, by, plans...)}
	s.ex = &openly{bodies: s.bodies}
	s.change = func(o *router.Options) {
		steps := o.Runner.(*stage.Steps)
		steps.Executors["task"] = s.ex
		o.Keys = steps
	}
	return s
}

// pure is a stage that says that it is always the same, and is kept from everything that is not pinned.
func pure(s events.Stage) events.Stage {
	yes := true
	s.Same, s.Isolation, s.Network, s.Clock = &yes, "enforce", "none", "fixed"
	return s
}

// fresh starts a run that takes over nothing.
func (b *bench) fresh(pipeline string) events.ID {
	b.t.Helper()
	r, err := b.engine.Accept(b.t.Context(), &trigger.Delivery{Kind: "manual", Trigger: "manual", Pipeline: pipeline, Fresh: true})
	if err != nil || r.Fate != "run" {
		b.t.Fatalf("accept: %+v, %v", r, err)
	}
	return r.Run
}

// completes waits for the end of a run and gives how a stage or instance was completed.
func (b *bench) completes(run events.ID, stage string, item int) events.Event {
	b.t.Helper()
	b.ended(run, events.Completed)
	for _, e := range b.find(run, events.StageCompleted, stage) {
		if e.Data.Item == item {
			return e
		}
	}
	b.t.Fatalf("%s#%d was not completed", stage, item)
	return events.Event{}
}

// fromRun sees that a stage was taken over from a run.
func (b *bench) fromRun(run events.ID, stage string, item int, of events.ID) {
	b.t.Helper()
	e := b.completes(run, stage, item)
	started := b.find(run, events.StageStarted, stage)
	for _, s := range started {
		if s.Data.Item == item && (s.Data.Worker != "" || s.Data.Cached != of) {
			b.t.Errorf("%s#%d was started by %q, cached from %s", stage, item, s.Data.Worker, s.Data.Cached)
		}
	}
	first := b.completes(of, stage, item)
	if e.Data.Cached != of || fmt.Sprint(e.Data.Outputs) != fmt.Sprint(first.Data.Outputs) || e.Data.StageKey() != first.Data.StageKey() || e.Data.Duration != 0 ||
		e.Data.Shared != 0 || e.Data.StageKey().IsZero() {
		b.t.Errorf("%s#%d was completed by %+v, in the other run by %+v", stage, item, e.Data, first.Data)
	}
}

func TestTakeOver(t *testing.T) {
	t.Parallel()
	p := plan("p", pure(events.Stage{Name: "a", Outputs: roles("n")}))
	s := newSharing(t, map[string]body{"a": gives(map[string]string{"n": "5"})}, p)
	b := s.start()
	first := b.run("p")
	if e := b.completes(first, "a", 0); e.Data.Shared != 1 || !e.Data.Cached.IsZero() {
		t.Errorf("the first: %+v", e.Data)
	}
	second, third := b.run("p"), b.run("p")
	b.fromRun(second, "a", 0, first)
	b.fromRun(third, "a", 0, first) // not from the second, that has it from there
	if n := s.begun("a"); n != 1 {
		t.Errorf("the body began %d times", n)
	}
	fresh := b.fresh("p")
	if e := b.completes(fresh, "a", 0); !e.Data.Cached.IsZero() || s.begun("a") != 2 {
		t.Errorf("a run that takes over nothing: %+v", e.Data)
	}
	s.ex.tool.Store("another interpreter")
	if e := b.completes(b.run("p"), "a", 0); !e.Data.Cached.IsZero() || s.begun("a") != 3 {
		t.Errorf("with another interpreter: %+v", e.Data)
	}
	s.ex.tool.Store("")
	b.stop()
	b = s.start() // another engine finds it in the store
	b.fromRun(b.run("p"), "a", 0, first)
	if n := s.begun("a"); n != 3 {
		t.Errorf("the body began %d times", n)
	}
}

// TestTakeOverBelow: what changes and gives the same changes nothing below it.
func TestTakeOverBelow(t *testing.T) {
	t.Parallel()
	above, below := pure(events.Stage{Name: "a", Outputs: roles("n"), With: json.RawMessage(`{"v":1}`)}),
		pure(events.Stage{Name: "b", Needs: []string{"a"}, Reads: []string{"a"}, Inputs: []events.Input{{Role: "n", From: "stages.a.outputs.n", Expr: true}}, Outputs: roles("m")})
	changed := above
	changed.With = json.RawMessage(`{"v":2}`)
	other := above
	other.With = json.RawMessage(`{"v":3}`)
	s := newSharing(t, map[string]body{
		"a": func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
			n := "5"
			if strings.Contains(string(c.With), "3") {
				n = "6"
			}
			return gives(map[string]string{"n": n})(ctx, c)
		},
		"b": gives(map[string]string{"m": "7"})}, plan("one", above, below), plan("changed", changed, below), plan("other", other, below))
	b := s.start()
	first := b.run("one")
	b.completes(first, "b", 0)
	second := b.run("changed")
	b.fromRun(second, "b", 0, first)
	if e := b.completes(second, "a", 0); !e.Data.Cached.IsZero() || s.begun("a") != 2 || s.begun("b") != 1 {
		t.Errorf("a began %d times, b %d times: %+v", s.begun("a"), s.begun("b"), e.Data)
	}
	third := b.run("other")
	if e := b.completes(third, "b", 0); !e.Data.Cached.IsZero() || s.begun("b") != 2 {
		t.Errorf("b has another input and was taken over: %+v", e.Data)
	}
}

func TestTakeOverItems(t *testing.T) {
	t.Parallel()
	st := pure(events.Stage{Name: "a", Foreach: "params.list", Outputs: roles("n")})
	s := newSharing(t, map[string]body{"a": func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		return gives(map[string]string{"n": string(c.Value)})(ctx, c)
	}}, plan("p", st))
	// The parameters are pinned whole, so that the items come from a stage.
	list := pure(events.Stage{Name: "list", Outputs: roles("all")})
	list.Same = nil
	st.Foreach, st.Needs, st.Reads = "stages.list.outputs.all", []string{"list"}, []string{"list"}
	s.plans = []*events.Plan{plan("p", list, st)}
	items := atomic.Value{}
	items.Store("[1,2,3]")
	s.by["list"] = func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		return gives(map[string]string{"all": items.Load().(string)})(ctx, c)
	}
	b := s.start()
	first := b.run("p")
	b.completes(first, "a", 3)
	items.Store("[1,2,4,5]")
	second := b.run("p")
	for _, item := range []int{1, 2} {
		b.fromRun(second, "a", item, first)
	}
	for _, item := range []int{3, 4} {
		if e := b.completes(second, "a", item); !e.Data.Cached.IsZero() {
			t.Errorf("item %d: %+v", item, e.Data)
		}
	}
	for label, want := range map[string]int{"a#1": 1, "a#2": 1, "a#3": 2, "a#4": 1} {
		if n := s.begun(label); n != want {
			t.Errorf("%s began %d times, want %d", label, n, want)
		}
	}
	b.stop()
	b = s.start()
	third := b.run("p")
	b.fromRun(third, "a", 4, second)
	b.fromRun(third, "a", 1, first)
}

// TestNotTakenOver: a result is not taken over when its artifacts are gone, when it was not hermetic, when a gate rejected it,
// and when its stage does not allow it.
func TestNotTakenOver(t *testing.T) {
	t.Parallel()
	file := func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		out := filepath.Join(c.Dir, "out")
		err := os.MkdirAll(out, 0o700)
		if err == nil {
			err = os.WriteFile(filepath.Join(out, "f"), []byte("content"), 0o600)
		}
		if err != nil {
			return &executor.Result{}, &events.Failure{Class: events.System, Reason: err.Error()}
		}
		return &executor.Result{}, nil
	}
	said := pure(events.Stage{Name: "a"})
	said.Same = nil
	for name, c := range map[string]struct {
		stage  events.Stage
		body   body
		before func(s *sharing)
		state  events.State
	}{
		"gone": {stage: pure(events.Stage{Name: "a", Outputs: []events.Output{{Role: "f", Path: "f"}}}), body: file, state: events.Completed, before: func(s *sharing) {
			hex := strings.TrimPrefix(events.DigestOf([]byte("content")).String(), "sha256:")
			found, err := filepath.Glob(filepath.Join(s.dir, "artifacts", "sha256", "*", "*"+hex[8:]))
			if err != nil || len(found) != 1 {
				s.t.Fatalf("the artifact: %v, %v", found, err)
			}
			if err := os.Remove(found[0]); err != nil {
				s.t.Fatal(err)
			}
		}},
		"not hermetic": {stage: pure(events.Stage{Name: "a"}), state: events.Completed},
		"rejected":     {stage: pure(events.Stage{Name: "a", Outputs: roles("n"), Gate: []events.Gate{{Check: "outputs.n > 5"}}}), body: gives(map[string]string{"n": "5"}), state: events.Failed},
		"failed":       {stage: pure(events.Stage{Name: "a"}), body: fails(events.ExecFailed, "no"), state: events.Failed},
		"nothing said": {stage: said, state: events.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSharing(t, map[string]body{"a": c.body}, plan("p", c.stage))
			s.ex.leaks.Store(name == "not hermetic")
			b := s.start()
			b.ended(b.run("p"), c.state)
			if c.before != nil {
				c.before(s)
			}
			second := b.run("p")
			b.ended(second, c.state)
			if n := s.begun("a"); n != 2 {
				t.Errorf("the body began %d times\n%s", n, lines(b.types(second)))
			}
		})
	}
}

// TestIrreproducible: two results for one stage key are a finding, whichever way the second came to be.
func TestIrreproducible(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	counts := func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		return gives(map[string]string{"n": fmt.Sprint(n.Add(1)), "same": "1"})(ctx, c)
	}
	unsaid := pure(events.Stage{Name: "a", Outputs: roles("n", "same")})
	unsaid.Same, unsaid.Clock = nil, ""
	ignored := pure(events.Stage{Name: "a", Outputs: roles("n", "same")})
	ignored.Compare = &events.Compare{Ignore: []string{"n"}}
	s := newSharing(t, map[string]body{"a": counts}, plan("shared", pure(events.Stage{Name: "a", Outputs: roles("n", "same")})), plan("unsaid", unsaid), plan("ignored", ignored))
	b := s.start()
	found := func(run events.ID, first events.ID) {
		t.Helper()
		row := b.ends(run)
		all := b.find(run, events.StageIrreproducibleFound, "a")
		if row.State != events.Completed || row.Findings != 1 || len(all) != 1 {
			t.Fatalf("run %+v, %d findings\n%s", row, len(all), lines(b.types(run)))
		}
		d, was, is := &all[0].Data, b.completes(first, "a", 0).Data, b.completes(run, "a", 0).Data
		if d.Role != "n" || d.Expected != was.Outputs[0].Digest.String() || d.Actual != is.Outputs[0].Digest.String() || d.Expected == d.Actual ||
			d.Run != first || d.PinnedAt != is.StageKey() || d.PinnedAt != was.StageKey() {
			t.Errorf("the finding: %+v\nfirst: %+v\nnow: %+v", d, was, is)
		}
	}
	first := b.run("shared")
	b.ended(first, events.Completed)
	found(b.fresh("shared"), first)
	found(b.fresh("shared"), first)
	b.fromRun(b.run("shared"), "a", 0, first) // the first stays the one that is taken over

	origin := b.run("unsaid")
	b.ended(origin, events.Completed)
	if row := b.ends(b.run("unsaid")); row.Findings != 0 { // another run has another time and seed
		t.Errorf("%+v", row)
	}
	again, err := b.engine.Rerun(t.Context(), origin, router.Again{})
	if err != nil {
		t.Fatal(err)
	}
	found(again.Run, origin)

	quiet := b.run("ignored")
	b.ended(quiet, events.Completed)
	if row := b.ends(b.fresh("ignored")); row.Findings != 0 {
		t.Errorf("an output that is ignored: %+v", row)
	}
	b.stop()
	b = s.start() // also after the first is known from the store alone
	found(b.fresh("shared"), first)
}

// TestTakeOverAtOnce: of runs with one stage key at once, the later take the first's result over or compare theirs with it.
func TestTakeOverAtOnce(t *testing.T) {
	t.Parallel()
	inside, gate := make(chan string, 2), make(chan struct{})
	var n atomic.Int64
	s := newSharing(t, map[string]body{"a": func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		if r, f := waits(inside, gate)(ctx, c); f != nil {
			return r, f
		}
		return gives(map[string]string{"n": fmt.Sprint(n.Add(1))})(ctx, c)
	}}, plan("p", pure(events.Stage{Name: "a", Outputs: roles("n")})))
	b := s.start()
	one, two := b.run("p"), b.run("p")
	<-inside
	<-inside
	close(gate)
	if all := b.ends(one).Findings + b.ends(two).Findings; all != 1 {
		t.Errorf("%d findings", all)
	}
	b.store.mu.Lock()
	rows := b.store.results
	b.store.mu.Unlock()
	if len(rows) != 1 {
		t.Errorf("%d results: %v", len(rows), rows)
	}
}

// TestTakeOverStores holds the real store to the same: what was shared is found after a restart, every run replays as it
// was, and the rows are those that the log says.
func TestTakeOverStores(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := artifacts.Open(filepath.Join(dir, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	ex := &openly{bodies: &bodies{by: map[string]body{"a": gives(map[string]string{"n": "5"})}}}
	var runs []events.ID
	session := func(fresh ...bool) {
		t.Helper()
		store, err := sqlite.Open(dir, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		steps := &stage.Steps{Artifacts: files, WorkDir: filepath.Join(dir, "work"), LogDir: filepath.Join(dir, "logs"), Executors: map[string]executor.Executor{"task": ex}}
		e, err := router.New(router.Options{Store: store, Runner: steps, Keys: steps, Artifacts: files, Conditions: stage.Conditions{Artifacts: files}, Clock: time.Now,
			Logger: zerolog.Nop(), NewID: func() events.ID { return events.ID(uuid.Must(uuid.NewV7())) }})
		if err == nil {
			err = e.Register(router.Pipeline{Plan: plan("p", pure(events.Stage{Name: "a", Outputs: roles("n")}))})
		}
		if err == nil {
			err = e.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		wake, stop := store.Wake()
		defer stop()
		for _, f := range fresh {
			r, err := e.Accept(t.Context(), &trigger.Delivery{Kind: "manual", Trigger: "manual", Pipeline: "p", Fresh: f})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r.Run)
			for {
				row, err := store.Run(t.Context(), r.Run)
				if err != nil && !errors.Is(err, storage.ErrNotFound) {
					t.Fatal(err)
				}
				if row.State.Terminal() {
					break
				}
				select {
				case <-wake:
				case <-time.After(patience):
					t.Fatal("the run does not end")
				}
			}
		}
		if err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		differences, err := store.Rebuild(t.Context(), false)
		if err != nil || len(differences) > 0 {
			t.Errorf("rebuilt: %v, %v", differences, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	session(false, false)
	ex.by["a"] = gives(map[string]string{"n": "6"})
	session(false, true)
	if n := ex.begun("a"); n != 2 {
		t.Errorf("the body began %d times", n)
	}
	store, err := sqlite.OpenReadOnly(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for i, want := range []struct {
		cached   bool
		findings int
	}{{}, {cached: true}, {cached: true}, {findings: 1}} {
		log, err := store.Events(t.Context(), runs[i], 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		g, err := events.NewGraph(plan("p", pure(events.Stage{Name: "a", Outputs: roles("n")})), log[0].Data.Plan)
		if err != nil {
			t.Fatal(err)
		}
		r, mismatch := events.Replay(g, func(yield func(*events.Event, []byte) bool) {
			for k := range log {
				if !yield(&log[k].Event, log[k].Encoded) {
					return
				}
			}
		})
		if mismatch != nil {
			t.Fatalf("run %d: %+v", i, mismatch)
		}
		if cached := !r.Stages[0].Last.Cached.IsZero(); cached != want.cached || r.Findings != want.findings || cached && r.Stages[0].Last.Cached != runs[0] {
			t.Errorf("run %d: cached %v, %d findings", i, cached, r.Findings)
		}
	}
}
