package router_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/router"
)

// long is the patience of tests in a bubble of synctest, where hours pass at once.
const long = 1000 * time.Hour

func asking(with string, timeout time.Duration) events.Stage {
	return events.Stage{Name: "ask", Executor: "approval", With: json.RawMessage(with), Timeout: timeout, Outputs: []events.Output{{Role: "approved_by"},
		{Role: "n", Optional: true}}}
}

func TestApproval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, plan("p", asking(`{"message":"?"}`, 0), events.Stage{Name: "after", Needs: []string{"ask"}}))
	b := w.start()
	answer := func(id events.ID, a router.Answer) error {
		a.Stage = "ask"
		return b.engine.Answer(t.Context(), id, a, func(*events.Stage) error {
			if a.Actor == "eve" {
				return executor.ErrApprover
			}
			return nil
		})
	}
	yes := b.run("p")
	b.reaches(yes, events.StageQueued, "ask")
	if got := b.stageRow(yes, "ask", 0); got != "pending  approval" {
		t.Errorf("it is %q", got)
	}
	if err := answer(yes, router.Answer{Approve: true, Actor: "eve"}); !errors.Is(err, executor.ErrApprover) {
		t.Errorf("eve: %v", err)
	}
	if err := b.engine.Answer(t.Context(), yes, router.Answer{Stage: "after", Approve: true}, anybody); !errors.Is(err, router.ErrNotWaiting) {
		t.Errorf("a stage that asks nobody: %v", err)
	}
	if err := answer(yes, router.Answer{Approve: true, Actor: "ada", Reason: "fine", Form: json.RawMessage(`{"n":3}`)}); err != nil {
		t.Fatal(err)
	}
	b.ended(yes, events.Completed)
	if got := b.output(yes, "ask"); got != `"ada"` {
		t.Errorf("approved by %s", got)
	}
	if err := answer(yes, router.Answer{Approve: true, Actor: "ada"}); !errors.Is(err, router.ErrEnded) {
		t.Errorf("of a run that has ended: %v", err)
	}

	no := b.run("p")
	b.reaches(no, events.StageQueued, "ask")
	var answers sync.WaitGroup
	taken := make(chan error, 20)
	for i := range cap(taken) {
		answers.Go(func() {
			taken <- answer(no, router.Answer{Approve: false, Actor: "ada", Reason: "no" + string(rune('a'+i))})
		})
	}
	answers.Wait()
	close(taken)
	ok := 0
	for err := range taken {
		if err == nil {
			ok++
		}
	}
	if b.ended(no, events.Failed); ok != 1 || b.ends(no).Class != events.GateRejected {
		t.Errorf("%d answers were taken; %+v", ok, b.ends(no))
	}
	if err := b.engine.Resume(t.Context(), no, "eve", "", router.Opening{Stage: "ask"}); !errors.Is(err, router.ErrNoGate) {
		t.Errorf("an approval was opened like a gate: %v", err)
	}
	if err := b.engine.Resume(t.Context(), no, "ada", ""); err != nil {
		t.Fatal(err)
	}
	b.until("it asks again", func() bool { return len(w.store.log[no]) > 0 && w.store.stages[no][0].Waits == "approval" })
	if err := answer(no, router.Answer{Approve: true, Actor: "ada"}); err != nil {
		t.Fatal(err)
	}
	b.ended(no, events.Completed)

	off := b.run("p")
	b.reaches(off, events.StageQueued, "ask")
	if err := b.engine.Cancel(t.Context(), off, "", ""); err != nil {
		t.Fatal(err)
	}
	b.ended(off, events.Cancelled)
}

func TestApprovalTimesOut(t *testing.T) {
	t.Parallel()
	for with, want := range map[string]struct {
		state events.State
		class events.Class
	}{`{"message":"?"}`: {events.Failed, events.Timeout}, `{"message":"?","on_timeout":"approve"}`: {events.Completed, ""},
		`{"message":"?","on_timeout":"reject"}`: {events.Failed, events.GateRejected}} {
		t.Run(with, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil, plan("p", asking(with, 3*time.Hour)))
				b := w.start()
				b.patience = long
				began := time.Now()
				id := b.run("p")
				b.reaches(id, events.StageQueued, "ask")
				<-time.After(time.Hour)
				b.stop()
				<-time.After(time.Hour)
				b = w.start() // the instant is a row, and stays what it was
				b.patience = long
				b.ended(id, want.state)
				if row := b.ends(id); row.Class != want.class || time.Since(began) != 3*time.Hour {
					t.Errorf("%s after %s: %s", row.Class, time.Since(began), row.Reason)
				}
			})
		})
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil, plan("p", events.Stage{Name: "a", Delay: time.Hour}, events.Stage{Name: "b", Needs: []string{"a"}, Delay: 2 * time.Hour}))
		b := w.start()
		b.patience = long
		began := time.Now()
		id := b.run("p")
		b.reaches(id, events.StageQueued, "b")
		b.stop()
		b = w.start()
		b.patience = long
		b.ended(id, events.Completed)
		if took := time.Since(began); took != 3*time.Hour {
			t.Errorf("it took %s", took)
		}
	})
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside := make(chan string, 2)
		p := plan("p", events.Stage{Name: "a", Executor: "shell"}, events.Stage{Name: "b", Needs: []string{"a"}})
		p.Deadline = 5 * time.Hour
		w := newWorld(t, map[string]body{"a": waits(inside, nil)}, p)
		b := w.start()
		b.patience = long
		began := time.Now()
		id := b.run("p")
		<-inside
		b.ended(id, events.Cancelled)
		row := b.ends(id)
		if row.Class != events.Timeout || time.Since(began) != 5*time.Hour || row.Reason != "the run went over its deadline of 5h0m0s" {
			t.Errorf("%s after %s: %s", row.Class, time.Since(began), row.Reason)
		}
		if got := b.stageRow(id, "a", 0); got != "cancelled cancelled " {
			t.Errorf("a is %q", got)
		}
	})
}

