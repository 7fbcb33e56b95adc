package events

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sim is a small engine: it answers decisions as the real one does and lets the world go on in any order. It keeps what
// it told the run, so that a model can say where the run must stand.
type sim struct {
	g       *Graph
	run     *Run
	log     []Event
	encoded [][]byte
	now     int64
	serial  uint64
	outcome map[int]State // by stage: what the last attempt of the last life came to
	asked   bool          // cancel requested
	ended   int           // terminal run events since the last resume
	failure error
}

func newSim(g *Graph) *sim {
	return &sim{g: g, run: NewRun(g), now: 1_000_000_000, outcome: map[int]State{}}
}

func (s *sim) id() (id ID) {
	s.serial++
	copy(id[:], []byte{0x01, 0x9b, 0x7c, 0, 0, 0, 0x70, 0, 0x80})
	binary.BigEndian.PutUint32(id[12:], uint32(s.serial))
	return id
}

// emit seals, records and applies an event; that the table takes it is part of every test.
func (s *sim) emit(t Type, d Data) {
	e := Event{ID: s.id(), Stream: s.run.ID, Type: t, Time: s.now, Data: d}
	if t == RunCreated {
		e.Stream = s.id()
	}
	encoded := e.Data.AppendEncoded(nil)
	s.run.Chain.Seal(&e, encoded, nil)
	if err := s.run.Apply(&e); err != nil && s.failure == nil {
		s.failure = err
	}
	s.log, s.encoded = append(s.log, e), append(s.encoded, encoded)
	if t == RunCompleted || t == RunFailed || t == RunCancelled {
		s.ended++
	}
}

// cascade records what is due until the run waits for the world. start says whether a ready stage finds a free slot,
// holds whether a condition is true.
func (s *sim) cascade(start, holds func() bool) {
	for due := s.run.Decide(); len(due) > 0; due = s.run.Decide() {
		for _, d := range due {
			e := d.Event(s.run)
			switch {
			case d.Type == RunStarted && !start():
				s.emit(RunQueued, Data{Waits: "concurrency"})
				s.emit(RunStarted, Data{})
			case d.Type == StageQueued:
				s.ready(d.Stage, e.Data, start, holds)
			default:
				s.note(d)
				s.emit(e.Type, e.Data)
			}
		}
	}
}

// note keeps what a foreach stage came to.
func (s *sim) note(d Decision) {
	if d.Stage < 0 || !s.run.Expanded(d.Stage) {
		return
	}
	s.outcome[d.Stage] = map[Type]State{StageCompleted: Completed, StageFailed: Failed, StageCancelled: Cancelled}[d.Type]
}

// ready does with a ready stage what the engine does: its condition, its items, its person, a slot.
func (s *sim) ready(i int, d Data, start, holds func() bool) {
	st, item := s.run.StageOf(i), s.run.Stages[i].Item
	switch {
	case st.When != "" && st.WhenItem == (item > 0) && s.run.Stages[i].First == 0 && !holds():
		s.outcome[i] = Skipped
		d.Checks = []Check{{Kind: "when", Expr: st.When}}
		s.emit(StageSkipped, d)
	case st.Foreach != "" && item == 0:
		d.Attempt, d.Count, d.Items = s.run.Stages[i].Attempt+1, s.items(i), json.RawMessage("[]")
		s.emit(StageStarted, d)
	case st.Executor == "approval":
		d.Waits = "approval"
		s.emit(StageQueued, d)
	case start():
		s.start(i)
	default:
		d.Waits = "slot"
		s.emit(StageQueued, d)
	}
}

// items is how many items a foreach stage has.
func (s *sim) items(i int) int { return i % 4 }

func (s *sim) start(i int) {
	s.emit(StageStarted, Data{Stage: s.name(i), Item: int(s.run.Stages[i].Item), Attempt: s.run.Stages[i].Attempt + 1, Worker: "w"})
}

func (s *sim) name(i int) string { return s.run.StageOf(i).Name }

