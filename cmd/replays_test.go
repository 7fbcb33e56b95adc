package cmd_test

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apollo-11/apollo/cmd"
)

// assertReplaysSame replays every run of every store below a directory. It is called at the end of every test that leaves
// a store: by newSite, by start, by the scripts. A store that a test has damaged on purpose has a file named damaged beside
// it.
func assertReplaysSame(t *testing.T, dir string) (stores int) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() != "apollo.db" {
			return nil //nolint:nilerr // what a test has taken away has no store
		}
		data := filepath.Dir(path)
		if _, err := os.Stat(filepath.Join(data, "damaged")); err == nil {
			return nil
		}
		stores++
		var out, errs bytes.Buffer
		code := cmd.Run(context.Background(), []string{"replay", "--all", "--data", data, "--lang", "en"}, strings.NewReader(""), &out, &errs, func(string) string { return "" })
		if code != 0 {
			t.Errorf("the runs of %s do not replay as they are recorded: exit %d\n%s%s", data, code, out.String(), errs.String())
		}
		return nil
	})
	return stores
}

var replayed sync.Map // test and directory

// replaysAtEnd calls assertReplaysSame once the test is over, and its processes have ended.
func replaysAtEnd(t *testing.T, dir string) {
	t.Helper()
	type key struct{ test, dir string }
	if _, twice := replayed.LoadOrStore(key{t.Name(), dir}, true); !twice {
		t.Cleanup(func() { assertReplaysSame(t, dir) })
	}
}

// The check itself: it sees a store, and a run in it that differs.
func TestAssertReplaysSameBites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "p.yaml"), "name: p\nstages:\n  a: {run: \"true\", env: {WORD: hello}}\n")
	apolloIn(t, dir, "run", "p.yaml", "--data", "data")
	if stores := assertReplaysSame(t, dir); stores != 1 {
		t.Fatalf("%d stores were seen", stores)
	}
	db := filepath.Join(dir, "data", "apollo.db")
	b, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte("hello")) {
		t.Fatal("the plan is not where it is changed")
	}
	write(t, db, strings.ReplaceAll(string(b), "hello", "jello"))
	inner := new(testing.T)
	assertReplaysSame(inner, dir)
	if !inner.Failed() {
		t.Error("a store that was changed passes")
	}
	write(t, filepath.Join(dir, "data", "damaged"), "")
}
