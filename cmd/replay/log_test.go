package replay

import (
	"context"
	"errors"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

const (
	longRuns   = 300
	longEvents = longRuns * 13 // created, started, five stages of two events, completed
)

// longStore holds runs that begin one after the other and then end so, over more pages than are read ahead.
func longStore(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 5)
	flows := make([]*storetest.Flow, longRuns)
	for i := range flows {
		flows[i] = m.Begin(g, plan, m.ID())
		err = errors.Join(err, s.Commit(flows[i].Take()))
	}
	for _, f := range flows {
		f.Finish()
		err = errors.Join(err, s.Commit(f.Take()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReplayOfALongLog(t *testing.T) {
	t.Parallel()
	s := longStore(t)
	verdicts := map[string]uint64{}
	n, err := All(t.Context(), s, func(r Result) error {
		if r.Verdict != "same" {
			t.Errorf("%s: %+v", r.Run, r.Mismatch)
		}
		verdicts[r.Run] += r.Events
		return nil
	})
	if err != nil || n != longEvents || len(verdicts) != longRuns {
		t.Errorf("%d events, %d verdicts, %v", n, len(verdicts), err)
	}
	for run, events := range verdicts {
		if events != 13 {
			t.Errorf("run %s: %d events", run, events)
		}
	}
	full := errors.New("disk full")
	if _, err := All(t.Context(), s, func(Result) error { return full }); !errors.Is(err, full) {
		t.Errorf("a verdict that could not be written: %v", err)
	}
}

// TestReplayBesideAServer: a run that goes on after the log was read is no difference. One whose last events are gone is.
func TestReplayBesideAServer(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 5)
	f := m.Begin(g, plan, m.ID())
	f.Decide()
	if err := s.Commit(f.Take()); err != nil {
		t.Fatal(err)
	}
	var verdicts []Result
	l := newLogReplay(s, func(r Result) error { verdicts = append(verdicts, r); return nil })
	if err := l.scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Finish()
	whole := f.Take()
	if err := s.Commit(whole); err != nil {
		t.Fatal(err)
	}
	if err := l.end(t.Context()); err != nil || len(verdicts) != 1 || verdicts[0].Verdict != "same" || verdicts[0].Events != 13 {
		t.Errorf("%+v %v", verdicts, err)
	}
	other := m.Begin(g, plan, m.ID())
	other.Finish()
	cut := other.Take()
	cut.Events = cut.Events[:3] // the row says that it has ended
	if err := s.Commit(cut); err != nil {
		t.Fatal(err)
	}
	verdicts = nil
	if _, err := All(t.Context(), s, l.verdict); err != nil || len(verdicts) != 2 {
		t.Fatalf("%+v %v", verdicts, err)
	}
	for _, v := range verdicts {
		if want := map[bool]string{true: "differs", false: "same"}[v.Run == other.ID.String()]; v.Verdict != want {
			t.Errorf("%+v, not %s", v, want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestReplayAfterTheEnd: what became of runs after their end comes long after the rest of them, also between the reading
// of the log and that of the rows.
func TestReplayAfterTheEnd(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 5)
	flows := make([]*storetest.Flow, 6)
	for i := range flows {
		flows[i] = m.Begin(g, plan, m.ID())
		flows[i].Finish()
		err = errors.Join(err, s.Commit(flows[i].Take()))
	}
	verify := func(f *storetest.Flow) {
		f.Emit(events.StageVerified, events.Data{Stage: "s0", Verdict: "reproduced"})
		f.Emit(events.StageIrreproducibleFound, events.Data{Stage: "s1"})
		f.Emit(events.RunVerified, events.Data{Verdict: "reproduced"})
		err = errors.Join(err, s.Commit(f.Take()))
	}
	for _, f := range flows[:3] {
		verify(f)
	}
	row, b := m.Delivery(events.DeliveryReceived, events.Data{Pipeline: "p", Kind: "manual", Trigger: "manual"})
	err = errors.Join(err, s.Commit(b))
	_, b = m.Import(row)
	if err = errors.Join(err, s.Commit(b)); err != nil {
		t.Fatal(err)
	}
	same := 0
	l := newLogReplay(s, func(r Result) error {
		if r.Verdict != "same" {
			t.Errorf("%+v %+v", r, r.Mismatch)
		}
		same++
		return nil
	})
	if err := l.scan(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range flows[2:4] {
		verify(f)
	}
	if err := errors.Join(err, l.end(t.Context())); err != nil || same != len(flows) {
		t.Errorf("%d runs are the same, %v", same, err)
	}
	if _, err := All(t.Context(), s, l.verdict); err != nil || same != 2*len(flows) {
		t.Errorf("%d runs are the same, %v", same, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadAheadEndsWithItsUser(t *testing.T) {
	t.Parallel()
	s := longStore(t)
	var failed error
	for page := range readAhead(t.Context(), s, &failed) {
		if len(page) != scanPage {
			t.Errorf("%d events on the first page", len(page))
		}
		break
	}
	if !errors.Is(failed, context.Canceled) { // the reader has ended, and not because it was done
		t.Errorf("read ahead: %v", failed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := All(ctx, s, nil); n >= longEvents || !errors.Is(err, context.Canceled) {
		t.Errorf("replay after its end: %d events, %v", n, err)
	}
}
