package sqlite_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

func TestFailedFsyncStopsTheStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	failing, fatal := atomic.Bool{}, atomic.Int32{}
	s := open(t, dir, sqlite.Options{OnFatal: func(error) { fatal.Add(1) }, Fail: func(point string) error {
		if point == "commit" && failing.Load() {
			return storage.ErrFsync
		}
		return nil
	}})
	ids := fill(t, s, 1)
	failing.Store(true)
	m := &storetest.Maker{Salt: 1}
	g, plan := storetest.Plan("p", 1)
	for range 3 {
		if err := s.Commit(m.Begin(g, plan, m.ID()).Take()); !errors.Is(err, storage.ErrFsync) {
			t.Fatalf("commit: %v", err)
		}
		failing.Store(false) // the disk seems well again: what it holds stays unknown
	}
	if _, err := s.Rebuild(t.Context(), true); !errors.Is(err, storage.ErrFsync) {
		t.Errorf("rebuild: %v", err)
	}
	must(t, s.Checkpoint())
	if fatal.Load() != 1 {
		t.Errorf("OnFatal was called %d times", fatal.Load())
	}
	must(t, s.Close())
	again := open(t, dir, sqlite.Options{})
	rows, err := again.Runs(t.Context(), storage.RunFilter{})
	if err != nil || len(rows) != 1 || rows[0].ID != ids[0] {
		t.Errorf("%+v %v", rows, err)
	}
}

func TestFullLeavesNothingAndRecovers(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"begin", "commit"} {
		failing := atomic.Bool{}
		s := open(t, t.TempDir(), sqlite.Options{OnFatal: func(err error) { t.Errorf("fatal: %v", err) }, Fail: func(point string) error {
			if point == at && failing.Load() {
				return storage.ErrFull
			}
			return nil
		}})
		fill(t, s, 1)
		before, head := dump(t, s), s.Head()
		m := &storetest.Maker{Salt: 1}
		g, plan := storetest.Plan("p", 1)
		f := m.Begin(g, plan, m.ID())
		b := f.Take()
		b.Messages = []storage.Outgoing{{Topic: "topic", Message: message1()}}
		failing.Store(true)
		if err := s.Commit(b); !errors.Is(err, storage.ErrFull) {
			t.Fatalf("commit: %v", err)
		}
		if dump(t, s) != before || s.Head() != head {
			t.Error("something is left")
		}
		failing.Store(false)
		must(t, s.Commit(b))
		if row, err := s.Run(t.Context(), f.ID); err != nil || row != storage.RunRowOf(f.Run) {
			t.Errorf("%+v %v", row, err)
		}
	}
}

// TestFailureAfterTheCommit: the caller is told of an error and commits again; nothing is there twice.
func TestFailureAfterTheCommit(t *testing.T) {
	t.Parallel()
	failing := atomic.Bool{}
	s := open(t, t.TempDir(), sqlite.Options{Fail: func(point string) error {
		if point == "committed" && failing.Swap(false) {
			return errors.New("lost answer")
		}
		return nil
	}})
	m := &storetest.Maker{}
	row, b := m.Delivery(events.DeliveryReceived, events.Data{Pipeline: "p", Kind: "webhook", Trigger: "x", Key: "k"})
	b.Messages = []storage.Outgoing{{Topic: "topic", Message: message1()}}
	failing.Store(true)
	if s.Commit(b) == nil {
		t.Fatal("no error")
	}
	must(t, s.Commit(b))
	n, err := s.Scan(t.Context(), 0, make([]storage.Record, 10))
	if have, err2 := s.Delivery(t.Context(), row.ID); err != nil || err2 != nil || n != 1 || have != row || s.Head() != 2 {
		t.Errorf("%d events, head %d, %+v %v %v", n, s.Head(), have, err, err2)
	}
}

// TestCheckpointDoesNotHoldUpCommits keeps a reader open: the checkpoint says so at once, and commits go on.
func TestCheckpointDoesNotHoldUpCommits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	fill(t, s, 10)
	db := raw(t, dir+"/"+sqlite.FileName)
	tx, err := db.Begin()
	must(t, err)
	must(t, tx.QueryRow(`SELECT count(*) FROM events`).Scan(new(int)))
	m := &storetest.Maker{Salt: 3}
	_, b := m.Delivery(events.DeliveryHeld, events.Data{})
	must(t, s.Commit(b))
	began := time.Now()
	if err := s.Checkpoint(); err == nil || !strings.Contains(err.Error(), "E_STORE_WAL") {
		t.Errorf("checkpoint past a reader: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the checkpoint held the writer for %s", took)
	}
	if timeout, err := s.Pragma("busy_timeout"); timeout != "5000" || err != nil {
		t.Errorf("busy_timeout is %s, %v", timeout, err)
	}
	must(t, tx.Rollback())
	must(t, s.Checkpoint())
	if info, err := os.Stat(dir + "/" + sqlite.FileName + "-wal"); err != nil || info.Size() != 0 {
		t.Errorf("%v %v", info.Size(), err)
	}
}

func TestLockNamesItsHolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/new"
	if h, err := sqlite.Holder(dir); h != nil || err != nil {
		t.Errorf("nobody was there: %v %v", h, err)
	}
	lock, err := sqlite.TakeLock(dir)
	must(t, err)
	must(t, lock.SetAddress("127.0.0.1:7411"))
	_, err = sqlite.TakeLock(dir)
	held, ok := errors.AsType[*sqlite.HeldError](err)
	if !ok || held.PID != strconv.Itoa(os.Getpid()) || held.Address != "127.0.0.1:7411" || !strings.Contains(err.Error(), "E_STORE_HELD") {
		t.Fatalf("%v", err)
	}
	if h, err := sqlite.Holder(dir); err != nil || h == nil || *h != *held {
		t.Errorf("%v %v", h, err)
	}
	must(t, lock.Release())
	if h, err := sqlite.Holder(dir); h != nil || err != nil {
		t.Errorf("released: %v %v", h, err)
	}
	lock, err = sqlite.TakeLock(dir)
	must(t, err)
	if h, err := sqlite.Holder(dir); err != nil || h == nil || h.Address != "" {
		t.Errorf("the address of the holder before: %v %v", h, err)
	}
	must(t, lock.Release())
}

// TestLookingDoesNotKeepAServerOut: whoever asks for the holder locks for an instant.
func TestLookingDoesNotKeepAServerOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = sqlite.Holder(dir)
			}
		}
	}()
	for range 300 {
		lock, err := sqlite.TakeLock(dir)
		if err != nil {
			t.Error(err)
			break
		}
		must(t, lock.Release())
	}
	close(stop)
	<-done
}

// TestTwoStores: the lock keeps a second server out; if one comes in all the same, nothing is lost or doubled.
func TestTwoStores(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := open(t, dir, sqlite.Options{}), open(t, dir, sqlite.Options{})
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 2)
	f := m.Begin(g, plan, m.ID())
	must(t, a.Commit(f.Take()))
	f.Decide()
	batch := f.Take()
	must(t, b.Commit(batch))
	must(t, a.Commit(batch))
	other := *batch
	other.Events = append([]storage.Sealed{}, batch.Events...)
	other.Events[0].ID = m.ID()
	if err := a.Commit(&other); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("two stores wrote one place: %v", err)
	}
	f.Report(0, events.StageCompleted)
	must(t, a.Commit(f.Take()))
	f.Report(1, events.StageCompleted)
	must(t, b.Commit(f.Take()))
	must(t, a.Check(t.Context(), func(p storage.Problem) { t.Errorf("%+v", p) }))
}
