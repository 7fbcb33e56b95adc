package bundle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// Source gives the runs, deliveries and plans that are exported; a store does.
type Source interface {
	Run(ctx context.Context, id events.ID) (storage.RunRow, error)
	Plan(ctx context.Context, digest events.Digest) ([]byte, error)
	Events(ctx context.Context, stream events.ID, after uint64, limit int) ([]storage.Sealed, error)
}

// Artifacts gives the bytes behind digests; *artifacts.Store does.
type Artifacts interface {
	Stat(d events.Digest) (artifacts.Info, error)
	Get(d events.Digest) (*artifacts.Reader, error)
}

// Options say what is exported.
type Options struct {
	Run     events.ID
	Apollo  string // version, for the manifest
	Parents bool   // with the runs that this one, and what it started, were forked from
}

const page = 2000 // events that are read at once

// gatherer finds out what belongs into a file. It keeps no event.
type gatherer struct {
	from   Source
	files  Artifacts
	o      Options
	m      Manifest
	plans  map[events.Digest][]byte
	seen   map[events.ID]bool
	todo   []events.ID // runs
	named  map[events.ID]string
	kinds  map[events.Digest]kind
	inline map[events.Digest][]byte // pins documents that stand in events
	bodies map[events.Digest][]byte // of deliveries, that stand in events: an input may be one of them
	log    sizer
}

// sizer counts and hashes what is written to it.
type sizer struct {
	hash interface {
		io.Writer
		Sum(b []byte) []byte
	}
	size int64
}

func newSizer() sizer { return sizer{hash: sha256.New()} }

func (s *sizer) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	return s.hash.Write(p)
}

func (s *sizer) digest() (d events.Digest) {
	s.hash.Sum(d[:0])
	return d
}

func gather(ctx context.Context, from Source, files Artifacts, o Options) (*gatherer, error) {
	g := &gatherer{from: from, files: files, o: o, m: Manifest{Format: Format, Apollo: o.Apollo}, plans: map[events.Digest][]byte{}, seen: map[events.ID]bool{},
		named: map[events.ID]string{}, kinds: map[events.Digest]kind{}, inline: map[events.Digest][]byte{}, bodies: map[events.Digest][]byte{}, log: newSizer(), todo: []events.ID{o.Run}}
	for len(g.todo) > 0 {
		id := g.todo[0]
		g.todo = g.todo[1:]
		if g.seen[id] {
			continue
		}
		g.seen[id] = true
		if err := g.run(ctx, id); err != nil {
			return nil, fmt.Errorf("export run %s: %w", id, err)
		}
	}
	for i := range g.m.Runs {
		if err := g.delivery(ctx, g.m.Runs[i].Delivery); err != nil {
			return nil, fmt.Errorf("export delivery %s: %w", g.m.Runs[i].Delivery, err)
		}
	}
	g.name()
	return g, g.contents(ctx)
}

