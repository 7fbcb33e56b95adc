package schedule

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
)

// member makes a run that was created and has not started.
func member(t testing.TB, n int, group string, most, priority int) *events.Run {
	t.Helper()
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: "p", Priority: priority, Stages: []events.Stage{{Name: "s"}}}
	if group != "" {
		p.Concurrency = &events.Concurrency{Group: group, Max: most}
	}
	g, err := events.NewGraph(p, events.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	r := events.NewRun(g)
	e := events.Event{Stream: idOf(n), Type: events.RunCreated, Data: events.Data{Group: group}}
	if err := r.Apply(&e); err != nil {
		t.Fatal(err)
	}
	return r
}

func goes(t testing.TB, r *events.Run) { apply(t, r, events.Event{Type: events.RunStarted}) }
func waitsG(t testing.TB, r *events.Run) {
	apply(t, r, events.Event{Type: events.RunQueued, Data: events.Data{Waits: "concurrency"}})
}

// come lets a run in, or puts it in the queue, as the handler does.
func come(t testing.TB, g *Groups, r *events.Run) bool {
	t.Helper()
	ok, why := g.TryEnter(r)
	if ok != (why == "") {
		t.Fatalf("entered %v, and says %q", ok, why)
	}
	if ok {
		goes(t, r)
	} else {
		waitsG(t, r)
		g.Wait(r)
	}
	return ok
}

func served(t testing.TB, g *Groups) (ids []byte) {
	for r, ok := g.next(); ok; r, ok = g.next() {
		goes(t, r)
		ids = append(ids, r.ID[15])
	}
	return ids
}

func TestGroups(t *testing.T) {
	t.Parallel()
	g := NewGroups(0, nil)
	a1, a2, a3, b1 := member(t, 1, "a", 1, 0), member(t, 2, "a", 1, 0), member(t, 3, "a", 1, 9), member(t, 4, "b", 1, 0)
	if !come(t, g, a1) || come(t, g, a2) || come(t, g, a3) || !come(t, g, b1) {
		t.Fatal("one of each group goes")
	}
	if got := served(t, g); len(got) > 0 {
		t.Fatalf("%v go on top", got)
	}
	g.Leave(b1)
	g.Leave(b1) // told twice
	if got := served(t, g); len(got) > 0 || g.Going("a") != 1 || g.Going("b") != 0 {
		t.Fatalf("%v go when another group has room", got)
	}
	g.Leave(a1)
	if a4 := member(t, 5, "a", 1, 0); come(t, g, a4) {
		t.Fatal("a newcomer goes before those that wait")
	}
	if got := served(t, g); !slices.Equal(got, []byte{3}) {
		t.Fatalf("%v go; the one with priority should", got)
	}
	cancelled(t, a2)
	g.Leave(a2) // it had never gone
	if g.Going("a") != 1 || g.Waiting("a") != 1 {
		t.Errorf("%d go, %d wait", g.Going("a"), g.Waiting("a"))
	}
	g.Leave(a3)
	if got := served(t, g); !slices.Equal(got, []byte{5}) {
		t.Fatalf("%v go after the cancelled one", got)
	}
	if ok, _ := g.TryEnter(member(t, 5, "a", 1, 0)); !ok || g.Going("a") != 1 {
		t.Error("who goes already may go")
	}
}

// TestAllRunsAreFair: at the bound of all runs nobody of another group goes before who waits longer, and one that waits
// for its group holds up nobody.
func TestAllRunsAreFair(t *testing.T) {
	t.Parallel()
	g := NewGroups(2, nil)
	r1, r2, r3, r4 := member(t, 1, "a", 1, 0), member(t, 2, "", 0, 0), member(t, 3, "a", 1, 0), member(t, 4, "b", 9, 0)
	if !come(t, g, r1) || !come(t, g, r2) || come(t, g, r3) || come(t, g, r4) {
		t.Fatal("two go")
	}
	g.Leave(r2)
	if r5 := member(t, 5, "", 0, 0); come(t, g, r5) {
		t.Fatal("a newcomer took the place of who waits longer")
	}
	if got := served(t, g); !slices.Equal(got, []byte{4}) { // 3 waits for its group
		t.Fatalf("%v go", got)
	}
	g.Leave(r1)
	g.Leave(r1) // told twice: that is one place
	if got := served(t, g); !slices.Equal(got, []byte{3}) {
		t.Fatalf("%v go", got)
	}
}

