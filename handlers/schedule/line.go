package schedule

import (
	"container/heap"

	"github.com/apollo-11/apollo/events"
)

// Line is where ready stages wait: first come, first served for the slots of their kind, and until an instant for
// retries. It belongs to the engine's loop and is not safe for concurrent use. It holds nothing that the log does not
// say: after a failed commit or a restart it is filled again from the folded runs.
type Line struct {
	tasks, processes slots
	due              dueHeap
	all              int // slots of both kinds
}

// slots are the places of one kind of executor and who waits for one.
type slots struct {
	free    int
	waiting []place
}

type place struct {
	run   *events.Run
	stage int
	due   int64
}

// NewLine gives tasks (Go functions in this process) their own slots; everything else, which starts processes, shares
// the others.
func NewLine(processes, tasks int) *Line {
	return &Line{tasks: slots{free: tasks}, processes: slots{free: processes}, all: tasks + processes}
}

func (l *Line) of(executor string) *slots {
	if executor == "task" {
		return &l.tasks
	}
	return &l.processes
}

// TryClaim takes a slot unless none is free or somebody waits for one.
func (l *Line) TryClaim(executor string) bool {
	s := l.of(executor)
	if s.free == 0 || len(s.waiting) > 0 {
		return false
	}
	s.free--
	return true
}

// Claim takes a slot for a body that runs already, also when none is free.
func (l *Line) Claim(executor string) { l.of(executor).free-- }

// Taken is how many stages hold a slot.
func (l *Line) Taken() int { return l.all - l.tasks.free - l.processes.free }

// Release gives a slot back.
func (l *Line) Release(executor string) { l.of(executor).free++ }

// Wait puts a stage in line; due is the instant (Unix nanoseconds) before which it does not start, 0 for at once.
func (l *Line) Wait(r *events.Run, stage int, due int64) {
	if due > 0 {
		heap.Push(&l.due, place{r, stage, due})
		return
	}
	s := l.of(r.Graph.Plan.Stages[stage].Executor)
	s.waiting = append(s.waiting, place{run: r, stage: stage})
}

// NextDue gives the earliest instant anybody waits for, or 0.
func (l *Line) NextDue() int64 {
	if len(l.due) == 0 {
		return 0
	}
	return l.due[0].due
}

// next takes the first who may start and claims its slot.
func (l *Line) next(now int64) (*events.Run, int, bool) {
	for len(l.due) > 0 && l.due[0].due <= now {
		p, _ := heap.Pop(&l.due).(place)
		l.Wait(p.run, p.stage, 0)
	}
	if r, stage, ok := l.tasks.next(); ok {
		return r, stage, ok
	}
	return l.processes.next()
}

func (s *slots) next() (*events.Run, int, bool) {
	for s.free > 0 && len(s.waiting) > 0 {
		p := s.waiting[0]
		s.waiting = s.waiting[1:]
		st := &p.run.Stages[p.stage]
		if p.run.State != events.Running || p.run.Cancelling() || st.State != events.Pending || !st.Queued {
			continue // ended while it waited
		}
		s.free--
		return p.run, p.stage, true
	}
	return nil, 0, false
}

// dueHeap orders places by their instant, then by run and stage so that equal instants keep one order.
type dueHeap []place

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
	if p, ok := x.(place); ok {
		*h = append(*h, p)
	}
}
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
