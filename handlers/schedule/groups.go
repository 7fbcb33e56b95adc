package schedule

import (
	"fmt"
	"slices"

	"github.com/apollo-11/apollo/events"
)

// Groups bound how many runs go at once: those of a concurrency group, and all of them. Runs that have to wait do so by
// priority, and first come, first served among equals. It belongs to the engine's loop, as Line does, and is filled
// again from the folded runs.
type Groups struct {
	MaxRuns int // of all runs that nobody's stage has started; 0 is no bound

	// Run gives a run that has not ended, or nil: the place that a run has in its group is that of its child runs too. A
	// child would else wait for a run that waits for it.
	Run func(events.ID) *events.Run

	going   map[events.ID]bool
	counted int // of going, those that count for MaxRuns
	byName  map[string]*group
	queue   []*events.Run // that wait, the first to go first
	changed bool          // since nobody of the queue could go
}

type group struct{ going []*events.Run } // the oldest first

// NewGroups makes them empty.
func NewGroups(maxRuns int, run func(events.ID) *events.Run) *Groups {
	return &Groups{MaxRuns: maxRuns, Run: run, going: map[events.ID]bool{}, byName: map[string]*group{}}
}

// Bound reports whether a run may ever have to wait: most have no group, and cost nothing here.
func (g *Groups) Bound(r *events.Run) bool {
	return r.Group != "" || g.MaxRuns > 0 && r.Parent.IsZero()
}

// TryEnter lets a run go unless its group is full, or somebody waits who goes first. why says how full it is.
func (g *Groups) TryEnter(r *events.Run) (ok bool, why string) {
	if g.going[r.ID] {
		return true, ""
	}
	if group, all := g.full(r); group {
		return false, fmt.Sprintf("%d of at most %d runs of the group %s go on", g.Going(r.Group), r.Graph.Plan.Concurrency.Max, r.Group)
	} else if all {
		return false, fmt.Sprintf("%d of at most %d runs go on", g.counted, g.MaxRuns)
	}
	if !g.Within(r.Parent, r.Group) {
		for _, other := range g.queue {
			if waitsToGo(other) && other.ID != r.ID && g.rivals(r, other) && !before(r, other) {
				return false, "other runs wait already, and go first"
			}
		}
	}
	g.Enter(r)
	return true, ""
}

// rivals reports whether two runs may want the same place: one of their group, or, when the other could go now, one of
// all runs.
func (g *Groups) rivals(r, other *events.Run) bool {
	if r.Group != "" && other.Group == r.Group {
		return true
	}
	if g.MaxRuns == 0 || !r.Parent.IsZero() || !other.Parent.IsZero() {
		return false
	}
	group, all := g.full(other)
	return !group && !all
}

// full says what keeps a run from going now: its group, or all the runs that go on.
func (g *Groups) full(r *events.Run) (group, all bool) {
	group = r.Group != "" && g.Going(r.Group) >= r.Graph.Plan.Concurrency.Max && !g.Within(r.Parent, r.Group)
	return group, g.MaxRuns > 0 && r.Parent.IsZero() && g.counted >= g.MaxRuns
}

// Within reports whether the run, or one above it, has a place in the group.
func (g *Groups) Within(run events.ID, group string) bool {
	if group == "" || run.IsZero() || g.Run == nil {
		return false
	}
	for r := g.Run(run); r != nil; r = g.Run(r.Parent) {
		if r.Group == group && r.State == events.Running {
			return true
		}
	}
	return false
}

// Waiting is how many runs of a group wait to go.
func (g *Groups) Waiting(name string) (n int) {
	for _, r := range g.queue {
		if r.Group == name && waitsToGo(r) {
			n++
		}
	}
	return n
}

// Going is how many runs of a group go on.
func (g *Groups) Going(name string) int {
	if of := g.byName[name]; of != nil {
		return len(of.going)
	}
	return 0
}

// Members gives the runs of a group that go on, the oldest first, and then those that wait; without those that somebody
// has cancelled already.
func (g *Groups) Members(name string) (members []*events.Run) {
	if of := g.byName[name]; of != nil {
		for _, r := range of.going {
			if !r.Cancelling() {
				members = append(members, r)
			}
		}
	}
	for _, r := range g.queue {
		if r.Group == name && waitsToGo(r) {
			members = append(members, r)
		}
	}
	return members
}

// Enter counts a run that goes on.
func (g *Groups) Enter(r *events.Run) {
	if g.going[r.ID] {
		return
	}
	g.going[r.ID] = true
	if r.Parent.IsZero() {
		g.counted++
	}
	if r.Group == "" || g.Within(r.Parent, r.Group) {
		return
	}
	of := g.byName[r.Group]
	if of == nil {
		of = &group{}
		g.byName[r.Group] = of
	}
	of.going = append(of.going, r)
}

// Leave is told that a run has ended.
func (g *Groups) Leave(r *events.Run) {
	if !g.going[r.ID] {
		return
	}
	delete(g.going, r.ID)
	g.changed = true
	if r.Parent.IsZero() {
		g.counted--
	}
	of := g.byName[r.Group]
	if of == nil {
		return
	}
	of.going = slices.DeleteFunc(of.going, func(other *events.Run) bool { return other.ID == r.ID })
	if len(of.going) == 0 {
		delete(g.byName, r.Group)
	}
}

// Wait puts a run in the queue.
func (g *Groups) Wait(r *events.Run) {
	i, _ := slices.BinarySearchFunc(g.queue, r, func(other, r *events.Run) int {
		if before(other, r) {
			return -1
		}
		return 1
	})
	g.queue, g.changed = slices.Insert(g.queue, i, r), true
}

// before reports whether a run goes before another: by priority, then by creation, which ids tell.
func before(a, b *events.Run) bool {
	if p, q := a.Graph.Plan.Priority, b.Graph.Plan.Priority; p != q {
		return p > q
	}
	return string(a.ID[:]) <= string(b.ID[:])
}

func waitsToGo(r *events.Run) bool {
	return r.State == events.Pending && r.Waits != "" && !r.Cancelling()
}

// next takes the first run that may go and counts it. One that waits for its group does not hold up those of others.
func (g *Groups) next() (*events.Run, bool) {
	for i := 0; g.changed && i < len(g.queue); i++ {
		r := g.queue[i]
		if !waitsToGo(r) {
			g.queue = slices.Delete(g.queue, i, i+1)
			i--
			continue
		}
		if group, all := g.full(r); !group && !all {
			g.queue = slices.Delete(g.queue, i, i+1)
			g.Enter(r)
			return r, true
		}
	}
	g.changed = false
	return nil, false
}
