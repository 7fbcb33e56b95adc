package replay

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/storetest"
)

// fixed is a source of one run in memory. It counts what is read of it.
type fixed struct {
	plan storage.PlanRow
	row  storage.RunRow
	log  []storage.Sealed
	read int
}

func (s *fixed) Run(context.Context, events.ID) (storage.RunRow, error) { return s.row, nil }
func (s *fixed) Plan(context.Context, events.Digest) ([]byte, error)    { return s.plan.Bytes, nil }
func (s *fixed) Events(_ context.Context, _ events.ID, after uint64, limit int) ([]storage.Sealed, error) {
	rest := s.log[min(int(after), len(s.log)):]
	page := slices.Clone(rest[:min(limit, len(rest))])
	s.read += len(page)
	return page, nil
}

func chain(stages int) *fixed {
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", stages)
	f := m.Begin(g, plan, m.ID())
	f.Finish()
	b := f.Take()
	return &fixed{plan: plan, row: b.Runs[0], log: b.Events}
}

// long gives a run of few stages and many events.
func long(late int) *fixed {
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 3)
	f := m.Begin(g, plan, m.ID())
	f.Decide()
	for range late {
		f.Emit(events.StageLateResult, events.Data{Stage: "s0", Attempt: 1, Reason: "too late"})
	}
	f.Finish()
	b := f.Take()
	return &fixed{plan: plan, row: b.Runs[0], log: b.Events}
}

// counting notes what a walk's watcher has seen.
type counting struct{ seen []uint64 }

func (c *counting) See(e *events.Event, _ *events.Run) { c.seen = append(c.seen, e.Sequence) }
func (c *counting) Clone() Watcher                     { return &counting{slices.Clip(c.seen)} }

// TestWalkIsTheFold: whatever way leads to a place, the walk stands there as a fold from the start does, and so does its
// watcher.
func TestWalkIsTheFold(t *testing.T) {
	t.Parallel()
	s := chain(1200) // over several kept places and pages
	rapid.Check(t, func(t *rapid.T) {
		w, err := NewWalk(t.Context(), s, s.row.ID, &counting{})
		if err != nil {
			t.Fatal(err)
		}
		at := uint64(0)
		for range rapid.IntRange(1, 12).Draw(t, "moves") {
			switch rapid.SampledFrom([]string{"forward", "back", "goto", "end"}).Draw(t, "move") {
			case "forward":
				_, err = w.Forward(t.Context())
				at = min(at+1, uint64(len(s.log)))
			case "back":
				err = w.Back(t.Context())
				at -= min(at, 1)
			case "goto":
				at = rapid.Uint64Range(0, uint64(len(s.log))+3).Draw(t, "to")
				err = w.Goto(t.Context(), at)
				at = min(at, uint64(len(s.log)))
			case "end":
				err = w.End(t.Context())
				at = uint64(len(s.log))
			}
			if err != nil || w.At() != at || w.Mismatch() != nil {
				t.Fatalf("at %d, want %d: %v %v", w.At(), at, err, w.Mismatch())
			}
		}
		_, want, err := One(t.Context(), s, s.row.ID, at, nil)
		if at > 0 && (err != nil || !reflect.DeepEqual(storage.RunRowOf(want), storage.RunRowOf(w.Run())) || want.Chain != w.Run().Chain) {
			t.Fatalf("at %d: %+v, want %+v %v", at, w.Run().Chain, want.Chain, err)
		}
		seen := w.Watcher().(*counting).seen
		if len(seen) != int(at) || at > 0 && (seen[0] != 1 || seen[at-1] != at || w.Event().Sequence != at) {
			t.Fatalf("at %d the watcher has seen %d events", at, len(seen))
		}
	})
}

