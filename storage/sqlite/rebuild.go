package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/mattn/go-sqlite3"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// scanPage is how many events of the log are read at once.
const scanPage = 2000

// Rebuild makes the state rows again from the log, compares them with the live ones and, when write is set, puts the
// rebuilt ones in their place. It needs memory for runs that go on, and about 100 bytes for each result that is shared.
//
// It sees the store as it is when it begins. Commits wait for it when write is set.
func (s *Store) Rebuild(ctx context.Context, write bool) (differences []storage.Difference, err error) {
	if write {
		if s.writer.conn == nil {
			return nil, fmt.Errorf("rebuild: %w: opened for reading", storage.ErrClosed)
		}
		s.writer.connLock.Lock()
		defer s.writer.connLock.Unlock()
		if s.writer.fatal != nil {
			return nil, fmt.Errorf("rebuild: %w", s.writer.fatal)
		}
	}
	err = s.snapshot(ctx, func(view *reads) error {
		b := newRebuild(s, view, write)
		if err := b.walk(ctx, nil); err != nil {
			return err
		}
		err := b.extra(ctx)
		differences = b.differences
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rebuild: %w", err)
	}
	return differences, nil
}

// snapshot reads with one transaction: everything is of one moment.
func (s *Store) snapshot(ctx context.Context, read func(*reads) error) error {
	conn, err := s.read.Conn(ctx)
	if err != nil {
		return damage(err)
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return damage(err)
	}
	view := &reads{q: tx, bare: func(_ context.Context, read func(*sqlite3.SQLiteConn) error) error { return lend(conn, read) }}
	return errors.Join(read(view), tx.Rollback())
}

func newRebuild(s *Store, view *reads, write bool) *rebuild {
	return &rebuild{s: s, view: view, write: write, runs: map[events.ID]*events.Run{}, deliveries: map[events.ID]*tracked{}, graphs: map[events.Digest]*events.Graph{},
		again: map[events.ID]bool{}, results: results{first: map[events.Digest]storage.ResultRow{}, pruned: map[events.ID]bool{}}}
}

// tracked is a delivery's row as the log says it so far.
type tracked struct {
	row   storage.DeliveryRow
	chain events.Chain
	again bool // compared before, and folded again since
}

// rebuild walks the log once. A run is compared when it ends, or at the end of the log.
type rebuild struct {
	s           *Store
	view        *reads
	write       bool
	runs        map[events.ID]*events.Run
	deliveries  map[events.ID]*tracked
	graphs      map[events.Digest]*events.Graph
	scratch     []byte
	again       map[events.ID]bool // runs that were compared before, and folded again since
	results     results
	counts      struct{ runs, stages, deliveries int64 }
	differences []storage.Difference
}

// walk applies every event. report, when set, is told what cannot be applied and the walk goes on; else it ends there.
func (b *rebuild) walk(ctx context.Context, report func(position int64, err error)) error {
	broken := map[events.ID]bool{}
	page := make([]storage.Record, scanPage)
	var after int64
	for {
		n, err := b.view.Scan(ctx, after, page)
		if err != nil {
			return err
		}
		for i := range n {
			r := &page[i]
			after = r.Position
			if broken[r.Stream] {
				continue
			}
			if err := b.apply(ctx, &r.Sealed); err != nil {
				err = fmt.Errorf("position %d: %w", r.Position, err)
				if report == nil {
					return err
				}
				broken[r.Stream] = true
				delete(b.runs, r.Stream)
				report(r.Position, err)
			}
		}
		if n < len(page) {
			break
		}
	}
	for id, run := range b.runs {
		if err := b.compareRun(ctx, id, run); err != nil {
			return err
		}
	}
	for _, d := range b.deliveries {
		if err := b.compareDelivery(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (b *rebuild) apply(ctx context.Context, e *storage.Sealed) (err error) {
	if e.Type <= events.DeliveryImported {
		return b.applyDelivery(ctx, e)
	}
	run := b.runs[e.Stream]
	switch {
	case run != nil:
	case e.Type.AfterEnd():
		run, err = b.foldAgain(ctx, e)
	default:
		run, err = b.begin(ctx, e)
	}
	if err != nil {
		return err
	}
	if err := b.step(run, e); err != nil {
		return err
	}
	b.results.see(e)
	if !run.State.Terminal() || run.RunningStages() > 0 || run.State == events.Failed {
		return nil // a failed run may be resumed
	}
	return b.settle(ctx, e, run)
}

func (b *rebuild) step(run *events.Run, e *storage.Sealed) (err error) {
	if b.scratch, err = run.Chain.Follow(&e.Event, e.Encoded, b.scratch); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	return run.Apply(&e.Event)
}

func (b *rebuild) applyDelivery(ctx context.Context, e *storage.Sealed) (err error) {
	d := b.deliveries[e.Stream]
	if d == nil {
		d = &tracked{}
		if e.Type.AfterEnd() {
			if err := b.deliveryAgain(ctx, e, d); err != nil {
				return err
			}
		}
		b.deliveries[e.Stream] = d
	}
	if err := b.project(d, e); err != nil || e.Type == events.DeliveryHeld {
		return err
	}
	live, err := b.view.Delivery(ctx, e.Stream)
	if err := found(err); err != nil {
		return err
	}
	if live.Sequence > d.row.Sequence {
		return nil // its row says that there is more to come
	}
	delete(b.deliveries, e.Stream)
	return b.compareDelivery(ctx, d)
}

func (b *rebuild) project(d *tracked, e *storage.Sealed) (err error) {
	if b.scratch, err = d.chain.Follow(&e.Event, e.Encoded, b.scratch); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
	}
	d.row.Project(&e.Event, d.chain.Head)
	return nil
}

func (b *rebuild) begin(ctx context.Context, e *storage.Sealed) (*events.Run, error) {
	if e.Type != events.RunCreated {
		return nil, fmt.Errorf("%w: event %s belongs to no run that goes on", storage.ErrCorrupt, e.ID)
	}
	g := b.graphs[e.Data.Plan]
	if g == nil {
		var err error
		if g, err = storage.ReadGraph(ctx, b.view, e.Data.Plan); err != nil {
			return nil, err
		}
		b.graphs[e.Data.Plan] = g
	}
	run := events.NewRun(g)
	b.runs[e.Stream] = run
	return run, nil
}

func (b *rebuild) differ(table, key string, live, log any) {
	b.differences = append(b.differences, storage.Difference{Table: table, Key: key, Live: fmt.Sprintf("%+v", live), FromTheLog: fmt.Sprintf("%+v", log)})
}

func (b *rebuild) compareRun(ctx context.Context, id events.ID, run *events.Run) error {
	want := storage.RunRowOf(run)
	live, err := b.view.Run(ctx, id)
	if err := found(err); err != nil {
		return err
	}
	again := b.again[id]
	delete(b.again, id)
	if again { // what was found at its end is found once more, as of now
		b.forget("runs", id.String())
	} else {
		b.counts.runs++
	}
	var mend storage.Batch
	if live != want {
		b.differ("runs", id.String(), live, want)
		mend.Runs = append(mend.Runs, want)
	}
	rows, err := b.view.Stages(ctx, id)
	if err != nil {
		return err
	}
	byIndex := make(map[int]storage.StageRow, len(rows))
	for _, r := range rows {
		byIndex[r.Index] = r
	}
	for i := range run.Stages {
		row, has := byIndex[i]
		if !has && !run.Touched(i) {
			continue
		}
		if again {
			b.forget("stages", id.String()+" "+run.StageOf(i).Name)
		} else {
			b.counts.stages++
		}
		if want := storage.StageRowOf(run, i); row != want {
			b.differ("stages", id.String()+" "+want.Stage, row, want)
			mend.Stages = append(mend.Stages, want)
		}
	}
	return b.mend(&mend)
}

func (b *rebuild) compareDelivery(ctx context.Context, d *tracked) error {
	live, err := b.view.Delivery(ctx, d.row.ID)
	if err := found(err); err != nil {
		return err
	}
	if d.again {
		b.forget("deliveries", d.row.ID.String())
	} else {
		b.counts.deliveries++
	}
	if live == d.row {
		return nil
	}
	b.differ("deliveries", d.row.ID.String(), live, d.row)
	return b.mend(&storage.Batch{Deliveries: []storage.DeliveryRow{d.row}})
}