// finish reports a result of a running stage: nil is success.
func (s *sim) finish(i int, f *Failure) {
	d := Data{Stage: s.name(i), Item: int(s.run.Stages[i].Item), Attempt: s.run.Stages[i].Attempt, Token: s.run.Stages[i].Token}
	if f == nil {
		s.outcome[i] = Completed
		s.emit(StageCompleted, d)
		return
	}
	d.SetFailure(f)
	t, due := s.run.Settle(i, f, s.now)
	d.Due = due
	switch t {
	case StageFailed:
		s.outcome[i] = Failed
	case StageCancelled:
		s.outcome[i] = Cancelled
	}
	s.emit(t, d)
}

func (s *sim) stages(is func(*Stand) bool) (found []int) {
	for i := range s.run.Stages {
		if is(&s.run.Stages[i]) {
			found = append(found, i)
		}
	}
	return found
}

func (s *sim) replay() (*Run, *Mismatch) {
	return Replay(s.g, func(yield func(*Event, []byte) bool) {
		for i := range s.log {
			if !yield(&s.log[i], s.encoded[i]) {
				return
			}
		}
	})
}

// genGraph gives any acyclic graph up to the size.
func genGraph(size int) *rapid.Generator[*Graph] {
	return rapid.Custom(func(t *rapid.T) *Graph {
		p := &Plan{Schema: PlanSchema, Pipeline: "p", Stages: make([]Stage, rapid.IntRange(1, size).Draw(t, "stages"))}
		for i := range p.Stages {
			st := &p.Stages[i]
			st.Name = fmt.Sprintf("s%d", i)
			if i > 0 {
				for n, before := range rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, min(i, 5), rapid.ID).Draw(t, "before") {
					if n%3 == 2 {
						st.Prefers = append(st.Prefers, p.Stages[before].Name)
						continue
					}
					st.Needs = append(st.Needs, p.Stages[before].Name)
				}
			}
			st.MayFail = rapid.IntRange(0, 4).Draw(t, "may fail") == 0
			st.Always = rapid.IntRange(0, 7).Draw(t, "always") == 0
			if rapid.IntRange(0, 3).Draw(t, "condition") == 0 {
				st.When = "x > 1"
			}
			switch rapid.IntRange(0, 7).Draw(t, "form") {
			case 0:
				st.Executor = "approval"
			case 1:
				st.Foreach, st.Always = "list", false
				st.WhenItem = st.When != "" && rapid.Bool().Draw(t, "condition of each item")
			}
			if rapid.IntRange(0, 2).Draw(t, "retries") == 0 {
				st.Retry = &Retry{Max: rapid.IntRange(0, 3).Draw(t, "max"), Interval: time.Second, Backoff: 2, Jitter: 0.1}
			}
		}
		g, err := NewGraph(p, DigestOf([]byte("plan")))
		if err != nil {
			t.Fatal(err)
		}
		return g
	})
}

func genFailure() *rapid.Generator[*Failure] {
	return rapid.Map(rapid.SampledFrom([]Class{Timeout, BadInput, ExecFailed, Lost, Lost, GateRejected}), func(c Class) *Failure {
		return &Failure{Class: c, Reason: "it was " + string(c)}
	})
}

// drive lets the world act in any order until nothing is left. cancelOdds of 0 never cancels.
func (s *sim) drive(t *rapid.T, successes, cancelOdds int) {
	slot := func() bool { return rapid.Bool().Draw(t, "slot") }
	if len(s.log) == 0 {
		s.emit(RunCreated, Data{Pipeline: "p", Plan: s.g.Digest})
	}
	for {
		s.cascade(slot, func() bool { return rapid.IntRange(0, 3).Draw(t, "holds") > 0 })
		s.now += int64(time.Second)
		running := s.running()
		queued := s.stages(func(st *Stand) bool { return st.State == Pending && st.Queued })
		switch {
		case s.failure != nil || s.run.State.Terminal():
			return
		case cancelOdds > 0 && rapid.IntRange(1, cancelOdds).Draw(t, "cancel") == 1:
			s.asked = true
			s.emit(RunCancelRequested, Data{Reason: "enough"})
		case len(queued) > 0 && (len(running) == 0 || rapid.Bool().Draw(t, "start")):
			i := rapid.SampledFrom(queued).Draw(t, "which starts")
			s.answer(t, i)
			s.now = max(s.now, s.run.Stages[i].Due)
			s.start(i)
		case len(running) > 0:
			s.act(t, rapid.SampledFrom(running).Draw(t, "which ends"), successes)
		default:
			t.Fatalf("the run is stuck in %s after %d events", s.run.State, len(s.log))
		}
	}
}

