package events

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// sameRun compares two folded states, down to what is not exported; the queues may hold entries that were passed over.
func sameRun(a, b *Run) string {
	return cmp.Diff(a, b, cmp.AllowUnexported(Run{}, Stand{}), cmpopts.IgnoreFields(Run{}, "Graph", "ready", "settled", "doomed", "sweep", "steps"))
}

// clone copies a run with everything that Apply could change.
func clone(r *Run) *Run {
	c := *r
	c.Stages, c.ready, c.doomed, c.settled = slices.Clone(r.Stages), slices.Clone(r.ready), slices.Clone(r.doomed), slices.Clone(r.settled)
	return &c
}

var runEvents = []Type{RunCreated, RunStarted, RunCompleted, RunFailed, RunCancelRequested, RunCancelled, RunResumed, RunQueued,
	StageQueued, StageStarted, StageStarted, StageSegmentRecorded, StageCompleted, StageCompleted, StageFailed, StageRetryScheduled,
	StageSkipped, StageCancelled, StageGateOpened, StageApproved, StageRejected, StageLateResult, AlertRaised, DeliveryReceived}

// genNext gives an event that is about to happen to the run: what is due, or anything at all.
func genNext(t *rapid.T, r *Run) Event {
	e := Event{Stream: ID{1}, Sequence: r.Chain.Sequence + 1, Time: 5, Type: rapid.SampledFrom(runEvents).Draw(t, "type")}
	if e.Type == RunCancelRequested && rapid.IntRange(0, 7).Draw(t, "cancel") > 0 {
		e.Type = StageQueued // a cancel soon ends everything: it is let through seldom
	}
	i := rapid.IntRange(0, len(r.Stages)).Draw(t, "stage")
	if i == len(r.Stages) || r.State == None {
		e.Data.Stage = rapid.SampledFrom([]string{"", "s0", "elsewhere"}).Draw(t, "strange stage")
	} else {
		e.Data.Stage, e.Data.Item = r.StageOf(i).Name, int(r.Stages[i].Item)
		e.Data.Attempt = r.Stages[i].Attempt + rapid.SampledFrom([]int{1, 1, 1, 0, 2}).Draw(t, "attempt")
		e.Data.Token = r.Stages[i].Token + rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(t, "token")
	}
	e.Data.Class = rapid.SampledFrom([]Class{"", ExecFailed, GateRejected, System}).Draw(t, "class")
	if d, due := r.NextDecision(); due && rapid.IntRange(0, 2).Draw(t, "due") > 0 {
		answer := d.Event(r)
		e.Type, e.Data = answer.Type, answer.Data
		if e.Type == RunStarted && rapid.IntRange(0, 3).Draw(t, "place") == 0 {
			e.Type = RunQueued
		}
		if e.Type == StageQueued && rapid.Bool().Draw(t, "starts") {
			e.Type, e.Data.Attempt = StageStarted, r.Stages[d.Stage].Attempt+1
		}
	} else if r.State == None && rapid.Bool().Draw(t, "create") {
		e.Type = RunCreated
	} else if running := runningStages(r); len(running) > 0 && rapid.IntRange(0, 3).Draw(t, "outcome") > 0 {
		// Chance alone seldom hits on a stage that runs, its token and a class together.
		i := rapid.SampledFrom(running).Draw(t, "running")
		e.Type = rapid.SampledFrom(attemptEvents).Draw(t, "of the attempt")
		e.Data.Stage, e.Data.Item = r.StageOf(i).Name, int(r.Stages[i].Item)
		e.Data.Token, e.Data.Attempt = r.Stages[i].Token, r.Stages[i].Attempt
		e.Data.Class = rapid.SampledFrom([]Class{ExecFailed, GateRejected}).Draw(t, "class of the attempt")
	} else if gated := rejectedStages(r); len(gated) > 0 {
		e.Type, e.Data.Stage, e.Data.Item = StageGateOpened, r.StageOf(gated[0]).Name, int(r.Stages[gated[0]].Item)
	}
	if i, ok := r.Find(e.Data.Stage, 0); ok && e.Type == StageStarted && e.Data.Item == 0 && r.Graph.Plan.Stages[i].Foreach != "" &&
		rapid.IntRange(0, 3).Draw(t, "items") > 0 {
		e.Data.Items, e.Data.Count = json.RawMessage("[]"), rapid.IntRange(0, 3).Draw(t, "count")
		if s := &r.Stages[i]; s.First > 0 && rapid.Bool().Draw(t, "the same") {
			e.Data.Count = int(s.Count)
		}
	}
	return e
}

