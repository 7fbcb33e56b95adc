package router_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
)

func (b *bench) types(stream events.ID) (types []string) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for _, e := range b.store.log[stream] {
		line := e.Type.Short()
		if e.Data.Stage != "" {
			line += " " + e.Data.Stage
		}
		types = append(types, line)
	}
	return types
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("event %d: got %q, want %q", i+1, got, want)
		}
	}
}

func TestChainRunsToItsEnd(t *testing.T) {
	t.Parallel()
	b := start(t, newMemory(), runner{}, nil, chain("p", "a", "b"))
	id := b.run("p")
	if row := b.ends(id); row.State != events.Completed {
		t.Fatalf("state %s: %s", row.State, row.Reason)
	}
	equal(t, b.types(id), []string{"run.created", "run.started", "stage.started a", "stage.completed a", "stage.started b", "stage.completed b", "run.completed"})
}

func TestFailureSkipsWhatIsBelow(t *testing.T) {
	t.Parallel()
	fail := func(context.Context, *stage.Attempt) stage.Outcome {
		return stage.Outcome{Failure: &events.Failure{Class: events.BadOutput, Reason: "no such file"}}
	}
	b := start(t, newMemory(), runner{"a": fail}, nil, chain("p", "a", "b", "c"))
	id := b.run("p")
	if row := b.ends(id); row.State != events.Failed || row.Class != events.BadOutput || row.Stage != "a" {
		t.Fatalf("got %+v", row)
	}
	equal(t, b.types(id), []string{"run.created", "run.started", "stage.started a", "stage.failed a", "stage.skipped b", "stage.skipped c", "run.failed a"})
}

func TestSameKeyIsOneRun(t *testing.T) {
	t.Parallel()
	b := start(t, newMemory(), runner{}, nil, chain("p", "a"))
	d := &trigger.Delivery{Kind: "webhook", Trigger: "webhook:/hooks/x", Pipeline: "p", Key: "k"}
	got := make(chan trigger.Receipt, 100)
	for range cap(got) {
		go func() {
			r, err := b.engine.Accept(t.Context(), d)
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
	}
	fates := map[string]int{}
	runs := map[events.ID]bool{}
	for range cap(got) {
		r := <-got
		fates[r.Fate]++
		runs[r.Run] = true
	}
	if fates["run"] != 1 || fates["duplicate"] != 99 || len(runs) != 1 {
		t.Fatalf("fates %v, runs %d", fates, len(runs))
	}
}

func TestSlotsBoundWhatRuns(t *testing.T) {
	t.Parallel()
	p := &events.Plan{Schema: 1, Pipeline: "wide"}
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		p.Stages = append(p.Stages, events.Stage{Name: n, Executor: "shell"})
	}
	gate := make(chan struct{})
	inside := make(chan string, 5)
	wait := func(_ context.Context, a *stage.Attempt) stage.Outcome {
		inside <- a.Stage.Name
		<-gate
		return stage.Outcome{}
	}
	r := runner{"a": wait, "b": wait, "c": wait, "d": wait, "e": wait}
	b := start(t, newMemory(), r, func(o *router.Options) { o.ProcessSlots = 2 }, p)
	id := b.run("wide")
	if x, y := <-inside, <-inside; x == y {
		t.Fatal("one stage twice")
	}
	b.until("three in line", func() bool {
		waiting := 0
		for _, s := range b.store.stages[id] {
			if s.State == events.Pending && s.Waits == "slot" {
				waiting++
			}
		}
		return waiting == 3
	})
	close(gate)
	if row := b.ends(id); row.State != events.Completed {
		t.Fatalf("got %+v", row)
	}
}

func TestCancelEndsTheRun(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	wait := func(ctx context.Context, _ *stage.Attempt) stage.Outcome {
		close(running)
		<-ctx.Done()
		return stage.Outcome{Failure: &events.Failure{Class: events.Aborted, Reason: context.Cause(ctx).Error()}}
	}
	b := start(t, newMemory(), runner{"a": wait}, nil, chain("p", "a", "b"))
	id := b.run("p")
	<-running
	if err := b.engine.Cancel(t.Context(), id, "", "enough"); err != nil {
		t.Fatal(err)
	}
	if row := b.ends(id); row.State != events.Cancelled {
		t.Fatalf("got %+v", row)
	}
	equal(t, b.types(id), []string{"run.created", "run.started", "stage.started a", "run.cancel_requested", "stage.cancelled b", "stage.cancelled a", "run.cancelled"})
	if err := b.engine.Cancel(t.Context(), id, "", "again"); !errors.Is(err, router.ErrEnded) {
		t.Fatalf("cancel of an ended run: %v", err)
	}
	if err := b.engine.Cancel(t.Context(), events.ID{1}, "", ""); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("cancel of no run: %v", err)
	}
}

func TestPoisonIsParkedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	poison := router.Handler{Name: "bad", Topics: []events.Type{events.StageCompleted}, Handle: func(msg *message.Message) ([]*message.Message, error) {
		panic("boom")
	}}
	store := newMemory()
	b := start(t, store, runner{}, func(o *router.Options) { o.Handlers = []router.Handler{poison} }, chain("p", "a", "b"))
	id := b.run("p")
	if row := b.ends(id); row.State != events.Failed || row.Class != events.System {
		t.Fatalf("got %+v", row)
	}
	store.mu.Lock()
	parked := len(store.parked)
	store.mu.Unlock()
	if parked != 1 {
		t.Fatalf("%d events parked", parked)
	}
	b.stop()
	next := start(t, store, runner{}, nil, chain("p", "a", "b"))
	if row := next.ends(next.run("p")); row.State != events.Completed {
		t.Fatalf("after a restart: %+v", row)
	}
}

func TestFailedCommitLosesNothing(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	wait := func(context.Context, *stage.Attempt) stage.Outcome { <-gate; return stage.Outcome{} }
	store := newMemory()
	b := start(t, store, runner{"a": wait}, nil, chain("p", "a", "b"))
	id := b.run("p")
	store.fail(storage.ErrFull)
	if _, err := b.engine.Accept(t.Context(), &trigger.Delivery{Kind: "manual", Pipeline: "p"}); !errors.Is(err, trigger.ErrFull) {
		t.Fatalf("accepted on a full disk: %v", err)
	}
	close(gate) // the result of a arrives while nothing can be stored
	if _, err := b.engine.Accept(t.Context(), &trigger.Delivery{Kind: "manual", Pipeline: "p"}); !errors.Is(err, trigger.ErrFull) {
		t.Fatalf("accepted on a full disk: %v", err)
	}
	store.fail(nil)
	if row := b.ends(id); row.State != events.Completed {
		t.Fatalf("got %+v", row)
	}
	equal(t, b.types(id), []string{"run.created", "run.started", "stage.started a", "stage.completed a", "stage.started b", "stage.completed b", "run.completed"})
}

func TestStopInterruptsAndTheNextEngineGoesOn(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	wait := func(ctx context.Context, a *stage.Attempt) stage.Outcome {
		if a.Number > 1 {
			return stage.Outcome{}
		}
		close(running)
		<-ctx.Done()
		return stage.Outcome{Failure: &events.Failure{Class: events.Aborted, Reason: "interrupted"}}
	}
	store := newMemory()
	b := start(t, store, runner{"a": wait}, nil, chain("p", "a", "b"))
	id := b.run("p")
	<-running
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.engine.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	next := start(t, store, runner{"a": wait}, nil, chain("p", "a", "b"))
	if row := next.ends(id); row.State != events.Completed {
		t.Fatalf("got %+v", row)
	}
	equal(t, next.types(id), []string{"run.created", "run.started", "stage.started a", "stage.retry_scheduled a",
		"stage.started a", "stage.completed a", "stage.started b", "stage.completed b", "run.completed"})
}

// TestUnreadableStoreLosesNothing: a result that comes while the engine cannot fold everything anew is brought again.
func TestUnreadableStoreLosesNothing(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	wait := func(context.Context, *stage.Attempt) stage.Outcome { <-gate; return stage.Outcome{} }
	store := newMemory()
	b := start(t, store, runner{"a": wait}, nil, chain("p", "a"))
	id := b.run("p")
	store.unread(errors.New("the disk does not answer"))
	store.fail(storage.ErrFull)
	if _, err := b.engine.Accept(t.Context(), &trigger.Delivery{Kind: "manual", Pipeline: "p"}); !errors.Is(err, trigger.ErrFull) {
		t.Fatalf("accepted on a full disk: %v", err)
	}
	before := store.refusals()
	close(gate)
	for tick := time.NewTicker(5 * time.Millisecond); store.refusals() < before+3; { // one of them had the result
		<-tick.C
	}
	store.fail(nil)
	store.unread(nil)
	if row := b.ends(id); row.State != events.Completed {
		t.Fatalf("got %+v", row)
	}
	equal(t, b.types(id), []string{"run.created", "run.started", "stage.started a", "stage.completed a", "run.completed"})
}

func TestStopEndsWhileNothingCanBeStored(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	wait := func(context.Context, *stage.Attempt) stage.Outcome { <-gate; return stage.Outcome{} }
	store := newMemory()
	b := start(t, store, runner{"a": wait}, nil, chain("p", "a"))
	id := b.run("p")
	b.until("a runs", func() bool { return len(store.log[id]) == 3 })
	store.fail(storage.ErrFull)
	close(gate)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.engine.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	store.fail(nil)
	next := start(t, store, runner{}, nil, chain("p", "a"))
	if row := next.ends(id); row.State != events.Completed {
		t.Fatalf("got %+v", row)
	}
}
