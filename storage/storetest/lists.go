package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// herd stores runs in every state, of two pipelines, and gives their rows, newest first.
func herd(t *testing.T, s storage.Store, n int) (rows []storage.RunRow) {
	t.Helper()
	m := &Maker{}
	for i := range n {
		g, plan := Plan([]string{"a", "b"}[i%2], 2)
		f := m.Begin(g, plan, m.ID())
		switch i % 5 {
		case 1:
			f.Decide()
		case 2:
			f.Finish()
		case 3:
			f.Decide()
			f.Report(0, events.StageFailed)
		case 4:
			f.Emit(events.RunCancelRequested, events.Data{Reason: "enough"})
			f.Decide()
		}
		must(t, s.Commit(f.Take()))
		rows = append(rows, storage.RunRowOf(f.Run))
	}
	slices.Reverse(rows)
	return rows
}

func keep[T any](rows []T, wanted func(T) bool) (kept []T) {
	for _, r := range rows {
		if wanted(r) {
			kept = append(kept, r)
		}
	}
	return kept
}

// pages reads a list to its end, page by page.
func pages[T any](t *testing.T, limit int, id func(T) events.ID, read func(storage.Page) ([]T, error)) (all []T) {
	t.Helper()
	page := storage.Page{Limit: limit}
	for {
		rows, err := read(page)
		must(t, err)
		if len(rows) > limit {
			t.Fatalf("%d rows on a page of %d", len(rows), limit)
		}
		if len(rows) == 0 {
			return all
		}
		all = append(all, rows...)
		page.After = id(rows[len(rows)-1])
	}
}

func runID(r storage.RunRow) events.ID { return r.ID }

func pageRuns(t *testing.T, s storage.Store) {
	rows := herd(t, s, 60)
	for _, pipeline := range []string{"", "a", "b", "c"} {
		for state := events.None; state <= events.Cancelled; state++ {
			want := keep(rows, func(r storage.RunRow) bool {
				return (pipeline == "" || r.Pipeline == pipeline) && (state == events.None || r.State == state)
			})
			for _, limit := range []int{1, 7, 100} {
				have := pages(t, limit, runID, func(p storage.Page) ([]storage.RunRow, error) {
					return s.Runs(t.Context(), storage.RunFilter{Page: p, Pipeline: pipeline, State: state})
				})
				same(t, fmt.Sprintf("runs of %q in state %s by %d", pipeline, state, limit), want, have)
			}
		}
	}
	same(t, "the default page", rows[:50], got[[]storage.RunRow](t)(s.Runs(t.Context(), storage.RunFilter{})))
	want := keep(rows, func(r storage.RunRow) bool { return !r.State.Terminal() })
	slices.Reverse(want)
	same(t, "unfinished", want, pages(t, 3, runID, func(p storage.Page) ([]storage.RunRow, error) { return s.Unfinished(t.Context(), p) }))
}

func pageDeliveries(t *testing.T, s storage.Store) {
	m := &Maker{}
	var rows []storage.DeliveryRow
	for i := range 60 {
		typ := []events.Type{events.DeliveryReceived, events.DeliveryRejected, events.DeliveryDuplicated, events.DeliveryHeld, events.DeliveryIgnored}[i%5]
		row, b := m.Delivery(typ, events.Data{Pipeline: []string{"a", "b"}[i%2], Kind: "webhook", Trigger: "webhook:/x", Key: fmt.Sprint(i),
			Reason: "because", Code: "E_SIG", Run: m.ID()})
		must(t, s.Commit(b))
		rows = append([]storage.DeliveryRow{row}, rows...)
	}
	for _, pipeline := range []string{"", "a", "c"} {
		for _, fate := range []string{"", "run", "duplicate", "rejected", "held", "ignored", "lost"} {
			want := keep(rows, func(d storage.DeliveryRow) bool {
				return (pipeline == "" || d.Pipeline == pipeline) && (fate == "" || d.Fate == fate)
			})
			have := pages(t, 7, func(d storage.DeliveryRow) events.ID { return d.ID }, func(p storage.Page) ([]storage.DeliveryRow, error) {
				return s.Deliveries(t.Context(), storage.DeliveryFilter{Page: p, Pipeline: pipeline, Fate: fate})
			})
			same(t, "deliveries of "+pipeline+" with fate "+fate, want, have)
		}
	}
	same(t, "one", rows[0], got[storage.DeliveryRow](t)(s.Delivery(t.Context(), rows[0].ID)))
}

