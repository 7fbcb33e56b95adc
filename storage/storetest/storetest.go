package storetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Run tests every promise of storage.Store. open gives a new, empty store and closes it when its test ends.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	t.Helper()
	for _, promise := range []struct {
		name string
		test func(*testing.T, storage.Store)
	}{
		{"AppendAndRead", appendAndRead},
		{"APageIsUsedAgain", pageAgain},
		{"SameEventAgainChangesNothing", sameAgain},
		{"AnotherEventAtThePlaceIsAConflict", conflict},
		{"GapIsRefused", gap},
		{"AllOrNothing", allOrNothing},
		{"HeadAfterARollback", headAfterRollback},
		{"OneConflictFailsNoOtherBatch", oneConflict},
		{"RunsArePagedAndFiltered", pageRuns},
		{"DeliveriesArePagedAndFiltered", pageDeliveries},
		{"FindRunsByPrefix", findRuns},
		{"DeliveryByKey", deliveryByKey},
		{"ParkedAndCursor", parkedAndCursor},
		{"TheFirstResultStays", firstResult},
		{"EventsAfterTheEnd", afterTheEnd},
		{"RebuildMendsResults", rebuildMendsResults},
		{"ConcurrentCommits", concurrentCommits},
		{"ReadsDuringWrites", readsDuringWrites},
		{"RebuildEqualsLive", rebuildEqualsLive},
		{"RebuildMends", rebuildMends},
		{"RebuildDuringCommits", rebuildDuringCommits},
		{"CheckFindsNothing", checkFindsNothing},
		{"BackupIsTheSame", backupRefusesToOverwrite},
		{"WakeIsSignalled", wake},
		{"EventsAreDeliveredAsCloudEvents", cloudEvents},
		{"PublishAfterTheUnit", publishAfterTheUnit},
		{"MissingIsNotFound", missing},
		{"ClosedStoreRefuses", closed},
	} {
		t.Run(promise.name, func(t *testing.T) {
			t.Parallel()
			promise.test(t, open(t))
		})
	}
	t.Run("Model", func(t *testing.T) {
		t.Parallel()
		model(t, open)
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func got[T any](t testing.TB) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func same(t testing.TB, what string, want, have any) {
	t.Helper()
	if d := diff(want, have); d != "" {
		t.Fatalf("%s (-want +have):\n%s", what, d)
	}
}

// diff says what differs. Most of the time nothing does, and reflect says so much faster.
func diff(want, have any) string {
	if reflect.DeepEqual(want, have) {
		return ""
	}
	return cmp.Diff(want, have, cmpopts.EquateEmpty())
}

func scan(t testing.TB, s storage.Store) (all []storage.Record) {
	t.Helper()
	page := make([]storage.Record, 7)
	for {
		after := int64(0)
		if len(all) > 0 {
			after = all[len(all)-1].Position
		}
		n, err := s.Scan(context.Background(), after, page)
		must(t, err)
		all = append(all, page[:n]...)
		if n < len(page) {
			return all
		}
	}
}

func appendAndRead(t *testing.T, s storage.Store) {
	m := &Maker{}
	g, plan := Plan("p", 3)
	f := m.Begin(g, plan, m.ID())
	first := f.Take()
	must(t, s.Commit(first))
	f.Finish()
	second := f.Take()
	must(t, s.Commit(second))
	log := slices.Concat(first.Events, second.Events)
	same(t, "events", log, got[[]storage.Sealed](t)(s.Events(t.Context(), f.ID, 0, 1000)))
	same(t, "a page of events", log[2:4], got[[]storage.Sealed](t)(s.Events(t.Context(), f.ID, 2, 2)))
	same(t, "run", storage.RunRowOf(f.Run), got[storage.RunRow](t)(s.Run(t.Context(), f.ID)))
	same(t, "stages", second.Stages, got[[]storage.StageRow](t)(s.Stages(t.Context(), f.ID)))
	same(t, "plan", plan.Bytes, got[[]byte](t)(s.Plan(t.Context(), plan.Digest)))
	all := scan(t, s)
	if len(all) != len(log) || s.Head() != all[len(all)-1].Position {
		t.Fatalf("%d events of %d, head %d", len(all), len(log), s.Head())
	}
	for i := range all {
		same(t, "record", log[i], all[i].Sealed)
	}
}

// pageAgain reads a log into one record again and again: nothing is left in it from the event before, and what was taken
// from it stays as it was.
func pageAgain(t *testing.T, s storage.Store) {
	m := &Maker{}
	g, plan := Plan("p", 2)
	var want []storage.Sealed
	for range 2 {
		f := m.Begin(g, plan, m.ID())
		f.emit(&events.Event{Stream: f.ID, Type: events.RunCancelRequested, Cause: m.ID(), Data: events.Data{Reason: "enough"}})
		f.Decide()
		b := f.Take()
		must(t, s.Commit(b))
		want = append(want, b.Events...)
	}
	var page [1]storage.Record
	var have []storage.Sealed
	for after := int64(0); got[int](t)(s.Scan(t.Context(), after, page[:])) == 1; after = page[0].Position {
		have = append(have, page[0].Sealed)
	}
	same(t, "log", want, have)
	ended, end := context.WithCancel(t.Context())
	end()
	if n, err := s.Scan(ended, 0, page[:]); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("scan after its end: %d events, %v", n, err)
	}
}

func sameAgain(t *testing.T, s storage.Store) {
	m := &Maker{}
	g, plan := Plan("p", 2)
	f := m.Begin(g, plan, m.ID())
	f.Decide()
	old := f.Take()
	old.Messages = []storage.Outgoing{message1("side")}
	must(t, s.Commit(old))
	f.Report(0, events.StageCompleted)
	must(t, s.Commit(f.Take()))
	log, head := scan(t, s), s.Head()
	must(t, s.Commit(old)) // its rows are older than what is there now
	must(t, s.Commit(&storage.Batch{Events: old.Events[1:]}))
	same(t, "log", log, scan(t, s))
	same(t, "run", storage.RunRowOf(f.Run), got[storage.RunRow](t)(s.Run(t.Context(), f.ID)))
	same(t, "stage", storage.StageRowOf(f.Run, 1), got[[]storage.StageRow](t)(s.Stages(t.Context(), f.ID))[1])
	if s.Head() != head {
		t.Fatalf("head moved from %d to %d", head, s.Head())
	}
}

func conflict(t *testing.T, s storage.Store) {
	m := &Maker{}
	g, plan := Plan("p", 2)
	f := m.Begin(g, plan, m.ID())
	f.Finish()
	must(t, s.Commit(f.Take()))
	log := scan(t, s)
	for i := range log {
		other := log[i].Sealed
		other.ID = m.ID()
		if err := s.Commit(&storage.Batch{Events: []storage.Sealed{other}}); !errors.Is(err, storage.ErrConflict) {
			t.Fatalf("another event at %d: %v", other.Sequence, err)
		}
	}
	same(t, "log", log, scan(t, s))
}

func gap(t *testing.T, s storage.Store) {
	m := &Maker{}
	g, plan := Plan("p", 2)
	f := m.Begin(g, plan, m.ID())
	f.Finish()
	b := f.Take()
	for _, at := range []int{1, 2, len(b.Events) - 1} {
		if err := s.Commit(&storage.Batch{Events: b.Events[at:]}); !errors.Is(err, storage.ErrConflict) {
			t.Fatalf("a stream that begins with event %d: %v", at+1, err)
		}
	}
	must(t, s.Commit(&storage.Batch{Plans: b.Plans, Events: b.Events[:2]}))
	if err := s.Commit(&storage.Batch{Events: b.Events[3:4]}); !errors.Is(err, storage.ErrConflict) {
		t.Fatalf("a gap in the middle: %v", err)
	}
	zero := b.Events[0]
	zero.Sequence, zero.Stream = 0, m.ID()
	if err := s.Commit(&storage.Batch{Events: []storage.Sealed{zero}}); !errors.Is(err, storage.ErrConflict) {
		t.Fatalf("sequence 0: %v", err)
	}
	must(t, s.Commit(&storage.Batch{Events: b.Events[2:]}))
	same(t, "events", b.Events, got[[]storage.Sealed](t)(s.Events(t.Context(), f.ID, 0, 1000)))
}

// spoiled gives a whole batch with everything in it, the last event of which cannot be appended.
func spoiled(m *Maker) (*Flow, *storage.Batch) {
	g, plan := Plan("spoiled", 2)
	f := m.Begin(g, plan, m.ID())
	f.Finish()
	b := f.Take()
	row, d := m.Delivery(events.DeliveryReceived, events.Data{Pipeline: "spoiled", Kind: "webhook", Trigger: "webhook:/x", Key: "k"})
	b.Deliveries = append(b.Deliveries, row)
	b.Messages = []storage.Outgoing{message1("spoiled")}
	b.Cursors = []storage.Cursor{{Topic: "t", Group: "g", Position: 5}}
	b.Parked = []storage.ParkedRow{{Event: m.ID(), Stream: f.ID, Handler: "h", Reason: "r", At: 1}}
	late := d.Events[0]
	late.Sequence = 7
	b.Events = append(append(b.Events, d.Events...), late)
	return f, b
}

func allOrNothing(t *testing.T, s storage.Store) {
	m := &Maker{}
	f, b := spoiled(m)
	if err := s.Commit(b); !errors.Is(err, storage.ErrConflict) {
		t.Fatal(err)
	}
	_, noRun := s.Run(t.Context(), f.ID)
	_, noPlan := s.Plan(t.Context(), b.Plans[0].Digest)
	_, noDelivery := s.Delivery(t.Context(), b.Deliveries[0].ID)
	_, noKey := s.DeliveryByKey(t.Context(), b.Deliveries[0].KeyHash)
	for _, err := range []error{noRun, noPlan, noDelivery, noKey} {
		if !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("left behind: %v", err)
		}
	}
	cursor := got[int64](t)(s.Cursor(t.Context(), "t", "g"))
	parked := got[[]storage.ParkedRow](t)(s.Parked(t.Context()))
	if log := scan(t, s); len(log) != 0 || cursor != 0 || len(parked) != 0 || s.Head() != 0 {
		t.Fatalf("%d events, cursor %d, %d parked, head %d", len(log), cursor, len(parked), s.Head())
	}
	b.Events = b.Events[:len(b.Events)-1]
	must(t, s.Commit(b))
	if log := scan(t, s); len(log) != len(b.Events) {
		t.Fatalf("%d of %d events", len(log), len(b.Events))
	}
}

