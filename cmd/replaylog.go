package cmd

import (
	"context"
	"fmt"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// logReplay replays every run of a store in one pass over the log, reading ahead while it folds.
type logReplay struct {
	store   *sqlite.Store
	runs    map[events.ID]*events.Replayer
	counts  map[events.ID]uint64
	graphs  map[events.Digest]*events.Graph
	heads   map[events.ID]events.Chain // of runs that have ended
	verdict func(replayJSON) error
	events  int
}

const replayPage = 4000

// replayLog gives the verdict of each run once its log has ended, and the number of events.
func replayLog(ctx context.Context, s *sqlite.Store, verdict func(replayJSON) error) (int, error) {
	l := &logReplay{store: s, runs: map[events.ID]*events.Replayer{}, counts: map[events.ID]uint64{}, graphs: map[events.Digest]*events.Graph{},
		heads: map[events.ID]events.Chain{}, verdict: verdict}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan []storage.Record, 2)
	failed := make(chan error, 1)
	go func() {
		defer close(pages)
		var after int64
		for {
			page := make([]storage.Record, replayPage)
			n, err := s.Scan(ctx, after, page)
			if err != nil {
				failed <- err
				return
			}
			select {
			case pages <- page[:n]:
			case <-ctx.Done():
				return
			}
			if n < replayPage {
				return
			}
			after = page[len(page)-1].Position
		}
	}()
	for page := range pages {
		for i := range page {
			if err := l.step(ctx, &page[i].Sealed); err != nil {
				return l.events, err
			}
		}
	}
	select {
	case err := <-failed:
		return l.events, err
	default:
	}
	return l.events, l.end(ctx)
}

func (l *logReplay) step(ctx context.Context, e *storage.Sealed) error {
	l.events++
	if e.Type <= events.DeliveryIgnored {
		return nil
	}
	p, known := l.runs[e.Stream]
	if !known {
		g, err := l.graph(ctx, e)
		if err != nil {
			return err
		}
		p = events.NewReplayer(g)
		l.runs[e.Stream] = p
	}
	if p == nil {
		return nil // differs already
	}
	if m := p.Step(&e.Event, e.Encoded); m != nil {
		l.runs[e.Stream] = nil
		return l.verdict(replayJSON{Run: e.Stream.String(), Events: e.Sequence, Verdict: "differs", Mismatch: m})
	}
	if r := p.Run(); r.State.Terminal() && r.State != events.Failed && r.RunningStages() == 0 {
		delete(l.runs, e.Stream)
		l.heads[e.Stream] = r.Mark
	}
	return nil
}

func (l *logReplay) graph(ctx context.Context, e *storage.Sealed) (*events.Graph, error) {
	if e.Type != events.RunCreated {
		return nil, fmt.Errorf("%w: event %s comes after the end of its run", storage.ErrCorrupt, e.ID)
	}
	g := l.graphs[e.Data.Plan]
	if g == nil {
		var err error
		if g, err = loadGraph(ctx, l.store, e.Data.Plan); err != nil {
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
	page := storage.Page{Limit: replayPage}
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
			result := replayJSON{Run: r.ID.String(), Events: mark.Sequence, Verdict: "same"}
			if mark.Sequence != r.Sequence || mark.Head != r.Head {
				result.Verdict, result.Mismatch = "differs", &events.Mismatch{Sequence: r.Sequence, Recorded: "row with head " + r.Head.String(),
					Recomputed: "log with head " + mark.Head.String()}
			}
			if err := l.verdict(result); err != nil {
				return err
			}
		}
		if len(rows) < replayPage {
			return nil
		}
	}
}