// TestGoingBackIsQuick: in a log of a hundred thousand events, a step back reads a small part of it.
func TestGoingBackIsQuick(t *testing.T) {
	t.Parallel()
	s := long(100_000)
	w, err := NewWalk(t.Context(), s, s.row.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.End(t.Context()); err != nil || w.At() != uint64(len(s.log)) || w.At() < 100_000 {
		t.Fatalf("%d %v", w.At(), err)
	}
	s.read = 0
	const steps = 20
	for range steps {
		if err := w.Back(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if each := s.read / steps; each > 15_000 {
		t.Errorf("a step back reads %d events", each)
	}
	if len(w.kept) > keepMost {
		t.Errorf("%d places are kept", len(w.kept))
	}
}

func TestWalkStopsAtTheMismatch(t *testing.T) {
	t.Parallel()
	s := chain(3)
	s.log[5].Data.Reason = "somebody else"
	s.log[5].Encoded = s.log[5].Data.AppendEncoded(nil)
	w, err := NewWalk(t.Context(), s, s.row.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.End(t.Context()); err != nil || w.Mismatch() == nil || w.Mismatch().Sequence != w.At()+1 {
			t.Fatalf("at %d: %+v %v", w.At(), w.Mismatch(), err)
		}
		if err := w.Goto(t.Context(), 2); err != nil || w.At() != 2 || w.Mismatch() != nil {
			t.Fatalf("at %d: %+v %v", w.At(), w.Mismatch(), err)
		}
	}
}

type nothing struct{}

func (nothing) Stat(events.Digest) (artifacts.Info, error) {
	return artifacts.Info{}, storage.ErrNotFound
}
func (nothing) Get(events.Digest) (*artifacts.Reader, error) { return nil, storage.ErrNotFound }

func file(t testing.TB, s *fixed) *bundle.File {
	t.Helper()
	var b bytes.Buffer
	if _, err := bundle.Write(t.Context(), &b, s, nothing{}, bundle.Options{Run: s.row.ID}); err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAFileReplaysAsItsStore: also up to an event, and also when the log was changed.
func TestAFileReplaysAsItsStore(t *testing.T) {
	t.Parallel()
	s := chain(30)
	f := file(t, s)
	for _, until := range []uint64{0, 1, 7, 60, 1000} {
		want, run, err := One(t.Context(), s, s.row.ID, until, nil)
		got, other, err2 := One(t.Context(), f, s.row.ID, until, nil)
		if err != nil || err2 != nil || got != want || run.Chain != other.Chain || want.Verdict != Same {
			t.Errorf("until %d: %+v, want %+v: %v, %v", until, got, want, err, err2)
		}
	}
	f.Manifest.Runs[0].MarkHead[0] ^= 1
	if got, _, err := One(t.Context(), f, s.row.ID, 0, nil); err != nil || got.Verdict != Differs {
		t.Errorf("another head: %+v %v", got, err)
	}
}

// TestEventsAfterTheEnd: what is noted of a run after its end is replayed too, in the pass over the whole log.
func TestEventsAfterTheEnd(t *testing.T) {
	t.Parallel()
	s := longStore(t)
	rows, err := s.Runs(t.Context(), storage.RunFilter{Page: storage.Page{Limit: 3}})
	if err != nil {
		t.Fatal(err)
	}
	m := &storetest.Maker{Salt: 9}
	for n, r := range rows {
		_, run, err := One(t.Context(), s, r.ID, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		var batch storage.Batch
		for k := range n + 1 {
			noted := &events.Event{Stream: r.ID, Type: events.RunVerified, Data: events.Data{Verdict: "reproduced"}}
			if k == 1 { // it does not change the run's own row
				noted = &events.Event{Stream: r.ID, Type: events.StageVerified, Data: events.Data{Stage: "s0"}}
			}
			e := m.Seal(&run.Chain, noted)
			if err := run.Apply(&e.Event); err != nil {
				t.Fatal(err)
			}
			batch.Events = append(batch.Events, e)
		}
		batch.Runs = append(batch.Runs, storage.RunRowOf(run))
		if err := s.Commit(&batch); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]Result{}
	if _, err := All(t.Context(), s, func(r Result) error {
		seen[r.Run] = r
		if r.Verdict != Same {
			return fmt.Errorf("%+v", r.Mismatch)
		}
		return nil
	}); err != nil || len(seen) != longRuns || seen[rows[0].ID.String()].Events != 14 {
		t.Errorf("%d runs, %+v, %v", len(seen), seen[rows[0].ID.String()], err)
	}
	differences, err := s.Rebuild(t.Context(), false)
	if err != nil || len(differences) > 0 {
		t.Errorf("rebuild: %+v %v", differences, err)
	}
}

func BenchmarkReplayOfAFile(b *testing.B) {
	s := chain(5_000)
	f := file(b, s)
	for b.Loop() {
		if r, _, err := One(b.Context(), f, s.row.ID, 0, nil); err != nil || r.Verdict != Same {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(float64(len(s.log)*b.N)/b.Elapsed().Seconds(), "events/s")
}
