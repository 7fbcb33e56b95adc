package events

import (
	"slices"

	"pgregory.net/rapid"
)

// rules is a second statement of what may follow what, made without the table, from the design's words: it keeps only
// the states, and looks at the whole graph each time.
type rules struct {
	p         *Plan
	run       State
	stages    []ruled
	cancelled bool
}

type ruled struct {
	state   State
	attempt int
	token   uint64
}

func (m *rules) accept(e *Event) bool {
	if e.Type.Entity() == "stage" {
		return m.run != None && m.acceptStage(e)
	}
	was := m.run
	switch e.Type {
	case RunCreated:
		if was != None {
			return false
		}
		m.run, m.stages = Pending, make([]ruled, len(m.p.Stages))
		for i := range m.stages {
			m.stages[i].state = Pending
		}
		return true
	case RunStarted:
		return m.move(was == Pending, Running)
	case RunCancelRequested:
		ok := was == Pending || was == Running
		m.cancelled = m.cancelled || ok
		return ok
	case RunCompleted:
		return m.move(was == Running && m.allEnded() && !m.anyFailed() && !m.cancelled, Completed)
	case RunFailed:
		bySystem := e.Data.Class == System
		return m.move(was == Running && (bySystem || m.allEnded() && m.anyFailed() && !m.cancelled), Failed)
	case RunCancelled:
		return m.move((was == Pending || was == Running) && m.cancelled && m.allEnded(), Cancelled)
	case RunResumed:
		if !m.move(was == Failed, Pending) {
			return false
		}
		m.cancelled = false
		for i := range m.stages {
			if m.stages[i].state != Completed {
				m.stages[i].state = Pending
			}
		}
		return true
	}
	return false
}

func (m *rules) move(allowed bool, to State) bool {
	if allowed {
		m.run = to
	}
	return allowed
}

func (m *rules) allEnded() bool {
	return !slices.ContainsFunc(m.stages, func(s ruled) bool { return !s.state.Terminal() })
}

func (m *rules) anyFailed() bool {
	for i, s := range m.stages {
		if s.state == Failed && !m.p.Stages[i].MayFail {
			return true
		}
	}
	return false
}

// needs says whether the stage may go now, and whether it never can.
func (m *rules) needs(i int) (met, hopeless bool) {
	met = true
	for _, need := range m.p.Stages[i].Needs {
		n := slices.IndexFunc(m.p.Stages, func(s Stage) bool { return s.Name == need })
		state := m.stages[n].state
		if m.p.Stages[i].Always {
			met = met && state.Terminal()
			continue
		}
		met = met && state == Completed
		hopeless = hopeless || state.Terminal() && state != Completed
	}
	return met, hopeless
}

func (m *rules) acceptStage(e *Event) bool {
	i := slices.IndexFunc(m.p.Stages, func(s Stage) bool { return s.Name == e.Data.Stage })
	if i < 0 {
		return false
	}
	s := &m.stages[i]
	if e.Type == StageLateResult {
		return true
	}
	if m.run.Terminal() {
		return false
	}
	met, hopeless := m.needs(i)
	goes := m.run == Running && !m.cancelled && s.state == Pending
	claimed := s.state == Running && e.Data.Token == s.token
	to := func(allowed bool, state State) bool {
		if allowed {
			s.state = state
		}
		return allowed
	}
	switch e.Type {
	case StageQueued:
		return goes && met
	case StageStarted:
		if !to(goes && met && e.Data.Attempt == s.attempt+1, Running) {
			return false
		}
		s.attempt, s.token = e.Data.Attempt, e.Sequence
		return true
	case StageSkipped:
		return to(goes && (met || hopeless), Skipped)
	case StageCompleted:
		return to(claimed, Completed)
	case StageFailed:
		return to(claimed, Failed)
	case StageRetryScheduled:
		return to(claimed, Pending)
	case StageCancelled:
		return to(m.cancelled && (s.state == Pending || claimed), Cancelled)
	}
	return s.state == Running // segments, gates, approvals
}

func (m *rules) compare(t *rapid.T, r *Run) {
	open, running := 0, 0
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.State != m.stages[i].state || s.Attempt != m.stages[i].attempt || s.Token != m.stages[i].token {
			t.Fatalf("stage %d is %+v, the rules have %+v", i, s, m.stages[i])
		}
		if (s.Waits != "") != (s.State == Pending) {
			t.Fatalf("stage %d is %s and waits for %q", i, s.State, s.Waits)
		}
		if !s.State.Terminal() {
			open++
		}
		if s.State == Running {
			running++
		}
	}
	if r.State != m.run || r.Cancelling() != m.cancelled || r.Open() != open || r.RunningStages() != running {
		t.Fatalf("run %s, %d open, %d running; the rules have %s, %d, %d", r.State, r.Open(), r.RunningStages(), m.run, open, running)
	}
}
