package events_test

import (
	"testing"

	"github.com/apollo-11/apollo/events"
)

// TestVerdictsLeaveARunAsItEnded: what is found out about a stage after the end moves nothing but what counts findings.
func TestVerdictsLeaveARunAsItEnded(t *testing.T) {
	t.Parallel()
	p := &events.Plan{Schema: 1, Pipeline: "p", Stages: []events.Stage{{Name: "a", Executor: "shell"}}}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	g, err := events.NewGraph(p, events.DigestOf(b))
	if err != nil {
		t.Fatal(err)
	}
	r := events.NewRun(g)
	at := int64(0)
	apply := func(typ events.Type, d events.Data) error {
		at++
		r.Chain.Sequence++
		return r.Apply(&events.Event{Stream: events.ID{1}, Sequence: r.Chain.Sequence, Type: typ, Time: at, Data: d})
	}
	stage := events.Data{Stage: "a", Attempt: 1, Token: 3}
	for _, e := range []struct {
		typ  events.Type
		data events.Data
	}{{events.RunCreated, events.Data{Plan: g.Digest}}, {events.RunStarted, events.Data{}}, {events.StageStarted, stage}, {events.StageCompleted, stage}, {events.RunCompleted, events.Data{}}} {
		if err := apply(e.typ, e.data); err != nil {
			t.Fatal(err)
		}
	}
	ended, mark := r.Ended, r.Mark
	if err := apply(events.StageVerified, events.Data{Stage: "a", Reason: "a reason", Verdict: "reproduced"}); err != nil || r.Ended != ended || r.Reason != "" || r.Mark != mark {
		t.Errorf("stage.verified: ended %d, not %d, reason %q, mark %v, %v", r.Ended, ended, r.Reason, r.Mark, err)
	}
	if err := apply(events.StageIrreproducibleFound, events.Data{Stage: "a"}); err != nil || r.Ended != ended || r.Findings != 1 || r.Mark == mark {
		t.Errorf("stage.irreproducible_found: ended %d, %d findings, mark %v, %v", r.Ended, r.Findings, r.Mark, err)
	}
	if apply(events.StageVerified, events.Data{Stage: "nobody"}) == nil {
		t.Error("a verdict on a stage that is not there was taken")
	}
}
