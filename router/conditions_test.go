package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/schedule"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
)

// TestCase_R9: the diamond, with the recipes of docs/joins.md as conditions that are really evaluated.
func TestCase_R9(t *testing.T) {
	t.Parallel()
	rules := map[string]events.Stage{
		"all success": {},
		"none failed": {Always: true, When: `run.state != "failed"`, Facts: true},
		"all done":    {Always: true},
		"one failed":  {Always: true, When: `run.state == "failed"`, Facts: true},
		"C failed":    {Always: true, When: `stages.C.state == "failed"`, Reads: []string{"C"}},
	}
	yes, no := body(nil), fails(events.ExecFailed, "no")
	for name, c := range map[string]struct {
		skipB  bool
		b, c   body
		aboveC body // nil: there is none
		run    string
	}{
		"B skipped, C ok":                    {skipB: true, b: yes, c: yes, run: "none failed, all done"},
		"B skipped, C failed":                {skipB: true, b: yes, c: no, run: "all done, one failed, C failed"},
		"B ok, C skipped by its own parent":  {b: yes, c: yes, aboveC: no, run: "all done, one failed"},
		"B ok, C ok":                         {b: yes, c: yes, run: "all success, none failed, all done"},
		"B failed, C failed":                 {b: no, c: no, run: "all done, one failed, C failed"},
		"B skipped, C skipped by its parent": {skipB: true, b: yes, c: yes, aboveC: no, run: "all done, one failed"},
	} {
		for rule, d := range rules {
			t.Run(name+"/"+rule, func(t *testing.T) {
				t.Parallel()
				d.Name, d.Needs = "D", []string{"B", "C"}
				b, c2 := events.Stage{Name: "B", Needs: []string{"A"}}, events.Stage{Name: "C", Needs: []string{"A"}}
				if c.skipB {
					b.When = "params.yes == true"
				}
				stages := []events.Stage{{Name: "A"}}
				if c.aboveC != nil {
					stages, c2.Needs = append(stages, events.Stage{Name: "X"}), []string{"A", "X"}
				}
				w := newWorld(t, map[string]body{"B": c.b, "C": c.c, "X": c.aboveC}, plan("p", append(stages, b, c2, d)...))
				e := w.start()
				id := e.runWith("p", `{"yes":false}`)
				e.ends(id)
				if ran, want := w.begun("D") == 1, slices.Contains(strings.Split(c.run, ", "), rule); ran != want {
					t.Errorf("D ran: %v, want %v\n%s", ran, want, lines(e.types(id)))
				}
				for _, name := range []string{"A", "B", "C", "D"} {
					if row := e.stageRow(id, name, 0); strings.HasPrefix(row, "pending") || strings.HasPrefix(row, "running") || row == "no row" {
						t.Errorf("%s is left %s", name, row)
					}
				}
			})
		}
	}
}

func TestWhen(t *testing.T) {
	t.Parallel()
	p := plan("p", events.Stage{Name: "a", Outputs: roles("n")},
		events.Stage{Name: "b", Needs: []string{"a"}, Reads: []string{"a"}, When: "stages.a.outputs.n > params.least"}, events.Stage{Name: "c", Needs: []string{"b"}})
	w := newWorld(t, map[string]body{"a": gives(map[string]string{"n": "5"})}, p)
	b := w.start()
	yes := b.runWith("p", `{"least":4}`)
	b.ended(yes, events.Completed)
	if check := b.find(yes, events.StageStarted, "b")[0].Data.Checks[0]; !check.Holds || string(check.Inputs) != `{"params.least":4,"stages.a.outputs.n":5}` {
		t.Errorf("recorded %+v %s", check, check.Inputs)
	}
	no := b.runWith("p", `{"least":5}`)
	b.ended(no, events.Completed)
	if b.stageRow(no, "b", 0) != "skipped  " || b.stageRow(no, "c", 0) != "skipped  " {
		t.Errorf("b is %q, c is %q", b.stageRow(no, "b", 0), b.stageRow(no, "c", 0))
	}
	for params, says := range map[string]string{`{"least":"x"}`: "", `{}`: ""} {
		broken := b.runWith("p", params)
		b.ended(broken, events.Failed)
		if row := b.ends(broken); row.Class != events.BadInput || row.Stage != "b" || !strings.Contains(row.Reason, says) || row.Reason == "" {
			t.Errorf("%s: %+v", params, row)
		}
	}
}

