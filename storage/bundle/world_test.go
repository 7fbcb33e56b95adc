package bundle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

// shop is a store with its artifacts.
type shop struct {
	t     testing.TB
	store *sqlite.Store
	files *artifacts.Store
	*storetest.Maker
}

func newShop(t testing.TB) *shop {
	t.Helper()
	dir := t.TempDir()
	store, err := sqlite.Open(dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := artifacts.Open(filepath.Join(dir, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(store.Close(), files.Close()); err != nil {
			t.Error(err)
		}
	})
	return &shop{t: t, store: store, files: files, Maker: &storetest.Maker{}}
}

// keep puts text among the artifacts.
func (s *shop) keep(text string) events.Digest {
	s.t.Helper()
	info, err := s.files.Put(context.Background(), strings.NewReader(text))
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Digest
}

func (s *shop) commit(batches ...*storage.Batch) {
	s.t.Helper()
	for _, b := range batches {
		if err := s.store.Commit(b); err != nil {
			s.t.Fatal(err)
		}
	}
}

func frozen(t testing.TB, p *events.Plan) (*events.Graph, storage.PlanRow) {
	t.Helper()
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	g, err := events.NewGraph(p, events.DigestOf(b))
	if err != nil {
		t.Fatal(err)
	}
	return g, storage.PlanRow{Digest: g.Digest, Pipeline: p.Pipeline, Bytes: b}
}

// complete ends the running stage with what d says besides.
func complete(f *storetest.Flow, d events.Data) {
	i := f.Running()
	d.Stage, d.Attempt, d.Token = f.StageOf(i).Name, f.Stages[i].Attempt, f.Stages[i].Token
	f.Emit(events.StageCompleted, d)
	f.Decide()
}

// sample is a run that has everything that a file may have to carry.
type sample struct {
	main, child, parent, delivery events.ID
	want                          map[events.Digest]string // artifacts by what they are
	lost                          events.Digest            // that the store has no more
	key                           events.Digest            // of a stage whose result others may take over
}

// trade makes a run from a dropped file, with pins, a directory, evidence of a retry, a child run, and a run that it is a rerun of.
func (s *shop) trade() *sample {
	x := &sample{want: map[events.Digest]string{}}
	have := func(what, text string) events.Digest {
		d := s.keep(text)
		x.want[d] = what
		return d
	}
	row, delivered := s.Delivery(events.DeliveryReceived, events.Data{Kind: "file", Trigger: "file:in", Pipeline: "trade", Key: "k", Body: []byte("the body"), File: "drop.csv", Blob: have("drop", "a,b\n1,2\n")})
	x.delivery, x.parent = row.ID, s.ID()
	g, plan := frozen(s.t, &events.Plan{Schema: events.PlanSchema, Pipeline: "trade", Stages: []events.Stage{
		{Name: "fetch", Executor: "shell", Retry: &events.Retry{Max: 1, Interval: 1}, Outputs: []events.Output{{Role: "tree", Path: "tree/"}, {Role: "n"}, {Role: "rows", Path: "rows.csv"}}},
		{Name: "sub", Executor: "pipeline", Needs: []string{"fetch"}},
	}})
	f := s.Begin(g, plan, x.delivery)
	f.Decide()
	x.main = f.ID
	listed := have("a file of the directory", "in the tree")
	tree := have("manifest", `{"entries":[{"path":"x","digest":"`+listed.String()+`"}]}`)
	x.lost = events.DigestOf([]byte("nobody has it"))
	inputs := []events.PinnedInput{{Role: "drop", Kind: "file", Digest: s.keep("a,b\n1,2\n")}, {Role: "body", Kind: "file", Digest: events.DigestOf([]byte("the body"))}, {Role: "list", Kind: "files", Digest: events.DigestOf([]byte("a list"))},
		{Role: "old", Kind: "directory", Digest: have("other manifest", `["`+have("old", "old file").String()+`"]`)}}
	pins, err := events.EncodeDocument(events.Pins{Schema: 1, Definition: have("definition", `{"schema":1}`), Inputs: inputs, Time: "2026-01-01T00:00:00Z"})
	if err != nil {
		s.t.Fatal(err)
	}
	x.want[events.DigestOf([]byte("the body"))] = "the body in the event"
	x.want[events.DigestOf(pins)] = "pins in the event"
	long := append(bytes.Clone(pins), ' ')
	at := have("pins as an artifact", string(long))
	x.key = events.DigestOf(pins)
	complete(f, events.Data{Pinned: json.RawMessage(pins), Shared: 1, Machine: have("machine", `{"schema":1,"apollo":"0.1"}`), Evidence: have("evidence", "it smells"),
		Outputs: []events.Result{{Role: "n", Digest: events.DigestOf([]byte("7")), Size: 1, Records: -1, Value: []byte("7")},
			{Role: "rows", Digest: have("rows", "r\n1\n"), Size: 4, Records: 1, Name: "rows.csv"}, {Role: "tree", Digest: tree, Size: 9, Records: -1, Name: "tree"}}})
	cg, cplan := storetest.Plan("small", 1)
	child := s.Begin(cg, cplan, s.ID())
	child.Finish()
	x.child = child.ID
	complete(f, events.Data{PinnedAt: at, Evidence: x.lost, Pins: []events.Pair{{Name: "run", Value: x.child.String()}}})
	s.commit(delivered, child.Take(), f.Take())
	return x
}

// export writes a run and opens it again.
func (s *shop) export(run events.ID) ([]byte, *bundle.Manifest) {
	s.t.Helper()
	var b bytes.Buffer
	m, err := bundle.Write(context.Background(), &b, s.store, s.files, bundle.Options{Run: run, Apollo: "0.1.0"})
	if err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes(), m
}

func open(t testing.TB, b []byte) *bundle.File {
	t.Helper()
	f, err := bundle.Open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (s *shop) take(f *bundle.File) (*bundle.Imported, error) {
	return f.Import(context.Background(), s.store, s.files, bundle.Import{Name: "run.apollo", Digest: events.DigestOf([]byte("file")), Actor: "ada",
		Now: func() int64 { return 1_800_000_000_000_000_000 }, NewID: s.ID})
}
