package prune

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// Log is what is read of the store.
type Log interface {
	Scan(ctx context.Context, after int64, page []storage.Record) (int, error)
	Events(ctx context.Context, stream events.ID, after uint64, limit int) ([]storage.Sealed, error)
	Runs(ctx context.Context, f storage.RunFilter) ([]storage.RunRow, error)
	Plan(ctx context.Context, digest events.Digest) ([]byte, error)
}

// Writer appends to the log.
type Writer interface {
	Commit(b *storage.Batch) error
}

// Artifacts holds the bytes.
type Artifacts interface {
	Stat(d events.Digest) (artifacts.Info, error)
	Get(d events.Digest) (*artifacts.Reader, error)
	Manifest(ctx context.Context, d events.Digest) (*artifacts.Manifest, error)
	Each(ctx context.Context, give func(artifacts.Found) error) error
	Remove(d events.Digest) error
}

// Options say what goes.
type Options struct {
	Before int64     // Unix nanoseconds: runs that ended before it may lose their artifacts; 0 is none
	Dry    bool      // remove nothing and append nothing
	Began  time.Time // artifacts that came in since are left alone
	Now    func() time.Time
	NewID  func() events.ID
	Actor  string
	Reason string
}

// Report says what went, or would go.
type Report struct {
	Artifacts int
	Bytes     int64
	Runs      []Pruned
}

// Pruned is a run that lost artifacts.
type Pruned struct {
	Run       events.ID
	Pipeline  string
	Ended     int64
	Artifacts int
	Bytes     int64
}

// Prune removes what nothing needs. Nobody else may write to the store meanwhile: the caller holds the lock of the data
// directory. After an error nothing that is needed is gone.
func Prune(ctx context.Context, log Log, to Writer, files Artifacts, o Options) (Report, error) {
	r, err := prune(ctx, log, to, files, o)
	if err != nil {
		err = fmt.Errorf("prune: %w", err)
	}
	return r, err
}

func prune(ctx context.Context, log Log, to Writer, files Artifacts, o Options) (r Report, err error) {
	m := &mark{log: log, files: files, needed: map[events.Digest]bool{}}
	if m.family, err = readFamily(ctx, log, o.Before); err != nil {
		return r, err
	}
	if err := m.everything(ctx); err != nil {
		return r, err
	}
	p := &pruning{Options: o, mark: m, to: to}
	for _, id := range m.family.doomed {
		if err := p.run(ctx, id); err != nil {
			return r, fmt.Errorf("run %s: %w", id, err)
		}
	}
	if err := p.flush(); err != nil { // the log says it before anything is gone
		return r, err
	}
	r.Runs = p.pruned
	err = files.Each(ctx, func(f artifacts.Found) error {
		if m.needed[f.Digest] || !f.Since.Before(o.Began) {
			return nil
		}
		if !o.Dry {
			if err := files.Remove(f.Digest); err != nil && !errors.Is(err, storage.ErrNotFound) {
				return err
			}
		}
		r.Artifacts++
		r.Bytes += f.Size
		return nil
	})
	return r, err
}

// pruning says in the log which runs lose what.
type pruning struct {
	Options
	mark    *mark
	to      Writer
	claimed map[events.Digest]bool // by the present run
	pruned  []Pruned
	batch   storage.Batch
}

// maxBatch is how many runs are pruned in one commit.
const maxBatch = 200

// run finds what a run loses, alone or with others that are pruned too. One that loses nothing is left as it is.
func (p *pruning) run(ctx context.Context, id events.ID) error {
	p.claimed = map[events.Digest]bool{}
	var folded *events.Run
	own := Pruned{Run: id}
	err := each(ctx, p.mark.log, id, func(e *storage.Sealed) (err error) {
		if folded == nil {
			if folded, err = p.mark.begin(ctx, e); err != nil {
				return err
			}
		}
		if _, err := folded.Chain.Follow(&e.Event, e.Encoded, nil); err != nil {
			return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
		if err := folded.Apply(&e.Event); err != nil {
			return err
		}
		return p.claim(ctx, &e.Event, &own)
	})
	if err == nil && folded != nil && !folded.Delivery.IsZero() && !p.mark.family.keeps(folded.Delivery) {
		err = each(ctx, p.mark.log, folded.Delivery, func(e *storage.Sealed) error { return p.claim(ctx, &e.Event, &own) })
	}
	if err != nil || own.Artifacts == 0 {
		return err
	}
	own.Pipeline, own.Ended = folded.Graph.Plan.Pipeline, folded.Ended
	p.pruned = append(p.pruned, own)
	return p.note(folded, &own)
}

// claim counts what goes with an event and is still there.
func (p *pruning) claim(ctx context.Context, e *events.Event, own *Pruned) error {
	return p.mark.walk(ctx, e, func(d events.Digest, _ bool) {
		if p.mark.needed[d] || p.claimed[d] {
			return
		}
		p.claimed[d] = true
		if info, err := p.mark.files.Stat(d); err == nil {
			own.Artifacts++
			own.Bytes += info.Size
		}
	})
}

// note appends the event that says so.
func (p *pruning) note(r *events.Run, own *Pruned) error {
	if p.Dry {
		return nil
	}
	e := events.Event{ID: p.NewID(), Stream: r.ID, Type: events.RunPruned, Time: p.Now().UnixNano(),
		Data: events.Data{Count: own.Artifacts, Size: own.Bytes, Actor: p.Actor, Reason: p.Reason}}
	encoded := e.Data.AppendEncoded(nil)
	r.Chain.Seal(&e, encoded, nil)
	if err := r.Apply(&e); err != nil {
		return err
	}
	p.batch.Events = append(p.batch.Events, storage.Sealed{Event: e, Encoded: encoded})
	p.batch.Runs = append(p.batch.Runs, storage.RunRowOf(r))
	if len(p.batch.Runs) < maxBatch {
		return nil
	}
	return p.flush()
}

func (p *pruning) flush() error {
	if len(p.batch.Events) == 0 {
		return nil
	}
	err := p.to.Commit(&p.batch)
	p.batch = storage.Batch{}
	return err
}
