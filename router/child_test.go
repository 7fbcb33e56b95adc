package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
)

// calling makes a stage that runs the pipeline.
func calling(t *testing.T, child *events.Plan, params map[string]any, outputs ...events.Output) events.Stage {
	t.Helper()
	with, err := json.Marshal(map[string]any{"name": child.Pipeline, "params": params, "plan": child})
	if err != nil {
		t.Fatal(err)
	}
	return events.Stage{Name: "call", Executor: "pipeline", With: with, Outputs: outputs}
}

// childPlan doubles a number and writes a file.
func childPlan() *events.Plan {
	p := plan("child", events.Stage{Name: "work", Outputs: []events.Output{{Role: "file", Path: "f.txt"}, {Role: "n"}},
		Inputs: []events.Input{{Role: "n", From: "params.n", Expr: true}}})
	p.Params = map[string]json.RawMessage{"n": json.RawMessage(`{"type":"integer"}`), "word": json.RawMessage(`{"type":"string","default":"hello"}`)}
	p.Outputs = []events.PlanOutput{{Role: "double", From: "stages.work.outputs.n * 2"}, {Role: "file", From: "stages.work.outputs.file"}}
	return p
}

// childrenOf gives the runs that a run's stages started.
func (b *bench) childrenOf(parent events.ID) (children []storage.RunRow) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, r := range b.store.runs {
		if r.Parent == parent {
			children = append(children, r)
		}
	}
	return children
}

func (b *bench) onlyChild(parent events.ID) storage.RunRow {
	b.t.Helper()
	b.until("a child run", func() bool {
		for _, r := range b.store.runs {
			if r.Parent == parent {
				return true
			}
		}
		return false
	})
	all := b.childrenOf(parent)
	if len(all) != 1 {
		b.t.Fatalf("%d child runs", len(all))
	}
	return all[0]
}

func TestChildGivesItsOutputs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]body{"work": func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		out := filepath.Join(c.Dir, "out")
		if err := os.MkdirAll(out, 0o700); err != nil {
			return &executor.Result{}, &events.Failure{Class: events.System, Reason: err.Error()}
		}
		if err := os.WriteFile(filepath.Join(out, "f.txt"), c.Params["word"], 0o600); err != nil {
			return &executor.Result{}, &events.Failure{Class: events.System, Reason: err.Error()}
		}
		return echo(context.Background(), c)
	}, "sum": echo},
		plan("p", events.Stage{Name: "pre", Outputs: roles("n")}, calling(t, childPlan(), map[string]any{"n": 21}, events.Output{Role: "double"}, events.Output{Role: "file", Path: "sub/got.txt"}),
			events.Stage{Name: "sum", Needs: []string{"call"}, Reads: []string{"call"}, Outputs: roles("n"), Inputs: []events.Input{{Role: "n", From: "stages.call.outputs.double", Expr: true}}}))
	w.by["pre"] = gives(map[string]string{"n": "1"})
	b := w.start()
	id := b.run("p")
	b.ended(id, events.Completed)
	if got := b.output(id, "sum"); got != "42" {
		t.Errorf("the child gave %s", got)
	}
	child := b.onlyChild(id)
	if child.State != events.Completed || child.Kind != "pipeline" {
		t.Errorf("child %+v", child)
	}
	done := b.find(id, events.StageCompleted, "call")[0].Data
	if done.Outputs[1].Digest != events.DigestOf([]byte(`"hello"`)) || done.Pins[0].Value != child.ID.String() {
		t.Errorf("outputs %+v, pins %v", done.Outputs, done.Pins)
	}
}

func TestChildFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		work   body
		n      any
		change func(p *events.Plan)
		class  events.Class
		says   string
	}{
		"of its stage":      {work: fails(events.BadOutput, "broken"), n: 1, class: events.BadOutput, says: "broken"},
		"no parameter":      {n: "x", class: events.BadInput, says: "E_PARAM"},
		"its output":        {work: gives(map[string]string{"n": `"x"`}), n: 1, class: events.BadOutput, says: "the output double"},
		"its group is full": {n: 1, class: events.ExecFailed, says: "E_CONCURRENCY", change: func(p *events.Plan) { p.Concurrency = &events.Concurrency{Group: "g", Max: 1, Overflow: "skip"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := childPlan()
			child.Stages[0].Outputs = roles("n")
			child.Outputs = child.Outputs[:1]
			if c.change != nil {
				c.change(child)
			}
			inside, gate := make(chan string, 1), make(chan struct{})
			holder := plan("holder", events.Stage{Name: "hold"})
			holder.Concurrency = child.Concurrency
			w := newWorld(t, map[string]body{"work": c.work, "hold": waits(inside, gate)}, holder, plan("p", calling(t, child, map[string]any{"n": c.n}, roles("double")...)))
			b := w.start()
			held := b.run("holder")
			<-inside
			id := b.run("p")
			b.ended(id, events.Failed)
			if row := b.ends(id); row.Class != c.class || !strings.Contains(row.Reason, c.says) {
				t.Errorf("%s: %s", row.Class, row.Reason)
			}
			close(gate)
			b.ended(held, events.Completed)
		})
	}
}

