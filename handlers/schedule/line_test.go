package schedule

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
)

// runOf makes a running run of one stage that waits for a slot.
func runOf(t testing.TB, n int, priority int, st events.Stage) *events.Run {
	t.Helper()
	st.Name = "s"
	g, err := events.NewGraph(&events.Plan{Schema: events.PlanSchema, Pipeline: "p", Priority: priority, Stages: []events.Stage{st}}, events.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	r := events.NewRun(g)
	id := idOf(n)
	for i, e := range []events.Event{{Type: events.RunCreated}, {Type: events.RunStarted}, {Type: events.StageQueued, Data: events.Data{Stage: "s", Waits: waitsSlot}}} {
		e.Stream, e.Sequence = id, uint64(i)+1
		if err := r.Apply(&e); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func idOf(n int) (id events.ID) {
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// apply moves a run by an event that its table allows.
func apply(t testing.TB, r *events.Run, e events.Event) {
	t.Helper()
	e.Stream = r.ID
	if err := r.Apply(&e); err != nil {
		t.Fatal(err)
	}
}

func began(t testing.TB, r *events.Run) {
	apply(t, r, events.Event{Type: events.StageStarted, Sequence: 4, Data: events.Data{Stage: "s", Attempt: 1, Worker: "w"}})
}

func cancelled(t testing.TB, r *events.Run) {
	apply(t, r, events.Event{Type: events.RunCancelRequested})
}

func shell(memory int64) events.Stage {
	return events.Stage{Executor: "shell", Resources: &events.Resources{Memory: memory}}
}

func task(memory int64) events.Stage {
	return events.Stage{Executor: "task", Resources: &events.Resources{Memory: memory}}
}

func TestLineOrder(t *testing.T) {
	t.Parallel()
	l := NewLine(Limits{Processes: 1, Tasks: 1})
	plain := events.Stage{Executor: "shell"}
	var want []*events.Run
	for n, priority := range []int{0, 5, 0, -1, 5} {
		r := runOf(t, n, priority, plain)
		want = append(want, r)
		l.Wait(r, 0)
	}
	cancelled(t, want[1])
	if ok, waits, _ := l.TryClaim(&plain); ok || waits != waitsSlot {
		t.Fatal("a newcomer went before those that wait")
	}
	other := events.Stage{Executor: "task"}
	if ok, _, _ := l.TryClaim(&other); !ok {
		t.Fatal("a stage of another kind has to wait for nothing")
	}
	for _, i := range []int{4, 0, 2, 3} {
		r, _, ok := l.next()
		if !ok || r != want[i] {
			t.Fatalf("run %v goes, want %d", r, i)
		}
		if _, _, ok := l.next(); ok {
			t.Fatal("two have one slot")
		}
		l.Release(&plain)
	}
	if _, _, ok := l.next(); ok || l.waiting != 0 || l.Taken() != 1 {
		t.Fatalf("%d wait, %d slots taken", l.waiting, l.Taken())
	}
}

// TestBigStageIsServed: one that asks for most of the machine, against small ones that never end coming, of its own kind
// and of the other.
func TestBigStageIsServed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ big, small, filler events.Stage }{
		"of its kind":              {shell(8), shell(1), shell(1)},
		"of the other kind":        {shell(8), task(1), task(1)},
		"of the other, other way":  {task(8), shell(1), shell(1)},
		"slots go to those beside": {shell(8), task(1), events.Stage{Executor: "shell"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLine(Limits{Processes: 2, Tasks: 8, Budget: Budget{Memory: 10}})
			running := []*events.Stage{&c.small, &c.small, &c.small, &c.filler}
			for _, s := range running {
				l.Claim(s)
			}
			big := runOf(t, 0, 0, c.big)
			l.Wait(big, 0)
			for n := 1; ; n++ {
				for _, s := range []events.Stage{c.small, c.filler} {
					l.Wait(runOf(t, n, 0, s), 0)
				}
				for r, i, ok := l.next(); ok; r, i, ok = l.next() {
					if r == big {
						return
					}
					running = append(running, r.StageOf(i))
				}
				if n > 20 || len(running) == 0 {
					t.Fatalf("not served after %d releases; %d run", n, len(running))
				}
				l.Release(running[0])
				running = running[1:]
			}
		})
	}
}

func TestLineWithoutEnough(t *testing.T) {
	t.Parallel()
	l := NewLine(Limits{Processes: 4, Tasks: 4, Budget: Budget{Memory: 10}})
	never, big, fits := shell(11), shell(10), shell(1)
	if why := l.Never(&never); why != "E_RESOURCE: "+never.Name+" asks for 11 of memory, and stages may use 10" {
		t.Errorf("says %q", why)
	}
	if ok, _, _ := l.TryClaim(&big); !ok {
		t.Fatal("all of it was free")
	}
	if ok, waits, why := l.TryClaim(&fits); ok || waits != waitsResources || why == "" {
		t.Errorf("more than all of it was given: %s %s", waits, why)
	}
	l.Wait(runOf(t, 1, 0, never), 0) // it fails at once, and keeps nobody from anything
	l.Wait(runOf(t, 2, 0, fits), 0)
	if r, _, ok := l.next(); !ok || r.ID != idOf(1) {
		t.Fatal("what can never run has to start, and fail")
	}
	if _, _, ok := l.next(); ok {
		t.Fatal("nothing was free")
	}
	l.Release(&never)
	l.Release(&big)
	if r, _, ok := l.next(); !ok || r.ID != idOf(2) {
		t.Fatal("all of it is free")
	}
	l.Wait(runOf(t, 3, 0, big), 0)
	if small := task(1); true {
		if ok, waits, _ := l.TryClaim(&small); ok || waits != waitsResources {
			t.Error("a newcomer of another kind took what the big one waits for")
		}
	}
	parent := events.Stage{Executor: "pipeline", Resources: &events.Resources{Memory: 10}}
	if ok, _, _ := l.TryClaim(&parent); !ok || l.Taken() != 1 || l.budget.Taken().Memory != 1 {
		t.Error("a stage that waits for a run keeps that run from what it needs")
	}
}

// waiter is what the model knows of a stage in line.
type waiter struct {
	run      *events.Run
	number   int
	kind     kind
	memory   int64
	priority int
}

// TestLineModel: whatever comes, goes and is cancelled: no budget is exceeded, nobody passes whom it takes anything from,
// and the first of all is served after at most as many releases as there are bodies.
func TestLineModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		const memory, processSlots, taskSlots = 10, 3, 4
		l := NewLine(Limits{Processes: processSlots, Tasks: taskSlots, Budget: Budget{Memory: memory}})
		var line, running []*waiter
		came := 0
		sum := func(list []*waiter, of kind) (slots int, taken int64) {
			for _, w := range list {
				if w.kind == of {
					slots++
				}
				taken += w.memory
			}
			return slots, taken
		}
		before := func(a, b *waiter) int {
			if a.priority != b.priority {
				return b.priority - a.priority
			}
			return a.number - b.number
		}
		started := func(w *waiter) {
			for _, other := range line {
				if before(other, w) < 0 && other.kind == w.kind && other.memory == 0 {
					rt.Fatalf("%d took the slot of %d, which waits for nothing else", w.number, other.number)
				}
			}
			began(t, w.run)
			running = append(running, w)
			line = slices.DeleteFunc(line, func(o *waiter) bool { return o == w })
			for k, most := range map[kind]int{processes: processSlots, inside: taskSlots} {
				if slots, taken := sum(running, k); slots > most || taken > memory {
					rt.Fatalf("%d slots of kind %d, %d of memory", slots, k, taken)
				}
			}
			if len(line) == 0 {
				return
			}
			first := slices.MinFunc(line, before)
			if before(first, w) < 0 { // it was passed over: what it waits for must not have become less
				_, taken := sum(running, first.kind)
				slots, _ := sum(running, first.kind)
				_, takenBefore := sum(running[:len(running)-1], first.kind)
				most := map[kind]int{processes: processSlots, inside: taskSlots}[first.kind]
				if first.memory > 0 && first.memory <= memory-takenBefore && first.memory > memory-taken && slots < most {
					rt.Fatalf("%d (%d of memory) took what %d (%d) waited for", w.number, w.memory, first.number, first.memory)
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1:
				came++
				w := &waiter{number: came, memory: rapid.SampledFrom([]int64{0, 0, 1, 2, 5, 10}).Draw(rt, "memory"), kind: rapid.SampledFrom([]kind{processes, inside}).Draw(rt, "kind"),
					priority: rapid.IntRange(0, 1).Draw(rt, "priority")}
				st := shell(w.memory)
				if w.kind == inside {
					st = task(w.memory)
				}
				if w.memory == 0 {
					st.Resources = nil
				}
				w.run = runOf(t, came, w.priority, st)
				if ok, _, _ := l.TryClaim(w.run.StageOf(0)); ok {
					started(w)
				} else {
					line = append(line, w)
					l.Wait(w.run, 0)
				}
			case 2:
				if len(line) > 0 {
					w := rapid.SampledFrom(line).Draw(rt, "who is cancelled")
					cancelled(t, w.run)
					line = slices.DeleteFunc(line, func(o *waiter) bool { return o == w })
				}
			default:
				if len(running) > 0 {
					i := rapid.IntRange(0, len(running)-1).Draw(rt, "who ends")
					l.Release(running[i].run.StageOf(0))
					running = slices.Delete(running, i, i+1)
				}
			}
			for r, _, ok := l.next(); ok; r, _, ok = l.next() {
				started(line[slices.IndexFunc(line, func(w *waiter) bool { return w.run == r })])
			}
		}
		// Newcomers never end coming, and still the first of all is served.
		for n := 0; len(line) > 0; n++ {
			first := slices.MinFunc(line, before)
			for releases := len(running); slices.Contains(line, first); releases-- {
				if releases < 0 {
					rt.Fatalf("%d is not served when all that ran before it has ended", first.number)
				}
				came++
				small := &waiter{number: came, memory: 1, kind: processes + kind(came%2)}
				st := shell(1)
				if small.kind == inside {
					st = task(1)
				}
				if n < 3 {
					small.run = runOf(t, came, -1, st)
					line = append(line, small)
					l.Wait(small.run, 0)
				}
				if len(running) > 0 {
					l.Release(running[0].run.StageOf(0))
					running = running[1:]
				}
				for r, _, ok := l.next(); ok; r, _, ok = l.next() {
					started(line[slices.IndexFunc(line, func(w *waiter) bool { return w.run == r })])
				}
			}
		}
		if l.waiting != 0 && l.len() != l.waiting {
			rt.Fatalf("%d places, %d counted", l.len(), l.waiting)
		}
	})
}

