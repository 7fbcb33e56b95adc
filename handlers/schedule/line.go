package schedule

import (
	"slices"

	"github.com/apollo-11/apollo/events"
)

// Line is where ready stages wait for a slot of their kind and for what they ask of the machine: by priority, and first
// come, first served among equals. It belongs to the engine's loop and is not safe for concurrent use. It holds nothing
// that the log does not say: after a failed commit or a restart it is filled again from the folded runs.
type Line struct {
	kinds   [kindCount]slots
	budget  Budget
	waiting int
	all     int // slots of all kinds that have a bound
}

// kind is a kind of executor as far as slots go.
type kind uint8

const (
	processes kind = iota // start processes of their own
	inside                // do their work inside this process
	waiters               // only wait for others, and hold no slot: a run that waits for its child must not keep it from starting
	kindCount
)

func kindOf(executor string) kind {
	switch executor {
	case "task", "http", "approval":
		return inside
	case "pipeline":
		return waiters
	}
	return processes
}

// slots are the places of one kind and who waits for one.
type slots struct {
	free   int
	queues []queue // by priority, highest first; an empty one stays
}

type queue struct {
	priority int
	places   []place
}

// place is where a stage waits.
type place struct {
	run   *events.Run
	stage int // place in Run.Stages
}

// Limits bound what runs at once.
type Limits struct {
	Processes int    // stages that start processes
	Tasks     int    // stages that work inside the engine's process
	Budget    Budget // of the machine, for stages that say what they need
}

// NewLine makes an empty line.
func NewLine(l Limits) *Line {
	line := &Line{budget: l.Budget, all: l.Processes + l.Tasks}
	line.kinds[processes].free, line.kinds[inside].free = l.Processes, l.Tasks
	return line
}

// Waits for a slot or for resources: why a stage is in line.
const (
	waitsSlot      = "slot"
	waitsResources = "resources"
)

// TryClaim takes a slot and the stage's resources, unless one is lacking or somebody waits for it who comes first. waits
// and why say what was lacking.
func (l *Line) TryClaim(s *events.Stage) (ok bool, waits, why string) {
	k := &l.kinds[kindOf(s.Executor)]
	if kindOf(s.Executor) != waiters && (k.free <= 0 || k.len() > 0) {
		return false, waitsSlot, ""
	}
	if s.Resources != nil {
		if ok, lacking := l.budget.Fits(s.Resources); !ok {
			return false, waitsResources, lacking
		}
		if l.waiting > 0 { // whoever waits may wait for the same
			return false, waitsResources, ""
		}
	}
	l.Claim(s)
	return true, "", ""
}

// Claim takes a slot and resources for a body that runs already, also when none is free.
func (l *Line) Claim(s *events.Stage) {
	if k := kindOf(s.Executor); k != waiters {
		l.kinds[k].free--
	}
	l.budget.Take(s.Resources)
}

// Release gives them back.
func (l *Line) Release(s *events.Stage) {
	if k := kindOf(s.Executor); k != waiters {
		l.kinds[k].free++
	}
	l.budget.Give(s.Resources)
}

// Taken is how many stages hold a slot.
func (l *Line) Taken() int { return l.all - l.kinds[processes].free - l.kinds[inside].free }

// Wait puts a stage in line.
func (l *Line) Wait(r *events.Run, stage int) {
	k := &l.kinds[kindOf(r.StageOf(stage).Executor)]
	priority := r.Graph.Plan.Priority
	i, found := slices.BinarySearchFunc(k.queues, priority, func(q queue, p int) int { return p - q.priority })
	if !found {
		k.queues = slices.Insert(k.queues, i, queue{priority: priority})
	}
	k.queues[i].places = append(k.queues[i].places, place{run: r, stage: stage})
	l.waiting++
}

func (s *slots) len() (n int) {
	for i := range s.queues {
		n += len(s.queues[i].places)
	}
	return n
}

// next takes the first who may start and claims for it. Work inside this process goes first: it is short.
func (l *Line) next() (*events.Run, int, bool) {
	shadow := l.budget
	for _, k := range []kind{inside, waiters, processes} {
		if p, ok := l.kinds[k].next(l, k, &shadow); ok {
			return p.run, p.stage, true
		}
	}
	return nil, 0, false
}

// maxPassed is how many that wait for resources are passed over in one search.
const maxPassed = 64

// next finds the first of the kind that may start. Whoever is passed over since something is lacking for it keeps its
// claim on what is free: in the shadow, which those behind it have to fit into, it is served already. So small stages go
// past a big one only where they take nothing that it waits for, and it cannot starve.
func (s *slots) next(l *Line, k kind, shadow *Budget) (place, bool) {
	if k != waiters && s.free <= 0 {
		return place{}, false
	}
	passed := 0
	for q := range s.queues {
		places := s.queues[q].places
		for i := 0; i < len(places) && passed < maxPassed; i++ {
			p := places[i]
			if !p.waits() {
				places = l.drop(&s.queues[q], i)
				i--
				continue
			}
			st := p.run.StageOf(p.stage)
			if fits, _ := shadow.Fits(st.Resources); !fits {
				shadow.Take(st.Resources)
				passed++
				continue
			}
			l.drop(&s.queues[q], i)
			l.Claim(st)
			return p, true
		}
	}
	return place{}, false
}

// drop takes a place out of its queue.
func (l *Line) drop(q *queue, i int) []place {
	l.waiting--
	if i == 0 {
		q.places[0] = place{}
		q.places = q.places[1:]
		return q.places
	}
	q.places = slices.Delete(q.places, i, i+1)
	return q.places
}

// waits reports whether the stage still waits: it may have been cancelled meanwhile.
func (p place) waits() bool {
	s := &p.run.Stages[p.stage]
	return p.run.State == events.Running && !p.run.Cancelling() && s.State == events.Pending && s.Queued
}
