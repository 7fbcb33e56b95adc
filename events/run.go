package events

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
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
	Since    int64 // from which a deadline counts: creation, or the last time that the run was resumed
	Created  int64 // Unix nanoseconds, as all times here; 0 is not yet
	Started  int64
	Ended    int64
	Class    Class   // of the stage that failed first
	Reason   string  // of the end, when it was not a success
	Culprit  string  // stage that failed first
	Group    string  // concurrency group
	Waits    string  // what a pending run that was queued waits for
	Parent   ID      // run whose stage started this one
	Depth    int     // runs above this one
	From     string  // of a rerun: the stage from which everything runs anew
	Logical  int64   // the run's time for its stages
	Seed     uint64  // of the run: stages derive theirs from it
	Fresh    bool    // it takes over no result of another run
	Imported int64   // when it came from another store
	Pruned   int64   // when artifacts of its own were removed
	Verified int     // verifications that reproduced it
	Findings int     // stages that gave two results for one stage key
	Stages   []Stand // those of the plan in its order, then the instances of foreach stages in the order of their making

	cancelRequested bool
	resumed         bool
	open            int     // stages that are not terminal
	running         int     // stages that are running
	failed          int     // failed stages without may_fail
	ready           []int32 // stages whose needs are met and which nobody has queued, started or skipped yet; a queue
	settled         []int32 // foreach stages whose instances have all ended, and stages that have their outputs already; a queue
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
	Answer   *Data // of the person who approved or rejected
	Approved bool
	Passed   *Data  // of the attempt whose gate somebody opened: its outputs are the stage's
	Cached   ID     // run whose result with the same stage key is taken over
	Broken   string // why a condition of the stage could not be evaluated: the attempt fails with it
	Item     int32  // number of a foreach stage's instance, from 1; 0 is a stage of the plan
	Plan     int32  // index of the stage in the plan
	First    int32  // index of a foreach stage's first instance; 0 is not expanded
	Count    int32  // of the instances
	Items    *Data  // of the event that expanded it
	left     int32  // instances that have not ended
	unmet    int32  // needs not completed yet
	weak     int32  // preferred stages that are neither in line nor past it
	doomedBy int32  // index+1 of the need that makes it impossible
	rejected *Data  // of the attempt that the gate rejected, before the run was resumed
	touched  bool   // it has been queued, started or ended: whoever prefers it may follow
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
	if e.Type >= StageQueued && e.Type <= StageIrreproducibleFound {
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
		r.Waits = ""
		if r.Started == 0 {
			r.Started = e.Time
		}
	case RunQueued:
		r.Waits = cmp.Or(e.Data.Waits, "concurrency")
	case RunCancelRequested:
		r.cancelRequested, r.Class, r.Reason, r.Culprit = true, e.Data.Class, e.Data.Reason, ""
	case RunResumed:
		r.Since = e.Time
		r.resume()
	case RunImported:
		r.Imported = e.Time
	case RunPruned:
		r.Pruned = e.Time
	case RunVerified:
		if e.Data.Verdict == "reproduced" {
			r.Verified++
		}
	default:
		r.Ended, r.Waits = e.Time, ""
		r.Class, r.Reason, r.Culprit = e.Data.Class, e.Data.Reason, e.Data.Stage
	}
	return nil
}

func (r *Run) refuse(e *Event, stage string, s State, why string) error {
	return &InvariantError{Stream: e.Stream, Sequence: e.Sequence, Event: e.Type, Stage: stage, State: s, Why: why}
}

func (r *Run) create(e *Event) {
	d := &e.Data
	r.ID, r.Created, r.Since = e.Stream, e.Time, e.Time
	r.Delivery, r.Forked, r.From, r.Sample = d.Delivery, d.Forked, d.From, d.Sample
	r.Kind, r.Trigger, r.Params, r.Trace = d.Kind, d.Trigger, d.Params, d.Trace
	r.Group, r.Parent, r.Depth = d.Group, d.Parent, d.Depth
	r.Logical, r.Seed, r.Fresh = d.Logical, d.Seed, d.Fresh > 0
	if r.Logical == 0 {
		r.Logical = e.Time
	}
	if r.Seed == 0 {
		r.Seed = SeedOf(e.Stream[:])
	}
	stages := r.Graph.Plan.Stages
	r.Stages, r.open = make([]Stand, len(stages)), len(stages)
	for i := range stages {
		r.Stages[i] = Stand{State: Pending, Waits: "dependency", Plan: int32(i),
			unmet: int32(len(stages[i].Needs)), weak: int32(len(stages[i].Prefers))} //nolint:gosec // as above
		r.free(int32(i))
	}
}

