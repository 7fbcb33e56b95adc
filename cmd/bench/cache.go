package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
)

// cache: a run of which every stage takes over the result of an earlier run, beside that run.
func cache(ctx context.Context, m *meter) error {
	d, err := m.load(ctx, Load{Kind: "cached", Stages: pick(m, 100, 1000), Runs: pick(m, 2, 9)})
	if err != nil {
		return err
	}
	m.add(Figure{Name: "cached_run_speedup", Value: ms(d.Took), Unit: "ms", LimitValue: ms(d.P50), Samples: d.Samples, P50: ms(d.P50), P99: ms(d.P99)}, atLeast(20))
	return nil
}

// deterministic is a plan of stages that do nothing, side by side, and whose results may be taken over.
func deterministic(stages int) *events.Plan {
	p := script("cached", "true")
	same := true
	p.Stages[0].Same, p.Stages[0].Isolation, p.Stages[0].Network, p.Stages[0].Clock = &same, "enforce", "none", "fixed"
	for i := range stages - 1 {
		one := p.Stages[0]
		one.Name = fmt.Sprintf("s%05d", i)
		p.Stages = append(p.Stages, one)
	}
	return p
}

// cached runs a pipeline once with bodies and then without. Took is of the first, P50 of the others. Every stage of those has
// to be one that was taken over.
func (s *Subject) cached(ctx context.Context, l Load) (Done, error) {
	if err := s.register(deterministic(l.Stages)); err != nil {
		return Done{}, err
	}
	var all times
	for i := range l.Runs + 1 {
		begin := time.Now()
		if _, err := s.Engine.Accept(ctx, &trigger.Delivery{Kind: "manual", Trigger: "bench", Pipeline: "cached"}); err != nil {
			return Done{}, err
		}
		<-s.watch.ended
		all = append(all, time.Since(begin))
		s.watch.mu.Lock()
		ran := len(s.watch.bodies)
		s.watch.mu.Unlock()
		if ran != l.Stages {
			return Done{}, fmt.Errorf("run %d: %d bodies have run, expected %d", i+1, ran, l.Stages)
		}
	}
	hits := all[1:]
	return Done{Accepted: int64(len(all)), Count: int64(l.Stages), Took: all[0], P50: hits.p50(), P99: hits.p99(), Samples: len(hits)}, nil
}
