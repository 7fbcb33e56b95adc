package schedule

import (
	"container/heap"

	"github.com/apollo-11/apollo/events"
)

// Timers are the instants that somebody waits for: retries, delays, time-outs of approvals and deadlines of runs. They
// are kept in the rows of stages and the plans of runs; this heap only finds the next one, and is filled again from
// those after a restart.
type Timers struct{ due dueHeap }

// wholeRun is the stage of a timer that is the run's own: its deadline.
const wholeRun = -1

// timer is one instant, in Unix nanoseconds of the engine's clock.
type timer struct {
	place
	due int64
}

// Add sets a timer for a stage.
func (t *Timers) Add(r *events.Run, stage int, due int64) {
	heap.Push(&t.due, timer{place{r, stage}, due})
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
	*h = old[:len(old)-1]
	return last
}
