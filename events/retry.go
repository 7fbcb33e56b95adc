package events

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"time"
)

// LostRestarts is how often a stage that declares no retry is started again after its worker died: an engine that is
// killed must not fail a run, and a stage that kills the engine must not do so for ever.
const LostRestarts = 3

// Settle says how a failed attempt is recorded: as stage.failed, or as stage.retry_scheduled with the instant (Unix
// nanoseconds) before which the next attempt does not start. It is a function of the plan, the run and the failure.
func Settle(run ID, s *Stage, attempt int, f *Failure, now int64) (t Type, due int64) {
	return settle(run, s, 0, attempt, f, now)
}

func settle(run ID, s *Stage, item, attempt int, f *Failure, now int64) (t Type, due int64) {
	if f.Class == Aborted {
		return StageCancelled, 0
	}
	if f.Class == Lost {
		limit := LostRestarts
		if s.Retry != nil && s.Retry.Max > 0 {
			limit = s.Retry.Max
		}
		if attempt <= limit {
			return StageRetryScheduled, now
		}
		return StageFailed, 0
	}
	if s.Retry == nil || attempt > s.Retry.Max || !s.Retry.covers(f) {
		return StageFailed, 0
	}
	return StageRetryScheduled, now + int64(s.Retry.Wait(run, s.Label(item), attempt))
}

func (r *Retry) covers(f *Failure) bool {
	if len(r.On) == 0 {
		return f.Class != BadInput
	}
	if slices.Contains(r.On, string(f.Class)) {
		return true
	}
	return f.Class == ExecFailed && f.Signal == "" && slices.Contains(r.On, "exit:"+strconv.Itoa(f.Exit))
}

// Wait gives the pause after the attempt: interval x backoff^(attempt-1), capped, then moved by up to the jitter share
// in either direction. The jitter comes from the run, the stage and the attempt, so that a replay agrees.
func (r *Retry) Wait(run ID, stage string, attempt int) time.Duration {
	wait := float64(r.Interval)
	for i := 1; i < attempt && r.Backoff > 1; i++ {
		wait *= r.Backoff
		if r.MaxInterval > 0 && wait > float64(r.MaxInterval) {
			break
		}
	}
	if r.MaxInterval > 0 {
		wait = min(wait, float64(r.MaxInterval))
	}
	if r.Jitter > 0 {
		seed := binary.BigEndian.AppendUint64(append(run[:], stage...), uint64(attempt)) //nolint:gosec // small
		h := sha256.Sum256(seed)
		unit := float64(binary.BigEndian.Uint64(h[:8])>>11) / (1 << 53) // [0,1)
		wait *= 1 + r.Jitter*(2*unit-1)
	}
	return time.Duration(min(wait, float64(1<<62)))
}