// TestChildIsOneRun: whichever way the engine stops, the next one goes on waiting for the same child run, and what has
// ended meanwhile counts.
func TestChildIsOneRun(t *testing.T) {
	t.Parallel()
	inside, gate := make(chan string, 4), make(chan struct{})
	child := plan("child", events.Stage{Name: "work"}, events.Stage{Name: "after", Needs: []string{"work"}}, events.Stage{Name: "ask", Needs: []string{"after"},
		Executor: "approval", With: json.RawMessage(`{"message":"go on?"}`)})
	w := newWorld(t, map[string]body{"work": waits(inside, gate)}, plan("p", calling(t, child, nil), events.Stage{Name: "end", Needs: []string{"call"}}))
	b := w.start()
	id := b.run("p")
	for range 3 {
		<-inside
		b.hurry()
		b = w.start()
	}
	close(gate)
	c := b.onlyChild(id).ID
	b.reaches(c, events.StageQueued, "ask")
	b.stop() // in peace: nobody waits for a person
	b = w.start()
	if err := b.engine.Answer(t.Context(), c, router.Answer{Stage: "ask", Approve: true, Actor: "ada"}, anybody); err != nil {
		t.Fatal(err)
	}
	b.ended(id, events.Completed)
	if c := b.onlyChild(id); c.State != events.Completed {
		t.Errorf("child %+v", c)
	}
	if n := len(b.find(id, events.StageStarted, "call")); n != 1 {
		t.Errorf("the stage that waits was started %d times", n)
	}
}

func anybody(*events.Stage) error { return nil }

// TestChildIsCancelledToo: also when the engine dies between the wish and what follows from it, in which case only the
// next engine can hand it down.
func TestChildIsCancelledToo(t *testing.T) {
	t.Parallel()
	inside := make(chan string, 4)
	w := newWorld(t, map[string]body{"work": waits(inside, nil)}, plan("p", calling(t, plan("child", events.Stage{Name: "work"}), nil)))
	b := w.start()
	id := b.run("p")
	<-inside
	child := b.onlyChild(id).ID
	if err := b.engine.Cancel(t.Context(), id, "", "enough"); err != nil {
		t.Fatal(err)
	}
	b.ended(id, events.Cancelled)
	b.ended(child, events.Cancelled)
	if a, z := b.find(child, events.RunCancelled, "")[0], b.find(id, events.RunCancelled, "")[0]; a.Time > z.Time {
		t.Error("the run ended before its child")
	}

	id = b.run("p")
	<-inside
	child = b.onlyChild(id).ID
	b.hurry()
	w.store.wish(t, id) // as the last commit of an engine that died
	b = w.start()
	b.ended(id, events.Cancelled)
	b.ended(child, events.Cancelled)
	if len(b.childrenOf(id)) != 1 {
		t.Errorf("%d child runs", len(b.childrenOf(id)))
	}
}

// wish appends run.cancel_requested to a run, as an engine does that dies right after.
func (m *memory) wish(t *testing.T, id events.ID) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	p, err := events.DecodePlan(m.plans[m.runs[id].Plan])
	if err != nil {
		t.Fatal(err)
	}
	g, err := events.NewGraph(p, m.runs[id].Plan)
	if err != nil {
		t.Fatal(err)
	}
	r := events.NewRun(g)
	for i := range m.log[id] {
		e := &m.log[id][i]
		if _, err := r.Chain.Follow(&e.Event, e.Encoded, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(&e.Event); err != nil {
			t.Fatal(err)
		}
	}
	e := events.Event{ID: events.ID{9}, Stream: id, Type: events.RunCancelRequested, Time: m.log[id][len(m.log[id])-1].Time}
	encoded := e.Data.AppendEncoded(nil)
	r.Chain.Seal(&e, encoded, nil)
	if err := r.Apply(&e); err != nil {
		t.Fatal(err)
	}
	m.log[id] = append(m.log[id], sealed{Event: e, Encoded: encoded})
	m.runs[id] = storage.RunRowOf(r)
}