// TestGroupsFilledAgain: after a restart nobody leaves before the first of those that wait can go.
func TestGroupsFilledAgain(t *testing.T) {
	t.Parallel()
	g := NewGroups(1, nil)
	for n := range 2 {
		r := member(t, n+1, "a", 1, 0)
		waitsG(t, r)
		g.Wait(r)
	}
	if got := served(t, g); !slices.Equal(got, []byte{1}) {
		t.Fatalf("%v go", got)
	}
}

func TestChildrenInGroups(t *testing.T) {
	t.Parallel()
	runs := map[events.ID]*events.Run{}
	g := NewGroups(1, func(id events.ID) *events.Run { return runs[id] })
	parent, child, other := member(t, 1, "a", 1, 0), member(t, 2, "a", 1, 0), member(t, 3, "a", 1, 0)
	child.Parent, other.Parent = parent.ID, idOf(9)
	runs[parent.ID] = parent
	if g.Within(parent.ID, "a") {
		t.Fatal("it has no place yet")
	}
	if !come(t, g, parent) || !come(t, g, child) || come(t, g, other) {
		t.Fatal("the parent and its own child go")
	}
	g.Leave(child)
	if got := served(t, g); len(got) > 0 || g.Going("a") != 1 {
		t.Fatalf("%v go: the parent has the place", got)
	}
	delete(runs, parent.ID)
	g.Leave(parent)
	if got := served(t, g); !slices.Equal(got, []byte{3}) {
		t.Fatalf("%v go", got)
	}
	// Of two places a family takes one.
	wide := NewGroups(0, func(id events.ID) *events.Run { return runs[id] })
	top, below, beside := member(t, 4, "a", 2, 0), member(t, 5, "a", 2, 0), member(t, 6, "a", 2, 0)
	below.Parent, runs[top.ID] = top.ID, top
	if !come(t, wide, top) || !come(t, wide, below) || !come(t, wide, beside) {
		t.Error("a child took a second place")
	}
}

// TestGroupsModel: no bound is exceeded, nobody who could go waits, and of a group they go by priority and age.
func TestGroupsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		most := map[string]int{"": 99, "a": 1, "b": 2}
		all := rapid.IntRange(0, 3).Draw(rt, "bound of all")
		g := NewGroups(all, nil)
		var going, waiting []*events.Run
		in := func(group string) (n int) {
			for _, r := range going {
				if r.Group == group {
					n++
				}
			}
			return n
		}
		settle := func() {
			for r, ok := g.next(); ok; r, ok = g.next() {
				for _, other := range waiting {
					if other.Group == r.Group && other != r && before(other, r) {
						rt.Fatalf("%d goes before %d", r.ID[15], other.ID[15])
					}
				}
				goes(t, r)
				going = append(going, r)
				waiting = slices.DeleteFunc(waiting, func(o *events.Run) bool { return o == r })
			}
			for group, n := range most {
				if in(group) > n || all > 0 && len(going) > all {
					rt.Fatalf("%d of %q go, %d of all", in(group), group, len(going))
				}
			}
			for _, r := range waiting {
				if in(r.Group) < most[r.Group] && (all == 0 || len(going) < all) {
					rt.Fatalf("%d of %q could go, and waits", r.ID[15], r.Group)
				}
			}
		}
		for n := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0, 1:
				group := rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "group")
				r := member(t, n+1, group, most[group], rapid.IntRange(0, 1).Draw(rt, "priority"))
				if come(t, g, r) {
					going = append(going, r)
				} else {
					waiting = append(waiting, r)
				}
			case 2:
				if len(going) > 0 {
					i := rapid.IntRange(0, len(going)-1).Draw(rt, "who ends")
					g.Leave(going[i])
					going = slices.Delete(going, i, i+1)
				}
			default:
				if len(waiting) > 0 {
					i := rapid.IntRange(0, len(waiting)-1).Draw(rt, "who is cancelled")
					cancelled(t, waiting[i])
					waiting = slices.Delete(waiting, i, i+1)
				}
			}
			settle()
		}
		if got, want := fmt.Sprint(g.Going("a"), g.Going("b")), fmt.Sprint(in("a"), in("b")); got != want {
			rt.Fatalf("%s go, the model has %s", got, want)
		}
	})
}