// TestDeadlineOfResumed: it counts from the resume, and the instant of the run's first life means nothing.
func TestDeadlineOfResumed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside := make(chan string, 2)
		p := plan("p", events.Stage{Name: "a"})
		p.Deadline = 5 * time.Hour
		w := newWorld(t, map[string]body{"a": fails(events.ExecFailed, "no")}, p)
		b := w.start()
		b.patience = long
		id := b.run("p")
		b.ended(id, events.Failed)
		<-time.After(4 * time.Hour)
		w.mu.Lock()
		w.by["a"] = waits(inside, nil)
		w.mu.Unlock()
		if err := b.engine.Resume(t.Context(), id, "", ""); err != nil {
			t.Fatal(err)
		}
		<-inside
		resumed := time.Now()
		b.hurry()
		<-time.After(2 * time.Hour)
		b = w.start()
		b.patience = long
		<-inside
		b.ended(id, events.Cancelled)
		if took := time.Since(resumed); took != 5*time.Hour {
			t.Errorf("cancelled %s after the resume", took)
		}
	})
}

// TestDeadlineWhileWaiting: a run that never began ends at its deadline too.
func TestDeadlineWhileWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inside, gate := make(chan string, 2), make(chan struct{})
		p := plan("p", events.Stage{Name: "a"})
		p.Deadline, p.Concurrency = time.Hour, &events.Concurrency{Group: "g", Max: 1}
		holder := plan("holder", events.Stage{Name: "hold"})
		holder.Concurrency = p.Concurrency
		w := newWorld(t, map[string]body{"hold": waits(inside, gate)}, p, holder)
		b := w.start()
		b.patience = long
		held := b.run("holder")
		<-inside
		id := b.run("p")
		b.ended(id, events.Cancelled)
		if w.begun("a") != 0 || b.ends(id).Class != events.Timeout {
			t.Errorf("a began %d times: %+v", w.begun("a"), b.ends(id))
		}
		close(gate)
		b.ended(held, events.Completed)
	})
}

// TestRetriesCountAnew: a continued run has its whole chain of retries again.
func TestRetriesCountAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, map[string]body{"a": fails(events.ExecFailed, "no")}, plan("p", events.Stage{Name: "done"},
			events.Stage{Name: "a", Needs: []string{"done"}, Retry: &events.Retry{Max: 2, Interval: time.Minute, Backoff: 2}}))
		b := w.start()
		b.patience = long
		began := time.Now()
		id := b.run("p")
		b.ended(id, events.Failed)
		if w.begun("a") != 3 || time.Since(began) != 3*time.Minute {
			t.Errorf("%d attempts in %s", w.begun("a"), time.Since(began))
		}
		began = time.Now()
		if err := b.engine.Resume(t.Context(), id, "", ""); err != nil {
			t.Fatal(err)
		}
		b.ended(id, events.Failed)
		if w.begun("a") != 6 || w.begun("done") != 1 || time.Since(began) != 3*time.Minute {
			t.Errorf("%d attempts after %s, the stage before began %d times", w.begun("a"), time.Since(began), w.begun("done"))
		}
	})
}

// shifted is the system's clock with a wrong time, as a step of the clock leaves it: without a monotonic reading.
type shifted struct {
	mu sync.Mutex
	by time.Duration
}

func (s *shifted) time() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.by).Round(0)
}

func (s *shifted) shift(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by += by
}

// TestClockIsSet: nothing that waits stalls when the clock is set back, in an engine or between two; set forward, what
// is due comes once.
func TestClockIsSet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by      time.Duration
		restart bool
		atMost  time.Duration
	}{
		"back": {-time.Hour, false, 3 * time.Hour}, "back and restart": {-time.Hour, true, 3 * time.Hour},
		"back a year": {-365 * 24 * time.Hour, true, 3 * time.Hour}, "forward": {24 * time.Hour, false, time.Minute}, "forward and restart": {24 * time.Hour, true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				clock := &shifted{}
				w := newWorld(t, nil, plan("p", events.Stage{Name: "a", Delay: time.Hour}), plan("now", events.Stage{Name: "b"}))
				w.by = map[string]body{}
				w.change = func(o *router.Options) { o.Clock = clock.time }
				w.by["c"] = func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
					return &executor.Result{}, nil
				}
				b := w.start()
				b.patience = long
				id := b.run("p")
				b.reaches(id, events.StageQueued, "a")
				clock.shift(c.by)
				if c.restart {
					b.stop()
					b = w.start()
					b.patience = long
				}
				began := time.Now()
				b.ended(b.run("now"), events.Completed)
				b.ended(id, events.Completed)
				if took := time.Since(began); took > c.atMost {
					t.Errorf("it took %s", took)
				}
				if w.begun("a") != 1 {
					t.Errorf("a began %d times", w.begun("a"))
				}
				log, last := b.store.log[id], int64(0)
				for i := range log {
					if log[i].Time < last {
						t.Errorf("event %d is before the one before it", i+1)
					}
					last = log[i].Time
				}
			})
		})
	}
}
