package schedule

import (
	"container/heap"
	"slices"

	"github.com/apollo-11/apollo/events"
)

// Timers are the instants that somebody waits for: retries, delays, time-outs of approvals and deadlines of runs. They
// are kept in the rows of stages and the plans of runs; this heap only finds the next one, and is filled again from
// those after a restart.
type Timers struct {
	due   dueHeap
	swept int // how many there were when those that nobody waits for any more were last thrown away
}

// wholeRun is the stage of a timer that is the run's own: its deadline.
const wholeRun = -1

// timer is one instant, in Unix nanoseconds of the engine's clock.
type timer struct {
	place
	due int64
}

// Add sets a timer for a stage.
func (t *Timers) Add(r *events.Run, stage int, due int64) {
	if len(t.due) >= 2*t.swept+minSwept {
		t.sweep()
	}
	heap.Push(&t.due, timer{place{run: r, stage: stage}, due})
}

// minSwept is how many timers are not worth looking through.
const minSwept = 64

// sweep throws away what nobody waits for any more: a deadline of a day would else keep every run of that day in memory.
func (t *Timers) sweep() {
	t.due = slices.DeleteFunc(t.due, func(one timer) bool { return !one.waited() })
	heap.Init(&t.due)
	t.swept = len(t.due)
}

// waited reports whether anybody still waits for the instant.
func (t timer) waited() bool {
	if t.stage == wholeRun {
		r := t.run
		return !r.State.Terminal() && !r.Cancelling() && r.Since+int64(r.Graph.Plan.Deadline) == t.due
	}
	return !t.run.State.Terminal() && t.run.Stages[t.stage].State == events.Pending && t.run.Stages[t.stage].Due == t.due
}

// AddDeadline sets the timer of a run whose plan has a deadline.
func (t *Timers) AddDeadline(r *events.Run) {
	if d := r.Graph.Plan.Deadline; d > 0 {
		t.Add(r, wholeRun, r.Since+int64(d))
	}
}

// Next gives the earliest instant anybody waits for, or 0.
func (t *Timers) Next() int64 {
	if len(t.due) == 0 {
		return 0
	}
	return t.due[0].due
}

// pop takes the first whose instant has come.
func (t *Timers) pop(now int64) (timer, bool) {
	if len(t.due) == 0 || t.due[0].due > now {
		return timer{}, false
	}
	first, ok := heap.Pop(&t.due).(timer)
	return first, ok
}

// dueHeap orders timers by their instant, then by run and stage so that equal instants keep one order.
type dueHeap []timer

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if h[i].due != h[j].due {
		return h[i].due < h[j].due
	}
	if h[i].run.ID != h[j].run.ID {
		return string(h[i].run.ID[:]) < string(h[j].run.ID[:])
	}
	return h[i].stage < h[j].stage
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any) {
	if t, ok := x.(timer); ok {
		*h = append(*h, t)
	}
}
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = timer{} // the run may go
	*h = old[:len(old)-1]
	return last
}
