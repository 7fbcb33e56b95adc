package trigger

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

func TestCase_F1(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*"}).start()
	names := append(temporaryFromTable(t), "a.csv.filepart", ".a.csv.Xy12Zz", "a.csv.ocTransferId1.part", ".in.a.csv.")
	for i, name := range names {
		if dir, _, ok := strings.Cut(name, "/"); ok {
			require.NoError(t, os.MkdirAll(filepath.Join(f.dir, dir), 0o700))
		}
		content := ""
		for piece := range 5 {
			more := fmt.Sprintf("%d;%d;%s\n", i, piece, strings.Repeat("x", 1000))
			f.write(name, more)
			content += more
			f.look(name)
		}
		final := fmt.Sprintf("a%d.csv", i)
		f.rename(name, final)
		f.taken(f.in.next(t), final, content)
	}
	f.stop()
	require.Len(t, f.in.all(), len(names), "one delivery each, none for a temporary name")
	require.EqualValues(t, len(names), f.sealer.reads.Load(), "temporary files are not read either")
	require.Empty(t, f.log.String(), "and nothing is said about them")
}

func TestCase_F3(t *testing.T) {
	t.Parallel()
	const files = 10_000
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	drop := func(from, to int) {
		for i := from; i < to; i++ {
			f.drop(fmt.Sprintf("%05d.csv", i), fmt.Sprintf("content %d", i))
		}
	}
	drop(0, files/4) // some are there before the start
	f.start()
	drop(files/4, files)
	times := map[string]int{}
	for range files {
		d := f.in.next(t)
		require.Nil(t, d.Refused)
		require.Equal(t, events.DigestOf(fmt.Appendf(nil, "content %d", number(t, d.File.Name))), d.File.Digest)
		times[d.File.Name]++
	}
	f.stop()
	require.Len(t, times, files, "every file")
	require.Len(t, f.in.all(), files, "each once")
}

func number(tb testing.TB, name string) (n int) {
	tb.Helper()
	_, err := fmt.Sscanf(name, "%05d.csv", &n)
	require.NoError(tb, err)
	return n
}

func TestCase_F8(t *testing.T) {
	t.Parallel()
	const rounds = 50
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"}).start()
	same := time.Unix(1_700_000_000, 0)
	for round := range rounds {
		want := map[string]bool{}
		for i := range 4 {
			name := fmt.Sprintf("%d-%d.csv", round, i)
			want[name] = true
			f.write(name+".part", "equal content")
			require.NoError(t, os.Chtimes(filepath.Join(f.dir, name+".part"), same, same))
			f.rename(name+".part", name)
		}
		for range 4 {
			name := f.in.next(t).File.Name
			require.True(t, want[name], "%s: twice or in a wrong round", name)
			delete(want, name)
		}
	}
	f.stop()
	require.Len(t, f.in.all(), 4*rounds)
}

func TestCase_F10(t *testing.T) {
	t.Parallel()
	for _, limit := range []error{syscall.ENOSPC, syscall.EMFILE} {
		f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
		f.w.Rescan = 5 * time.Millisecond
		f.w.Notify = func() (*fsnotify.Watcher, error) { return nil, os.NewSyscallError("inotify_add_watch", limit) }
		f.drop("before.csv", "1")
		f.start()
		f.taken(f.in.next(t), "before.csv", "1")
		f.drop("later.csv", "2")
		f.taken(f.in.next(t), "later.csv", "2")
		f.stop()
		require.Len(t, f.in.all(), 2)
		for _, part := range []string{"E_WATCH_LIMIT", "fs.inotify.max_user_watches", "sysctl", "on a timer"} {
			require.Contains(t, f.log.String(), part)
		}
		require.Equal(t, 1, strings.Count(f.log.String(), "\n"), "said once")
	}
}

func awkward(tb testing.TB) []string {
	tb.Helper()
	var file struct {
		Names []string `json:"names"`
	}
	require.NoError(tb, json.Unmarshal(testdata(tb, "files/names.json"), &file))
	require.Len(tb, file.Names, 27)
	return file.Names
}

func TestCase_F11(t *testing.T) {
	t.Parallel()
	names := append(awkward(t), "latin-\xe9.csv", "latin-\xe8.csv") // a name need not be UTF-8
	list := filepath.Join(t.TempDir(), "seen")
	watch := func() *folder {
		f := newFolder(t, events.FileTrigger{Watch: "*"})
		f.w.Seen = openSeen(t, list)
		return f
	}
	f := watch().start()
	for _, name := range names {
		f.drop(name, "content of "+name)
	}
	got := map[string]*Delivery{}
	for range names {
		d := f.in.next(t)
		got[d.File.Name] = d
	}
	f.stop()
	require.Len(t, f.in.all(), len(names), "one delivery each")
	for _, name := range names {
		require.Contains(t, got, name)
		f.taken(got[name], name, "content of "+name)
	}

	again := watch()
	again.w.Trigger.Watch, again.dir = f.w.Trigger.Watch, f.dir
	again.start().stop()
	require.Empty(t, again.in.all(), "after a restart every name is known again")
	require.Zero(t, again.sealer.reads.Load())
}

func openSeen(tb testing.TB, path string) *Seen {
	tb.Helper()
	s, err := OpenSeen(path)
	require.NoError(tb, err)
	tb.Cleanup(func() { assert.NoError(tb, s.Close()) })
	return s
}
