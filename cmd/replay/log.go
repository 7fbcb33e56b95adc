package replay

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Store gives a whole log, and the rows of its runs.
type Store interface {
	Source
	Scan(ctx context.Context, after int64, page []storage.Record) (int, error)
	Runs(ctx context.Context, f storage.RunFilter) ([]storage.RunRow, error)
}

// logReplay replays every run of a store in one pass over the log, reading ahead while it folds.
type logReplay struct {
	store   Store
	runs    map[events.ID]*events.Replayer
	graphs  map[events.Digest]*events.Graph
	heads   map[events.ID]events.Chain // of runs that have ended
	verdict func(Result) error
	events  int
}

const scanPage = 1000

func newLogReplay(s Store, verdict func(Result) error) *logReplay {
	return &logReplay{store: s, runs: map[events.ID]*events.Replayer{}, graphs: map[events.Digest]*events.Graph{},
		heads: map[events.ID]events.Chain{}, verdict: verdict}
}

// All replays every run of a store. It gives the verdict of each once its log has ended, and the number of events.
func All(ctx context.Context, s Store, verdict func(Result) error) (int, error) {
	l := newLogReplay(s, verdict)
	err := l.scan(ctx)
	if err == nil {
		err = l.end(ctx)
	}
	return l.events, err
}

func (l *logReplay) scan(ctx context.Context) error {
	var failed error
	for page := range readAhead(ctx, l.store, &failed) {
		for i := range page {
			if err := l.step(ctx, &page[i].Sealed); err != nil {
				return err
			}
		}
	}
	return failed
}

// readAhead gives the whole log by pages and reads the next page while one is used. It keeps no page for its user: the
// memory goes round.
func readAhead(ctx context.Context, s Store, failed *error) iter.Seq[[]storage.Record] {
	return func(yield func([]storage.Record) bool) {
		ctx, cancel := context.WithCancel(ctx)
		empty, full := make(chan []storage.Record, 2), make(chan []storage.Record, 2)
		for range cap(empty) {
			empty <- make([]storage.Record, scanPage)
		}
		var reader sync.WaitGroup
		reader.Go(func() {
			defer close(full)
			*failed = scanPages(ctx, s, empty, full)
		})
		defer reader.Wait()
		defer cancel()
		for page := range full {
			if !yield(page) {
				return
			}
			empty <- page[:cap(page)]
		}
	}
}

// scanPages fills pages to the end of the log. Both channels hold all the pages there are.
func scanPages(ctx context.Context, s Store, empty <-chan []storage.Record, full chan<- []storage.Record) error {
	for after := int64(0); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case page := <-empty:
			n, err := s.Scan(ctx, after, page)
			if err != nil || n == 0 {
				return err
			}
			after = page[n-1].Position
			full <- page[:n]
			if n < len(page) {
				return nil
			}
		}
	}
}

func (l *logReplay) step(ctx context.Context, e *storage.Sealed) error {
	l.events++
	if e.Type <= events.DeliveryImported {
		return nil
	}
	p, known := l.runs[e.Stream]
	if !known {
		var err error
		if p, err = l.begin(ctx, e); err != nil {
			return err
		}
		l.runs[e.Stream] = p
	}
	if p == nil {
		return nil // differs already
	}
	if m := p.Step(&e.Event, e.Encoded); m != nil {
		l.runs[e.Stream] = nil
		delete(l.heads, e.Stream) // of before, when it had ended already
		return l.verdict(Result{Run: e.Stream.String(), Events: e.Sequence, Verdict: Differs, Mismatch: m})
	}
	r := p.Run()
	if verdicts := e.Type.AfterEnd() && e.Type.Entity() == "stage"; !verdicts && r.State.Terminal() && r.State != events.Failed && r.RunningStages() == 0 {
		delete(l.runs, e.Stream)
		l.heads[e.Stream] = r.Mark
	}
	return nil
}