func headAfterRollback(t *testing.T, s storage.Store) {
	m := &Maker{}
	_, b := spoiled(m)
	if s.Commit(b) == nil {
		t.Fatal("stored")
	}
	g, plan := Plan("p", 1)
	for range 3 {
		f := m.Begin(g, plan, m.ID())
		must(t, s.Commit(f.Take()))
		log := scan(t, s)
		if last := log[len(log)-1].Position; s.Head() != last {
			t.Fatalf("head %d, the last event is at %d", s.Head(), last)
		}
	}
}

func missing(t *testing.T, s storage.Store) {
	m := &Maker{}
	_, run := s.Run(t.Context(), m.ID())
	_, delivery := s.Delivery(t.Context(), m.ID())
	_, key := s.DeliveryByKey(t.Context(), storage.HashKey("a", "b", "c"))
	_, plan := s.Plan(t.Context(), events.DigestOf(nil))
	_, result := s.Result(t.Context(), events.DigestOf(nil))
	for _, err := range []error{run, delivery, key, plan, result} {
		if !errors.Is(err, storage.ErrNotFound) {
			t.Error(err)
		}
	}
	if log := got[[]storage.Sealed](t)(s.Events(t.Context(), m.ID(), 0, 5)); len(log) != 0 {
		t.Errorf("%d events of nothing", len(log))
	}
}

func closed(t *testing.T, s storage.Store) {
	must(t, s.Close())
	m := &Maker{}
	g, plan := Plan("p", 1)
	if err := s.Commit(m.Begin(g, plan, m.ID()).Take()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("commit: %v", err)
	}
	if _, err := s.Runs(t.Context(), storage.RunFilter{}); err == nil {
		t.Error("a closed store was read")
	}
	if _, err := s.Rebuild(t.Context(), true); err == nil {
		t.Error("a closed store was rebuilt")
	}
	must(t, s.Close())
}
