package bundle_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/storetest"
)

func TestFileHoldsAllThatIsReferredTo(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	x := s.trade()
	s.keep("somebody else's")
	b, m := s.export(x.main)
	for _, a := range m.Artifacts {
		if x.want[a.Digest] == "" {
			t.Errorf("%s came along for no reason", a.Digest)
		}
		delete(x.want, a.Digest)
	}
	for _, what := range x.want {
		t.Errorf("%s was left behind", what)
	}
	if len(m.Runs) != 2 || m.Runs[0].Run != x.main || m.Runs[1].Run != x.child || len(m.Plans) != 2 || len(m.Deliveries) != 1 || m.Deliveries[0].Delivery != x.delivery {
		t.Errorf("manifest %+v", m)
	}
	if !slices.Equal(m.Missing, []events.Digest{x.lost}) {
		t.Errorf("missing: %v", m.Missing)
	}
	again, _ := s.export(x.main)
	if !bytes.Equal(b, again) {
		t.Error("the same run gave another file")
	}
	f := open(t, b)
	if err := f.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	for _, a := range m.Artifacts {
		r, err := f.Artifact(a.Digest)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil || events.DigestOf(content) != a.Digest || int64(len(content)) != a.Size {
			t.Errorf("artifact %s: %v", a.Digest, err)
		}
	}
}

// TestEventsComeBack: any page of a long stream is what the store gives.
func TestEventsComeBack(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	g, plan := storetest.Plan("long", 1500)
	f := s.Begin(g, plan, s.ID())
	f.Finish()
	s.commit(f.Take())
	b, m := s.export(f.ID)
	file := open(t, b)
	for _, after := range []uint64{0, 1, 999, 1000, 1001, 2500, m.Runs[0].Events - 1, m.Runs[0].Events, m.Runs[0].Events + 5} {
		for _, limit := range []int{1, 7, 1200} {
			want, err := s.store.Events(t.Context(), f.ID, after, limit)
			got, err2 := file.Events(t.Context(), f.ID, after, limit)
			if err != nil || err2 != nil || len(got) != len(want) {
				t.Fatalf("after %d: %d events, want %d; %v, %v", after, len(got), len(want), err, err2)
			}
			for i := range got {
				if got[i].ID != want[i].ID || got[i].Prev != want[i].Prev || !bytes.Equal(got[i].Encoded, want[i].Encoded) {
					t.Fatalf("event %d differs", got[i].Sequence)
				}
			}
		}
	}
}

