package sqlite_test

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// raw opens the file beside the store, as somebody with another program would.
func raw(t testing.TB, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// fill stores n finished runs of five stages.
func fill(t testing.TB, s storage.Store, n int) (ids []events.ID) {
	t.Helper()
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 5)
	for range n {
		f := m.Begin(g, plan, m.ID())
		f.Finish()
		must(t, s.Commit(f.Take()))
		ids = append(ids, f.ID)
	}
	return ids
}

func TestPragmasAreReadBack(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), sqlite.Options{})
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000", "foreign_keys": "1",
		"trusted_schema": "0", "journal_size_limit": "67108864"} {
		if have, err := s.Pragma(name); err != nil || have != want {
			t.Errorf("%s is %q, not %q: %v", name, have, want, err)
		}
	}
}

// TestLogIsAsLongAsCommitsAreLarge: small commits keep the write-ahead log short, large ones make it long, and back.
func TestLogIsAsLongAsCommitsAreLarge(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), sqlite.Options{})
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 5)
	for _, c := range []struct {
		runs int
		want string
	}{{1, sqlite.ShortLog}, {40, sqlite.LongLog}, {1, sqlite.ShortLog}} {
		for range 60 {
			batch := &storage.Batch{}
			for range c.runs {
				f := m.Begin(g, plan, m.ID())
				f.Finish()
				one := f.Take()
				batch.Events, batch.Runs, batch.Stages = append(batch.Events, one.Events...), append(batch.Runs, one.Runs...), append(batch.Stages, one.Stages...)
			}
			must(t, s.Commit(batch))
		}
		if have, err := s.Pragma("wal_autocheckpoint"); err != nil || have != c.want {
			t.Errorf("after commits of %d runs the log has %s pages, not %s: %v", c.runs, have, c.want, err)
		}
	}
}

// TestModes runs in a process of its own: the umask is one for all goroutines.
func TestModes(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("APOLLO_TEST_UMASK"); dir != "" {
		s := open(t, filepath.Join(dir, "data"), sqlite.Options{})
		fill(t, s, 1)
		lock, err := sqlite.TakeLock(filepath.Join(dir, "data"))
		must(t, err)
		defer func() { _ = lock.Release() }()
		must(t, s.Backup(t.Context(), filepath.Join(dir, "data", "copy.db")))
		must(t, filepath.WalkDir(filepath.Join(dir, "data"), func(path string, d os.DirEntry, err error) error {
			must(t, err)
			info, err := d.Info()
			must(t, err)
			want := os.FileMode(0o600)
			if d.IsDir() {
				want = 0o700
			}
			if info.Mode().Perm() != want {
				t.Errorf("%s has mode %o", path, info.Mode().Perm())
			}
			return nil
		}))
		return
	}
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask 0; exec "$0" -test.run='^TestModes$'`, exe)
	cmd.Env = append(os.Environ(), "APOLLO_TEST_UMASK="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestLinksAreRefused(t *testing.T) {
	t.Parallel()
	from := t.TempDir()
	s := open(t, from, sqlite.Options{})
	fill(t, s, 1)
	must(t, s.Close())
	target := filepath.Join(from, sqlite.FileName)
	for name, link := range map[string]func(string, string) error{"symlink": os.Symlink, "hard link": os.Link} {
		dir := t.TempDir()
		must(t, link(target, filepath.Join(dir, sqlite.FileName)))
		if s, err := sqlite.Open(dir, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "E_STORE_FILE") {
			t.Errorf("%s: %v %v", name, s, err)
		}
		must(t, os.Remove(filepath.Join(dir, sqlite.FileName)))
	}
}

// untouched opens what must be refused, and looks whether any byte of it has changed.
func untouched(t *testing.T, dir string, want error) {
	t.Helper()
	before, err := os.ReadFile(filepath.Join(dir, sqlite.FileName))
	must(t, err)
	wal, _ := os.ReadFile(filepath.Join(dir, sqlite.FileName+"-wal"))
	for range 2 {
		if _, err := sqlite.Open(dir, sqlite.Options{}); !errors.Is(err, want) {
			t.Errorf("open: %v", err)
		}
		if _, err := sqlite.OpenReadOnly(dir); !errors.Is(err, want) {
			t.Errorf("open read-only: %v", err)
		}
	}
	after, err := os.ReadFile(filepath.Join(dir, sqlite.FileName))
	must(t, err)
	walAfter, _ := os.ReadFile(filepath.Join(dir, sqlite.FileName+"-wal"))
	if !bytes.Equal(before, after) || !bytes.Equal(wal, walAfter) {
		t.Errorf("a file that was refused was changed: %d bytes, now %d; log %d, now %d", len(before), len(after), len(wal), len(walAfter))
	}
}

func TestNewerSchemaIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	fill(t, s, 2)
	must(t, s.Close())
	db := raw(t, filepath.Join(dir, sqlite.FileName))
	_, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, 1)`, sqlite.Version+1)
	must(t, err)
	must(t, db.Close())
	untouched(t, dir, storage.ErrNewer)

	db = raw(t, filepath.Join(dir, sqlite.FileName))
	_, err = db.Exec(`PRAGMA journal_mode=DELETE`)
	must(t, err)
	must(t, db.Close())
	untouched(t, dir, storage.ErrNewer)
}

