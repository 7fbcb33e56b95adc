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

// stageGuard holds what the table cannot say: who may start, and that results come from the attempt that holds the
// claim.
func (r *Run) stageGuard(e *Event, s *Stand) string {
	if e.Type == StageLateResult {
		return ""
	}
	if r.State.Terminal() {
		return "the run has ended"
	}
	switch e.Type {
	case StageStarted:
		if e.Data.Attempt != s.Attempt+1 {
			return "attempts are numbered without gaps"
		}
		return r.mayMove(s)
	case StageQueued:
		return r.mayMove(s)
	case StageSkipped:
		switch {
		case r.State != Running || r.cancelRequested:
			return "the run does not run"
		case s.doomedBy == 0 && s.unmet > 0:
			return "its needs are still open"
		}
	case StageCompleted, StageFailed, StageRetryScheduled:
		if e.Data.Token != s.Token {
			return "the fencing token is not that of the claim"
		}
	case StageCancelled:
		switch {
		case !r.cancelRequested:
			return "nobody has asked for it"
		case s.State == Running && e.Data.Token != s.Token:
			return "the fencing token is not that of the claim"
		}
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
	}
	return ""
}
