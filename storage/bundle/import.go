package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// What keeps a file from being imported, besides an *Error.
var (
	ErrNotEnded = errors.New("E_NOT_ENDED: the run had not ended when it was exported")
	ErrConflict = errors.New("E_BUNDLE_CONFLICT: the store has other events under the same id")
)

// Target is the store that a file is imported into.
type Target interface {
	Source
	Delivery(ctx context.Context, id events.ID) (storage.DeliveryRow, error)
	Commit(b *storage.Batch) error
}

// Keeper takes in artifacts; *artifacts.Store does.
type Keeper interface {
	Put(ctx context.Context, r io.Reader) (artifacts.Info, error)
}

// Import says how a file is imported.
type Import struct {
	Name   string        // of the file, for the log
	Digest events.Digest // of the file, for the log
	Actor  string        // who imports it
	Now    func() int64  // Unix nanoseconds
	NewID  func() events.ID
}

// Imported is what became of a file.
type Imported struct {
	Runs       []ImportedRun `json:"runs"`
	Deliveries int           `json:"deliveries"` // taken in
	Artifacts  int           `json:"artifacts"`  // taken in, or there already
	Bytes      int64         `json:"bytes"`      // of the artifacts
	Missing    int           `json:"missing"`    // artifacts that were missing where the file was written
}

// ImportedRun is what became of a run.
type ImportedRun struct {
	Run      events.ID    `json:"run"`
	Pipeline string       `json:"pipeline"`
	State    events.State `json:"state"`
	Events   uint64       `json:"events"`
	Verdict  string       `json:"verdict"` // imported, here
}

// Import takes the runs of a verified file into a store: the artifacts first, then everything else in one commit. Each
// stream ends with run.imported or delivery.imported. A run that is there already with the same events stays as it is.
// ErrNotEnded and ErrConflict say that nothing was changed. No result becomes one that other runs take over, and nothing is
// started: only runs that have ended are taken in.
func (f *File) Import(ctx context.Context, to Target, files Keeper, o Import) (*Imported, error) {
	if !f.Manifest.Ended() {
		return nil, ErrNotEnded
	}
	for {
		in := &importer{verifier: &verifier{File: f}, to: to, o: o, keys: map[events.Digest]bool{}}
		done, err := in.prepare(ctx)
		if err != nil || len(in.batch.Events) == 0 {
			return done, err
		}
		if err := in.keep(ctx, files, done); err != nil {
			return nil, err
		}
		if err = to.Commit(&in.batch); !errors.Is(err, storage.ErrConflict) { // else somebody else was faster: look again
			return done, err
		}
	}
}

type importer struct {
	*verifier
	to    Target
	o     Import
	batch storage.Batch
	keys  map[events.Digest]bool // that the batch has a result for
	marks []storage.Sealed       // the last event of each stream: they stand at the end of the log, which has this store's time
}

// prepare makes the batch; it changes nothing.
func (in *importer) prepare(ctx context.Context) (*Imported, error) {
	done := &Imported{Runs: []ImportedRun{}, Missing: len(in.Manifest.Missing)}
	plans := map[events.Digest]bool{}
	for i := range in.Manifest.Runs {
		m := &in.Manifest.Runs[i]
		here, err := in.here(ctx, m.Run, m.Events)
		if err != nil {
			return nil, err
		}
		verdict := "here"
		if !here {
			verdict = "imported"
			if err := in.takeRun(ctx, m, plans); err != nil {
				return nil, fmt.Errorf("import run %s: %w", m.Run, err)
			}
		}
		done.Runs = append(done.Runs, ImportedRun{m.Run, m.Pipeline, m.State, m.Events, verdict})
	}
	for i := range in.Manifest.Deliveries {
		m := &in.Manifest.Deliveries[i]
		here, err := in.here(ctx, m.Delivery, m.Events)
		if err == nil && !here {
			err = in.takeDelivery(ctx, m.Delivery)
			done.Deliveries++
		}
		if err != nil {
			return nil, fmt.Errorf("import delivery %s: %w", m.Delivery, err)
		}
	}
	in.batch.Events = append(in.batch.Events, in.marks...)
	return done, nil
}

// here reports whether the store has the stream already, with the same events. Where the two part, or the store's ends, the
// file may only have what is noted of a run after its end; whatever the store has beyond what was exported is its own.
func (in *importer) here(ctx context.Context, id events.ID, n uint64) (bool, error) {
	parted := false
	for after := uint64(0); after < n; after += page {
		have, err := in.to.Events(ctx, id, after, page)
		if err != nil {
			return false, err
		}
		if after == 0 && len(have) == 0 {
			return false, nil
		}
		want, err := in.Events(ctx, id, after, page)
		if err != nil {
			return false, err
		}
		for i := range want {
			parted = parted || i >= len(have) || have[i].ID != want[i].ID || have[i].Prev != want[i].Prev || !bytes.Equal(have[i].Encoded, want[i].Encoded)
			if parted && !noted(want[i].Type) {
				return false, fmt.Errorf("%w: event %d of %s, %s, is another one here, or none; import the file into a data directory of its own", ErrConflict, want[i].Sequence, id, want[i].Type.Short())
			}
		}
	}
	return true, nil
}

