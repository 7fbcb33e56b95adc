package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// settle compares a run that has ended and forgets it, unless more of it is to be expected: its row is newer than its
// log so far, or it is being verified stage by stage. What comes all the same after that is folded again.
func (b *rebuild) settle(ctx context.Context, e *storage.Sealed, run *events.Run) error {
	if e.Type.AfterEnd() && e.Type.Entity() == "stage" {
		return nil // the verdict on the whole run follows
	}
	live, err := b.view.Run(ctx, e.Stream)
	if err := found(err); err != nil {
		return err
	}
	if live.Sequence > run.Mark.Sequence {
		return nil
	}
	delete(b.runs, e.Stream)
	return b.compareRun(ctx, e.Stream, run)
}

// foldAgain folds a run that was forgotten at its end up to the event that has come since. That is rare.
func (b *rebuild) foldAgain(ctx context.Context, e *storage.Sealed) (*events.Run, error) {
	var run *events.Run
	err := b.before(ctx, e, func(old *storage.Sealed) (err error) {
		if run == nil {
			if run, err = b.begin(ctx, old); err != nil {
				return err
			}
		}
		return b.step(run, old)
	})
	if err == nil && (run == nil || !run.State.Terminal()) {
		err = fmt.Errorf("%w: event %s belongs to no run that has ended", storage.ErrCorrupt, e.ID)
	}
	if err != nil {
		delete(b.runs, e.Stream)
		return nil, err
	}
	b.again[e.Stream] = true
	return run, nil
}

func (b *rebuild) deliveryAgain(ctx context.Context, e *storage.Sealed, d *tracked) error {
	err := b.before(ctx, e, func(old *storage.Sealed) error { return b.project(d, old) })
	if err == nil && d.chain.Sequence == 0 {
		err = fmt.Errorf("%w: event %s belongs to no delivery", storage.ErrCorrupt, e.ID)
	}
	d.again = true
	return err
}

// before gives the events of the stream that come before one of it.
func (b *rebuild) before(ctx context.Context, e *storage.Sealed, each func(*storage.Sealed) error) error {
	for after := uint64(0); after+1 < e.Sequence; {
		log, err := b.view.Events(ctx, e.Stream, after, int(min(scanPage, e.Sequence-1-after)))
		if err != nil || len(log) == 0 {
			return err
		}
		for i := range log {
			if err := each(&log[i]); err != nil {
				return err
			}
			after = log[i].Sequence
		}
	}
	return nil
}

// forget drops a difference that was found before its row was looked at again.
func (b *rebuild) forget(table, key string) {
	b.differences = slices.DeleteFunc(b.differences, func(d storage.Difference) bool { return d.Table == table && d.Key == key })
}

// results derives the table of results: the first of each stage key that is shared stays, until its run is pruned or turns out to
// be imported.
type results struct {
	first  map[events.Digest]storage.ResultRow
	pruned map[events.ID]bool
}

func (r *results) see(e *storage.Sealed) {
	if e.Type == events.RunPruned || e.Type == events.RunImported {
		r.pruned[e.Stream] = true
	}
	row, shared := storage.ResultRowOf(&e.Event)
	if !shared {
		return
	}
	if first, has := r.first[row.Key]; !has || r.pruned[first.Run] {
		r.first[row.Key] = row
	}
}

// compareResults holds the rows against what the log gives. A row that no event accounts for is removed.
func (b *rebuild) compareResults(ctx context.Context) error {
	var after events.Digest
	for {
		rows, err := list(ctx, b.view, func(row scanner) (r storage.ResultRow, err error) {
			err = row.Scan(fixed(r.Key[:]), fixed(r.Run[:]), &r.Sequence)
			return r, err
		}, `SELECT key, run, seq FROM results WHERE key > ? ORDER BY key LIMIT ?`, after[:], scanPage)
		if err != nil {
			return err
		}
		for i := range rows {
			live := rows[i]
			after = live.Key
			want, has := b.results.first[live.Key]
			delete(b.results.first, live.Key)
			if live == want {
				continue
			}
			log := "nothing"
			if has {
				log = resultText(want)
			}
			b.differ("results", live.Key.String(), resultText(live), log)
			if err := b.mendResult(live.Key, want, has); err != nil {
				return err
			}
		}
		if len(rows) < scanPage {
			break
		}
	}
	for key, want := range b.results.first {
		b.differ("results", key.String(), "nothing", resultText(want))
		if err := b.mendResult(key, want, true); err != nil {
			return err
		}
	}
	return nil
}

func resultText(r storage.ResultRow) string {
	return fmt.Sprintf("event %d of run %s", r.Sequence, r.Run)
}

func (b *rebuild) mendResult(key events.Digest, want storage.ResultRow, has bool) error {
	if !b.write {
		return nil
	}
	mend := replacement{results: []events.Digest{key}}
	if has {
		mend.Results = []storage.ResultRow{want}
	}
	return b.s.writer.replace(&mend)
}
