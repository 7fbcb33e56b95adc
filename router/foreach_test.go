package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
)

// listed is a pipeline over the items of a parameter, with a stage below that takes them all.
func listed(each events.Stage) *events.Plan {
	each.Name, each.Foreach, each.Outputs = "each", "params.list", roles("n")
	return plan("p", each, events.Stage{Name: "all", Needs: []string{"each"}, Reads: []string{"each"}, Outputs: roles("n"),
		Inputs: []events.Input{{Role: "n", From: "stages.each.outputs.n", Expr: true}}})
}

// echo gives the item, or the input, as the output.
func echo(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
	v := c.Value
	if in, has := c.Inputs["n"]; has {
		v = in.Value
	}
	return &executor.Result{Values: map[string]json.RawMessage{"n": v}}, nil
}

func (b *bench) runWith(pipeline, params string) events.ID {
	b.t.Helper()
	r, err := b.engine.Accept(b.t.Context(), &trigger.Delivery{Kind: "manual", Trigger: "manual", Pipeline: pipeline, Params: json.RawMessage(params)})
	if err != nil || r.Fate != "run" {
		b.t.Fatalf("accept: %+v, %v", r, err)
	}
	return r.Run
}

func (b *bench) output(run events.ID, stage string) string {
	b.t.Helper()
	done := b.find(run, events.StageCompleted, stage)
	if len(done) == 0 || len(done[len(done)-1].Data.Outputs) == 0 {
		return "none"
	}
	return string(done[len(done)-1].Data.Outputs[0].Value)
}

func list(n int, item string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(item, i)
	}
	return "[" + strings.Join(items, ",") + "]"
}

// TestItems: outputs stand in the order of the items, however many there are and in whatever order they end.
func TestItems(t *testing.T) {
	t.Parallel()
	for name, items := range map[string]string{"none": "[]", "one": `[7]`, "three": `[1,"b",{"c":3}]`, "long": list(3000, `"%040d"`), "ten thousand": list(10_000, "%d")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]body{"each": echo, "all": echo}, listed(events.Stage{}))
			b := w.start()
			id := b.runWith("p", `{"list":`+items+`}`)
			b.ended(id, events.Completed)
			if got := b.output(id, "all"); got != items {
				t.Errorf("got %.200s, want %.200s", got, items)
			}
			started := b.find(id, events.StageStarted, "each")[0].Data
			if long := len(items) > events.MaxInline; long != !started.Blob.IsZero() || long == (len(started.Items) > 0) {
				t.Errorf("%d bytes of items: %d in the event, artifact %s", len(items), len(started.Items), started.Blob)
			}
		})
	}
}

// TestItemsEndInAnyOrder: the last item ends first.
func TestItemsEndInAnyOrder(t *testing.T) {
	t.Parallel()
	gates := map[int]chan struct{}{1: make(chan struct{}), 2: make(chan struct{}), 3: make(chan struct{})}
	w := newWorld(t, map[string]body{"all": echo, "each": func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		<-gates[c.Item]
		if c.Item > 1 {
			close(gates[c.Item-1])
		}
		return echo(ctx, c)
	}}, listed(events.Stage{}))
	b := w.start()
	id := b.runWith("p", `{"list":["a","b","c"]}`)
	close(gates[3])
	b.ended(id, events.Completed)
	if got := b.output(id, "all"); got != `["a","b","c"]` {
		t.Error(got)
	}
}

