package events

// guard holds the conditions that the table cannot say: a run ends only when its stages have ended, and as they have.
// One exception: Apollo's own fault (class system) ends a run at any time, and leaves its stages as they stand.
func (r *Run) guard(e *Event) string {
	switch e.Type {
	case RunCompleted:
		if r.open > 0 || r.failed > 0 || r.cancelRequested {
			return "a run completes when every stage has ended and none has failed"
		}
	case RunCancelled:
		if r.open > 0 || !r.cancelRequested {
			return "a run is cancelled when somebody asked for it and no stage is open"
		}
	case RunFailed:
		if e.Data.Class != System && (r.open > 0 || r.failed == 0 || r.cancelRequested) {
			return "a run fails when a stage has failed and none is open"
		}
	}
	return ""
}

// MaxItems is the most instances that a foreach stage may have.
const MaxItems = 100_000

// stageGuard holds what the table cannot say: who may start, and that results come from the attempt that holds the
// claim.
func (r *Run) stageGuard(e *Event, i int) string {
	s := &r.Stages[i]
	switch e.Type {
	case StageLateResult, StageVerified, StageIrreproducibleFound:
		return ""
	}
	if r.State.Terminal() {
		return "the run has ended"
	}
	switch e.Type {
	case StageStarted:
		return r.mayStart(e, i)
	case StageQueued:
		return r.mayMove(s)
	case StageSkipped:
		return r.maySkip(s)
	case StageApproved, StageRejected:
		if r.StageOf(i).Executor != "approval" || !s.Queued || s.Answer != nil || r.cancelRequested {
			return "it waits for no approval"
		}
	case StageGateOpened:
		if s.rejected == nil || s.Queued {
			return "no gate has rejected it"
		}
	case StageCompleted, StageFailed, StageRetryScheduled:
		return r.mayEnd(e, i)
	case StageCancelled:
		switch {
		case !r.cancelRequested:
			return "nobody has asked for it"
		case s.State == Running:
			return r.mayEnd(e, i)
		}
	}
	return ""
}

func (r *Run) mayStart(e *Event, i int) string {
	s, items := &r.Stages[i], len(e.Data.Items) > 0 || !e.Data.Blob.IsZero()
	switch {
	case e.Data.Attempt != s.Attempt+1:
		return "attempts are numbered without gaps"
	case items && (s.Item > 0 || r.StageOf(i).Foreach == ""):
		return "only a foreach stage has items"
	case e.Data.Count < 0 || e.Data.Count > MaxItems || e.Data.Count > 0 && !items:
		return "the number of items is out of its bounds"
	case s.First > 0 && (!items || int(s.Count) != e.Data.Count):
		return "a foreach stage has the same items each time"
	}
	return r.mayMove(s)
}

func (r *Run) maySkip(s *Stand) string {
	switch {
	case r.State != Running || r.cancelRequested:
		return "the run does not run"
	case s.doomedBy == 0 && s.unmet > 0:
		return "its needs are still open"
	case s.First > 0:
		return "it has instances already"
	case s.Item > 0 && r.Stages[s.Plan].State != Running:
		return "its stage is not expanded"
	}
	return ""
}

// mayEnd holds the conditions for what ends a running attempt, or a foreach stage with its instances.
func (r *Run) mayEnd(e *Event, i int) string {
	switch {
	case e.Data.Token != r.Stages[i].Token:
		return "the fencing token is not that of the claim"
	case r.Expanded(i) && (r.Stages[i].left > 0 || e.Type == StageRetryScheduled):
		return "its instances have not ended"
	}
	return ""
}

// mayMove holds the conditions for a pending stage to be queued or started.
func (r *Run) mayMove(s *Stand) string {
	switch {
	case r.State != Running:
		return "the run is not running"
	case r.cancelRequested:
		return "the run is being cancelled"
	case s.unmet > 0 || s.doomedBy > 0:
		return "a need is not met"
	case s.weak > 0:
		return "a stage that it prefers goes first"
	case s.Item > 0 && r.Stages[s.Plan].State != Running:
		return "its stage is not expanded"
	}
	return ""
}