// TestWhenBrokenSurvives: that a condition is broken is remembered while the stage waits for a slot, and by the next
// engine.
func TestWhenBrokenSurvives(t *testing.T) {
	t.Parallel()
	inside, gate := make(chan string, 2), make(chan struct{})
	w := newWorld(t, map[string]body{"hold": waits(inside, gate)}, plan("holder", events.Stage{Name: "hold", Executor: "shell"}),
		plan("p", events.Stage{Name: "a", Executor: "shell", When: "params.n > 1"}))
	w.change = func(o *router.Options) { o.ProcessSlots = 1 }
	b := w.start()
	held := b.run("holder")
	<-inside
	id := b.runWith("p", `{"n":"x"}`)
	b.reaches(id, events.StageQueued, "a")
	b.hurry()
	b = w.start()
	<-inside
	close(gate)
	b.ended(held, events.Completed)
	b.ended(id, events.Failed)
	if row := b.ends(id); row.Class != events.BadInput || w.begun("a") != 0 {
		t.Errorf("a began %d times: %+v", w.begun("a"), row)
	}
}

// TestPrefers: a stage goes once the one that it prefers is in line, and a failure of that is no obstacle.
func TestPrefers(t *testing.T) {
	t.Parallel()
	inside, gate := make(chan string, 4), make(chan struct{})
	w := newWorld(t, map[string]body{"slow": waits(inside, gate), "first": waits(inside, gate), "then": waits(inside, gate)},
		plan("p", events.Stage{Name: "slow"}, events.Stage{Name: "first", Needs: []string{"slow"}}, events.Stage{Name: "then", Prefers: []string{"first"}}))
	b := w.start()
	id := b.run("p")
	if got := <-inside; got != "slow" {
		t.Fatalf("%s began first", got)
	}
	if w.begun("then") != 0 {
		t.Error("it did not wait for what it prefers")
	}
	close(gate)
	b.ended(id, events.Completed)
	types := b.types(id)
	if slices.Index(types, "stage.started first") > slices.Index(types, "stage.started then") {
		t.Errorf("order %q", types)
	}

	f := newWorld(t, map[string]body{"first": fails(events.ExecFailed, "no")}, plan("p", events.Stage{Name: "gone", When: "false"},
		events.Stage{Name: "first", MayFail: true}, events.Stage{Name: "then", Prefers: []string{"first", "gone"}}))
	b = f.start()
	b.ended(b.run("p"), events.Completed)
	if f.begun("then") != 1 {
		t.Error("the failure of what it prefers was an obstacle")
	}
}

// TestQueueOfRuns: runs of a full group wait, and the next engine lets them go in their order.
func TestQueueOfRuns(t *testing.T) {
	t.Parallel()
	inside, gate := make(chan string, 4), make(chan struct{})
	p := plan("p", events.Stage{Name: "a"})
	p.Concurrency = &events.Concurrency{Group: "${{ params.g }}", Max: 1}
	urgent := plan("urgent", events.Stage{Name: "a"})
	urgent.Priority, urgent.Concurrency = 9, &events.Concurrency{Group: "x", Max: 1}
	w := newWorld(t, map[string]body{"a": waits(inside, gate)}, p, urgent)
	b := w.start()
	first := b.runWith("p", `{"g":"x"}`)
	<-inside
	second, third, other, fast, off := b.runWith("p", `{"g":"x"}`), b.runWith("p", `{"g":"x"}`), b.runWith("p", `{"g":"y"}`), b.run("urgent"), b.runWith("p", `{"g":"x"}`)
	<-inside // that of the other group
	b.store.mu.Lock()
	if got := b.store.runs[second]; got.State != events.Pending || got.Waits != "concurrency" {
		t.Errorf("the second is %s and waits for %q", got.State, got.Waits)
	}
	if queued := b.store.log[second][1]; queued.Data.Reason != "1 of at most 1 runs of the group x go on" {
		t.Errorf("says %q", queued.Data.Reason)
	}
	b.store.mu.Unlock()
	if err := b.engine.Cancel(t.Context(), off, "", ""); err != nil {
		t.Fatal(err)
	}
	b.ended(off, events.Cancelled)
	b.hurry()
	b = w.start()
	<-inside
	<-inside
	close(gate)
	for _, id := range []events.ID{first, second, third, other, fast} {
		b.ended(id, events.Completed)
	}
	starts := func(id events.ID) int64 { return b.find(id, events.RunStarted, "")[0].Time }
	if !(starts(fast) <= starts(second) && starts(second) <= starts(third)) {
		t.Error("they did not go by priority and age")
	}
	if r, err := b.engine.Accept(t.Context(), &trigger.Delivery{Kind: "manual", Pipeline: "p", Params: json.RawMessage(`{"g":""}`)}); err != nil || r.Fate != "rejected" || r.Code != "E_EXPR" {
		t.Errorf("a group without a name: %+v, %v", r, err)
	}
}

