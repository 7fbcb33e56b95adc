package events

import (
	"cmp"
	"encoding/json"
)

// Run is the folded state of one run: what its log says, and nothing else. Apply is its only mutator. It is not safe
// for concurrent use.
type Run struct {
	Graph *Graph
	ID    ID
	State State
	Chain Chain
	Mark  Chain // as it was when anything of the run's own (not its stages') last changed

	Delivery ID
	Forked   ID
	Sample   int
	Kind     string // of the trigger
	Trigger  string
	Params   json.RawMessage
	Trace    string
	Created  int64 // Unix nanoseconds, as all times here; 0 is not yet
	Started  int64
	Ended    int64
	Class    Class  // of the stage that failed first
	Reason   string // of the end, when it was not a success
	Culprit  string // stage that failed first
	Stages   []Stand

	cancelRequested bool
	resumed         bool
	open            int     // stages that are not terminal
	running         int     // stages that are running
	failed          int     // failed stages without may_fail
	ready           []int32 // stages whose needs are met and which nobody has queued, started or skipped yet; a queue
	doomed          []int32 // stages below a failed, skipped or cancelled need; a queue
	sweep           int     // after cancel_requested: first stage not looked at yet
	steps           int     // turns of all loops below: a test proves that a run costs O(events + needs)
}

// Stand is the folded state of one stage in a run.
type Stand struct {
	State    State
	Queued   bool   // recorded as ready: it waits for what Waits says
	Waits    string // dependency, slot, retry, ...; empty unless pending
	Attempt  int    // number of the last attempt; 0 is none
	Spent    int    // attempts before the run was resumed: they no longer count towards the retries
	Token    uint64 // fencing token of the last attempt
	Due      int64  // of a scheduled retry
	Started  int64  // last attempt
	Ended    int64
	Worker   string
	Last     *Data // data of the event that ended it, or that ended its last attempt
	unmet    int32 // needs not completed yet
	doomedBy int32 // index+1 of the need that makes it impossible
}

// NewRun makes the state before the first event.
func NewRun(g *Graph) *Run { return &Run{Graph: g} }

// Fold applies a whole log. It stops at the first event that the table refuses.
func Fold(g *Graph, log []Event) (*Run, error) {
	r := NewRun(g)
	for i := range log {
		if err := r.Apply(&log[i]); err != nil {
			return r, err
		}
	}
	return r, nil
}

// Apply moves the state by one event. The event must be the next of the run's stream; the hash chain is the caller's
// to check (Chain.Follow). An event that may not follow leaves the state as it was.
func (r *Run) Apply(e *Event) error {
	if e.Type >= StageQueued && e.Type <= StageLateResult {
		return r.applyStage(e)
	}
	to, ok := Next(r.State, e.Type)
	if !ok {
		return r.refuse(e, "", r.State, "not in the table")
	}
	if why := r.guard(e); why != "" {
		return r.refuse(e, "", r.State, why)
	}
	r.State, r.Mark = to, r.Chain
	switch e.Type {
	case RunCreated:
		r.create(e)
	case RunStarted:
		if r.Started == 0 {
			r.Started = e.Time
		}
	case RunCancelRequested:
		r.cancelRequested, r.Class, r.Reason, r.Culprit = true, "", e.Data.Reason, ""
	case RunResumed:
		r.resume()
	default:
		r.Ended = e.Time
		r.Class, r.Reason, r.Culprit = e.Data.Class, e.Data.Reason, e.Data.Stage
	}
	return nil
}

func (r *Run) refuse(e *Event, stage string, s State, why string) error {
	return &InvariantError{Stream: e.Stream, Sequence: e.Sequence, Event: e.Type, Stage: stage, State: s, Why: why}
}

func (r *Run) create(e *Event) {
	r.ID, r.Created = e.Stream, e.Time
	r.Delivery, r.Forked, r.Sample = e.Data.Delivery, e.Data.Forked, e.Data.Sample
	r.Kind, r.Trigger, r.Params, r.Trace = e.Data.Kind, e.Data.Trigger, e.Data.Params, e.Data.Trace
	stages := r.Graph.Plan.Stages
	r.Stages, r.open = make([]Stand, len(stages)), len(stages)
	for i := range stages {
		r.Stages[i] = Stand{State: Pending, Waits: "dependency", unmet: int32(len(stages[i].Needs))} //nolint:gosec // small
		if len(stages[i].Needs) == 0 {
			r.ready = append(r.ready, int32(i))
		}
	}
}