// running gives the stages that have a body.
func (s *sim) running() (found []int) {
	for _, i := range s.stages(func(st *Stand) bool { return st.State == Running }) {
		if !s.run.Expanded(i) {
			found = append(found, i)
		}
	}
	return found
}

// answer lets a person approve or reject, or the time for that pass.
func (s *sim) answer(t *rapid.T, i int) {
	if s.run.StageOf(i).Executor != "approval" || s.run.Stages[i].Answer != nil {
		return
	}
	d := Data{Stage: s.name(i), Item: int(s.run.Stages[i].Item), Actor: "ada"}
	switch rapid.IntRange(0, 2).Draw(t, "answer") {
	case 0:
		s.emit(StageApproved, d)
	case 1:
		s.emit(StageRejected, d)
	}
}

// act ends a running stage, or lets a result of an earlier attempt arrive.
func (s *sim) act(t *rapid.T, i, successes int) {
	if s.run.Stages[i].Attempt > 1 && rapid.IntRange(0, 3).Draw(t, "late") == 0 {
		s.emit(StageLateResult, Data{Stage: s.name(i), Item: int(s.run.Stages[i].Item), Attempt: 1, Token: 1})
		return
	}
	switch n := rapid.IntRange(0, successes).Draw(t, "outcome"); {
	case s.asked && n > 0:
		s.finish(i, rapid.SampledFrom([]*Failure{{Class: Aborted, Reason: "cancelled"}, {Class: Lost, Reason: "lost"}, nil}).Draw(t, "end"))
	case n > 0:
		s.finish(i, nil)
	default:
		s.finish(i, genFailure().Draw(t, "failure"))
	}
}

// expected says where every stage and the run must stand, from the outcomes alone.
func (s *sim) expected() (stages []State, run State) {
	stages, run = make([]State, len(s.run.Stages)), Completed
	for i := range s.g.Plan.Stages {
		st := &s.g.Plan.Stages[i]
		stages[i] = s.outcome[i]
		for _, need := range st.Needs {
			n, _ := s.g.Index(need)
			if stages[n] != Completed && !st.Always {
				stages[i] = Skipped
			}
		}
		if stages[i] == Failed && !st.MayFail {
			run = Failed
		}
	}
	for i := len(s.g.Plan.Stages); i < len(stages); i++ {
		stages[i] = s.outcome[i]
		if of := s.run.Stages[i].Plan; stages[i] == Failed && !s.g.Plan.Stages[of].MayFail && stages[of] != Failed {
			run = None // a foreach stage with a failed instance has failed
		}
	}
	return stages, run
}

// check compares the end of a run with the model.
func (s *sim) check(t *rapid.T) {
	if s.failure != nil {
		t.Fatal(s.failure)
	}
	want, state := s.expected()
	if s.asked {
		state = Cancelled
	}
	if s.run.State != state || s.ended != 1 || s.run.Open() != 0 || s.run.RunningStages() != 0 {
		t.Fatalf("run %s after %d ends, %d open, %d running; want %s", s.run.State, s.ended, s.run.Open(), s.run.RunningStages(), state)
	}
	for i := range want {
		got := s.run.Stages[i].State
		if s.asked && (got == Cancelled || got == Skipped) && (s.outcome[i] == None || s.outcome[i] == Cancelled) {
			continue // it had not run when the cancel came
		}
		if got != want[i] {
			t.Fatalf("stage %s is %s, want %s", s.name(i), got, want[i])
		}
		if r := s.run.StageOf(i).Retry; r != nil && r.Max > 0 && s.run.Stages[i].Attempt-s.run.Stages[i].Spent > 1+r.Max {
			t.Fatalf("stage %s took %d attempts of %d", s.name(i), s.run.Stages[i].Attempt, 1+r.Max)
		}
	}
	if _, due := s.run.NextDecision(); due {
		t.Fatal("something is due after the end")
	}
}