// noted tells the events that only add to a run that has ended.
func noted(t events.Type) bool {
	switch t {
	case events.RunImported, events.RunVerified, events.RunPruned, events.StageVerified, events.StageIrreproducibleFound,
		events.StageLateResult, events.DeliveryImported:
		return true
	}
	return false
}

func (in *importer) takeRun(ctx context.Context, m *Run, plans map[events.Digest]bool) error {
	b, err := in.Plan(ctx, m.Plan)
	if err != nil {
		return err
	}
	graph, err := storage.DecodeGraph(b, m.Plan)
	if err != nil {
		return err
	}
	if !plans[m.Plan] {
		plans[m.Plan] = true
		in.batch.Plans = append(in.batch.Plans, storage.PlanRow{Digest: m.Plan, Pipeline: graph.Plan.Pipeline, Bytes: b})
	}
	r := events.NewRun(graph)
	var scratch []byte
	take := func(e *storage.Sealed) (err error) {
		if scratch, err = r.Chain.Follow(&e.Event, e.Encoded, scratch); err != nil {
			return err
		}
		return r.Apply(&e.Event)
	}
	if err := in.walk(ctx, m.Run, func(e *storage.Sealed) error {
		in.batch.Events = append(in.batch.Events, *e)
		in.result(&e.Event)
		return take(e)
	}); err != nil {
		return err
	}
	mark := in.mark(r.Chain, m.Run, events.RunImported)
	in.marks = append(in.marks, mark)
	if err := take(&mark); err != nil {
		return err
	}
	in.batch.Runs = append(in.batch.Runs, storage.RunRowOf(r))
	for i := range r.Stages {
		if r.Touched(i) {
			in.batch.Stages = append(in.batch.Stages, storage.StageRowOf(r, i))
		}
	}
	return nil
}

// result records what the log says of a stage key, so that the rows are what the log says. A store gives no result of an imported
// run to anybody, and lets one of its own take its place.
func (in *importer) result(e *events.Event) {
	row, shared := storage.ResultRowOf(e)
	if shared && !in.keys[row.Key] {
		in.keys[row.Key] = true
		in.batch.Results = append(in.batch.Results, row)
	}
}

func (in *importer) takeDelivery(ctx context.Context, id events.ID) error {
	var chain events.Chain
	var row storage.DeliveryRow
	var scratch []byte
	take := func(e *storage.Sealed) (err error) {
		scratch, err = chain.Follow(&e.Event, e.Encoded, scratch)
		row.Project(&e.Event, chain.Head)
		return err
	}
	if err := in.walk(ctx, id, func(e *storage.Sealed) error {
		in.batch.Events = append(in.batch.Events, *e)
		return take(e)
	}); err != nil {
		return err
	}
	mark := in.mark(chain, id, events.DeliveryImported)
	in.marks = append(in.marks, mark)
	if err := take(&mark); err != nil {
		return err
	}
	in.batch.Deliveries = append(in.batch.Deliveries, row)
	return nil
}

// mark makes the event that says that a stream came from elsewhere.
func (in *importer) mark(c events.Chain, id events.ID, t events.Type) storage.Sealed {
	e := events.Event{ID: in.o.NewID(), Stream: id, Type: t, Time: in.o.Now(),
		Data: events.Data{Actor: in.o.Actor, Reason: in.o.Name, Blob: in.o.Digest}}
	encoded := e.Data.AppendEncoded(nil)
	c.Seal(&e, encoded, nil)
	return storage.Sealed{Event: e, Encoded: encoded}
}

// keep puts the artifacts into the store, and makes sure that they are what was asked for.
func (in *importer) keep(ctx context.Context, files Keeper, done *Imported) error {
	for _, a := range in.Manifest.Artifacts {
		r, err := in.Artifact(a.Digest)
		if err != nil {
			return err
		}
		info, err := files.Put(ctx, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return fmt.Errorf("import artifact %s: %w", a.Digest, err)
		}
		if info.Digest != a.Digest {
			return wrong(CodeDigest, artifactDir+plain(a.Digest), hintDamage, "it has the content of %s", info.Digest)
		}
		done.Artifacts++
		done.Bytes += a.Size
	}
	return nil
}
