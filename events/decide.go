package events

import (
	"cmp"
	"fmt"
)

// Decision is what must happen next, and is not an event yet. StageQueued means that the stage is ready: whoever
// carries it out records stage.started when the stage can be claimed at once, and stage.queued when it has to wait.
type Decision struct {
	Type   Type
	Stage  int // place in Run.Stages; -1 for the run
	Reason string
	Class  Class
	first  int // of a foreach stage that ends: 1 + the place of its first failed instance; 0 is none
}

// NextDecision gives the first thing that must follow the log as it is, or false when the run waits for the world: a
// result, a free slot, a due retry. It depends on the log alone and costs O(1) over the life of a run.
func (r *Run) NextDecision() (Decision, bool) {
	switch {
	case r.State == None || r.State.Terminal():
		return Decision{}, false
	case r.cancelRequested:
		return r.nextCancel()
	case r.State == Pending:
		return Decision{Type: RunStarted, Stage: -1}, r.Waits == ""
	}
	if d, ok := r.nextSettled(); ok {
		return d, true
	}
	for ; len(r.doomed) > 0; r.doomed = r.doomed[1:] {
		r.steps++
		if d, ok := r.skip(int(r.doomed[0])); ok {
			return d, true
		}
	}
	for ; len(r.ready) > 0; r.ready = r.ready[1:] {
		r.steps++
		if i := int(r.ready[0]); r.isReady(i) {
			return Decision{Type: StageQueued, Stage: i}, true
		}
	}
	if r.open > 0 {
		return Decision{}, false
	}
	if r.failed > 0 {
		return Decision{Type: RunFailed, Stage: -1, Reason: r.Reason, Class: r.Class}, true
	}
	return Decision{Type: RunCompleted, Stage: -1}, true
}

// Due reports whether something must follow the log as it is.
func (r *Run) Due() bool {
	_, due := r.NextDecision()
	return due
}

// nextSettled ends a foreach stage whose instances have all ended, and a stage that has its outputs already.
func (r *Run) nextSettled() (Decision, bool) {
	for ; len(r.settled) > 0; r.settled = r.settled[1:] {
		r.steps++
		if i := int(r.settled[0]); r.isSettled(i) {
			return r.sum(i), true
		}
	}
	return Decision{}, false
}

func (r *Run) isSettled(i int) bool { return r.Expanded(i) && r.Stages[i].left == 0 || r.Passing(i) }

// sum says how a foreach stage ends: it fails with its first failed instance, unless it may fail, and gives null for
// that one then.
func (r *Run) sum(i int) Decision {
	if r.cancelRequested {
		return cancelDecision(i)
	}
	if r.Passing(i) {
		return Decision{Type: StageCompleted, Stage: i}
	}
	s, failed, first := &r.Stages[i], 0, -1
	for k := int(s.First + s.Count - 1); k >= int(s.First); k-- {
		r.steps++
		if r.Stages[k].State == Failed {
			failed, first = failed+1, k
		}
	}
	d := Decision{Type: StageCompleted, Stage: i, first: first + 1}
	if failed > 0 {
		f := r.Stages[first].Last
		d.Reason = fmt.Sprintf("%d of %d items failed, item %d: %s", failed, s.Count, r.Stages[first].Item, f.Reason)
		if !r.Graph.Plan.Stages[i].MayFail {
			d.Type, d.Class = StageFailed, f.Class
		}
	}
	return d
}

func cancelDecision(i int) Decision {
	return Decision{Type: StageCancelled, Stage: i, Reason: "the run was cancelled", Class: Aborted}
}

// nextCancel closes what is pending; what is running reports by itself once its processes are gone.
func (r *Run) nextCancel() (Decision, bool) {
	for ; r.sweep < len(r.Stages); r.sweep++ {
		r.steps++
		if r.Stages[r.sweep].State == Pending {
			return cancelDecision(r.sweep), true
		}
	}
	for ; len(r.ready) > 0; r.ready = r.ready[1:] { // the retries that were scheduled behind the sweep
		r.steps++
		if i := int(r.ready[0]); r.Stages[i].State == Pending {
			return cancelDecision(i), true
		}
	}
	if d, ok := r.nextSettled(); ok {
		return d, true
	}
	if r.open > 0 {
		return Decision{}, false
	}
	return Decision{Type: RunCancelled, Stage: -1, Reason: r.Reason, Class: cmp.Or(r.Class, Aborted)}, true
}

// Event makes the event that records the decision, without id, time and place in the chain.
func (d Decision) Event(r *Run) (e Event) {
	d.Record(r, &e)
	return e
}

