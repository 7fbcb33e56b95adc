package events

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// TestClonesGoTheirOwnWay: at any place in a log a clone of the replayer goes on to the end as if it were alone, and what it
// came from neither moves meanwhile nor is at all disturbed.
func TestClonesGoTheirOwnWay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(genGraph(8).Draw(t, "graph"))
		s.drive(t, rapid.IntRange(0, 10).Draw(t, "successes"), 40)
		whole, mismatch := s.replay()
		if mismatch != nil {
			t.Fatalf("%+v", mismatch)
		}
		at := rapid.IntRange(0, len(s.log)).Draw(t, "at")
		p := NewReplayer(s.g)
		forward := func(p *Replayer, from, to int) {
			for i := from; i < to; i++ {
				if m := p.Step(&s.log[i], s.encoded[i]); m != nil {
					t.Fatalf("event %d: %+v", i+1, m)
				}
			}
		}
		forward(p, 0, at)
		before := p.Clone()
		due := p.Due()
		c := p.Clone()
		forward(c, at, len(s.log))
		other, alone := p.Clone().Run(), NewReplayer(s.g)
		forward(alone, 0, at)
		s.otherWay(other, rapid.IntRange(0, 20).Draw(t, "steps"))
		if !reflect.DeepEqual(p.Run(), before.Run()) || !reflect.DeepEqual(p.Due(), due) {
			t.Fatalf("the clone's way moved what it came from at %d", at)
		}
		forward(p, at, len(s.log))
		if !reflect.DeepEqual(p.Run(), c.Run()) || p.Run().Chain != whole.Chain {
			t.Fatalf("ways from %d end differently", at)
		}
		s.otherWay(other, 1000)
		s.otherWay(alone.Run(), 1000)
		other.steps, alone.Run().steps = 0, 0 // where the way was cut is looked at twice
		if !reflect.DeepEqual(other, alone.Run()) {
			t.Fatalf("a clone from %d was disturbed by what it came from", at)
		}
	})
}

// otherWay lets every stage of a run complete at once, from wherever it stands, in at most so many steps.
func (s *sim) otherWay(r *Run, steps int) {
	if r.State == None {
		return
	}
	for range steps {
		if due := r.Decide(); len(due) > 0 {
			e := due[0].Event(r)
			e.ID, e.Time = s.id(), 1
			if e.Type == StageQueued {
				e.Type, e.Data.Attempt = StageStarted, r.Stages[due[0].Stage].Attempt+1
				if st := r.StageOf(due[0].Stage); st.Foreach != "" && e.Data.Item == 0 {
					e.Data.Items, e.Data.Count = []byte("[1]"), 1
				}
			}
			e.Sequence = r.Chain.Sequence + 1
			if r.Apply(&e) != nil {
				return
			}
			continue
		}
		running := -1
		for i := range r.Stages {
			if r.Stages[i].State == Running {
				running = i
			}
		}
		if running < 0 {
			return
		}
		if r.Apply(&Event{Stream: r.ID, Type: StageCompleted, Sequence: r.Chain.Sequence + 1, Data: Data{Stage: r.StageOf(running).Name,
			Item: int(r.Stages[running].Item), Token: r.Stages[running].Token}}) != nil {
			return
		}
	}
}

// TestDueIsWhatFollows: what is due before a decision is recorded begins with that decision.
func TestDueIsWhatFollows(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(genGraph(8).Draw(t, "graph"))
		s.drive(t, rapid.IntRange(0, 10).Draw(t, "successes"), 40)
		p := NewReplayer(s.g)
		for i := range s.log {
			due := p.Due()
			if len(due) > 0 && p.sourceOf(&s.log[i]) == decision && s.log[i].Type != RunFailed && !due[0].Answers(p.Run(), &s.log[i]) {
				t.Fatalf("before event %d %s: %s is due", i+1, describe(&s.log[i]), due[0].Describe(p.Run()))
			}
			if m := p.Step(&s.log[i], s.encoded[i]); m != nil {
				t.Fatalf("event %d: %+v", i+1, m)
			}
		}
	})
}
