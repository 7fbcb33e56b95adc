package cmd

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

// seenRun folds a log as a command does.
func seenRun(t *testing.T, p *events.Plan, log ...events.Event) *view {
	t.Helper()
	g, err := events.NewGraph(p, events.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	v := newView(events.NewRun(g), "")
	for i, e := range append([]events.Event{{Type: events.RunCreated}}, log...) {
		e.Sequence, e.Time = uint64(i+1), int64(i+1)*1e9
		if err := v.run.Apply(&e); err != nil {
			t.Fatal(err)
		}
		v.see(v.run, &e)
	}
	return v
}

func queuedFor(waits, reason string, due int64) []events.Event {
	return []events.Event{{Type: events.StageQueued, Data: events.Data{Stage: "s", Waits: waits, Reason: reason, Due: due}}}
}

// Whatever waits says in words what for, with the numbers that the scheduler recorded.
func TestWaitingSaysWhy(t *testing.T) {
	t.Parallel()
	asks := events.Stage{Executor: "approval", With: json.RawMessage(`{"message":"Release?","approvers":["ann","陈"]}`)}
	retried := []events.Event{{Type: events.StageStarted, Data: events.Data{Stage: "s", Attempt: 1, Worker: "w"}},
		{Type: events.StageRetryScheduled, Data: events.Data{Stage: "s", Attempt: 1, Token: 3, Due: 1, Class: events.Timeout, Reason: "too slow"}}}
	for want, c := range map[string]struct {
		stage events.Stage
		log   []events.Event
	}{
		"waits for a free slot":                              {events.Stage{}, queuedFor("slot", "", 0)},
		"waits for resources: 6.0 of 5.6 cores are taken":    {events.Stage{}, queuedFor("resources", "6.0 of 5.6 cores are taken", 0)},
		"waits for an answer by ann, 陈: Release?":            {asks, queuedFor("approval", "", 0)},
		"waits for an answer by ann, 陈 within 0µs: Release?": {asks, queuedFor("approval", "", 1)},
		"starts in 0µs":                            {events.Stage{}, queuedFor("delay", "", 1)},
		"waits for its pipeline to be unpaused":    {events.Stage{}, queuedFor("paused", "", 0)},
		"next try in 0µs, after timeout: too slow": {events.Stage{}, retried},
		"waits for what it needs":                  {events.Stage{}, nil},
		"waits for other":                          {events.Stage{Needs: []string{"other"}}, nil},
		"waits for a, b, c, d, … (6)":              {events.Stage{Needs: []string{"a", "b", "c", "d", "e", "f"}}, nil},
	} {
		c.stage.Name = "s"
		if c.stage.Executor == "" {
			c.stage.Executor = "shell"
		}
		p := &events.Plan{Schema: events.PlanSchema, Pipeline: "p"}
		for _, name := range []string{"other", "a", "b", "c", "d", "e", "f"} {
			p.Stages = append(p.Stages, events.Stage{Name: name, Executor: "shell"})
		}
		p.Stages = append(p.Stages, c.stage)
		v := seenRun(t, p, append([]events.Event{{Type: events.RunStarted}}, c.log...)...)
		a, _ := textApp(lang.English, "never")
		i, _ := v.run.Find("s", 0)
		if got := a.waiting(v, i); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// What a check was in an earlier attempt is over; what decided whether the stage runs is not.
func TestChecksAreThoseOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: "p", Stages: []events.Stage{{Name: "s", Executor: "shell", When: "true", Retry: &events.Retry{Max: 1}}}}
	when, gate := events.Check{Kind: "when", Expr: "true", Holds: true}, events.Check{Kind: "gate", Expr: "outputs.n > 1"}
	passed := gate
	passed.Holds = true
	v := seenRun(t, p, events.Event{Type: events.RunStarted},
		events.Event{Type: events.StageQueued, Data: events.Data{Stage: "s", Waits: "slot", Checks: []events.Check{when}}},
		events.Event{Type: events.StageStarted, Data: events.Data{Stage: "s", Attempt: 1, Worker: "w"}},
		events.Event{Type: events.StageRetryScheduled, Data: events.Data{Stage: "s", Attempt: 1, Token: 4, Due: 1, Class: events.GateRejected, Checks: []events.Check{gate}}},
		events.Event{Type: events.StageStarted, Data: events.Data{Stage: "s", Attempt: 2, Worker: "w"}},
		events.Event{Type: events.StageCompleted, Data: events.Data{Stage: "s", Attempt: 2, Token: 6, Checks: []events.Check{passed}}})
	if got, want := fmt.Sprint(v.checks[0]), fmt.Sprint([]events.Check{when, passed}); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// An item of any length has its number; only a small one has its value.
func TestItemsThatAreLargeAreNotShown(t *testing.T) {
	t.Parallel()
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: "p", Stages: []events.Stage{{Name: "s", Executor: "shell", Foreach: "params.x"}}}
	large := `"` + strings.Repeat("x", smallItem) + `"`
	v := seenRun(t, p, events.Event{Type: events.RunStarted},
		events.Event{Type: events.StageStarted, Data: events.Data{Stage: "s", Attempt: 1, Items: json.RawMessage(`[1,` + large + `]`), Count: 2}})
	rows := v.json().Stages
	if len(rows) != 3 || rows[0].Item != nil || *rows[1].Item != 1 || string(rows[1].Value) != "1" || *rows[2].Item != 2 || rows[2].Value != nil {
		t.Errorf("%+v", rows)
	}
}