func findRuns(t *testing.T, s storage.Store) {
	rows := herd(t, s, 20)
	text := rows[3].ID.String()
	prefixes := []string{"", "0", "f", "g", text + "0", "-", text[:8] + text[9:14], text[:4] + "-", "%", "_", "0' OR 1"}
	for n := range text {
		prefixes = append(prefixes, text[:n+1])
	}
	for _, prefix := range prefixes {
		want := []events.ID{}
		for _, r := range rows {
			if strings.HasPrefix(r.ID.String(), prefix) {
				want = append(want, r.ID)
			}
		}
		have := got[[]events.ID](t)(s.FindRuns(t.Context(), prefix, 100))
		same(t, "runs that begin with "+prefix, want, append([]events.ID{}, have...))
		few := got[[]events.ID](t)(s.FindRuns(t.Context(), prefix, 2))
		same(t, "at most two", want[:min(2, len(want))], append([]events.ID{}, few...))
	}
}

func deliveryByKey(t *testing.T, s storage.Store) {
	m := &Maker{}
	data := events.Data{Pipeline: "p", Kind: "webhook", Trigger: "webhook:/x", Key: "order-1"}
	first, b := m.Delivery(events.DeliveryReceived, data)
	must(t, s.Commit(b))
	data.Delivery = first.ID
	again, b := m.Delivery(events.DeliveryDuplicated, data)
	must(t, s.Commit(b))
	same(t, "by key", first, got[storage.DeliveryRow](t)(s.DeliveryByKey(t.Context(), storage.HashKey("p", "webhook:/x", "order-1"))))
	same(t, "the duplicate", again, got[storage.DeliveryRow](t)(s.Delivery(t.Context(), again.ID)))
	if again.First != first.ID || !(again.KeyHash == storage.KeyHash{}) {
		t.Errorf("%+v", again)
	}
	data.Delivery = events.ID{}
	if _, b := m.Delivery(events.DeliveryReceived, data); s.Commit(b) == nil {
		t.Error("two deliveries are the first with one key")
	}
	same(t, "after that", first, got[storage.DeliveryRow](t)(s.DeliveryByKey(t.Context(), first.KeyHash)))
}

func parkedAndCursor(t *testing.T, s storage.Store) {
	m := &Maker{}
	event := m.ID()
	rows := []storage.ParkedRow{{Event: event, Stream: m.ID(), Handler: "bus", Reason: "one", At: 1},
		{Event: event, Stream: m.ID(), Handler: "mail", Reason: "another handler", At: 2}, {Event: m.ID(), Stream: m.ID(), Handler: "bus", Reason: "two", At: 3}}
	must(t, s.Commit(&storage.Batch{Parked: rows, Cursors: []storage.Cursor{{Topic: storage.EngineTopic, Group: "g", Position: 3}}}))
	must(t, s.Commit(&storage.Batch{Parked: rows[:1], Cursors: []storage.Cursor{{Topic: storage.EngineTopic, Group: "g", Position: 9}, {Topic: "t", Group: "g", Position: 4}}}))
	same(t, "parked", rows, got[[]storage.ParkedRow](t)(s.Parked(t.Context())))
	for topic, want := range map[string]int64{storage.EngineTopic: 9, "t": 4, "none": 0} {
		if have := got[int64](t)(s.Cursor(t.Context(), topic, "g")); have != want {
			t.Errorf("cursor of %s is %d, not %d", topic, have, want)
		}
	}
}
