package bench

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apollo-11/apollo/handlers/executor"
)

// webhooks posts with `connect` clients for a time, or `runs` posts in all. Only 202 counts as accepted. With `hold` set
// the stages of the runs wait until the last post is answered: what is measured is how fast posts are taken.
func (s *Subject) webhooks(ctx context.Context, l Load) (Done, error) {
	plan := tasks("hook", 1, false)
	if l.Hold > 0 {
		plan.Stages[0].With = []byte(`{"name":"held"}`)
	}
	if err := s.register(plan); err != nil {
		return Done{}, err
	}
	address, stop, err := s.hooks("hook")
	if err != nil {
		return Done{}, err
	}
	defer stop()
	var next, accepted, lost atomic.Int64
	var all times
	var mu sync.Mutex
	var clients sync.WaitGroup
	begin := time.Now()
	more := func(n int64) bool {
		return l.Runs > 0 && n <= int64(l.Runs) || l.Runs == 0 && time.Since(begin) < l.For
	}
	go s.drain(ctx)
	for range l.Connect {
		c, err := newClient(ctx, address)
		if err != nil {
			return Done{}, err
		}
		clients.Go(func() {
			defer c.close() //nolint:errcheck // what counts was answered
			var own times
			for n := next.Add(1); more(n); n = next.Add(1) {
				t := time.Now()
				status, err := c.post(n)
				for err == nil && status == http.StatusTooManyRequests { // said to come again: it does, and is not lost
					status, err = c.post(n)
				}
				if err != nil || status != http.StatusAccepted {
					lost.Add(1)
					continue
				}
				accepted.Add(1)
				own = append(own, time.Since(t))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	clients.Wait()
	took := time.Since(begin)
	close(s.watch.release)
	return Done{Accepted: accepted.Load(), Count: lost.Load(), Took: took, P50: all.p50(), P99: all.p99(), Samples: len(all)}, nil
}

// Held is a stage that waits until the posts have been counted.
func (s *Subject) Held(ctx context.Context, _ *executor.TaskCall) error {
	select {
	case <-s.watch.release:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drain takes the ends of runs that nobody waits for.
func (s *Subject) drain(ctx context.Context) {
	for {
		select {
		case <-s.watch.ended:
		case <-ctx.Done():
			return
		}
	}
}

// process measures from the post to the first stage's process.
func (s *Subject) process(ctx context.Context, l Load) (Done, error) {
	if err := s.register(script("hook", "true")); err != nil {
		return Done{}, err
	}
	address, stop, err := s.hooks("hook")
	if err != nil {
		return Done{}, err
	}
	defer stop()
	c, err := newClient(ctx, address)
	if err != nil {
		return Done{}, err
	}
	defer c.close() //nolint:errcheck // what counts was answered
	var all times
	for n := range int64(l.Runs) {
		begin := time.Now()
		if status, err := c.post(n); err != nil || status != http.StatusAccepted {
			return Done{}, fmt.Errorf("post: %d, %w", status, err)
		}
		all = append(all, (<-s.watch.started).Sub(begin))
		<-s.watch.ended
	}
	return Done{Accepted: int64(l.Runs), Count: int64(l.Runs), P50: all[1:].p50(), P99: all[1:].p99(), Samples: len(all) - 1}, nil
}
