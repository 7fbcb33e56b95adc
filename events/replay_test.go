package events

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// write makes a log of a graph from a script, sealed as it stands, lawful or not.
func write(g *Graph, script ...Event) *sim {
	s := newSim(g)
	for _, e := range script {
		if e.Time > 0 {
			s.now = e.Time
		}
		s.emit(e.Type, e.Data)
		if e.Type == RunCreated {
			s.run.ID = s.log[0].Stream
		}
	}
	return s
}

func TestReplayNamesTheFirstMismatch(t *testing.T) {
	t.Parallel()
	g := mustGraph(t, Stage{Name: "a", Retry: &Retry{Max: 1, Interval: 100}}, Stage{Name: "b", Needs: []string{"a"}})
	at := func(typ Type, d Data) Event { return Event{Type: typ, Data: d} }
	begin := []Event{at(RunCreated, Data{Plan: g.Digest}), at(RunStarted, Data{}), at(StageStarted, Data{Stage: "a", Attempt: 1})}
	failed := at(StageFailed, Data{Stage: "a", Token: 3, Class: BadInput, Reason: "r"})
	skipped := at(StageSkipped, Data{Stage: "b", Reason: "needs a, which is failed"})
	runFailed := at(RunFailed, Data{Stage: "a", Class: BadInput, Reason: "r"})
	retry := Event{Time: 1000, Type: StageRetryScheduled, Data: Data{Stage: "a", Token: 3, Class: Timeout, Reason: "r", Due: 1100}}
	for name, c := range map[string]struct {
		then []Event
		want Mismatch
	}{
		"as it must be":       {[]Event{failed, skipped, runFailed}, Mismatch{}},
		"a log that ends":     {[]Event{failed}, Mismatch{}},
		"queued, not skipped": {[]Event{failed, at(StageQueued, Data{Stage: "b"})}, Mismatch{5, "stage.queued b", "stage.skipped b"}},
		"skipped, not queued": {[]Event{at(StageCompleted, Data{Stage: "a", Token: 3}), skipped}, Mismatch{5, "stage.skipped b", "stage.queued b"}},
		"another reason": {[]Event{failed, at(StageSkipped, Data{Stage: "b", Reason: "x"})},
			Mismatch{5, "stage.skipped b: x", "stage.skipped b: needs a, which is failed"}},
		"nothing was due":            {[]Event{at(RunCompleted, Data{})}, Mismatch{4, "run.completed", "nothing"}},
		"the world was too fast":     {[]Event{failed, at(StageFailed, Data{Stage: "a", Token: 3, Class: Lost})}, Mismatch{5, "stage.failed a", "stage.skipped b"}},
		"a late result at any time":  {[]Event{failed, at(StageLateResult, Data{Stage: "a"}), skipped, runFailed}, Mismatch{}},
		"Apollo's fault at any time": {[]Event{failed, at(RunFailed, Data{Class: System, Reason: "event parked"})}, Mismatch{}},
		"a cancel at any time": {[]Event{failed, at(RunCancelRequested, Data{Reason: "x"}),
			at(StageCancelled, Data{Stage: "b", Reason: "the run was cancelled", Class: Aborted}), at(RunCancelled, Data{Reason: "x", Class: Aborted})}, Mismatch{}},
		"a cancel that closes nothing": {[]Event{failed, at(RunCancelRequested, Data{Reason: "x"}), skipped},
			Mismatch{6, "stage.skipped b", "stage.cancelled b"}},
		"another claim": {[]Event{at(StageCompleted, Data{Stage: "a", Token: 2})},
			Mismatch{4, "stage.completed a", "refused: the fencing token is not that of the claim"}},
		"failed instead of tried again": {[]Event{at(StageFailed, Data{Stage: "a", Token: 3, Class: Timeout})},
			Mismatch{4, "stage.failed a", "stage.retry_scheduled a due 1970-01-01T00:00:01.000000100Z"}},
		"tried again at another time": {[]Event{{Time: 1000, Type: StageRetryScheduled, Data: Data{Stage: "a", Token: 3, Class: Timeout, Due: 1101}}},
			Mismatch{4, "stage.retry_scheduled a due 1970-01-01T00:00:00.000001101Z", "stage.retry_scheduled a due 1970-01-01T00:00:00.000001100Z"}},
		"failed without saying why": {[]Event{at(StageFailed, Data{Stage: "a", Token: 3})}, Mismatch{4, "stage.failed a", "stage.failed a with a failure class"}},
		"a retry in time":           {[]Event{retry, {Time: 1100, Type: StageStarted, Data: Data{Stage: "a", Attempt: 2}}}, Mismatch{}},
		"a retry too early": {[]Event{retry, {Time: 1099, Type: StageStarted, Data: Data{Stage: "a", Attempt: 2}}},
			Mismatch{5, "stage.started a", "nothing before 1970-01-01T00:00:00.000001100Z"}},
		"a second beginning": {[]Event{at(RunCreated, Data{Plan: g.Digest})}, Mismatch{4, "run.created", "refused: not in the table"}},
		"an event of others": {[]Event{at(AlertRaised, Data{})}, Mismatch{4, "alert.raised", "refused: not in the table"}},
	} {
		s := write(g, slices.Concat(begin, c.then)...)
		_, m := s.replay()
		if m == nil {
			m = &Mismatch{}
		}
		if *m != c.want {
			t.Errorf("%s: %+v, want %+v", name, *m, c.want)
		}
	}
}