func (l *Line) len() (n int) {
	for k := range l.kinds {
		n += l.kinds[k].len()
	}
	return n
}

// TestLineKeepsNothing: a queue through which many have gone holds no more memory than those that wait.
func TestLineKeepsNothing(t *testing.T) {
	t.Parallel()
	l := NewLine(Limits{Processes: 1})
	st := events.Stage{Executor: "shell"}
	l.Claim(&st)
	for n := range 10_000 {
		l.Wait(runOf(t, n, 0, st), 0)
		l.Wait(runOf(t, n, 0, st), 0)
		l.Release(&st)
		r, _, ok := l.next()
		l.Release(&st)
		if second, _, too := l.next(); !ok || !too || r == second {
			t.Fatal("two waited, two go")
		}
	}
	if c := cap(l.kinds[processes].queues[0].places); c > 16 {
		t.Errorf("room for %d places", c)
	}
}

func BenchmarkLineFull(b *testing.B) {
	l := NewLine(Limits{Processes: 1, Tasks: 1, Budget: Budget{Memory: 10}})
	st := shell(1)
	l.Claim(&st)
	for n := range 10_000 {
		l.Wait(runOf(b, n, 0, st), 0)
	}
	for b.Loop() {
		if _, _, ok := l.next(); ok {
			b.Fatal("none is free")
		}
	}
}