// TestChildBeforeTheStart: a stage that the engine takes up again at its start asks for its child at once.
func TestChildBeforeTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := prepared(t, newMemory(), runner{}, nil)
		started := make(chan error, 1)
		go func() {
			_, err := b.engine.StartChild(t.Context(), executor.Child{Plan: plan("child", events.Stage{Name: "a"}), Key: "k", Parent: events.ID{1}, Depth: 1})
			started <- err
		}()
		synctest.Wait() // it has asked
		b.begin()
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		b.ended(b.onlyChild(events.ID{1}).ID, events.Completed)
	})
}

func TestChildTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside := make(chan string, 1)
		call := calling(t, plan("child", events.Stage{Name: "work"}), nil)
		call.Timeout = time.Hour
		w := newWorld(t, map[string]body{"work": waits(inside, nil)}, plan("p", call))
		b := w.start()
		b.patience = 24 * time.Hour
		began := time.Now()
		id := b.run("p")
		b.ended(id, events.Failed)
		if row := b.ends(id); row.Class != events.Timeout || time.Since(began) != time.Hour {
			t.Errorf("%s after %s: %s", row.Class, time.Since(began), row.Reason)
		}
		if c := b.onlyChild(id); c.State != events.Cancelled {
			t.Errorf("the child is %s", c.State)
		}
	})
}

func TestChildTooDeep(t *testing.T) {
	t.Parallel()
	p := plan("p0", events.Stage{Name: "leaf"})
	for i := 1; i <= executor.MaxDepth; i++ {
		p = plan(fmt.Sprintf("p%d", i), calling(t, p, nil))
	}
	w := newWorld(t, nil, p, plan("over", calling(t, p, nil)))
	b := w.start()
	b.ended(b.run(p.Pipeline), events.Completed)
	id := b.run("over")
	b.ended(id, events.Failed)
	if row := b.ends(id); row.Class != events.BadInput || !strings.Contains(row.Reason, "E_DEPTH") {
		t.Errorf("%s: %s", row.Class, row.Reason)
	}
}

// TestChildOfOwnGroup: a run's place in its group is its child's too: it would else wait for a run that waits for it, or
// cancel itself.
func TestChildOfOwnGroup(t *testing.T) {
	t.Parallel()
	for _, overflow := range []string{"queue", "skip", "cancel_oldest"} {
		t.Run(overflow, func(t *testing.T) {
			t.Parallel()
			bound := &events.Concurrency{Group: "g", Max: 1, Overflow: overflow}
			inside, gate := make(chan string, 1), make(chan struct{})
			grandchild := plan("grandchild", events.Stage{Name: "work"})
			grandchild.Concurrency = bound
			child := plan("child", calling(t, grandchild, nil))
			p := plan("p", calling(t, child, nil))
			p.Concurrency = bound
			w := newWorld(t, map[string]body{"work": waits(inside, gate)}, p)
			w.change = func(o *router.Options) { o.MaxRuns = 1 }
			b := w.start()
			id := b.run("p")
			<-inside
			b.hurry()
			b = w.start() // the place is the family's after a restart too
			<-inside
			close(gate)
			b.ended(id, events.Completed)
			again := b.run("p")
			b.ended(again, events.Completed)
		})
	}
}

// TestChildOnAFullDisk: a child run that cannot be stored now is started once it can.
func TestChildOnAFullDisk(t *testing.T) {
	t.Parallel()
	inside, gate := make(chan string, 1), make(chan struct{})
	call := calling(t, plan("child", events.Stage{Name: "work"}), nil)
	call.Needs = []string{"pre"}
	w := newWorld(t, map[string]body{"work": func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		return &executor.Result{}, nil
	}}, plan("p", events.Stage{Name: "pre"}, call))
	w.by["pre"] = waits(inside, gate)
	b := w.start()
	id := b.run("p")
	<-inside
	w.store.failAfter(1, storage.ErrFull) // the claim of the stage is stored, and what it asks for is not
	close(gate)
	w.store.untilRefused(t, 3)
	w.store.fail(nil)
	b.ended(id, events.Completed)
	b.onlyChild(id)
}
