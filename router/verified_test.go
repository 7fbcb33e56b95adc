package router_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
)

// What a verification came to follows the end of a run, all of it or nothing, and the engine keeps nothing of the run.
func TestVerifiedFollowsTheEnd(t *testing.T) {
	t.Parallel()
	inside, gate := make(chan string, 1), make(chan struct{})
	w := newWorld(t, map[string]body{"slow": waits(inside, gate), "bad": fails(events.ExecFailed, "no")},
		plan("good", events.Stage{Name: "a"}, events.Stage{Name: "slow", Needs: []string{"a"}}),
		plan("broken", events.Stage{Name: "a"}, events.Stage{Name: "bad", Needs: []string{"a"}}))
	b := w.start()
	good, broken := b.run("good"), b.run("broken")
	verdict := func(stage string) []events.Event {
		return []events.Event{
			{Type: events.StageVerified, Data: events.Data{Stage: stage, Verdict: "nondeterministic", Times: 3}},
			{Type: events.StageIrreproducibleFound, Data: events.Data{Stage: stage, Role: "out"}},
			{Type: events.RunVerified, Data: events.Data{Verdict: "differs", Stage: stage}},
		}
	}
	<-inside
	if err := b.engine.Verified(t.Context(), good, verdict("a")); !errors.Is(err, router.ErrNotEnded) {
		t.Errorf("while it runs: %v", err)
	}
	close(gate)
	b.ended(good, events.Completed)
	b.ended(broken, events.Failed)
	for name, c := range map[string]struct {
		run  events.ID
		list []events.Event
		want error
	}{
		"no such stage": {good, slices.Concat(verdict("a"), verdict("z")), router.ErrNoStage},
		"a failed one":  {broken, slices.Concat(verdict("a"), verdict("bad")), router.ErrNoStage},
		"no such run":   {events.ID{1}, verdict("a"), storage.ErrNotFound},
		"another event": {good, []events.Event{{Type: events.RunFailed, Data: events.Data{Class: events.System}}}, nil},
	} {
		before := len(b.types(c.run))
		if err := b.engine.Verified(t.Context(), c.run, c.list); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if after := len(b.types(c.run)); after != before {
			t.Errorf("%s: %d events were stored", name, after-before)
		}
	}
	for _, run := range []events.ID{good, broken, good} { // and again: it was forgotten, and is folded anew
		if err := b.engine.Verified(t.Context(), run, verdict("a")); err != nil {
			t.Fatal(err)
		}
	}
	row := b.ends(good)
	if row.Findings != 2 || row.Verified != 0 || row.State != events.Completed || len(b.find(good, events.RunVerified, "")) != 2 {
		t.Errorf("the row is %+v\n%s", row, lines(b.types(good)))
	}
	if err := b.engine.Verified(t.Context(), broken, []events.Event{{Type: events.RunVerified, Data: events.Data{Verdict: "reproduced"}}}); err != nil || b.ends(broken).Verified != 1 {
		t.Errorf("%v, %+v", err, b.ends(broken))
	}
	if err := b.engine.Resume(t.Context(), broken, "", ""); err != nil { // what follows its end is no obstacle
		t.Error(err)
	}
	b.ended(broken, events.Failed)
}
