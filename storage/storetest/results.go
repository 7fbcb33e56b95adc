package storetest

import (
	"errors"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// shared stores a run whose one stage gives a result that other runs may take over.
func shared(t *testing.T, s storage.Store, m *Maker, pins string) *Flow {
	t.Helper()
	g, plan := Plan("p", 1)
	f := m.Begin(g, plan, m.ID())
	f.Decide()
	f.Share(0, pins)
	must(t, s.Commit(f.Take()))
	return f
}

// firstResult: the first result of a key stays, until its run is pruned.
func firstResult(t *testing.T, s storage.Store) {
	m, pins := &Maker{}, `{"schema":1}`
	key := events.DigestOf([]byte(pins))
	first := shared(t, s, m, pins)
	second := shared(t, s, m, pins)
	want := storage.ResultRow{Key: key, Run: first.ID, Sequence: 4}
	same(t, "the first", want, got[storage.ResultRow](t)(s.Result(t.Context(), key)))
	sound(t, s)
	first.Emit(events.RunPruned, events.Data{Count: 3, Reason: "old"})
	must(t, s.Commit(first.Take()))
	if r, err := s.Result(t.Context(), key); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("of a pruned run: %+v, %v", r, err)
	}
	sound(t, s)
	third := shared(t, s, m, pins)
	want.Run = third.ID
	same(t, "the first after the pruning", want, got[storage.ResultRow](t)(s.Result(t.Context(), key)))
	second.Emit(events.RunPruned, events.Data{})
	must(t, s.Commit(second.Take()))
	same(t, "another was pruned", want, got[storage.ResultRow](t)(s.Result(t.Context(), key)))
	sound(t, s)
}

// afterTheEnd appends what becomes of a run after its end, long after that and between the events of others.
func afterTheEnd(t *testing.T, s storage.Store) {
	m := &Maker{}
	f := shared(t, s, m, `{"seed":"1"}`)
	row, b := m.Delivery(events.DeliveryReceived, events.Data{Pipeline: "p", Kind: "webhook", Trigger: "x", Key: "k"})
	must(t, s.Commit(b))
	herd(t, s, 10)
	stage := events.Data{Stage: "s0", Verdict: "reproduced"}
	for _, e := range []struct {
		typ  events.Type
		data events.Data
	}{
		{events.RunImported, events.Data{}}, {events.StageVerified, stage}, {events.StageVerified, stage}, {events.RunVerified, events.Data{Verdict: "reproduced"}},
		{events.StageIrreproducibleFound, stage}, {events.RunVerified, events.Data{Verdict: "differs"}}, {events.RunPruned, events.Data{}}, {events.StageVerified, stage},
	} {
		f.Emit(e.typ, e.data)
		must(t, s.Commit(f.Take()))
		shared(t, s, m, `{"seed":"2"}`)
		sound(t, s)
	}
	have := got[storage.RunRow](t)(s.Run(t.Context(), f.ID))
	if have.Imported == 0 || have.Pruned == 0 || have.Verified != 1 || have.Findings != 1 {
		t.Errorf("%+v", have)
	}
	same(t, "run", storage.RunRowOf(f.Run), have)
	row, b = m.Import(row)
	must(t, s.Commit(b))
	same(t, "imported delivery", row, got[storage.DeliveryRow](t)(s.Delivery(t.Context(), row.ID)))
	if d, err := s.DeliveryByKey(t.Context(), storage.HashKey("p", "x", "k")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("its key is taken: %+v, %v", d, err)
	}
	sound(t, s)
	stale := have
	stale.Pruned, stale.Verified, stale.Sequence = 0, 0, 5 // as if the last events had left no trace in the row
	must(t, s.Commit(&storage.Batch{Runs: []storage.RunRow{stale}}))
	if d := got[[]storage.Difference](t)(s.Rebuild(t.Context(), true)); len(d) != 1 || d[0].Table != "runs" {
		t.Errorf("a stale row: %+v", d)
	}
	sound(t, s)
	same(t, "mended", have, got[storage.RunRow](t)(s.Run(t.Context(), f.ID)))
}

// rebuildMendsResults: a result that is missing, one that is not what the log says, and one that points nowhere are named
// and mended.
func rebuildMendsResults(t *testing.T, s storage.Store) {
	m := &Maker{}
	g, plan := Plan("p", 1)
	spoil := map[string]func(*storage.Batch){
		"missing": func(b *storage.Batch) { b.Results = nil },
		"another": func(b *storage.Batch) { b.Results[0].Sequence = 2 },
		"nowhere": func(b *storage.Batch) {
			b.Results = append(b.Results, storage.ResultRow{Key: events.DigestOf(nil), Run: m.ID(), Sequence: 4})
		},
	}
	for name, spoil := range spoil {
		f := m.Begin(g, plan, m.ID())
		f.Decide()
		f.Share(0, `{"env":{"NAME":"`+name+`"}}`)
		b := f.Take()
		want := b.Results[0]
		spoil(b)
		must(t, s.Commit(b))
		named := 0
		must(t, s.Check(t.Context(), func(storage.Problem) { named++ }))
		d := got[[]storage.Difference](t)(s.Rebuild(t.Context(), false))
		if len(d) != 1 || d[0].Table != "results" || named != 1 {
			t.Errorf("%s: %+v, %d problems", name, d, named)
		}
		if d := got[[]storage.Difference](t)(s.Rebuild(t.Context(), true)); len(d) != 1 {
			t.Errorf("%s: %+v", name, d)
		}
		sound(t, s)
		same(t, "result", want, got[storage.ResultRow](t)(s.Result(t.Context(), want.Key)))
	}
	if r, err := s.Result(t.Context(), events.DigestOf(nil)); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a result that points nowhere stayed: %+v, %v", r, err)
	}
}
