package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/router"
)

func gated() *events.Plan {
	return plan("p",
		events.Stage{Name: "make", Outputs: roles("n"), Gate: []events.Gate{{Check: "outputs.n > 5", Message: "too few"}}},
		events.Stage{Name: "use", Needs: []string{"make"}, Reads: []string{"make"}, Inputs: []events.Input{{Role: "n", From: "stages.make.outputs.n", Expr: true}}})
}

// TestGateOpens: what a gate has rejected is kept; opened, it goes on as it is, and the stage does not run again.
func TestGateOpens(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	w := newWorld(t, map[string]body{"make": gives(map[string]string{"n": "3"}), "use": func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		got.Store(string(c.Inputs["n"].Value))
		return &executor.Result{}, nil
	}}, gated())
	b := w.start()
	id := b.run("p")
	b.ended(id, events.Failed)
	failed := b.find(id, events.StageFailed, "make")[0]
	if failed.Data.Class != events.GateRejected || len(failed.Data.Outputs) != 1 || failed.Data.Reason != "too few" {
		t.Fatalf("rejected with %+v", failed.Data)
	}
	for what, opening := range map[string]router.Opening{"no such stage": {Stage: "none"}, "no gate": {Stage: "use"}, "no item": {Stage: "make", Item: 3}} {
		if err := b.engine.Resume(t.Context(), id, "ada", "", opening); !errors.Is(err, router.ErrNoGate) && !errors.Is(err, router.ErrNoStage) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := b.engine.Resume(t.Context(), id, "ada", "it will do", router.Opening{Stage: "make"}); err != nil {
		t.Fatal(err)
	}
	b.ended(id, events.Completed)
	if w.begun("make") != 1 || got.Load() != "3" {
		t.Errorf("make began %d times, use got %v", w.begun("make"), got.Load())
	}
	opened := b.find(id, events.StageGateOpened, "make")
	if len(opened) != 1 || opened[0].Data.Actor != "ada" || opened[0].Data.Reason != "it will do" {
		t.Errorf("opened with %+v", opened)
	}
	if err := b.engine.Resume(t.Context(), id, "", ""); !errors.Is(err, router.ErrNotFailed) {
		t.Errorf("a completed run was resumed: %v", err)
	}
}

// TestGateHoldsAgain: resumed with the gate closed, the stage runs again.
func TestGateHoldsAgain(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	w := newWorld(t, map[string]body{"make": func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		return gives(map[string]string{"n": map[bool]string{true: "1", false: "9"}[n.Add(1) == 1]})(ctx, c)
	}}, gated())
	b := w.start()
	id := b.run("p")
	b.ended(id, events.Failed)
	b.stop()
	b = w.start() // another engine resumes it
	if err := b.engine.Resume(t.Context(), id, "", ""); err != nil {
		t.Fatal(err)
	}
	b.ended(id, events.Completed)
	if w.begun("make") != 2 {
		t.Errorf("make began %d times", w.begun("make"))
	}
}

// TestGateOfItems: the gates of instances are opened one by one, or all with their stage.
func TestGateOfItems(t *testing.T) {
	t.Parallel()
	p := plan("p", events.Stage{Name: "each", Foreach: "[1, 20, 3]", Outputs: roles("n"), Gate: []events.Gate{{Check: "outputs.n > 5"}}},
		events.Stage{Name: "sum", Needs: []string{"each"}, Reads: []string{"each"}, Outputs: roles("n"), Inputs: []events.Input{{Role: "n", From: "sum(stages.each.outputs.n)", Expr: true}}})
	for what, open := range map[string][]router.Opening{"one by one": {{Stage: "each", Item: 1}, {Stage: "each", Item: 3}}, "all": {{Stage: "each"}}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]body{"each": func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
				return &executor.Result{Values: map[string]json.RawMessage{"n": c.Value}}, nil
			}, "sum": func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
				return &executor.Result{Values: map[string]json.RawMessage{"n": c.Inputs["n"].Value}}, nil
			}}, p)
			b := w.start()
			id := b.run("p")
			b.ended(id, events.Failed)
			if err := b.engine.Resume(t.Context(), id, "ada", "", open...); err != nil {
				t.Fatal(err)
			}
			b.ended(id, events.Completed)
			if got := string(b.find(id, events.StageCompleted, "sum")[0].Data.Outputs[0].Value); got != "24" {
				t.Errorf("the sum is %s", got)
			}
			if w.begun("each#1") != 1 || w.begun("each#2") != 1 || w.begun("each#3") != 1 {
				t.Errorf("an item ran again: %v", w.calls)
			}
		})
	}
}