// begin stands before the event: at the start of a run, or where a run that was forgotten at its end goes on. That one
// was the same so far.
func (l *logReplay) begin(ctx context.Context, e *storage.Sealed) (*events.Replayer, error) {
	if e.Type.AfterEnd() {
		p, err := l.again(ctx, e.Stream, e.Sequence-1)
		if err == nil && p == nil {
			err = fmt.Errorf("%w: event %s belongs to no run", storage.ErrCorrupt, e.ID)
		}
		return p, err
	}
	g, err := l.graph(ctx, e)
	if err != nil {
		return nil, err
	}
	return events.NewReplayer(g), nil
}

// again replays a run up to an event that it was replayed to before. The replayer is nil when nothing of it is there.
func (l *logReplay) again(ctx context.Context, run events.ID, until uint64) (p *events.Replayer, err error) {
	for after := uint64(0); after < until; {
		log, err := l.store.Events(ctx, run, after, int(min(scanPage, until-after)))
		if err != nil || len(log) == 0 {
			return p, err
		}
		for i := range log {
			if p == nil {
				if p, err = l.begin(ctx, &log[i]); err != nil {
					return nil, err
				}
			}
			if m := p.Step(&log[i].Event, log[i].Encoded); m != nil {
				return nil, fmt.Errorf("%w: run %s changed while it was replayed: event %d", storage.ErrCorrupt, run, m.Sequence)
			}
			after = log[i].Sequence
		}
	}
	return p, nil
}

func (l *logReplay) graph(ctx context.Context, e *storage.Sealed) (*events.Graph, error) {
	if e.Type != events.RunCreated {
		return nil, fmt.Errorf("%w: event %s comes after the end of its run", storage.ErrCorrupt, e.ID)
	}
	g := l.graphs[e.Data.Plan]
	if g == nil {
		var err error
		if g, err = storage.ReadGraph(ctx, l.store, e.Data.Plan); err != nil {
			return nil, err
		}
		l.graphs[e.Data.Plan] = g
	}
	return g, nil
}

// end compares the heads of the logs with those that the rows keep: what the chain cannot say of its last event.
func (l *logReplay) end(ctx context.Context) error {
	for id, p := range l.runs {
		if p != nil {
			l.heads[id] = p.Run().Mark
		}
	}
	page := storage.Page{Limit: scanPage}
	for {
		rows, err := l.store.Runs(ctx, storage.RunFilter{Page: page})
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			page.After = r.ID
			mark, same := l.heads[r.ID]
			if !same {
				continue
			}
			p := l.runs[r.ID]
			if p == nil && mark.Sequence < r.Sequence {
				if p, err = l.again(ctx, r.ID, mark.Sequence); err != nil {
					return err
				}
			}
			if p != nil && mark.Sequence < r.Sequence {
				if same, err = l.catchUp(ctx, p, r); err != nil {
					return err
				}
				if !same {
					continue
				}
				mark = p.Run().Mark
			}
			result := Result{Run: r.ID.String(), Events: mark.Sequence, Verdict: Same}
			result.settle(r, mark)
			if err := l.verdict(result); err != nil {
				return err
			}
		}
		if len(rows) < scanPage {
			return nil
		}
	}
}

// catchUp replays what a run has done since the log was read, up to its row. It gives false when an event differs, which
// it has reported.
func (l *logReplay) catchUp(ctx context.Context, p *events.Replayer, row *storage.RunRow) (same bool, err error) {
	for p.Run().Mark.Sequence < row.Sequence {
		log, err := l.store.Events(ctx, row.ID, p.Run().Chain.Sequence, scanPage)
		if err != nil {
			return false, err
		}
		if len(log) == 0 {
			break // the row says more than the log
		}
		for i := range log {
			if p.Run().Mark.Sequence >= row.Sequence {
				break
			}
			l.events++
			if m := p.Step(&log[i].Event, log[i].Encoded); m != nil {
				return false, l.verdict(Result{Run: row.ID.String(), Events: log[i].Sequence, Verdict: Differs, Mismatch: m})
			}
		}
	}
	return true, nil
}