// rows gives what a store says of a run.
func rows(t *testing.T, s *shop, id events.ID) (storage.RunRow, []storage.StageRow) {
	t.Helper()
	r, err := s.store.Run(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	stages, err := s.store.Stages(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return r, stages
}

func TestImportGivesTheSameRows(t *testing.T) {
	t.Parallel()
	from, to := newShop(t), newShop(t)
	to.Salt = 7
	x := from.trade()
	b, m := from.export(x.main)
	done, err := to.take(open(t, b))
	if err != nil || len(done.Runs) != 2 || done.Runs[0].Verdict != "imported" || done.Deliveries != 1 || done.Artifacts != len(m.Artifacts) || done.Missing != 1 {
		t.Fatalf("%+v %v", done, err)
	}
	for _, id := range []events.ID{x.main, x.child} {
		want, wantStages := rows(t, from, id)
		got, gotStages := rows(t, to, id)
		if got.Imported == 0 || got.Sequence != want.Sequence+1 {
			t.Errorf("not marked: %+v", got)
		}
		got.Imported, got.Sequence, got.Head = 0, want.Sequence, want.Head
		if got != want || !slices.Equal(gotStages, wantStages) {
			t.Errorf("rows differ:\n%+v %+v\n%+v %+v", got, gotStages, want, wantStages)
		}
	}
	d, err := to.store.Delivery(t.Context(), x.delivery)
	if err != nil || d.Fate != "run" || d.KeyHash != (storage.KeyHash{}) || d.Key != "k" {
		t.Errorf("delivery %+v %v", d, err)
	}
	log, err := to.store.Events(t.Context(), x.main, m.Runs[0].Events, 10)
	if err != nil || len(log) != 1 || log[0].Type != events.RunImported || log[0].Data.Actor != "ada" || log[0].Data.Reason != "run.apollo" || log[0].Data.Blob.IsZero() {
		t.Errorf("mark %+v %v", log, err)
	}
	differences, err := to.store.Rebuild(t.Context(), false)
	if err != nil || len(differences) > 0 {
		t.Errorf("rebuild: %+v %v", differences, err)
	}
	if r, err := to.store.Result(t.Context(), x.key); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a result of an imported run is given to others: %+v %v", r, err)
	}
	if err := to.store.Check(t.Context(), func(p storage.Problem) { t.Errorf("%+v", p) }); err != nil {
		t.Error(err)
	}
	last := make([]storage.Record, 100)
	n, err := to.store.Scan(t.Context(), 0, last)
	if err != nil || last[n-1].Type != events.DeliveryImported {
		t.Errorf("the log ends with %s: its time is another store's", last[n-1].Type.Short())
	}
}

// TestImportAgain: what is there stays as it is, wherever the file was meanwhile; another content is a conflict.
func TestImportAgain(t *testing.T) {
	t.Parallel()
	from, to := newShop(t), newShop(t)
	to.Salt = 7
	x := from.trade()
	b, _ := from.export(x.main)
	if _, err := to.take(open(t, b)); err != nil {
		t.Fatal(err)
	}
	back, _ := to.export(x.main) // with the mark
	for name, c := range map[string]struct {
		file []byte
		into *shop
	}{"twice": {b, to}, "where it comes from": {b, from}, "home again": {back, from}, "with its mark": {back, to}} {
		head := c.into.store.Head()
		done, err := c.into.take(open(t, c.file))
		if err != nil || done.Runs[0].Verdict != "here" || done.Runs[1].Verdict != "here" || done.Deliveries != 0 {
			t.Errorf("%s: %+v %v", name, done, err)
		}
		if c.into.store.Head() != head {
			t.Errorf("%s: the store has changed", name)
		}
	}
	other := newShop(t) // the same ids, other events
	y := other.trade2(t)
	if y != x.main {
		t.Fatalf("ids %s and %s", y, x.main)
	}
	head := other.store.Head()
	if _, err := other.take(open(t, b)); !errors.Is(err, bundle.ErrConflict) {
		t.Errorf("a conflict: %v", err)
	}
	if other.store.Head() != head {
		t.Error("a conflict has changed the store")
	}
}

// trade2 makes a run with the id that trade gives its main run.
func (s *shop) trade2(t *testing.T) events.ID {
	t.Helper()
	s.Delivery(events.DeliveryReceived, events.Data{Kind: "file", Pipeline: "trade"})
	s.ID()
	g, plan := storetest.Plan("other", 1)
	f := s.Begin(g, plan, events.ID{})
	f.Finish()
	s.commit(f.Take())
	return f.ID
}

func TestARunThatGoesOn(t *testing.T) {
	t.Parallel()
	from, to := newShop(t), newShop(t)
	g, plan := storetest.Plan("p", 3)
	f := from.Begin(g, plan, from.ID())
	f.Decide()
	from.commit(f.Take())
	b, m := from.export(f.ID)
	if m.Ended() {
		t.Error("it has not ended")
	}
	file := open(t, b)
	if err := file.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := to.take(file); !errors.Is(err, bundle.ErrNotEnded) {
		t.Errorf("import: %v", err)
	}
	if to.store.Head() != 0 {
		t.Error("something was taken in")
	}
	f.Finish() // a run that was resumed or went on is more than the file's
	from.commit(f.Take())
	if _, err := from.take(file); !errors.Is(err, bundle.ErrNotEnded) {
		t.Errorf("import at home: %v", err)
	}
}

func TestImportIsAllOrNothing(t *testing.T) {
	t.Parallel()
	from, to := newShop(t), newShop(t)
	x := from.trade()
	b, _ := from.export(x.main)
	stop := errors.New("stopped")
	if _, err := open(t, b).Import(t.Context(), stopped{to.store, stop}, to.files, bundle.Import{Now: func() int64 { return 1 }, NewID: to.ID}); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if to.store.Head() != 0 {
		t.Error("some of it was taken in")
	}
	done, err := to.take(open(t, b))
	if err != nil || done.Runs[0].Verdict != "imported" {
		t.Errorf("afterwards: %+v %v", done, err)
	}
	if _, err := to.store.Result(t.Context(), events.Digest{1}); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("results: %v", err)
	}
}

type stopped struct {
	bundle.Target
	err error
}

func (s stopped) Commit(*storage.Batch) error { return s.err }
