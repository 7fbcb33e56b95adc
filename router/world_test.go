package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// body is what a stage of a test does.
type body func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure)

// bodies are what stages do, by name; a stage that is not there does nothing. They stand in for every executor that runs
// something.
type bodies struct {
	mu    sync.Mutex
	by    map[string]body
	calls map[string]int // by label: begun attempts
}

func (b *bodies) Spec() executor.Spec { return executor.Spec{Name: "fake"} }

func (b *bodies) Execute(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
	b.mu.Lock()
	do := b.by[c.Stage]
	if b.calls == nil {
		b.calls = map[string]int{}
	}
	b.calls[(&events.Stage{Name: c.Stage}).Label(c.Item)]++
	b.mu.Unlock()
	if do == nil {
		return &executor.Result{}, nil
	}
	return do(ctx, c)
}

// begun is how many attempts of a stage, or of an instance, have begun.
func (b *bodies) begun(label string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[label]
}

// lateRuns are the engine that child runs start on, once there is one.
type lateRuns struct{ *router.Engine }

// world is a store, artifacts and bodies on which engines run one after the other, with the real steps.
type world struct {
	t *testing.T
	*bodies
	store  *memory
	files  *artifacts.Store
	dir    string
	change func(*router.Options)
	plans  []*events.Plan
}

func newWorld(t *testing.T, by map[string]body, plans ...*events.Plan) *world {
	t.Helper()
	dir := t.TempDir()
	files, err := artifacts.Open(filepath.Join(dir, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close() })
	return &world{t: t, bodies: &bodies{by: by}, store: newMemory(), files: files, dir: dir, plans: plans}
}

// start starts an engine; one before it must have stopped.
func (w *world) start() *bench {
	w.t.Helper()
	runs := &lateRuns{}
	steps := &stage.Steps{Artifacts: w.files, WorkDir: filepath.Join(w.dir, "work"), LogDir: filepath.Join(w.dir, "logs"), Logger: zerolog.Nop(),
		Executors: map[string]executor.Executor{"task": w.bodies, "shell": w.bodies, "approval": executor.Approvals{},
			"pipeline": executor.NewPipelines(runs, w.files)}}
	b := prepared(w.t, w.store, steps, func(o *router.Options) {
		o.Artifacts, o.Conditions = w.files, stage.Conditions{Artifacts: w.files}
		if w.change != nil {
			w.change(o)
		}
	}, w.plans...)
	runs.Engine = b.engine
	b.begin()
	return b
}

// gives is a body that sets outputs.
func gives(values map[string]string) body {
	return func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
		r := &executor.Result{Values: map[string]json.RawMessage{}}
		for role, text := range values {
			r.Values[role] = json.RawMessage(text)
		}
		return r, nil
	}
}

// fails is a body that fails.
func fails(class events.Class, reason string) body {
	return func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
		return &executor.Result{}, &events.Failure{Class: class, Reason: reason}
	}
}

// waits is a body that runs until the channel is closed, or until it is interrupted.
func waits(inside chan<- string, gate <-chan struct{}) body {
	return func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		inside <- (&events.Stage{Name: c.Stage}).Label(c.Item)
		select {
		case <-gate:
			return &executor.Result{}, nil
		case <-ctx.Done():
			return &executor.Result{}, &events.Failure{Class: events.Aborted, Reason: context.Cause(ctx).Error()}
		}
	}
}

// plan is a pipeline of stages that are Go tasks unless they say otherwise.
func plan(name string, stages ...events.Stage) *events.Plan {
	for i := range stages {
		if stages[i].Executor == "" {
			stages[i].Executor = "task"
		}
	}
	return &events.Plan{Schema: events.PlanSchema, Pipeline: name, Stages: stages}
}

func roles(names ...string) (outputs []events.Output) {
	for _, n := range names {
		outputs = append(outputs, events.Output{Role: n})
	}
	return outputs
}

// stageRow gives the row of a stage, or of its instance, as it is now.
func (b *bench) stageRow(run events.ID, name string, item int) string {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, s := range b.store.stages[run] {
		if s.Stage == name && s.Item == item {
			return fmt.Sprintf("%s %s %s", s.State, s.Class, s.Waits)
		}
	}
	return "no row"
}

// find gives the events of a type in a run, of the stage when one is named.
func (b *bench) find(run events.ID, t events.Type, stage string) (found []events.Event) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, e := range b.store.log[run] {
		if e.Type == t && (stage == "" || e.Data.Stage == stage) {
			found = append(found, e.Event)
		}
	}
	return found
}

// reaches waits until an event of the type has been stored for the stage.
func (b *bench) reaches(run events.ID, t events.Type, stage string) {
	b.t.Helper()
	b.until(t.Short()+" "+stage, func() bool {
		return slices.ContainsFunc(b.store.log[run], func(e sealed) bool { return e.Type == t && (stage == "" || e.Data.Stage == stage) })
	})
}

// hurry stops the engine without waiting for bodies.
func (b *bench) hurry() {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.engine.Stop(ctx); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) ended(id events.ID, state events.State) {
	b.t.Helper()
	if row := b.ends(id); row.State != state {
		b.t.Fatalf("run %s %s %s: %s, want %s\n%s", row.State, row.Stage, row.Class, row.Reason, state, lines(b.types(id)))
	}
}

func lines(list []string) (text string) {
	for _, l := range list {
		text += l + "\n"
	}
	return text
}

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// manual is a clock that a test moves.
type manual struct {
	mu sync.Mutex
	at time.Time
}

// clockAt gives a clock that stands still at the milliseconds.
func clockAt(ms int64) *manual { return &manual{at: time.UnixMilli(ms)} }

func (m *manual) time() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at
}

func (m *manual) move(ms int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = m.at.Add(time.Duration(ms) * time.Millisecond)
}
