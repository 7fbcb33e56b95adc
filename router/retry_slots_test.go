package router_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/router"
)

// TestCase_R3: nine stages that fail and retry after a minute, three slots. A stage that waits for its retry holds no
// slot: all nine have had their first attempt before any second one, and no time has to pass for that.
func TestCase_R3(t *testing.T) {
	t.Parallel()
	const stages, slots, interval = 9, 3, time.Minute
	var mu sync.Mutex
	now := time.Now()
	running, most := 0, 0
	attempts := map[string]int{}
	inside := make(chan string, 100)
	gate := make(chan struct{})
	fail := func(_ context.Context, a *stage.Attempt) stage.Outcome {
		mu.Lock()
		running++
		most = max(most, running)
		attempts[a.Stage.Name]++
		mu.Unlock()
		inside <- a.Stage.Name
		<-gate
		mu.Lock()
		running--
		mu.Unlock()
		return stage.Outcome{Failure: &events.Failure{Class: events.ExecFailed, Reason: "not now", Exit: 75}}
	}
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: "nine"}
	r := runner{}
	for i := range stages {
		name := fmt.Sprintf("s%d", i)
		p.Stages = append(p.Stages, events.Stage{Name: name, Executor: "shell", Retry: &events.Retry{Max: 5, Interval: interval, Backoff: 1, MaxInterval: interval}})
		r[name] = fail
	}
	store := newMemory()
	b := start(t, store, r, func(o *router.Options) {
		o.ProcessSlots = slots
		o.Clock = func() time.Time { return now } // it stands still
	}, p)
	id := b.run("nine")
	next := func() string {
		select {
		case name := <-inside:
			return name
		case <-time.After(30 * time.Second):
			t.Fatal("no stage starts while others wait for their retry")
			return ""
		}
	}
	seen := map[string]bool{}
	for range stages / slots {
		for range slots {
			seen[next()] = true
		}
		for range slots {
			gate <- struct{}{}
		}
	}
	waiting := func() (n int) {
		for _, s := range store.stages[id] {
			if s.State == events.Pending && s.Attempt == 1 && s.Due == now.Add(interval).UnixNano() {
				n++
			}
		}
		return n
	}
	b.until("all nine wait for their retry", func() bool { return waiting() == stages })
	mu.Lock()
	if len(seen) != stages || most != slots || len(attempts) != stages {
		t.Errorf("%d stages had an attempt, at most %d at once: %v", len(seen), most, attempts)
	}
	for name, n := range attempts {
		if n != 1 {
			t.Errorf("%s had %d attempts in no time", name, n)
		}
	}
	mu.Unlock()
	if err := b.engine.Cancel(t.Context(), id, "", "seen enough"); err != nil {
		t.Fatal(err)
	}
	if row := b.ends(id); row.State != events.Cancelled {
		t.Errorf("got %+v", row)
	}
}