// resume continues a failed run: outcomes of stages that did not complete are void.
func (s *sim) resume() {
	for i, o := range s.outcome {
		if o != Completed && (i < len(s.g.Plan.Stages) || s.run.Stages[s.run.Stages[i].Plan].State != Completed) {
			delete(s.outcome, i)
		}
	}
	s.ended = 0
	s.emit(RunResumed, Data{})
	for _, i := range rejectedStages(s.run) {
		s.emit(StageGateOpened, Data{Stage: s.name(i), Item: int(s.run.Stages[i].Item), Actor: "ada"})
		if s.run.Stages[i].Passed == nil && s.failure == nil {
			s.failure = fmt.Errorf("stage %s has nothing to pass with", s.name(i))
		}
	}
}

func TestRunsEndAsTheModelSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(genGraph(50).Draw(t, "graph"))
		successes := rapid.SampledFrom([]int{1, 4, 30}).Draw(t, "successes to a failure")
		s.drive(t, successes, rapid.SampledFrom([]int{0, 0, 3, 40}).Draw(t, "cancel odds"))
		s.check(t)
		for n := rapid.IntRange(0, 3).Draw(t, "resumes"); n > 0 && s.run.State == Failed; n-- {
			s.resume()
			s.drive(t, successes, rapid.SampledFrom([]int{0, 10}).Draw(t, "cancel odds after"))
			s.check(t)
		}
		replayed, m := s.replay()
		if m != nil {
			t.Fatalf("replay: event %d: recorded %s, recomputed %s", m.Sequence, m.Recorded, m.Recomputed)
		}
		if diff := sameRun(replayed, s.run); diff != "" {
			t.Fatal(diff)
		}
		s.checkPrefixes(t)
	})
}

// checkPrefixes proves that what is due is a function of the log: any prefix, folded anew, gives what the live run gave,
// whether it was asked in between or not.
func (s *sim) checkPrefixes(t *rapid.T) {
	asked, silent := NewRun(s.g), NewRun(s.g)
	cut := rapid.IntRange(0, len(s.log)).Draw(t, "prefix")
	for i := range s.log[:cut] {
		asked.NextDecision()
		asked.Decide()
		if asked.Apply(&s.log[i]) != nil || silent.Apply(&s.log[i]) != nil {
			t.Fatal("a prefix of a legal log is illegal")
		}
	}
	folded, err := Fold(s.g, s.log[:cut])
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint(folded.Decide())
	for _, r := range []*Run{asked, silent, folded} {
		first, ok := r.NextDecision()
		if got := r.Decide(); fmt.Sprint(got) != want || ok != (len(got) > 0) || ok && got[0] != first {
			t.Fatalf("%v is due, want %s", got, want)
		}
	}
}

func TestDecideNamesEverythingOnce(t *testing.T) {
	t.Parallel()
	g := mustGraph(t, Stage{Name: "a"}, Stage{Name: "b"}, Stage{Name: "c", Needs: []string{"a"}},
		Stage{Name: "d", Needs: []string{"a", "b"}}, Stage{Name: "e", Needs: []string{"d"}}, Stage{Name: "f", Needs: []string{"b"}})
	s := newSim(g)
	s.emit(RunCreated, Data{Plan: g.Digest})
	due := func() (names []string) {
		for _, d := range s.run.Decide() {
			names = append(names, d.text(s.run))
		}
		return names
	}
	for _, want := range [][]string{{"run.started", "stage.queued a", "stage.queued b"}, {"stage.queued a", "stage.queued b"}} {
		if got := due(); !slices.Equal(got, want) {
			t.Fatalf("due %v, want %v", got, want)
		}
		if s.run.State == Pending {
			s.emit(RunStarted, Data{})
		}
	}
	s.start(0)
	s.start(1)
	s.finish(0, &Failure{Class: ExecFailed, Reason: "exit code 1"})
	s.finish(1, nil)
	if got, want := due(), []string{"stage.skipped c", "stage.skipped d", "stage.queued f"}; !slices.Equal(got, want) {
		t.Fatalf("due %v, want %v", got, want)
	}
}

func mustGraph(t testing.TB, stages ...Stage) *Graph {
	t.Helper()
	p := &Plan{Schema: PlanSchema, Pipeline: "p", Stages: stages}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGraph(p, DigestOf(b))
	if err != nil {
		t.Fatal(err)
	}
	return g
}