func TestOverflow(t *testing.T) {
	t.Parallel()
	for overflow, test := range map[string]func(t *testing.T, b *bench, first events.ID, inside <-chan string){
		"skip": func(t *testing.T, b *bench, first events.ID, _ <-chan string) {
			t.Helper()
			r, err := b.engine.Accept(t.Context(), &trigger.Delivery{Kind: "manual", Pipeline: "skip"})
			if err != nil || r.Fate != "ignored" || r.Code != "E_CONCURRENCY" || !r.Run.IsZero() {
				t.Errorf("%+v, %v", r, err)
			}
			if err := b.engine.Cancel(t.Context(), first, "", ""); err != nil {
				t.Fatal(err)
			}
			b.ended(first, events.Cancelled)
		},
		"cancel_oldest": func(t *testing.T, b *bench, first events.ID, inside <-chan string) {
			t.Helper()
			second, third := b.run("cancel_oldest"), b.run("cancel_oldest")
			b.ended(first, events.Cancelled)
			b.ended(second, events.Cancelled)
			<-inside
			if err := b.engine.Cancel(t.Context(), third, "", ""); err != nil {
				t.Fatal(err)
			}
			b.ended(third, events.Cancelled)
		},
	} {
		t.Run(overflow, func(t *testing.T) {
			t.Parallel()
			inside := make(chan string, 4)
			p := plan(overflow, events.Stage{Name: "a"})
			p.Concurrency = &events.Concurrency{Group: "g", Max: 1, Overflow: overflow}
			b := newWorld(t, map[string]body{"a": waits(inside, nil)}, p).start()
			first := b.run(overflow)
			<-inside
			test(t, b, first, inside)
		})
	}
}

// TestRerunOfGroupedRun: the group's expression reads what the first run came from.
func TestRerunOfGroupedRun(t *testing.T) {
	t.Parallel()
	p := plan("p", events.Stage{Name: "a"})
	p.Concurrency = &events.Concurrency{Group: "${{ trigger.payload.who }}", Max: 1}
	b := newWorld(t, nil, p).start()
	r, err := b.engine.Accept(t.Context(), &trigger.Delivery{Kind: "webhook", Trigger: "webhook:/hooks/x", Pipeline: "p", Key: "1", Body: []byte(`{"who":"ada"}`)})
	if err != nil || r.Fate != "run" {
		t.Fatalf("%+v, %v", r, err)
	}
	b.ended(r.Run, events.Completed)
	again, err := b.engine.Rerun(t.Context(), r.Run, router.Again{From: ""})
	if err != nil || again.Fate != "run" {
		t.Fatalf("%+v, %v", again, err)
	}
	b.ended(again.Run, events.Completed)
	if got := b.find(again.Run, events.RunCreated, "")[0].Data.Group; got != "ada" {
		t.Errorf("the group is %q", got)
	}
}

