package events

import (
	"fmt"
	"testing"
)

// shapes are graphs and stories of n stages in which a careless fold would do the same work again and again.
var shapes = map[string]struct {
	graph func(n int) []Stage
	play  func(s *sim)
}{
	"chain":                  {chain, func(s *sim) { s.playThrough(nil) }},
	"fan-out and fan-in":     {diamond, func(s *sim) { s.playThrough(nil) }},
	"failed at the top":      {chain, func(s *sim) { s.playThrough(map[int]bool{0: true}) }},
	"fan-out that failed":    {diamond, func(s *sim) { s.playThrough(map[int]bool{0: true}) }},
	"cancelled":              {diamond, func(s *sim) { s.playCancelled() }},
	"cancelled amid retries": {diamond, func(s *sim) { s.playRetriesCancelled() }},
}

func chain(n int) []Stage {
	stages := make([]Stage, n)
	for i := range stages {
		stages[i].Name = fmt.Sprintf("s%d", i)
		if i > 0 {
			stages[i].Needs = []string{stages[i-1].Name}
		}
	}
	return stages
}

func diamond(n int) []Stage {
	stages := chain(1)
	last := Stage{Name: "last"}
	for i := 1; i < n-1; i++ {
		name := fmt.Sprintf("s%d", i)
		stages = append(stages, Stage{Name: name, Needs: []string{"s0"}})
		last.Needs = append(last.Needs, name)
	}
	return append(stages, last)
}

// settleDown asks what is due after every event, as the engine does, and starts every stage that is ready.
func (s *sim) settleDown() (claimed []int) {
	for asked := len(s.log) - 1; asked < len(s.log); asked++ {
		for _, d := range s.run.Decide() {
			if d.Type == StageQueued {
				s.start(d.Stage)
				claimed = append(claimed, d.Stage)
				continue
			}
			e := d.Event(s.run)
			s.emit(e.Type, e.Data)
		}
	}
	return claimed
}

func (s *sim) playThrough(failing map[int]bool) {
	s.emit(RunCreated, Data{Pipeline: "p", Plan: s.g.Digest})
	for running := s.settleDown(); len(running) > 0; running = running[1:] {
		if i := running[0]; failing[i] {
			s.finish(i, &Failure{Class: ExecFailed, Reason: "exit code 1"})
		} else {
			s.finish(i, nil)
		}
		running = append(running, s.settleDown()...)
	}
}

func (s *sim) playCancelled() {
	s.emit(RunCreated, Data{Pipeline: "p", Plan: s.g.Digest})
	s.settleDown()
	s.finish(0, nil)
	running := s.settleDown()
	s.emit(RunCancelRequested, Data{Reason: "enough"})
	s.settleDown()
	for _, i := range running {
		s.finish(i, &Failure{Class: Aborted, Reason: "the run was cancelled"})
		s.settleDown()
	}
}

func (s *sim) playRetriesCancelled() {
	s.emit(RunCreated, Data{Pipeline: "p", Plan: s.g.Digest})
	s.settleDown()
	s.finish(0, nil)
	running := s.settleDown()
	s.emit(RunCancelRequested, Data{Reason: "enough"})
	s.settleDown()
	for _, i := range running {
		s.emit(StageRetryScheduled, Data{Stage: s.name(i), Token: s.run.Stages[i].Token, Class: Timeout, Due: s.now})
		s.settleDown()
	}
}

// TestWorkIsLinear counts the turns of all loops of Apply and Decide: they stay below a small multiple of what there is
// to say, so that ten times the stages cost ten times the work.
func TestWorkIsLinear(t *testing.T) {
	t.Parallel()
	for name, shape := range shapes {
		for _, n := range []int{1000, 10_000} {
			s := newSim(mustGraph(t, shape.graph(n)...))
			shape.play(s)
			if s.failure != nil || !s.run.State.Terminal() || s.run.Open() != 0 {
				t.Fatalf("%s of %d: run %s with %d open, %v", name, n, s.run.State, s.run.Open(), s.failure)
			}
			needs := 0
			for i := range s.g.Plan.Stages {
				needs += len(s.g.Plan.Stages[i].Needs)
			}
			if most := 2 * (len(s.log) + needs); s.run.steps > most {
				t.Errorf("%s of %d: %d steps for %d events and %d needs", name, n, s.run.steps, len(s.log), needs)
			}
		}
	}
}

func BenchmarkFold(b *testing.B) {
	for _, name := range []string{"chain", "fan-out and fan-in"} {
		for _, n := range []int{1000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				s := newSim(mustGraph(b, shapes[name].graph(n)...))
				shapes[name].play(s)
				b.ReportAllocs()
				for b.Loop() {
					r := NewRun(s.g)
					for i := range s.log {
						if err := r.Apply(&s.log[i]); err != nil {
							b.Fatal(err)
						}
						r.NextDecision()
					}
				}
				reportRate(b, len(s.log))
			})
		}
	}
}

// BenchmarkReplay reads what a store holds: it decodes each event's data, follows the chain and replays in lockstep.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("chain/%d", n), func(b *testing.B) {
			s := newSim(mustGraph(b, chain(n)...))
			shapes["chain"].play(s)
			b.ReportAllocs()
			for b.Loop() {
				p := NewReplayer(s.g)
				for i := range s.log {
					e := s.log[i]
					if err := e.Data.Decode(s.encoded[i]); err != nil {
						b.Fatal(err)
					}
					if m := p.Step(&e, s.encoded[i]); m != nil {
						b.Fatal(m)
					}
				}
			}
			reportRate(b, len(s.log))
		})
	}
}

func reportRate(b *testing.B, events int) {
	b.Helper()
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
