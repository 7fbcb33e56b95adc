package compare

import (
	"cmp"
	"slices"

	"github.com/apollo-11/apollo/events"
)

// details adds what takes reading: the contents of the outputs, and what was recorded beside what counts.
func (c *comparison) details(s *Stage, p couple) {
	for i := range s.Outputs {
		c.content(&s.Outputs[i], p)
	}
	if p.a < 0 || p.b < 0 {
		return
	}
	x, y := &c.a.Run.Stages[p.a], &c.b.Run.Stages[p.b]
	if x.Last == nil || y.Last == nil {
		return
	}
	s.Recorded = c.recorded(x, y)
	a, b := only(x.Last.Accesses, y.Last.Accesses), only(y.Last.Accesses, x.Last.Accesses)
	if len(a)+len(b) > 0 {
		s.Accesses = &Accesses{A: a, B: b}
	}
}

// recorded gives what differs of the things that are written down and are no part of a stage's identity.
func (c *comparison) recorded(x, y *events.Stand) (fields []Field) {
	add := func(name string, a, b any) {
		if a != b {
			fields = append(fields, Field{Field: name, A: a, B: b})
		}
	}
	a, b := x.Last, y.Last
	add("attempt", x.Attempt, y.Attempt)
	add("duration_ms", max(0, x.Ended-x.Started)/1e6, max(0, y.Ended-y.Started)/1e6)
	add("exit", a.Exit, b.Exit)
	add("signal", a.Signal, b.Signal)
	add("isolation", a.Isolation, b.Isolation)
	add("hermetic", a.Hermetic == 1, b.Hermetic == 1)
	add("cached_from", a.Cached.String(), b.Cached.String())
	add("stdout", stream(a.Out, a.Stdout.Bytes), stream(b.Out, b.Stdout.Bytes))
	add("stderr", stream(a.Err, a.Stderr.Bytes), stream(b.Err, b.Stderr.Bytes))
	add("leftovers", a.Leftovers, b.Leftovers)
	add("cpu_ms", (a.Usage.User + a.Usage.System).Milliseconds(), (b.Usage.User + b.Usage.System).Milliseconds())
	add("max_rss", a.Usage.MaxRSS, b.Usage.MaxRSS)
	add("worker", x.Worker, y.Worker)
	if a.Machine != b.Machine {
		m, n := c.a.document(a.Machine), c.b.document(b.Machine)
		if m == nil || n == nil {
			add("machine", a.Machine.String(), b.Machine.String())
		} else {
			for _, change := range changes(m, n) {
				fields = append(fields, change.field("", "machine."))
			}
		}
	}
	return fields
}

// streamed is what a stage wrote to a stream: by its digest where there is one.
type streamed struct {
	Digest string `json:"digest,omitempty"`
	Bytes  int64  `json:"bytes"`
}

func stream(d events.Digest, n int64) streamed { return streamed{d.String(), n} }

// only gives what stands in the first list and not in the second, sorted.
func only(list, other []events.Pair) []events.Pair {
	left := []events.Pair{}
	for _, p := range list {
		if !slices.Contains(other, p) {
			left = append(left, p)
		}
	}
	slices.SortFunc(left, func(a, b events.Pair) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value)) })
	return left
}