// TestResources: what does not fit waits and says for what; what can never fit fails with both numbers.
func TestResources(t *testing.T) {
	t.Parallel()
	const gi = 1 << 30
	inside, gate := make(chan string, 4), make(chan struct{})
	w := newWorld(t, map[string]body{"a": waits(inside, gate)}, plan("p", events.Stage{Name: "a", Executor: "shell", Resources: &events.Resources{Memory: 3 * gi}}),
		plan("huge", events.Stage{Name: "b", Resources: &events.Resources{Memory: 9 * gi}}))
	budget := schedule.Budget{Memory: 9 * gi}
	w.change = func(o *router.Options) { o.Budget = budget }
	b := w.start()
	a1, a2 := b.run("p"), b.run("p")
	<-inside
	<-inside
	huge := b.run("huge")
	b.reaches(huge, events.StageQueued, "b")
	queued := b.find(huge, events.StageQueued, "b")[0].Data
	if queued.Waits != "resources" || queued.Reason != "asks for 9Gi of memory, and 3Gi of 9Gi is free" {
		t.Errorf("waits for %s: %s", queued.Waits, queued.Reason)
	}
	b.hurry()
	budget.Memory = 8 * gi // the next machine is smaller
	b = w.start()
	b.ended(huge, events.Failed)
	if row := b.ends(huge); row.Class != events.BadInput || row.Reason != "E_RESOURCE: b asks for 9Gi of memory, and stages may use 8Gi" || w.begun("b") != 0 {
		t.Errorf("%s: %s", row.Class, row.Reason)
	}
	close(gate)
	b.ended(a1, events.Completed)
	b.ended(a2, events.Completed)
}

// TestResumeOnce: a run is resumed once at a time, and a wish that was not stored is not acknowledged.
func TestResumeOnce(t *testing.T) {
	t.Parallel()
	inside := make(chan string, 2)
	var b *bench
	w := newWorld(t, map[string]body{"a": fails(events.ExecFailed, "no"), "ok": func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
		return &executor.Result{}, nil
	}}, plan("p", events.Stage{Name: "ok"}, events.Stage{Name: "a", Needs: []string{"ok"}}, events.Stage{Name: "below", Needs: []string{"a"}}))
	b = w.start()
	id := b.run("p")
	b.ended(id, events.Failed)
	w.mu.Lock()
	w.by["a"] = waits(inside, nil)
	w.mu.Unlock()
	if err := b.engine.Resume(t.Context(), id, "", ""); err != nil {
		t.Fatal(err)
	}
	<-inside
	if err := b.engine.Resume(t.Context(), id, "", ""); !errors.Is(err, router.ErrNotFailed) {
		t.Errorf("resumed twice: %v", err)
	}
	if _, err := b.engine.Rerun(t.Context(), id, router.Again{From: ""}); !errors.Is(err, router.ErrNotEnded) {
		t.Errorf("rerun of a run that goes on: %v", err)
	}
	w.store.fail(errors.New("the disk does not answer"))
	if err := b.engine.Cancel(t.Context(), id, "", ""); err == nil {
		t.Error("a cancel that was not stored was acknowledged")
	}
	b.hurry()
	w.store.fail(nil)
	w.mu.Lock()
	w.by["a"] = nil
	w.mu.Unlock()
	b = w.start()
	b.ended(id, events.Completed)
	if w.begun("ok") != 1 {
		t.Errorf("ok began %d times", w.begun("ok"))
	}
}

// panicking are conditions that panic.
type panicking struct{ stage.Conditions }

func (panicking) When(context.Context, *stage.Attempt) events.Check { panic("boom") }

// TestPoisonGivesSlotsBack: what a handler had claimed when it failed is free again.
func TestPoisonGivesSlotsBack(t *testing.T) {
	t.Parallel()
	p := plan("p", events.Stage{Name: "a", Executor: "shell"}, events.Stage{Name: "b", When: "true"})
	p.Concurrency = &events.Concurrency{Group: "g", Max: 1}
	next := plan("next", events.Stage{Name: "a", Executor: "shell"})
	next.Concurrency = p.Concurrency
	w := newWorld(t, nil, p, next)
	w.change = func(o *router.Options) { o.ProcessSlots, o.Conditions = 1, panicking{} }
	b := w.start()
	id := b.run("p")
	b.ended(id, events.Failed)
	if row := b.ends(id); row.Class != events.System {
		t.Errorf("%+v", row)
	}
	b.ended(b.run("next"), events.Completed)
}
