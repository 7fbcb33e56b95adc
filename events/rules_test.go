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
	plan, item      int
	state           State
	attempt         int
	token           uint64
	queued, touched bool
	answered        bool
	class, rejected Class
	first, count    int // of the instances; first is -1 before there are any
}

func newRuled(plan, item int) ruled { return ruled{plan: plan, item: item, state: Pending, first: -1} }

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
		m.run, m.stages = Pending, nil
		for i := range m.p.Stages {
			m.stages = append(m.stages, newRuled(i, 0))
		}
		return true
	case RunQueued:
		return was == Pending
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
			s := &m.stages[i]
			if s.state != Completed && (s.item == 0 || m.stages[s.plan].state != Completed) {
				s.state, s.queued, s.touched, s.answered = Pending, false, false, false
				if s.rejected = ""; s.class == GateRejected && s.first < 0 {
					s.rejected = s.class
				}
				s.class = ""
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
		if s.item == 0 && s.state == Failed && !m.p.Stages[i].MayFail {
			return true
		}
	}
	return false
}

func (m *rules) named(name string) int {
	return slices.IndexFunc(m.p.Stages, func(s Stage) bool { return s.Name == name })
}

// needs says whether the stage may go now, and whether it never can.
func (m *rules) needs(i int) (met, hopeless bool) {
	s := &m.stages[i]
	if s.item > 0 {
		return m.stages[s.plan].state == Running, false
	}
	met = true
	for _, need := range m.p.Stages[i].Needs {
		state := m.stages[m.named(need)].state
		if m.p.Stages[i].Always {
			met = met && state.Terminal()
			continue
		}
		met = met && state == Completed
		hopeless = hopeless || state.Terminal() && state != Completed
	}
	return met, hopeless
}

// polite says whether every stage that this one prefers is in line or past it.
func (m *rules) polite(i int) bool {
	return m.stages[i].item > 0 || !slices.ContainsFunc(m.p.Stages[i].Prefers, func(name string) bool { return !m.stages[m.named(name)].touched })
}

// instancesEnded says whether the place is no foreach stage that still has instances to wait for.
func (m *rules) instancesEnded(s *ruled) bool {
	for _, other := range m.stages {
		if s.first >= 0 && s.item == 0 && other.item > 0 && other.plan == s.plan && !other.state.Terminal() {
			return false
		}
	}
	return true
}

func (m *rules) place(e *Event) int {
	i := m.named(e.Data.Stage)
	if i < 0 || e.Data.Item == 0 {
		return i
	}
	return slices.IndexFunc(m.stages, func(s ruled) bool { return s.plan == i && s.item == e.Data.Item })
}

func (m *rules) acceptStage(e *Event) bool {
	i := m.place(e)
	if i < 0 {
		return false
	}
	if e.Type == StageLateResult {
		return true
	}
	s := &m.stages[i]
	ok := !m.run.Terminal() && m.acceptMove(e, i, s)
	if s = &m.stages[i]; ok && (s.state != Pending || s.queued) {
		s.touched = true
	}
	return ok
}

func (m *rules) acceptMove(e *Event, i int, s *ruled) bool {
	met, hopeless := m.needs(i)
	goes := m.run == Running && !m.cancelled && s.state == Pending
	claimed := s.state == Running && e.Data.Token == s.token && m.instancesEnded(s)
	to := func(allowed bool, state State) bool {
		if allowed {
			s.state, s.queued = state, state == Pending
			s.class = e.Data.Class
		}
		return allowed
	}
	switch e.Type {
	case StageQueued:
		ok := goes && met && m.polite(i)
		s.queued = s.queued || ok
		return ok
	case StageStarted:
		return m.acceptStart(e, i, goes && met && m.polite(i))
	case StageSkipped:
		return to(goes && (met || hopeless) && s.first < 0, Skipped)
	case StageCompleted:
		return to(claimed, Completed)
	case StageFailed:
		return to(claimed, Failed)
	case StageRetryScheduled:
		return to(claimed && s.first < 0, Pending)
	case StageCancelled:
		return to(m.cancelled && (s.state == Pending || claimed), Cancelled)
	case StageApproved, StageRejected:
		ok := s.state == Pending && m.p.Stages[s.plan].Executor == "approval" && s.queued && !s.answered && !m.cancelled
		s.answered = s.answered || ok
		return ok
	case StageGateOpened:
		return s.state == Pending && s.rejected != "" && !s.queued
	}
	return s.state == Running // segments
}

func (m *rules) acceptStart(e *Event, i int, may bool) bool {
	s := &m.stages[i]
	items := len(e.Data.Items) > 0
	switch {
	case !may || e.Data.Attempt != s.attempt+1 || items && (s.item > 0 || m.p.Stages[i].Foreach == ""):
		return false
	case e.Data.Count > 0 && !items || s.first >= 0 && (!items || s.count != e.Data.Count):
		return false
	}
	s.state, s.queued, s.attempt, s.token = Running, false, e.Data.Attempt, e.Sequence
	if items && s.first < 0 {
		s.first, s.count = len(m.stages), e.Data.Count
		for k := range e.Data.Count {
			m.stages = append(m.stages, newRuled(i, k+1))
		}
	}
	return true
}

func (m *rules) compare(t *rapid.T, r *Run) {
	open, running := 0, 0
	if len(r.Stages) != len(m.stages) {
		t.Fatalf("%d places, the rules have %d", len(r.Stages), len(m.stages))
	}
	for i := range r.Stages {
		s := &r.Stages[i]
		if s.State != m.stages[i].state || s.Attempt != m.stages[i].attempt || s.Token != m.stages[i].token || int(s.Item) != m.stages[i].item {
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