func TestReplayOfAnotherPlan(t *testing.T) {
	t.Parallel()
	g := mustGraph(t, Stage{Name: "a"})
	s := write(g, Event{Type: RunCreated, Data: Data{Plan: Digest{1}}})
	if _, m := s.replay(); m == nil || !strings.HasPrefix(m.Recorded, "run.created with plan sha256:01") || m.Recomputed != "plan "+g.Digest.String() {
		t.Errorf("%+v", m)
	}
}

func TestReplayTakesASkipByCondition(t *testing.T) {
	t.Parallel()
	g := mustGraph(t, Stage{Name: "a", When: "false"}, Stage{Name: "b", Needs: []string{"a"}})
	s := write(g, Event{Type: RunCreated, Data: Data{Plan: g.Digest}}, Event{Type: RunStarted},
		Event{Type: StageSkipped, Data: Data{Stage: "a", Reason: "its condition is false", Checks: []Check{{Kind: "when", Expr: "false"}}}},
		Event{Type: StageSkipped, Data: Data{Stage: "b", Reason: "needs a, which is skipped"}}, Event{Type: RunCompleted})
	if r, m := s.replay(); m != nil || r.State != Completed {
		t.Errorf("%s, %+v", r.State, m)
	}
}

// TestReplayNoticesAnyDamage drives a run and then breaks one thing in its log.
func TestReplayNoticesAnyDamage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(genGraph(8).Draw(t, "graph"))
		s.drive(t, 4, 20)
		n := len(s.log)
		at := rapid.IntRange(0, n-2).Draw(t, "at")
		from := at
		switch rapid.IntRange(0, 3).Draw(t, "damage") {
		case 0: // an event is missing
			s.log, s.encoded = slices.Delete(s.log, at, at+1), slices.Delete(s.encoded, at, at+1)
		case 1: // it stands twice
			s.log, s.encoded = slices.Insert(s.log, at, s.log[at]), slices.Insert(s.encoded, at, s.encoded[at])
			from++
		case 2: // two are swapped
			s.log[at], s.log[at+1] = s.log[at+1], s.log[at]
			s.encoded[at], s.encoded[at+1] = s.encoded[at+1], s.encoded[at]
		case 3: // its content is changed: the event itself may be lawful, the next one then does not continue the chain
			s.log[at].Data.Reason += "!"
			s.encoded[at] = s.log[at].Data.AppendEncoded(nil)
		}
		if _, m := s.replay(); m == nil || m.Sequence < uint64(from) || m.Sequence > uint64(at+2) {
			t.Fatalf("damage at %d: %+v", at+1, m)
		}
	})
}

// TestReplayNoticesAnyRewriting changes what an event says and seals the whole log anew: the chain holds, the decisions
// do not. Only what the world says may be rewritten without notice.
func TestReplayNoticesAnyRewriting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(genGraph(8).Draw(t, "graph"))
		s.drive(t, 4, 20)
		decided := map[Type]bool{RunStarted: true, RunCompleted: true, RunCancelled: true, StageSkipped: true}
		var places []int
		for i := range s.log {
			if decided[s.log[i].Type] && len(s.log[i].Data.Checks) == 0 {
				places = append(places, i)
			}
		}
		at := rapid.SampledFrom(places).Draw(t, "at")
		s.log[at].Data.Reason += "!"
		var c Chain
		for i := range s.log {
			s.encoded[i] = s.log[i].Data.AppendEncoded(nil)
			c.Seal(&s.log[i], s.encoded[i], nil)
		}
		if _, m := s.replay(); m == nil || m.Sequence != uint64(at+1) {
			t.Fatalf("rewritten %d: %+v", at+1, m)
		}
	})
}