func TestItemFails(t *testing.T) {
	t.Parallel()
	odd := func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		if c.Item%2 == 1 {
			return fails(events.ExecFailed, "odd")(ctx, c)
		}
		return echo(ctx, c)
	}
	w := newWorld(t, map[string]body{"each": odd, "all": echo}, listed(events.Stage{}))
	b := w.start()
	id := b.runWith("p", `{"list":[1,2,3]}`)
	b.ended(id, events.Failed)
	if row := b.ends(id); row.Stage != "each" || row.Class != events.ExecFailed || row.Reason != "2 of 3 items failed, item 1: odd" {
		t.Errorf("got %+v", row)
	}
	if got := b.stageRow(id, "each", 2); got != "completed  " {
		t.Errorf("an item beside the failed ones is %s", got)
	}
	w.mu.Lock()
	w.by["each"] = echo
	w.mu.Unlock()
	if err := b.engine.Resume(t.Context(), id, "", ""); err != nil {
		t.Fatal(err)
	}
	b.ended(id, events.Completed)
	if w.begun("each#1") != 2 || w.begun("each#2") != 1 || b.output(id, "all") != "[1,2,3]" {
		t.Errorf("resumed: %v, %s", w.calls, b.output(id, "all"))
	}

	may := newWorld(t, map[string]body{"each": odd, "all": echo}, listed(events.Stage{MayFail: true}))
	b = may.start()
	for items, want := range map[string]string{"[1,2,3]": "[null,2,null]", "[1]": "[null]"} {
		id = b.runWith("p", `{"list":`+items+`}`)
		b.ended(id, events.Completed)
		if got := b.output(id, "all"); got != want {
			t.Errorf("may_fail gives %s, want %s", got, want)
		}
	}
}

// TestItemIsTriedAgain: a retry is that of one item.
func TestItemIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]body{"all": echo}, listed(events.Stage{Retry: &events.Retry{Max: 2}}))
	w.by["each"] = func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		if c.Item == 2 && c.Attempt < 3 {
			return fails(events.ExecFailed, "not yet")(ctx, c)
		}
		return echo(ctx, c)
	}
	b := w.start()
	id := b.runWith("p", `{"list":[1,2,3]}`)
	b.ended(id, events.Completed)
	if w.begun("each#1") != 1 || w.begun("each#2") != 3 || w.begun("each#3") != 1 {
		t.Errorf("attempts %v", w.calls)
	}
}

// TestItemsAreNoList: what is no list fails the stage and names the expression's value.
func TestItemsAreNoList(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, listed(events.Stage{}))
	b := w.start()
	for params, says := range map[string]string{`{"list":3}`: "E_FOREACH: the expression gave a number", `{"list":null}`: "E_FOREACH: the expression gave null",
		`{"list":[{"$file":1}]}`: "E_FOREACH: an item has the key $file", `{"list":` + list(events.MaxItems+1, "%d") + `}`: "E_FOREACH: the list has 100001 items"} {
		id := b.runWith("p", params)
		b.ended(id, events.Failed)
		if row := b.ends(id); row.Class != events.BadInput || !strings.HasPrefix(row.Reason, says) {
			t.Errorf("%.40s: %s: %s", params, row.Class, row.Reason)
		}
	}
}

// TestItemsGoOn: an engine that is stopped in the middle leaves the rest to the next one, item by item.
func TestItemsGoOn(t *testing.T) {
	t.Parallel()
	const n = 40
	var mu sync.Mutex
	done := map[int]int{}
	inside, hold := make(chan string, n), make(chan struct{})
	w := newWorld(t, map[string]body{"all": echo}, listed(events.Stage{}))
	w.change = func(o *router.Options) { o.TaskSlots = 7 }
	w.by["each"] = func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		if c.Item > 10 && c.Attempt == 1 && ctx.Value(nil) == nil {
			inside <- "here"
			select {
			case <-ctx.Done():
				return &executor.Result{}, &events.Failure{Class: events.Aborted, Reason: "interrupted"}
			case <-hold:
			}
		}
		mu.Lock()
		done[c.Item]++
		mu.Unlock()
		return echo(ctx, c)
	}
	b := w.start()
	id := b.runWith("p", `{"list":`+list(n, "%d")+`}`)
	for range 7 {
		<-inside
	}
	b.hurry()
	close(hold)
	b = w.start()
	b.ended(id, events.Completed)
	if got := b.output(id, "all"); got != list(n, "%d") {
		t.Error(got)
	}
	for item, times := range done {
		if times != 1 {
			t.Errorf("item %d was done %d times", item, times)
		}
	}
}