// resume puts every stage that has not completed back to pending and counts its needs anew. That takes in stages that
// were left running by a run that ended by Apollo's own fault: their claim is void.
func (r *Run) resume() {
	r.Ended, r.Class, r.Reason, r.Culprit, r.resumed = 0, "", "", "", true
	r.ready, r.doomed, r.open, r.running, r.failed, r.cancelRequested, r.sweep = nil, nil, 0, 0, 0, false, 0
	for i := range r.Stages {
		if s := &r.Stages[i]; s.State != Completed {
			*s = Stand{State: Pending, Waits: "dependency", Attempt: s.Attempt, Spent: s.Attempt, Token: s.Token}
			r.open++
			for _, need := range r.Graph.Plan.Stages[i].Needs {
				if n, _ := r.Graph.Index(need); r.Stages[n].State != Completed {
					s.unmet++
				}
			}
			if s.unmet == 0 {
				r.ready = append(r.ready, int32(i))
			}
		}
	}
}

func (r *Run) applyStage(e *Event) error {
	i, ok := r.Graph.Index(e.Data.Stage)
	if !ok || r.State == None {
		return r.refuse(e, e.Data.Stage, None, "the run has no such stage")
	}
	s := &r.Stages[i]
	to, ok := Next(s.State, e.Type)
	if !ok {
		return r.refuse(e, e.Data.Stage, s.State, "not in the table")
	}
	if why := r.stageGuard(e, s); why != "" {
		return r.refuse(e, e.Data.Stage, s.State, why)
	}
	if s.State == Running && to != Running {
		r.running--
	}
	s.State = to
	switch e.Type {
	case StageQueued:
		s.Queued, s.Waits = true, cmp.Or(e.Data.Waits, "slot")
	case StageStarted:
		s.Queued, s.Waits, s.Attempt, s.Token = false, "", e.Data.Attempt, e.Sequence
		s.Started, s.Ended, s.Worker, s.Due = e.Time, 0, e.Data.Worker, 0
		r.running++
	case StageRetryScheduled:
		s.Queued, s.Waits, s.Due, s.Last = true, "retry", e.Data.Due, keep(&e.Data)
		if r.cancelRequested {
			r.ready = append(r.ready, int32(i)) //nolint:gosec // small; the sweep may have passed it while it ran
		}
	case StageSegmentRecorded, StageGateOpened, StageApproved, StageRejected, StageLateResult:
	default:
		s.Queued, s.Waits, s.Ended, s.Last = false, "", e.Time, keep(&e.Data)
		r.end(i, s, e)
	}
	return nil
}

func keep(d *Data) *Data {
	kept := *d
	return &kept
}

// end settles what a finished stage means for the stages below and for the run: O(out-degree).
func (r *Run) end(i int, s *Stand, e *Event) {
	r.open--
	if s.State == Failed && !r.Graph.Plan.Stages[i].MayFail {
		if r.failed == 0 && !r.cancelRequested {
			r.Class, r.Reason, r.Culprit, r.Mark = e.Data.Class, e.Data.Reason, e.Data.Stage, r.Chain
		}
		r.failed++
	}
	for _, b := range r.Graph.Below(i) {
		r.steps++
		below := &r.Stages[b]
		switch {
		case s.State == Completed || r.Graph.Plan.Stages[b].Always:
			below.unmet--
			if below.unmet == 0 && below.State == Pending && below.doomedBy == 0 {
				r.ready = append(r.ready, b)
			}
		case below.doomedBy == 0 && below.State == Pending:
			below.doomedBy = int32(i) + 1 //nolint:gosec // small
			r.doomed = append(r.doomed, b)
		}
	}
}

// Holds reports whether the claim with the fencing token still is the stage's. A result under any other is recorded as
// stage.late_result.
func (r *Run) Holds(i int, token uint64) bool {
	s := &r.Stages[i]
	return r.State == Running && s.State == Running && s.Token == token
}

// Settle says how the failure of the stage's running attempt is recorded, as the function Settle does; attempts before a
// resume do not count, and in a run that is being cancelled nothing is tried again: a lost attempt is a cancelled one.
func (r *Run) Settle(i int, f *Failure, now int64) (t Type, due int64) {
	s := &r.Stages[i]
	t, due = Settle(r.ID, &r.Graph.Plan.Stages[i], s.Attempt-s.Spent, f, now)
	if r.cancelRequested && (t == StageRetryScheduled || f.Class == Lost) {
		return StageCancelled, 0
	}
	return t, due
}

// Cancelling reports whether a cancel was asked for.
func (r *Run) Cancelling() bool { return r.cancelRequested }

// RunningStages gives how many stages are running.
func (r *Run) RunningStages() int { return r.running }

// Open gives how many stages have not ended.
func (r *Run) Open() int { return r.open }

// Touched reports whether any event has moved or queued the stage: an untouched one is pending and waits for its needs.
func (r *Run) Touched(i int) bool {
	s := &r.Stages[i]
	return s.State != Pending || s.Queued || s.Attempt > 0 || r.resumed
}