// run takes in a run as far as its log goes now.
func (g *gatherer) run(ctx context.Context, id events.ID) error {
	row, err := g.from.Run(ctx, id)
	if errors.Is(err, storage.ErrNotFound) && id != g.o.Run {
		return nil // it stays named
	}
	if err != nil {
		return err
	}
	graph, err := g.plan(ctx, row.Plan)
	if err != nil {
		return err
	}
	r := events.NewRun(graph)
	var scratch []byte
	last, err := render(ctx, g.from, id, 0, &g.log, func(e *storage.Sealed) (err error) {
		if scratch, err = r.Chain.Follow(&e.Event, e.Encoded, scratch); err != nil {
			return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
		g.note(graph.Plan, &e.Event)
		return r.Apply(&e.Event)
	})
	if err != nil {
		return err
	}
	if row.State.Terminal() && r.State.Terminal() && row.Sequence > r.Mark.Sequence {
		return fmt.Errorf("%w: the row of the run is at event %d, its log ends with %d", storage.ErrCorrupt, row.Sequence, last)
	}
	g.m.Runs = append(g.m.Runs, Run{Run: id, Pipeline: graph.Plan.Pipeline, State: r.State, Plan: graph.Digest, Events: last, Head: r.Chain.Head,
		Mark: r.Mark.Sequence, MarkHead: r.Mark.Head, Delivery: r.Delivery, Forked: r.Forked, Parent: r.Parent})
	g.refer(r.Parent, "parent", false)
	g.refer(r.Forked, "forked_from", g.o.Parents)
	return nil
}

// refer notes a run that another one refers to, and whether it comes along.
func (g *gatherer) refer(id events.ID, why string, along bool) {
	if id.IsZero() {
		return
	}
	if _, known := g.named[id]; !known {
		g.named[id] = why
	}
	if along {
		g.todo = append(g.todo, id)
	}
}

// note takes in what an event refers to.
func (g *gatherer) note(plan *events.Plan, e *events.Event) {
	for _, r := range eventRefs(plan, e) {
		g.want(r)
	}
	if len(e.Data.Pinned) > 0 {
		g.inline[events.DigestOf(e.Data.Pinned)] = e.Data.Pinned
	}
	if len(e.Data.Body) > 0 {
		g.bodies[events.DigestOf(e.Data.Body)] = e.Data.Body
	}
	g.refer(e.Data.Cached, "cached_from", false)
	for _, pin := range e.Data.Pins {
		if pin.Name != "run" {
			continue
		}
		if id, err := events.ParseID(pin.Value); err == nil {
			g.refer(id, "child", true)
		}
	}
}

func (g *gatherer) want(r ref) {
	g.kinds[r.digest] = max(g.kinds[r.digest], r.kind)
}

func (g *gatherer) plan(ctx context.Context, digest events.Digest) (*events.Graph, error) {
	b, known := g.plans[digest]
	if !known {
		var err error
		if b, err = g.from.Plan(ctx, digest); err != nil {
			return nil, err
		}
		g.plans[digest] = b
	}
	return storage.DecodeGraph(b, digest)
}

// delivery takes in a delivery's events. One that the store has no more is left out.
func (g *gatherer) delivery(ctx context.Context, id events.ID) error {
	if id.IsZero() || g.seen[id] {
		return nil
	}
	g.seen[id] = true
	var chain events.Chain
	var scratch []byte
	last, err := render(ctx, g.from, id, 0, &g.log, func(e *storage.Sealed) (err error) {
		if scratch, err = chain.Follow(&e.Event, e.Encoded, scratch); err != nil {
			return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
		g.note(nil, &e.Event)
		return nil
	})
	if err == nil && last > 0 {
		g.m.Deliveries = append(g.m.Deliveries, Delivery{Delivery: id, Events: last, Head: chain.Head})
	}
	return err
}

// render writes a stream as CloudEvents, one a line: all of it, or up to a sequence that is not 0. each sees every event
// first. It gives the last sequence.
func render(ctx context.Context, from Source, stream events.ID, until uint64, to io.Writer, each func(*storage.Sealed) error) (last uint64, err error) {
	var origin events.Origin
	var line []byte
	for e, err := range storage.Stream(ctx, from, stream, 0) {
		if err != nil || until > 0 && last == until {
			return last, err
		}
		if e.Sequence == 1 {
			origin = originOf(&e.Event)
		}
		if each != nil {
			if err := each(e); err != nil {
				return last, err
			}
		}
		if line, err = e.AppendCloudEvent(line[:0], origin); err != nil {
			return last, err
		}
		if _, err := to.Write(append(line, '\n')); err != nil {
			return last, err
		}
		last = e.Sequence
	}
	return last, nil
}

// originOf gives what the CloudEvents of a stream share, from its first event.
func originOf(first *events.Event) events.Origin {
	return events.Origin{Pipeline: first.Data.Pipeline, Correlation: first.Data.Delivery, Trace: first.Data.Trace}
}

// name lists the runs that are referred to and not in the file.
func (g *gatherer) name() {
	for i := range g.m.Runs {
		delete(g.named, g.m.Runs[i].Run)
	}
	for id, why := range g.named {
		g.m.Named = append(g.m.Named, Named{id, why})
	}
	slices.SortFunc(g.m.Named, func(a, b Named) int { return bytes.Compare(a.Run[:], b.Run[:]) })
}

// contents lists plans and artifacts, also those that a document among the artifacts names.
func (g *gatherer) contents(ctx context.Context) error {
	for digest, b := range g.plans {
		g.m.Plans = append(g.m.Plans, Content{digest, int64(len(b))})
	}
	for digest, b := range g.bodies {
		if _, wanted := g.kinds[digest]; wanted {
			g.inline[digest] = b
		}
	}
	for digest, b := range g.inline {
		delete(g.kinds, digest)
		g.m.Artifacts = append(g.m.Artifacts, Content{digest, int64(len(b))})
	}
	todo, done := g.kinds, map[events.Digest]bool{}
	for len(todo) > 0 {
		g.kinds = map[events.Digest]kind{}
		for digest, k := range todo {
			if done[digest] || g.inline[digest] != nil {
				continue
			}
			done[digest] = true
			if err := g.artifact(ctx, digest, k); err != nil {
				return err
			}
		}
		todo = g.kinds
	}
	bySum := func(a, b Content) int { return bytes.Compare(a.Digest[:], b.Digest[:]) }
	slices.SortFunc(g.m.Plans, bySum)
	slices.SortFunc(g.m.Artifacts, bySum)
	slices.SortFunc(g.m.Missing, func(a, b events.Digest) int { return bytes.Compare(a[:], b[:]) })
	lines := uint64(0)
	for i := range g.m.Runs {
		lines += g.m.Runs[i].Events
	}
	for i := range g.m.Deliveries {
		lines += g.m.Deliveries[i].Events
	}
	g.m.Log = Log{Digest: g.log.digest(), Size: g.log.size, Lines: lines}
	return nil
}

func (g *gatherer) artifact(ctx context.Context, digest events.Digest, k kind) error {
	info, err := g.files.Stat(digest)
	if errors.Is(err, storage.ErrNotFound) {
		g.m.Missing = append(g.m.Missing, digest)
		return nil
	}
	if err != nil {
		return err
	}
	g.m.Artifacts = append(g.m.Artifacts, Content{digest, info.Size})
	if k == content || info.Size > maxDocument {
		return ctx.Err()
	}
	r, err := g.files.Get(digest)
	if err != nil {
		return err
	}
	document, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	for _, r := range documentRefs(k, document) {
		g.want(r)
	}
	return nil
}

// Describe finds out what Write would write, and writes nothing. open gives the bytes of each artifact of the manifest.
func Describe(ctx context.Context, from Source, files Artifacts, o Options) (m *Manifest, open func(events.Digest) (io.ReadCloser, error), err error) {
	g, err := gather(ctx, from, files, o)
	if err != nil {
		return nil, nil, err
	}
	return &g.m, func(d events.Digest) (io.ReadCloser, error) {
		if document := g.inline[d]; document != nil {
			return io.NopCloser(bytes.NewReader(document)), nil
		}
		return files.Get(d)
	}, nil
}
