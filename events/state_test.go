package events

import (
	"errors"
	"strings"
	"testing"
)

func TestTransitionsAndNextAgree(t *testing.T) {
	t.Parallel()
	listed := map[Transition]bool{}
	pairs := map[[2]int]bool{}
	for _, tr := range Transitions() {
		pair := [2]int{int(tr.Event), int(tr.From)}
		if pairs[pair] {
			t.Errorf("%s in %s stands twice", tr.Event.Short(), tr.From)
		}
		pairs[pair], listed[tr] = true, true
	}
	for n := range 256 {
		for s := range 256 {
			to, ok := Next(State(s), Type(n))
			if ok != pairs[[2]int{n, s}] || ok && !listed[Transition{Type(n), State(s), to}] {
				t.Errorf("%s in %s: %s, %v", Type(n).Short(), State(s), to, ok)
			}
		}
	}
}

// TestTransitionsKeepTheDesign states the rules of the design in its own words, against the table.
func TestTransitionsKeepTheDesign(t *testing.T) {
	t.Parallel()
	for _, tr := range Transitions() {
		if tr.From.Terminal() && tr.From != tr.To && tr.Event != RunResumed {
			t.Errorf("%s moves a terminal state", tr.Event.Short())
		}
		if tr.From == Running && tr.To == Pending && tr.Event != StageRetryScheduled {
			t.Errorf("running becomes pending by %s", tr.Event.Short())
		}
		if tr.To == Skipped && tr.Event.Entity() == "run" {
			t.Error("a run cannot be skipped")
		}
		if tr.To == Running && tr.From != Running && tr.From != Pending {
			t.Errorf("running after %s", tr.From)
		}
		if entity := tr.Event.Entity(); entity != "run" && entity != "stage" {
			t.Errorf("%s moves nothing", tr.Event.Short())
		}
	}
}

func TestStateText(t *testing.T) {
	t.Parallel()
	for s := None; s <= Skipped; s++ {
		if back, err := ParseState(s.String()); err != nil || back != s {
			t.Errorf("%s: %v", s, err)
		}
		if s.Terminal() != (s == Completed || s == Failed || s == Cancelled || s == Skipped) {
			t.Errorf("%s: terminal is %v", s, s.Terminal())
		}
	}
	if _, err := ParseState("burnt"); err == nil || State(99).String() != "state(99)" {
		t.Error("the list of states is not closed")
	}
}

func TestInvariantErrorNamesEverything(t *testing.T) {
	t.Parallel()
	g := mustGraph(t, Stage{Name: "a"})
	s := newSim(g)
	s.emit(RunCreated, Data{Plan: g.Digest})
	err := s.run.Apply(&Event{Stream: s.run.ID, Sequence: 2, Type: StageCompleted, Data: Data{Stage: "a"}})
	if _, ok := errors.AsType[*InvariantError](err); !ok {
		t.Fatal(err)
	}
	for _, part := range []string{"E_INVARIANT", s.run.ID.String(), "stage a", "stage.completed", "pending", "event 2"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %v", part, err)
		}
	}
}

func TestGraphRefuses(t *testing.T) {
	t.Parallel()
	for name, stages := range map[string][]Stage{
		"no stages": nil, "a name twice": {{Name: "a"}, {Name: "a"}}, "itself": {{Name: "a", Needs: []string{"a"}}},
		"a need that comes later": {{Name: "a", Needs: []string{"b"}}, {Name: "b"}}, "a need that is not there": {{Name: "a", Needs: []string{"x"}}},
	} {
		if _, err := NewGraph(&Plan{Pipeline: "p", Stages: stages}, Digest{}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	g := mustGraph(t, Stage{Name: "a"}, Stage{Name: "b", Needs: []string{"a"}}, Stage{Name: "c", Needs: []string{"a", "b"}})
	if i, ok := g.Index("c"); !ok || i != 2 || len(g.Below(0)) != 2 || len(g.Below(2)) != 0 {
		t.Error("the graph is not the plan's")
	}
}

func TestPlanRoundTrip(t *testing.T) {
	t.Parallel()
	p := &Plan{Schema: PlanSchema, Pipeline: "p", Stages: []Stage{{Name: "a", Executor: "shell", With: []byte(`{"run":"true"}`),
		Retry: &Retry{Max: 1, Jitter: 0.5}}}}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodePlan(b)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := back.Encode(); err != nil || string(again) != string(b) {
		t.Errorf("%s, %v", again, err)
	}
	if _, err := DecodePlan([]byte(`{"schema":2}`)); err == nil {
		t.Error("a plan of a newer build was taken")
	}
	if _, err := DecodePlan([]byte(`{`)); err == nil {
		t.Error("half a plan was taken")
	}
}
