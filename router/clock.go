package router

import (
	"context"
	"sync"
	"time"

	"github.com/apollo-11/apollo/storage"
)

// clock is the engine's time, in Unix nanoseconds. It never goes back: after the system's clock was set back it goes on
// from where it stood, at the pace of the monotonic clock, so that nothing that waits for an instant stalls; after the
// system's clock was set forward, or the machine slept, it follows at once, and what has become due meanwhile is due
// once. After a restart it begins no earlier than the last event.
type clock struct {
	wall func() time.Time

	mu   sync.Mutex
	last time.Time
	at   int64
}

// begin reads the time of the newest event.
func (c *clock) begin(ctx context.Context, s storage.Store) error {
	var newest [1]storage.Record
	if head := s.Head(); head > 0 {
		n, err := s.Scan(ctx, head-1, newest[:])
		if err != nil {
			return err
		}
		if n == 1 {
			c.mu.Lock()
			c.at = newest[0].Time
			c.mu.Unlock()
		}
	}
	return nil
}

func (c *clock) now() int64 {
	t := c.wall()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.IsZero() {
		c.at += int64(max(0, t.Sub(c.last))) // of the monotonic clock, when the time carries one
	}
	c.last, c.at = t, max(c.at, t.UnixNano())
	return c.at
}
