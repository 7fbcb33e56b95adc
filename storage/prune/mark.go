package prune

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// maxDocument is the size in bytes up to which an artifact is looked into for what it names.
const maxDocument = 64 << 20

// mark finds out what is needed.
type mark struct {
	log    Log
	files  Artifacts
	family *family
	needed map[events.Digest]bool
	looked map[looking]bool // into these artifacts, as these documents
	graphs map[events.Digest]*events.Graph
}

type looking struct {
	digest events.Digest
	kind   events.RefKind
}

// everything marks what any kept run or delivery refers to, and what its plan names.
func (m *mark) everything(ctx context.Context) error {
	plans := map[events.Digest]bool{}
	return scan(ctx, m.log, func(e *storage.Sealed) error {
		if !m.family.keeps(e.Stream) {
			return nil
		}
		if e.Type == events.RunCreated && !plans[e.Data.Plan] {
			plans[e.Data.Plan] = true
			b, err := m.log.Plan(ctx, e.Data.Plan)
			if err != nil {
				return err
			}
			events.TextRefs(b, func(r events.Ref) { m.needed[r.Digest] = true })
		}
		return m.walk(ctx, &e.Event, func(d events.Digest, _ bool) { m.needed[d] = true })
	})
}

// walk gives every digest that an event refers to, itself or through what it names, and whether it may be no artifact's. It
// looks into a document once, whoever names it.
func (m *mark) walk(ctx context.Context, e *events.Event, visit func(d events.Digest, maybe bool)) error {
	if m.looked == nil {
		m.looked = map[looking]bool{}
	}
	var failed error
	var look func(r events.Ref)
	look = func(r events.Ref) {
		visit(r.Digest, r.Maybe)
		if at := (looking{r.Digest, r.Kind}); failed == nil && r.Kind != events.RefBytes && !m.looked[at] {
			m.looked[at] = true
			failed = m.inside(ctx, r, look)
		}
	}
	e.Refs(look)
	return failed
}

// inside gives what an artifact refers to. One that is missing or damaged refers to nothing; Check names it.
func (m *mark) inside(ctx context.Context, r events.Ref, give func(events.Ref)) error {
	if r.Kind == events.RefTree {
		tree, err := m.files.Manifest(ctx, r.Digest)
		if err != nil {
			return ctx.Err()
		}
		for i := range tree.Entries {
			if d := tree.Entries[i].Digest; !d.IsZero() {
				give(events.Ref{Digest: d})
			}
		}
		return nil
	}
	b, err := m.read(r.Digest)
	switch {
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrCorrupt):
	case err != nil:
		return err
	case r.Kind == events.RefPins:
		events.PinsRefs(b, give)
	default:
		events.TextRefs(b, give)
	}
	return nil
}

func (m *mark) read(d events.Digest) (b []byte, err error) {
	r, err := m.files.Get(d)
	if err != nil {
		return nil, err
	}
	if r.Size() > maxDocument {
		return nil, errors.Join(fmt.Errorf("look into artifact %v: %d bytes, at most %d are allowed", d, r.Size(), maxDocument), r.Close())
	}
	b, err = io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

// begin stands before the first event of a run.
func (m *mark) begin(ctx context.Context, e *storage.Sealed) (*events.Run, error) {
	if g := m.graphs[e.Data.Plan]; g != nil {
		return events.NewRun(g), nil
	}
	g, err := storage.ReadGraph(ctx, m.log, e.Data.Plan)
	if err != nil {
		return nil, err
	}
	if m.graphs == nil {
		m.graphs = map[events.Digest]*events.Graph{}
	}
	m.graphs[e.Data.Plan] = g
	return events.NewRun(g), nil
}