// chainedPlan is three stages, of which the second has items.
func chainedPlan() *events.Plan {
	return plan("p", events.Stage{Name: "a", Outputs: roles("list")},
		events.Stage{Name: "each", Needs: []string{"a"}, Reads: []string{"a"}, Foreach: "stages.a.outputs.list", Outputs: roles("n")},
		events.Stage{Name: "c", Needs: []string{"each"}, Reads: []string{"each"}, Outputs: roles("n"), Inputs: []events.Input{{Role: "n", From: "stages.each.outputs.n", Expr: true}}},
		events.Stage{Name: "side"})
}

func chainedBodies() map[string]body {
	return map[string]body{"a": gives(map[string]string{"list": `["x","y","z"]`}), "each": func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		return &executor.Result{Values: map[string]json.RawMessage{"n": c.Value}}, nil
	}, "c": func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		return &executor.Result{Values: map[string]json.RawMessage{"n": c.Inputs["n"].Value}}, nil
	}}
}

func (b *bench) outputs(id events.ID) map[string]string {
	got := map[string]string{}
	for _, e := range b.find(id, events.StageCompleted, "") {
		for _, o := range e.Data.Outputs {
			got[(&events.Stage{Name: e.Data.Stage}).Label(e.Data.Item)+"."+o.Role] = string(o.Value) + " " + o.Digest.String()
		}
	}
	return got
}

func TestRerunTakesOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, chainedBodies(), chainedPlan())
	b := w.start()
	first := b.run("p")
	b.ended(first, events.Completed)
	want := b.outputs(first)
	for from, again := range map[string]string{"": "a each#1 each#2 each#3 c side", "c": "c", "each": "each#1 each#2 each#3 c", "a": "a each#1 each#2 each#3 c", "side": "side"} {
		before := map[string]int{}
		for _, label := range []string{"a", "each#1", "each#2", "each#3", "c", "side"} {
			before[label] = w.begun(label)
		}
		receipt, err := b.engine.Rerun(t.Context(), first, router.Again{From: from})
		if err != nil || receipt.Fate != "run" {
			t.Fatalf("from %q: %+v, %v", from, receipt, err)
		}
		b.ended(receipt.Run, events.Completed)
		if diff := cmp.Diff(want, b.outputs(receipt.Run)); diff != "" {
			t.Errorf("from %q: %s", from, diff)
		}
		for label, n := range before {
			if ran := w.begun(label) - n; (ran == 1) != strings.Contains(" "+again+" ", " "+label+" ") || ran > 1 {
				t.Errorf("from %q: %s ran %d times", from, label, ran)
			}
		}
		if created := b.find(receipt.Run, events.RunCreated, "")[0]; created.Data.Forked != first || created.Data.From != from {
			t.Errorf("from %q: created with %+v", from, created.Data)
		}
	}
	if _, err := b.engine.Rerun(t.Context(), first, router.Again{From: "none"}); !errors.Is(err, router.ErrNoStage) {
		t.Errorf("rerun from no stage: %v", err)
	}
}

// TestRerunWhileCancelled: a rerun that is cancelled while its own stage runs keeps what it took over.
func TestRerunCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, chainedBodies(), chainedPlan())
	b := w.start()
	first := b.run("p")
	b.ended(first, events.Completed)
	inside := make(chan string, 1)
	w.mu.Lock()
	w.by["c"] = waits(inside, nil)
	w.mu.Unlock()
	receipt, err := b.engine.Rerun(t.Context(), first, router.Again{From: "c"})
	if err != nil {
		t.Fatal(err)
	}
	<-inside
	b.hurry()
	b = w.start()
	<-inside
	if err := b.engine.Cancel(t.Context(), receipt.Run, "", "enough"); err != nil {
		t.Fatal(err)
	}
	b.ended(receipt.Run, events.Cancelled)
	if got := b.stageRow(receipt.Run, "each", 2); got != "completed  " {
		t.Errorf("each#2 is %q", got)
	}
}