// free puts a stage that nothing holds back any more among the ready ones.
func (r *Run) free(i int32) {
	if s := &r.Stages[i]; s.unmet == 0 && s.weak == 0 && s.doomedBy == 0 && s.State == Pending && s.Item == 0 {
		r.ready = append(r.ready, i)
	}
}

// resume puts every stage that has not completed back to pending and counts its needs anew. That takes in stages that
// were left running by a run that ended by Apollo's own fault: their claim is void. Instances of a completed foreach
// stage stay as they ended; others wait until their stage is expanded again.
func (r *Run) resume() {
	r.Ended, r.Class, r.Reason, r.Culprit, r.resumed = 0, "", "", "", true
	r.ready, r.doomed, r.settled, r.open, r.running, r.failed, r.cancelRequested, r.sweep = nil, nil, nil, 0, 0, 0, false, 0
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.State == Completed || s.Item > 0 && r.Stages[s.Plan].State == Completed {
			continue
		}
		fresh := Stand{State: Pending, Waits: "dependency", Attempt: s.Attempt, Spent: s.Attempt, Token: s.Token, Item: s.Item, Plan: s.Plan,
			First: s.First, Count: s.Count, Items: s.Items}
		if s.Last != nil && s.Last.Class == GateRejected && (s.Item > 0 || s.First == 0) { // else its items have the gates
			fresh.rejected = s.Last
		}
		*s = fresh
		r.open++
	}
	for i := range r.Graph.Plan.Stages {
		s := &r.Stages[i]
		if s.State != Pending {
			continue
		}
		s.unmet, s.weak = r.pending(r.Graph.Plan.Stages[i].Needs, Completed), r.pending(r.Graph.Plan.Stages[i].Prefers, Pending)
		r.free(int32(i))
	}
}

// pending counts the stages of the list that are not in the state, or with Pending those that are.
func (r *Run) pending(stages []string, state State) (n int32) {
	for _, name := range stages {
		if i, _ := r.Graph.Index(name); (r.Stages[i].State == state) == (state == Pending) {
			n++
		}
	}
	return n
}

// SeedOf derives a seed from the parts of a name, as a run's from its id, and a stage's from its run's and its label. It is
// never 0.
func SeedOf(parts ...[]byte) uint64 {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return max(1, binary.BigEndian.Uint64(h.Sum(nil)))
}

// Find gives the place in Stages of a stage of the plan, or of its instance with the number.
func (r *Run) Find(stage string, item int) (int, bool) {
	i, ok := r.Graph.Index(stage)
	if !ok || r.State == None {
		return 0, false
	}
	if item == 0 {
		return i, true
	}
	if s := &r.Stages[i]; s.First > 0 && item > 0 && item <= int(s.Count) {
		return int(s.First) + item - 1, true
	}
	return 0, false
}

// StageOf gives the stage of the plan that a place in Stages is of.
func (r *Run) StageOf(i int) *Stage { return &r.Graph.Plan.Stages[r.Stages[i].Plan] }

// Expanded reports whether the place is a foreach stage that only waits for its instances: it has no body.
func (r *Run) Expanded(i int) bool {
	s := &r.Stages[i]
	return s.State == Running && s.Item == 0 && s.First > 0
}

// Passing reports whether the place was started to be completed at once with outputs that it has already: a gate was
// opened, a rerun takes them over, or another run had the same stage key. It has no body.
func (r *Run) Passing(i int) bool {
	s := &r.Stages[i]
	return s.State == Running && s.Worker == "" && (s.Passed != nil || r.From != "" || !s.Cached.IsZero()) && !r.Expanded(i)
}