func TestTimers(t *testing.T) {
	t.Parallel()
	h := &Handler{Line: NewLine(Limits{Processes: 9}), Timers: &Timers{}, Groups: NewGroups(0, nil), Worker: "w"}
	st := events.Stage{Executor: "shell"}
	retry := func(n int, due int64) *events.Run {
		r := runOf(t, n, 0, st)
		began(t, r)
		apply(t, r, events.Event{Type: events.StageRetryScheduled, Sequence: 5, Data: events.Data{Stage: "s", Token: 4, Due: due, Class: events.ExecFailed}})
		h.Wait(r, 0)
		return r
	}
	b, a, late, gone := retry(2, 100), retry(1, 100), retry(3, 101), retry(4, 50)
	cancelled(t, gone)
	if h.Timers.Next() != 50 {
		t.Errorf("next is %d", h.Timers.Next())
	}
	if _, _, ok := h.Next(99); ok {
		t.Fatal("one starts before its instant")
	}
	for _, want := range []*events.Run{a, b} {
		r, e, ok := h.Next(100)
		if !ok || r != want || e.Type != events.StageStarted || e.Data.Attempt != 2 {
			t.Fatalf("got %v", e)
		}
		apply(t, r, events.Event{Type: events.StageStarted, Sequence: 6, Data: e.Data})
	}
	// The late one was continued meanwhile, and waits for another instant.
	apply(t, late, events.Event{Type: events.RunFailed, Data: events.Data{Class: events.System}})
	apply(t, late, events.Event{Type: events.RunResumed})
	apply(t, late, events.Event{Type: events.RunStarted})
	apply(t, late, events.Event{Type: events.StageQueued, Data: events.Data{Stage: "s", Waits: "delay", Due: 500}})
	h.Wait(late, 0)
	if _, _, ok := h.Next(400); ok {
		t.Fatal("it starts at an instant of its former life")
	}
	if r, _, ok := h.Next(500); !ok || r != late {
		t.Fatal("it does not start at its instant")
	}
}

// TestTimersForget: runs with a deadline that have ended are not kept until it.
func TestTimersForget(t *testing.T) {
	t.Parallel()
	var timers Timers
	g, err := events.NewGraph(&events.Plan{Schema: 1, Pipeline: "p", Deadline: time.Hour, Stages: []events.Stage{{Name: "s"}}}, events.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	var open []*events.Run
	for n := range 10_000 {
		r := events.NewRun(g)
		apply(t, r, events.Event{Type: events.RunCreated, Time: int64(n)})
		timers.AddDeadline(r)
		if n%100 == 0 {
			open = append(open, r)
			continue
		}
		apply(t, r, events.Event{Type: events.RunStarted})
		apply(t, r, events.Event{Type: events.RunFailed, Data: events.Data{Class: events.System}})
	}
	if n := len(timers.due); n > 2*len(open)+2*minSwept {
		t.Errorf("%d timers for %d runs", n, len(open))
	}
	for _, r := range open {
		one, ok := timers.pop(int64(time.Hour) + 10_000)
		for ok && !one.waited() {
			one, ok = timers.pop(int64(time.Hour) + 10_000)
		}
		if !ok || one.run != r {
			t.Fatal(fmt.Sprint("a deadline is lost: ", one.due))
		}
	}
}
