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
	came    uint64 // who came to the line so far
	all     int    // slots of all kinds that have a bound
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
	places   []place // in the order of their numbers
}

// place is where a stage waits.
type place struct {
	run    *events.Run
	stage  int    // place in Run.Stages
	number uint64 // of who came to the line, from 1; of all kinds
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
// and why say what was lacking. What the machine does not have is not waited for: its stage starts, and fails.
func (l *Line) TryClaim(s *events.Stage) (ok bool, waits, why string) {
	k := kindOf(s.Executor)
	if slots := &l.kinds[k]; k != waiters && (slots.free <= 0 || slots.len() > 0) {
		return false, waitsSlot, ""
	}
	if asked := l.asked(s); asked != nil {
		if ok, lacking := l.budget.Fits(asked); !ok {
			return false, waitsResources, lacking
		}
		if l.waiting > 0 { // whoever waits may wait for the same
			return false, waitsResources, ""
		}
	}
	l.Claim(s)
	return true, "", ""
}

// asked gives the resources that a stage takes: none for one that only waits, whose run would else keep its child from
// what it waits for; none for one that asks for more than there is, and fails.
func (l *Line) asked(s *events.Stage) *events.Resources {
	if s.Resources == nil || kindOf(s.Executor) == waiters {
		return nil
	}
	if ok, _ := l.budget.Holds(s.Resources); !ok {
		return nil
	}
	return s.Resources
}

// Never says why a stage can never have what it asks for: the machine is another than when its run began. Empty when it
// can.
func (l *Line) Never(s *events.Stage) string {
	if s.Resources == nil || kindOf(s.Executor) == waiters {
		return ""
	}
	if ok, lacking := l.budget.Holds(s.Resources); !ok {
		return "E_RESOURCE: " + s.Name + " " + lacking
	}
	return ""
}

// Claim takes a slot and resources for a body that runs already, also when none is free.
func (l *Line) Claim(s *events.Stage) {
	if k := kindOf(s.Executor); k != waiters {
		l.kinds[k].free--
	}
	l.budget.Take(l.asked(s))
}

// Release gives them back.
func (l *Line) Release(s *events.Stage) {
	if k := kindOf(s.Executor); k != waiters {
		l.kinds[k].free++
	}
	l.budget.Give(l.asked(s))
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
	l.came++
	k.queues[i].places = append(k.queues[i].places, place{run: r, stage: stage, number: l.came})
	l.waiting++
}

func (s *slots) len() (n int) {
	for i := range s.queues {
		n += len(s.queues[i].places)
	}
	return n
}

// maxPassed is how many that wait for resources are passed over in one search.
const maxPassed = 64

// next takes the first who may start and claims for it. Whoever is passed over since something is lacking for it keeps
// its claim on what is free: in the shadow, which those behind it have to fit into, it is served already. So small stages
// go past a big one only where they take nothing that it waits for, and it cannot starve, be they of its kind or not. Of
// a kind without a free slot the first keeps its claim too: it would else find nothing left each time that it has a slot.
func (l *Line) next() (*events.Run, int, bool) {
	if l.waiting == 0 {
		return nil, 0, false
	}
	shadow := l.budget
	var at [kindCount]cursor
	for range maxPassed {
		k, ok := l.first(&at)
		if !ok {
			break
		}
		slots, c := &l.kinds[k], &at[k]
		q := &slots.queues[c.queue]
		p := q.places[c.place]
		asked := l.asked(p.run.StageOf(p.stage))
		full := k != waiters && slots.free <= 0
		if fits, _ := shadow.Fits(asked); fits && !full {
			l.drop(q, c.place)
			l.Claim(p.run.StageOf(p.stage))
			return p.run, p.stage, true
		}
		shadow.Take(asked)
		c.place++
		c.over = full
	}
	return nil, 0, false
}

// cursor is how far a search has come among those of one kind.
type cursor struct {
	queue, place int
	over         bool // no other of the kind can start
}

// first moves the cursors to the next who waits and gives the kind of the one that goes first of all.
func (l *Line) first(at *[kindCount]cursor) (best kind, found bool) {
	for k := range kindCount {
		p, priority, ok := l.at(k, &at[k])
		if !ok {
			continue
		}
		if found {
			other := l.kinds[best].queues[at[best].queue]
			if priority < other.priority || priority == other.priority && p.number > other.places[at[best].place].number {
				continue
			}
		}
		best, found = k, true
	}
	return best, found
}

// at drops whoever does not wait any more and gives the place where the cursor stands then.
func (l *Line) at(k kind, c *cursor) (p place, priority int, ok bool) {
	slots := &l.kinds[k]
	for !c.over && c.queue < len(slots.queues) {
		q := &slots.queues[c.queue]
		if c.place >= len(q.places) {
			c.queue, c.place = c.queue+1, 0
			continue
		}
		if p = q.places[c.place]; p.waits() {
			return p, q.priority, true
		}
		l.drop(q, c.place)
	}
	return place{}, 0, false
}

// drop takes a place out of its queue.
func (l *Line) drop(q *queue, i int) {
	l.waiting--
	if i == 0 {
		q.places[0] = place{} // the run may go; the place itself goes when the list grows
		q.places = q.places[1:]
		return
	}
	q.places = slices.Delete(q.places, i, i+1)
}

// waits reports whether the stage still waits: it may have been cancelled meanwhile.
func (p place) waits() bool {
	s := &p.run.Stages[p.stage]
	return p.run.State == events.Running && !p.run.Cancelling() && s.State == events.Pending && s.Queued
}