// TestNewerSchemaWithALogIsRefusedUntouched: the newer Apollo died, and its last commits are in the write-ahead log.
func TestNewerSchemaWithALogIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	live, dir := t.TempDir(), t.TempDir()
	s := open(t, live, sqlite.Options{})
	fill(t, s, 2)
	must(t, s.Checkpoint())
	db := raw(t, filepath.Join(live, sqlite.FileName))
	_, err := db.Exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (?, 1)`, sqlite.Version+1)
	must(t, err)
	copyStore(t, live, dir)
	untouched(t, dir, storage.ErrNewer)
}

// copyStore copies the file and its log, as a crash leaves them.
func copyStore(t testing.TB, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(filepath.Join(from, sqlite.FileName+suffix))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(to, sqlite.FileName+suffix), b, 0o600))
	}
}

func TestNoStoreIsRefusedUntouched(t *testing.T) {
	t.Parallel()
	for name, content := range map[string][]byte{"text": bytes.Repeat([]byte("no database at all\n"), 400), "a byte": {7}, "zeros": make([]byte, 8192)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			must(t, os.WriteFile(filepath.Join(dir, sqlite.FileName), content, 0o600))
			untouched(t, dir, storage.ErrCorrupt)
		})
	}
	t.Run("another program's", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		db := raw(t, filepath.Join(dir, sqlite.FileName))
		_, err := db.Exec(`CREATE TABLE bookmarks (url)`)
		must(t, err)
		must(t, db.Close())
		untouched(t, dir, storage.ErrCorrupt)
	})
	if _, err := sqlite.OpenReadOnly(t.TempDir()); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("nothing: %v", err)
	}
}

func TestReadOnlySeesCommitsAndRefusesThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	r, err := sqlite.OpenReadOnly(dir)
	must(t, err)
	ids := fill(t, s, 2)
	if row, err := r.Run(t.Context(), ids[1]); err != nil || row.State != events.Completed || r.Head() != s.Head() {
		t.Errorf("%+v %v, head %d of %d", row, err, r.Head(), s.Head())
	}
	m := &storetest.Maker{}
	_, b := m.Delivery(events.DeliveryHeld, events.Data{})
	if err := r.Commit(b); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("commit: %v", err)
	}
	if _, err := r.Rebuild(t.Context(), true); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("rebuild: %v", err)
	}
	must(t, r.Check(t.Context(), func(p storage.Problem) { t.Errorf("%+v", p) }))
	must(t, r.Close())
	must(t, r.Close())
}

func TestBackup(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), sqlite.Options{})
	fill(t, s, 20)
	dir := t.TempDir()
	path := filepath.Join(dir, sqlite.FileName)
	must(t, s.Backup(t.Context(), path))
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o", info.Mode())
	}
	if err := s.Backup(t.Context(), path); !errors.Is(err, os.ErrExist) {
		t.Errorf("overwritten: %v", err)
	}
	if dump(t, s) != dump(t, open(t, dir, sqlite.Options{})) {
		t.Error("the copy is another store")
	}
	must(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	if err := s.Backup(t.Context(), filepath.Join(dir, "link")); !errors.Is(err, os.ErrExist) {
		t.Errorf("through a link: %v", err)
	}
}

func TestBytesOfARun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	size := func() int64 {
		must(t, s.Checkpoint())
		info, err := os.Stat(filepath.Join(dir, sqlite.FileName))
		must(t, err)
		return info.Size()
	}
	fill(t, s, 1)
	before := size()
	m := &storetest.Maker{Salt: 1}
	g, plan := storetest.Plan("p", 5)
	const runs = 1000
	var b storage.Batch
	for range runs {
		f := m.Begin(g, plan, m.ID())
		f.Finish()
		one := f.Take()
		b.Events, b.Runs, b.Stages = append(b.Events, one.Events...), append(b.Runs, one.Runs...), append(b.Stages, one.Stages...)
	}
	must(t, s.Commit(&b))
	per := (size() - before) / runs
	t.Logf("a run of five stages (%d events) takes %d bytes", len(b.Events)/runs, per)
	if per > 6000 {
		t.Errorf("%d bytes", per)
	}
}
