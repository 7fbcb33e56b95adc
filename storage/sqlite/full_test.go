package sqlite_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

// TestDiskFull fills a small disk in a process of its own: in a mount namespace with a tmpfs where that is allowed,
// else under a limit on the size of a file.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("APOLLO_TEST_FULL"); dir != "" {
		fillDisk(t, dir)
		return
	}
	exe, err := os.Executable()
	must(t, err)
	limited := exec.CommandContext(t.Context(), exe, "-test.run=^TestDiskFull$", "-test.v")
	limited.Env = append(os.Environ(), "APOLLO_TEST_LIMIT=1", "APOLLO_TEST_FULL="+t.TempDir())
	full := exec.CommandContext(t.Context(), "unshare", "-Urm", "sh", "-c", `mount -t tmpfs -o size=2m,mode=700 none "$1" && exec "$0" -test.run='^TestDiskFull$' -test.v`, exe, t.TempDir())
	full.Env = append(os.Environ(), "APOLLO_TEST_FULL="+full.Args[len(full.Args)-1])
	for name, cmd := range map[string]*exec.Cmd{"file size limit": limited, "full disk": full} {
		out, err := cmd.CombinedOutput()
		if err != nil && name == "full disk" && !strings.Contains(string(out), "TestDiskFull") {
			t.Logf("no mount allowed here (%v: %s); the file size limit stands in", err, out)
			continue
		}
		if err != nil || !strings.Contains(string(out), "full after") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		t.Logf("%s:\n%s", name, out)
	}
}

// fillDisk commits until nothing fits any more, sees that the store says so and is whole, makes room and goes on.
func fillDisk(t *testing.T, dir string) {
	t.Helper()
	var before syscall.Rlimit
	ballast := filepath.Join(dir, "ballast")
	must(t, os.WriteFile(ballast, make([]byte, 700<<10), 0o600))
	s := open(t, filepath.Join(dir, "data"), sqlite.Options{OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if os.Getenv("APOLLO_TEST_LIMIT") != "" {
		signal.Ignore(syscall.SIGXFSZ)
		must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
		limit := syscall.Rlimit{Cur: 1 << 20, Max: before.Max}
		must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	}
	m := &storetest.Maker{}
	stored, full := commitUntilFull(t, s, m), 0
	for range 20 {
		if _, b := bulky(m); errors.Is(s.Commit(b), storage.ErrFull) {
			full++
		}
	}
	whole(t, s, stored, 20-full)
	must(t, os.Remove(ballast))
	if os.Getenv("APOLLO_TEST_LIMIT") != "" {
		must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before))
	}
	row, b := bulky(m)
	must(t, s.Commit(b))
	if have, err := s.Delivery(t.Context(), row.ID); err != nil || have != row {
		t.Errorf("after room was made: %+v %v", have, err)
	}
	must(t, s.Close())
	whole(t, open(t, filepath.Join(dir, "data"), sqlite.Options{}), stored, 21-full)
}

func bulky(m *storetest.Maker) (storage.DeliveryRow, *storage.Batch) {
	return m.Delivery(events.DeliveryHeld, events.Data{Pipeline: "p", Kind: "manual", Trigger: "manual", Body: make([]byte, 20<<10)})
}

func commitUntilFull(t *testing.T, s *sqlite.Store, m *storetest.Maker) (stored []storage.DeliveryRow) {
	t.Helper()
	for range 1000 {
		row, b := bulky(m)
		err := s.Commit(b)
		if errors.Is(err, storage.ErrFull) {
			t.Logf("full after %d commits: %v", len(stored), err)
			return stored
		}
		must(t, err)
		stored = append(stored, row)
	}
	t.Fatal("the disk does not fill up")
	return nil
}

// whole sees that everything that was acknowledged is there, and nothing besides but so many others.
func whole(t *testing.T, s *sqlite.Store, stored []storage.DeliveryRow, others int) {
	t.Helper()
	must(t, s.Check(t.Context(), func(p storage.Problem) { t.Errorf("%+v", p) }))
	rows, err := s.Deliveries(t.Context(), storage.DeliveryFilter{Page: storage.Page{Limit: 5000}})
	must(t, err)
	if len(rows) != len(stored)+others {
		t.Errorf("%d deliveries of %d", len(rows), len(stored)+others)
	}
	for _, row := range stored {
		if have, err := s.Delivery(t.Context(), row.ID); err != nil || have != row {
			t.Errorf("lost: %+v %v", have, err)
		}
	}
}
