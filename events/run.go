package events

import "encoding/json"

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
	open            int     // stages that are not terminal
	running         int     // stages that are running
	failed          int     // failed stages without may_fail
	ready           []int32 // stages whose needs are met and which nobody has queued, started or skipped yet; a queue
	doomed          []int32 // stages below a failed, skipped or cancelled need; a queue
	sweep           int     // after cancel_requested: first stage not looked at yet
}

// Stand is the folded state of one stage in a run.
type Stand struct {
	State    State
	Queued   bool   // recorded as ready: it waits for what Waits says
	Waits    string // dependency, slot, retry, ...; empty unless pending
	Attempt  int    // number of the last attempt; 0 is none
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
		r.cancelRequested, r.Reason = true, e.Data.Reason
	case RunResumed:
		r.resume()
	default:
		r.Ended = e.Time
		if e.Data.Reason != "" {
			r.Class, r.Reason, r.Culprit = e.Data.Class, e.Data.Reason, e.Data.Stage
		}
	}
	return nil
}

func (r *Run) refuse(e *Event, stage string, s State, why string) error {
	return &InvariantError{Stream: e.Stream, Sequence: e.Sequence, Event: e.Type, Stage: stage, State: s, Why: why}
}

// guard holds the conditions that the table cannot say: a run ends only when its stages have ended.
func (r *Run) guard(e *Event) string {
	switch e.Type {
	case RunCompleted:
		if r.open > 0 || r.failed > 0 || r.cancelRequested {
			return "a run completes when every stage has ended and none has failed"
		}
	case RunCancelled:
		if r.open > 0 {
			return "a run is cancelled when no stage is open"
		}
	case RunFailed:
		if r.open > 0 && e.Data.Class != System {
			return "a run fails when no stage is open"
		}
	}
	return ""
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
			r.ready = append(r.ready, int32(i)) //nolint:gosec // small
		}
	}
}

// resume puts failed, cancelled and skipped stages back to pending and counts their needs anew.
func (r *Run) resume() {
	r.Ended, r.Class, r.Reason, r.Culprit = 0, "", "", ""
	r.ready, r.doomed, r.open, r.failed, r.cancelRequested, r.sweep = nil, nil, 0, 0, false, 0
	for i := range r.Stages {
		if s := &r.Stages[i]; s.State != Completed {
			*s = Stand{State: Pending, Waits: "dependency", Attempt: s.Attempt, Token: s.Token}
			r.open++
			for _, need := range r.Graph.Plan.Stages[i].Needs {
				if n, _ := r.Graph.Index(need); r.Stages[n].State != Completed {
					s.unmet++
				}
			}
			if s.unmet == 0 {
				r.ready = append(r.ready, int32(i)) //nolint:gosec // small
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
	if e.Type == StageLateResult {
		return nil
	}
	if s.State == Running && to != Running {
		r.running--
	}
	s.State = to
	switch e.Type {
	case StageQueued:
		s.Queued, s.Waits = true, e.Data.Waits
	case StageStarted:
		s.Queued, s.Waits, s.Attempt, s.Token = false, "", e.Data.Attempt, e.Sequence
		s.Started, s.Ended, s.Worker, s.Due = e.Time, 0, e.Data.Worker, 0
		r.running++
	case StageRetryScheduled:
		s.Queued, s.Waits, s.Due, s.Last = true, "retry", e.Data.Due, keep(&e.Data)
	case StageSegmentRecorded, StageGateOpened, StageApproved, StageRejected:
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

// stageGuard holds what the table cannot say: who may start, and that results come from the attempt that holds the
// claim.
func (r *Run) stageGuard(e *Event, s *Stand) string {
	switch e.Type {
	case StageStarted:
		switch {
		case r.State != Running:
			return "the run is not running"
		case s.unmet > 0 || s.doomedBy > 0:
			return "a need is not met"
		case e.Data.Attempt != s.Attempt+1:
			return "attempts are numbered without gaps"
		case r.cancelRequested:
			return "the run is being cancelled"
		}
	case StageQueued:
		if s.unmet > 0 || s.doomedBy > 0 {
			return "a need is not met"
		}
	case StageSkipped:
		if s.doomedBy == 0 && s.unmet > 0 {
			return "its needs are still open"
		}
	case StageCompleted, StageFailed, StageRetryScheduled:
		if e.Data.Token != s.Token {
			return "the fencing token is not that of the claim"
		}
	}
	return ""
}

// end settles what a finished stage means for the stages below and for the run: O(out-degree).
func (r *Run) end(i int, s *Stand, e *Event) {
	r.open--
	if s.State == Failed && !r.Graph.Plan.Stages[i].MayFail {
		if r.failed == 0 {
			r.Class, r.Reason, r.Culprit, r.Mark = e.Data.Class, e.Data.Reason, e.Data.Stage, r.Chain
		}
		r.failed++
	}
	for _, b := range r.Graph.Below(i) {
		below := &r.Stages[b]
		switch {
		case s.State == Completed:
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

// Cancelling reports whether a cancel was asked for.
func (r *Run) Cancelling() bool { return r.cancelRequested }

// RunningStages gives how many stages are running.
func (r *Run) RunningStages() int { return r.running }

// Open gives how many stages have not ended.
func (r *Run) Open() int { return r.open }