// Record fills in the event that records the decision, as Event does, where it lies: an event is large.
func (d Decision) Record(r *Run, e *Event) {
	e.Stream, e.Type = r.ID, d.Type
	e.Data.Stage, e.Data.Reason, e.Data.Class = d.stageName(r), d.Reason, d.Class
	if d.Stage < 0 {
		return
	}
	s := &r.Stages[d.Stage]
	e.Data.Item = int(s.Item)
	if s.State == Running { // a foreach stage ends, or one that has its outputs
		e.Data.Attempt, e.Data.Token = s.Attempt, s.Token
		if d.Type == StageFailed && d.first > 0 {
			f := *r.Stages[d.first-1].Last.Failure()
			f.Reason = d.Reason
			e.Data.SetFailure(&f)
		}
	}
}

// stageName gives the stage that the decision is about: for a run that fails, the one that failed first.
func (d Decision) stageName(r *Run) string {
	switch {
	case d.Stage >= 0:
		return r.StageOf(d.Stage).Name
	case d.Type == RunFailed:
		return r.Culprit
	}
	return ""
}

// Decide gives every decision that is due now and does not wait for another of them: the start of the run, each stage
// to be skipped or cancelled, each stage that is ready, or the end of the run. It moves nothing. Once they are recorded,
// ask again: a skipped stage may doom the one below it. It is the whole of the scheduler, and a function of the log.
func (r *Run) Decide() []Decision { return r.appendDecisions(nil) }

func (r *Run) appendDecisions(due []Decision) []Decision {
	first, ok := r.NextDecision()
	if !ok {
		return due
	}
	due = append(due, first)
	ready := 0
	switch first.Type {
	case StageCancelled:
		return r.appendCancels(due, first)
	case StageCompleted, StageFailed:
		return r.appendSettled(due)
	case StageSkipped:
		due = r.appendSkips(due)
	case StageQueued:
		ready = 1
	case RunStarted:
	default:
		return due
	}
	return r.appendReady(due, ready)
}

func (r *Run) appendSkips(due []Decision) []Decision {
	for _, i := range r.doomed[1:] {
		r.steps++
		if d, ok := r.skip(int(i)); ok {
			due = append(due, d)
		}
	}
	return due
}

func (r *Run) appendCancels(due []Decision, first Decision) []Decision {
	if r.Stages[first.Stage].State != Pending { // foreach stages, after what was pending
		return r.appendSettled(due)
	}
	for i := r.sweep + 1; i < len(r.Stages); i++ {
		r.steps++
		if r.Stages[i].State == Pending {
			first.Stage = i
			due = append(due, first)
		}
	}
	return due
}

func (r *Run) appendSettled(due []Decision) []Decision {
	for _, i := range r.settled[1:] {
		r.steps++
		if r.isSettled(int(i)) {
			due = append(due, r.sum(int(i)))
		}
	}
	return due
}

func (r *Run) skip(i int) (Decision, bool) {
	if r.Stages[i].State != Pending {
		return Decision{}, false
	}
	need := int(r.Stages[i].doomedBy) - 1
	return Decision{Type: StageSkipped, Stage: i,
		Reason: "needs " + r.Graph.Plan.Stages[need].Name + ", which is " + r.Stages[need].State.String()}, true
}

func (r *Run) appendReady(due []Decision, from int) []Decision {
	for ; from < len(r.ready); from++ {
		r.steps++
		if i := int(r.ready[from]); r.isReady(i) {
			due = append(due, Decision{Type: StageQueued, Stage: i})
		}
	}
	return due
}

func (r *Run) isReady(i int) bool {
	s := &r.Stages[i]
	return s.State == Pending && !s.Queued && s.unmet == 0 && s.weak == 0 && s.doomedBy == 0 &&
		(s.Item == 0 || r.Stages[s.Plan].State == Running)
}

// skippedByWhen reports whether the event records that the stage's condition is false, as its plan has it.
func (r *Run) skippedByWhen(i int, e *Event) bool {
	st := r.StageOf(i)
	if st.When == "" || st.WhenItem != (r.Stages[i].Item > 0) {
		return false
	}
	return len(e.Data.Checks) == 1 && e.Data.Checks[0].Kind == "when" && e.Data.Checks[0].Expr == st.When && !e.Data.Checks[0].Holds
}

// Answers reports whether the event is a lawful record of the decision. A ready stage is queued, started at once, or
// skipped when its plan has a condition.
func (d Decision) Answers(r *Run, e *Event) bool {
	if e.Data.Stage != d.stageName(r) || d.Stage >= 0 && e.Data.Item != int(r.Stages[d.Stage].Item) {
		return false
	}
	switch d.Type {
	case StageQueued:
		return e.Type == StageQueued || e.Type == StageStarted || e.Type == StageSkipped && r.skippedByWhen(d.Stage, e)
	case RunStarted:
		if e.Type == RunQueued {
			return true
		}
	}
	return e.Type == d.Type && e.Data.Reason == d.Reason && e.Data.Class == d.Class
}