// attemptEvents are what only a running attempt can bring; the notes come more often, so that it lives to bring an end.
var attemptEvents = []Type{StageSegmentRecorded, StageSegmentRecorded, StageCompleted, StageFailed, StageFailed,
	StageRetryScheduled, StageRetryScheduled}

func rejectedStages(r *Run) (rejected []int) {
	for i := range r.Stages {
		if r.Stages[i].rejected != nil && r.Stages[i].State == Pending && !r.Stages[i].Queued {
			rejected = append(rejected, i)
		}
	}
	return rejected
}

func runningStages(r *Run) (running []int) {
	for i := range r.Stages {
		if r.Stages[i].State == Running {
			running = append(running, i)
		}
	}
	return running
}

func TestNoIllegalTransitionIsTaken(t *testing.T) {
	t.Parallel()
	taken := map[Type]int{}
	rapid.Check(t, func(t *rapid.T) {
		g := genGraph(5).Draw(t, "graph")
		r, m := NewRun(g), &rules{p: g.Plan}
		for range rapid.IntRange(100, 400).Draw(t, "events") {
			e := genNext(t, r)
			before := clone(r)
			err := r.Apply(&e)
			if lawful := m.accept(&e); lawful != (err == nil) {
				t.Fatalf("%s %+v: the rules say %v, Apply says %v", e.Type.Short(), e.Data, lawful, err)
			}
			if err != nil {
				var invariant *InvariantError
				if !errors.As(err, &invariant) || !reflect.DeepEqual(before, r) {
					t.Fatalf("%v, and the state has changed: %s", err, cmp.Diff(before.Stages, r.Stages, cmp.AllowUnexported(Stand{})))
				}
				continue
			}
			r.Chain.Sequence++
			taken[e.Type]++
			m.compare(t, r)
		}
	})
	for _, typ := range runEvents {
		if Type.Entity(typ) == "run" && taken[typ] == 0 || Type.Entity(typ) == "stage" && taken[typ] == 0 {
			t.Errorf("no sequence had a lawful %s: the test proves less than it says", typ.Short())
		}
	}
}

func TestNoLogMakesFoldOrReplayPanic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := genGraph(4).Draw(t, "graph")
		log := rapid.SliceOfN(genEvent(), 0, 20).Draw(t, "log")
		for i := range log {
			if i == 0 && rapid.Bool().Draw(t, "created") {
				log[i].Type = RunCreated
			}
			log[i].Data.Stage = rapid.SampledFrom([]string{"s0", "s1", "s2", "x", ""}).Draw(t, "stage")
		}
		r := NewRun(g)
		p := NewReplayer(g)
		for i := range log {
			_ = r.Apply(&log[i])
			r.Decide()
			encoded := log[i].Data.AppendEncoded(nil)
			p.run.Chain.Seal(&log[i], encoded, nil)
			p.run.Chain = Chain{log[i].Sequence - 1, log[i].Prev}
			_ = p.Step(&log[i], encoded)
		}
		if folded, err := Fold(g, log); folded == nil || len(log) == 0 && err != nil {
			t.Fatal("Fold gives no run")
		}
	})
}

// The cases that were wrong once, or that the design singles out.

func started(t *testing.T, stages ...Stage) *sim {
	t.Helper()
	s := newSim(mustGraph(t, stages...))
	s.emit(RunCreated, Data{Plan: s.g.Digest})
	s.emit(RunStarted, Data{})
	return s
}

func TestRetryScheduledWhileCancellingIsCancelled(t *testing.T) {
	t.Parallel()
	s := started(t, Stage{Name: "a"}, Stage{Name: "b"})
	s.start(0)
	s.start(1)
	s.emit(RunCancelRequested, Data{Reason: "enough"})
	s.cascade(nil, nil)
	for i := range 2 { // an engine that recorded the retry before it saw the request
		s.emit(StageRetryScheduled, Data{Stage: s.name(i), Token: s.run.Stages[i].Token, Class: Timeout})
	}
	s.cascade(nil, nil)
	if s.failure != nil || s.run.State != Cancelled || s.run.Reason != "enough" || s.run.Class != Aborted {
		t.Fatalf("%s %s %s, %v", s.run.State, s.run.Class, s.run.Reason, s.failure)
	}
}