func TestItemsCancelled(t *testing.T) {
	t.Parallel()
	inside := make(chan string, 10)
	w := newWorld(t, map[string]body{"each": waits(inside, nil), "all": echo}, listed(events.Stage{}))
	w.change = func(o *router.Options) { o.TaskSlots = 3 }
	b := w.start()
	id := b.runWith("p", `{"list":`+list(2000, "%d")+`}`)
	for range 3 {
		<-inside
	}
	if err := b.engine.Cancel(t.Context(), id, "", "enough"); err != nil {
		t.Fatal(err)
	}
	b.ended(id, events.Cancelled)
	if n := len(b.find(id, events.StageCancelled, "each")); n != 2001 {
		t.Errorf("%d were cancelled", n)
	}
	other := b.runWith("p", `{"list":[]}`) // the slots are free again
	b.ended(other, events.Completed)
}

// TestItemCondition: a condition over the item is one of each instance; over anything else, of the stage.
func TestItemCondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]body{"each": echo, "all": echo}, listed(events.Stage{When: "item > 1", WhenItem: true}))
	b := w.start()
	id := b.runWith("p", `{"list":[1,2,3]}`)
	b.ended(id, events.Completed)
	if got := b.output(id, "all"); got != "[null,2,3]" || w.begun("each#1") != 0 {
		t.Errorf("got %s", got)
	}
	if id = b.runWith("p", `{"list":[2,"x",3]}`); b.ends(id).Class != events.BadInput {
		t.Errorf("a condition that cannot be evaluated: %+v", b.ends(id))
	}
	if s := b.stageRow(id, "each", 3); s != "completed  " {
		t.Errorf("the item after the broken one is %s", s)
	}
}

// TestItemsOfContinuedRun: a run that is resumed has the items that it had, though the list would be another now.
func TestItemsOfContinuedRun(t *testing.T) {
	t.Parallel()
	p := plan("p", events.Stage{Name: "each", Foreach: "run.duration_ms < 0 ? [] : params.list[:run.duration_ms > 0 ? 1 : 2]", Facts: true, Outputs: roles("n")})
	now := clockAt(1_000_000)
	w := newWorld(t, map[string]body{"each": fails(events.ExecFailed, "no")}, p)
	w.change = func(o *router.Options) { o.Clock = now.time }
	b := w.start()
	id := b.runWith("p", `{"list":[1,2,3]}`)
	b.ended(id, events.Failed)
	now.move(5000)
	w.mu.Lock()
	w.by["each"] = echo
	w.mu.Unlock()
	if err := b.engine.Resume(t.Context(), id, "", ""); err != nil {
		t.Fatal(err)
	}
	b.ended(id, events.Completed)
	if w.begun("each#1") != 2 || w.begun("each#2") != 2 || w.begun("each#3") != 0 {
		t.Errorf("attempts %v", w.calls)
	}
}

// TestFailedCommitOfItems: the expansion is not stored the first time.
func TestFailedCommitOfItems(t *testing.T) {
	t.Parallel()
	inside, gate := make(chan string, 1), make(chan struct{})
	p := listed(events.Stage{Needs: []string{"first"}})
	p.Stages = append([]events.Stage{{Name: "first", Executor: "task"}}, p.Stages...)
	w := newWorld(t, map[string]body{"first": waits(inside, gate), "each": echo, "all": echo}, p)
	b := w.start()
	id := b.runWith("p", `{"list":[1,2,3]}`)
	<-inside
	w.store.fail(errors.New("the disk does not answer"))
	close(gate)
	b.store.untilRefused(t, 3)
	w.store.fail(nil)
	b.ended(id, events.Completed)
	if got := b.output(id, "all"); got != "[1,2,3]" || w.begun("each#2") != 1 {
		t.Errorf("got %s after %v", got, w.calls)
	}
}