func (r *Run) applyStage(e *Event) error {
	i, ok := r.Find(e.Data.Stage, e.Data.Item)
	if !ok {
		return r.refuse(e, e.Data.Stage, None, "the run has no such stage")
	}
	s := &r.Stages[i]
	to, ok := Next(s.State, e.Type)
	if !ok {
		return r.refuse(e, e.Data.Stage, s.State, "not in the table")
	}
	if why := r.stageGuard(e, i); why != "" {
		return r.refuse(e, e.Data.Stage, s.State, why)
	}
	if s.State == Running && to != Running {
		r.running--
	}
	s.State = to
	switch e.Type {
	case StageQueued:
		s.Queued, s.Waits, s.Due, s.Broken = true, cmp.Or(e.Data.Waits, "slot"), e.Data.Due, brokenBy(e.Data.Checks)
	case StageStarted:
		s.Queued, s.Waits, s.Attempt, s.Token = false, "", e.Data.Attempt, e.Sequence
		s.Started, s.Ended, s.Worker, s.Due, s.Cached = e.Time, 0, e.Data.Worker, 0, e.Data.Cached
		s.Broken = cmp.Or(brokenBy(e.Data.Checks), s.Broken)
		r.running++
		if len(e.Data.Items) > 0 || !e.Data.Blob.IsZero() {
			r.expand(i, e)
		} else if r.Passing(i) {
			r.settled = append(r.settled, int32(i)) //nolint:gosec // small
		}
	case StageRetryScheduled:
		s.Queued, s.Waits, s.Due, s.Last = true, "retry", e.Data.Due, keep(&e.Data)
		if r.cancelRequested {
			r.ready = append(r.ready, int32(i)) //nolint:gosec // small; the sweep may have passed it while it ran
		}
	case StageApproved, StageRejected:
		s.Answer, s.Approved, s.Waits, s.Due = keep(&e.Data), e.Type == StageApproved, "slot", 0
	case StageGateOpened:
		s.Passed = s.rejected
	case StageIrreproducibleFound:
		r.Findings++
		r.Mark = r.Chain
	case StageSegmentRecorded, StageLateResult, StageVerified:
	default:
		s.Queued, s.Waits, s.Ended, s.Last = false, "", e.Time, keep(&e.Data)
		r.end(i, e)
	}
	r.letFollow(i)
	return nil
}

// brokenBy gives why one of the conditions could not be evaluated.
func brokenBy(checks []Check) string {
	for i := range checks {
		if checks[i].Error != "" {
			return checks[i].Error
		}
	}
	return ""
}

// letFollow lets the stages that prefer this one go once it is in line or past it.
func (r *Run) letFollow(i int) {
	if s := &r.Stages[i]; s.Item > 0 || s.touched || s.State == Pending && !s.Queued {
		return
	}
	r.Stages[i].touched = true
	for _, b := range r.Graph.Behind(i) {
		r.steps++
		if s := &r.Stages[b]; s.weak > 0 {
			s.weak--
			r.free(b)
		}
	}
}

// expand makes the instances of a foreach stage, or takes those up again that a resumed run has left to do.
func (r *Run) expand(i int, e *Event) {
	if s := &r.Stages[i]; s.First == 0 {
		s.First, s.Count, s.Items = int32(len(r.Stages)), int32(e.Data.Count), keep(&e.Data) //nolint:gosec // bounded by the guard
		made := make([]Stand, e.Data.Count)
		for k := range made {
			made[k] = Stand{State: Pending, Waits: "slot", Plan: int32(i), Item: int32(k + 1)} //nolint:gosec // as above
		}
		r.Stages, r.open = append(r.Stages, made...), r.open+len(made)
	}
	s := &r.Stages[i]
	s.left = 0
	for k := s.First; k < s.First+s.Count; k++ {
		r.steps++
		if r.Stages[k].State == Pending {
			s.left++
			r.ready = append(r.ready, k)
		}
	}
	if s.left == 0 {
		r.settled = append(r.settled, int32(i)) //nolint:gosec // small
	}
}

func keep(d *Data) *Data {
	kept := *d
	return &kept
}

// end settles what a finished stage means for the stages below and for the run, O(out-degree), or what a finished
// instance means for its stage.
func (r *Run) end(i int, e *Event) {
	r.open--
	s := &r.Stages[i]
	if s.Item > 0 {
		stage := &r.Stages[s.Plan]
		if stage.left--; stage.left == 0 && stage.State == Running {
			r.settled = append(r.settled, s.Plan)
		}
		return
	}
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
			r.free(b)
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
	t, due = settle(r.ID, r.StageOf(i), int(s.Item), s.Attempt-s.Spent, f, now)
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

// Resumed reports whether the run was continued after it had failed.
func (r *Run) Resumed() bool { return r.resumed }