func TestRunFailedBySystemLeavesItsStagesAndVoidsTheirClaims(t *testing.T) {
	t.Parallel()
	s := started(t, Stage{Name: "a"}, Stage{Name: "b"})
	s.start(0)
	token := s.run.Stages[0].Token
	s.emit(RunFailed, Data{Class: System, Reason: "event parked"})
	if s.failure != nil || s.run.State != Failed || s.run.Stages[0].State != Running || s.run.Holds(0, token) {
		t.Fatalf("%s, %v", s.run.State, s.failure)
	}
	late := Event{Stream: s.run.ID, Type: StageFailed, Data: Data{Stage: "a", Token: token, Class: Timeout, Reason: "too long"}}
	if s.run.Apply(&late) == nil || s.run.Reason != "event parked" {
		t.Fatalf("a result moved a run that had ended: %s", s.run.Reason)
	}
	s.emit(StageLateResult, late.Data)
	s.resume()
	if s.run.RunningStages() != 0 || s.run.Open() != 2 || s.run.Stages[0].State != Pending {
		t.Fatalf("%d running, %d open", s.run.RunningStages(), s.run.Open())
	}
	s.cascade(func() bool { return true }, nil)
	if s.run.Holds(0, token) || !s.run.Holds(0, s.run.Stages[0].Token) || s.run.Stages[0].Attempt != 2 {
		t.Fatalf("%+v", s.run.Stages[0])
	}
	s.finish(0, nil)
	s.finish(1, nil)
	s.cascade(nil, nil)
	if s.failure != nil || s.run.State != Completed {
		t.Fatalf("%s, %v", s.run.State, s.failure)
	}
}

func TestResumeCountsAnew(t *testing.T) {
	t.Parallel()
	s := started(t, Stage{Name: "a"}, Stage{Name: "b", Retry: &Retry{Max: 1}}, Stage{Name: "c", Needs: []string{"a", "b"}},
		Stage{Name: "d", Needs: []string{"c"}}, Stage{Name: "e", Needs: []string{"a"}})
	always := func() bool { return true }
	broken := &Failure{Class: ExecFailed, Reason: "exit code 1"}
	s.cascade(always, always)
	s.finish(0, nil)
	s.finish(1, broken)
	s.start(1)
	s.finish(1, broken)
	s.cascade(always, always)
	s.finish(4, nil)
	s.cascade(always, always)
	if s.run.State != Failed || s.run.Culprit != "b" || s.run.Class != ExecFailed {
		t.Fatalf("%s by %s", s.run.State, s.run.Culprit)
	}
	s.resume()
	if s.run.Open() != 3 || s.run.Culprit != "" || s.run.Ended != 0 {
		t.Fatalf("%d open after the resume", s.run.Open())
	}
	s.cascade(always, always)
	s.finish(1, broken) // attempts before the resume do not use up the retry
	if st := s.run.Stages[1]; st.State != Pending || st.Attempt != 3 || st.Spent != 2 {
		t.Fatalf("%+v", st)
	}
	s.start(1)
	s.finish(1, nil)
	s.cascade(always, always)
	s.finish(2, nil)
	s.cascade(always, always)
	s.finish(3, nil)
	s.cascade(always, always)
	if s.failure != nil || s.run.State != Completed || s.run.Stages[0].Attempt != 1 {
		t.Fatalf("%s, %v", s.run.State, s.failure)
	}
}

func TestCancelKeepsItsReason(t *testing.T) {
	t.Parallel()
	s := started(t, Stage{Name: "a"}, Stage{Name: "b"})
	s.start(0)
	s.start(1)
	s.finish(0, &Failure{Class: Timeout, Reason: "too long"})
	s.emit(RunCancelRequested, Data{Reason: "enough"})
	s.finish(1, &Failure{Class: ExecFailed, Reason: "exit code 1"})
	s.cascade(nil, nil)
	if s.run.State != Cancelled || s.run.Reason != "enough" || s.run.Class != Aborted || s.run.Culprit != "" {
		t.Fatalf("%s %s %q %q", s.run.State, s.run.Class, s.run.Reason, s.run.Culprit)
	}
}

func TestStageCancelledNeedsARequestAndTheClaim(t *testing.T) {
	t.Parallel()
	s := started(t, Stage{Name: "a"})
	s.start(0)
	e := Event{Stream: s.run.ID, Type: StageCancelled, Data: Data{Stage: "a", Token: s.run.Stages[0].Token}}
	if s.run.Apply(&e) == nil {
		t.Error("nobody asked for it")
	}
	s.emit(RunCancelRequested, Data{})
	e.Data.Token--
	if s.run.Apply(&e) == nil {
		t.Error("the claim is another's")
	}
	e.Data.Token++
	if err := s.run.Apply(&e); err != nil {
		t.Error(err)
	}
}
