package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

func TestWhatIsNoPlainFile(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("not yours"), 0o600))
	for name, c := range map[string]struct{ make, touch func(path string) error }{
		"symlink":  {func(p string) error { return os.Symlink(outside, p) }, nil},
		"dangling": {func(p string) error { return os.Symlink(outside+"-none", p) }, nil},
		"fifo":     {func(p string) error { return syscall.Mkfifo(p, 0o600) }, nil},
		"folder": {func(p string) error { return os.Mkdir(p, 0o700) }, func(p string) error {
			return os.WriteFile(filepath.Join(p, "inside"), []byte("x"), 0o600) // moves the folder's time
		}},
		"hard link": {func(p string) error { return os.Link(outside, p) }, nil},
	} {
		f := newFolder(t, events.FileTrigger{Watch: "*"}).start()
		path := filepath.Join(f.dir, name)
		require.NoError(t, c.make(path))
		d := f.in.next(t)
		assert.Equal(t, name, d.File.Name)
		if assert.NotNil(t, d.Refused, name) {
			assert.Equal(t, "E_DROP_TYPE", d.Refused.Code)
			assert.NotEmpty(t, d.Refused.Reason)
		}
		if c.touch != nil {
			require.NoError(t, c.touch(path))
		}
		for range 3 {
			f.look(name)
			f.source.Errors <- fsnotify.ErrEventOverflow
		}
		f.look(name)
		f.stop()
		assert.Len(t, f.in.all(), 1, "%s: refused once", name)
		assert.Zero(t, f.sealer.reads.Load(), "%s: never read", name)
	}
}

// Some uploaders bring a file in by link and unlink. It has two names for an instant only.
func TestLinkedInAndUnlinked(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv", Settle: 10 * time.Second}).start()
	first := filepath.Join(f.beside, "a")
	require.NoError(t, os.WriteFile(first, []byte("whole"), 0o600))
	require.NoError(t, os.Link(first, filepath.Join(f.dir, "a.csv")))
	f.look("a.csv")
	require.NoError(t, os.Remove(first))
	f.look("a.csv")
	f.clock.advance(10 * time.Second)
	f.look("a.csv")
	f.taken(f.in.next(t), "a.csv", "whole")
	f.stop()
	require.Len(t, f.in.all(), 1)
}

func TestRestart(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*"})
	list := filepath.Join(t.TempDir(), "seen")
	run := func(want int) []*Delivery {
		f.in, f.w.Seen = newInbox(), openSeen(t, list)
		f.w.Inbox = f.in
		f.start()
		for range want {
			f.in.next(t)
		}
		f.stop()
		return f.in.all()
	}
	f.drop("a.csv", "1")
	f.drop("b.csv", "2")
	require.NoError(t, os.Mkdir(filepath.Join(f.dir, "folder"), 0o700))
	before := run(3)
	require.Len(t, before, 3)
	require.Empty(t, run(0), "with the list nothing is delivered again")
	f.drop("c.csv", "3")
	require.Len(t, run(1), 1, "what came while it was down is")
	f.drop("a.csv", "another")
	require.Len(t, run(1), 1, "and so is a changed file")

	require.NoError(t, os.Remove(list))
	f.drop("a.csv", "1")
	keys := map[string]bool{}
	for _, d := range run(4) {
		keys[d.Key] = true
	}
	for _, d := range before {
		require.True(t, keys[d.Key], "without the list %q comes with the same key", d.Key)
	}
}

func TestSeenSurvivesATornLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "seen")
	first, later := Fingerprint{Inode: 1, Size: 2, MTime: 3, Change: 4}, Fingerprint{Inode: 5}
	s := openSeen(t, path)
	require.NoError(t, s.Save("a", first))
	require.NoError(t, s.Save("a", later))
	require.NoError(t, s.Save("b", first))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, whole[:len(whole)-5], 0o600))
	s = openSeen(t, path)
	require.Equal(t, map[string]Fingerprint{"a": later}, s.Load(), "the last line of a name counts, a torn one does not")
	require.NoError(t, s.Save("c", first))
	require.Equal(t, map[string]Fingerprint{"a": later, "c": first}, openSeen(t, path).Load(), "what is saved after a torn line is kept")
}

// The list is as long as the folder is full, not as long as the folder was ever used.
func TestSeenIsShortened(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*"})
	list := filepath.Join(t.TempDir(), "seen")
	f.w.Seen = openSeen(t, list)
	for i := range smallSeen {
		require.NoError(t, f.w.Seen.Save("every day.csv", Fingerprint{Inode: uint64(i)}))
		require.NoError(t, f.w.Seen.Save(fmt.Sprintf("gone%d.csv", i), Fingerprint{Inode: uint64(i)}))
	}
	latin := "latin-\xe9.csv"
	f.drop(latin, "1")
	info, err := os.Lstat(filepath.Join(f.dir, latin))
	require.NoError(t, err)
	require.NoError(t, f.w.Seen.Save(latin, fingerprint(info)))
	f.start().drop("b.csv", "2")
	f.in.next(t)
	f.stop()
	require.Len(t, f.in.all(), 1, "what is there is known still")
	require.Len(t, f.w.Seen.Load(), 2)
	text, err := os.ReadFile(list)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(text), "\n"), "and what is handled later goes into the same file")
	status, err := os.Stat(list)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), status.Mode())
}

func TestSeenCannotBeOpened(t *testing.T) {
	t.Parallel()
	_, err := OpenSeen(t.TempDir())
	require.ErrorContains(t, err, "open the list of handled files")
}

func TestInboxIsBusyOrFull(t *testing.T) {
	t.Parallel()
	for _, broken := range []error{ErrBusy, ErrFull, ErrClosed, errors.New("broken")} {
		t.Run(broken.Error(), func(t *testing.T) {
			t.Parallel()
			f := newFolder(t, events.FileTrigger{Watch: "*"})
			f.in.fail = []error{broken, broken}
			f.start().drop("a.csv", "1")
			f.taken(f.in.next(t), "a.csv", "1")
			f.stop()
			require.Len(t, f.in.all(), 1)
			require.Equal(t, 3, f.in.calls)
			require.NotContains(t, f.log.String(), `\u0000`, "a file is called by its name")
		})
	}
}

// A refusal that the inbox does not take now is made later, and meanwhile files are taken.
func TestRefusalIsRetried(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*"})
	f.in.fail = []error{ErrBusy}
	require.NoError(t, os.Mkdir(filepath.Join(f.dir, "folder"), 0o700))
	f.start()
	require.Equal(t, "E_DROP_TYPE", f.in.next(t).Refused.Code)
	f.drop("a.csv", "1")
	f.taken(f.in.next(t), "a.csv", "1")
}

func TestSealFails(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	var once sync.Once
	f.sealer.before = func(*os.File) (err error) {
		once.Do(func() { err = syscall.ENOSPC })
		return err
	}
	f.start().drop("a.csv", "1")
	f.taken(f.in.next(t), "a.csv", "1")
	require.Contains(t, f.log.String(), "it is tried again")
}

// Files that always fail must not keep the others out, though there are as many of them as places.
func TestFailingFilesLeaveRoom(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	f.sealer.before = func(file *os.File) error {
		if strings.HasPrefix(filepath.Base(file.Name()), "bad") {
			return syscall.EIO
		}
		return nil
	}
	for i := range sealers {
		f.drop(fmt.Sprintf("bad%d.csv", i), "x")
	}
	f.start()
	f.drop("good.csv", "1")
	f.taken(f.in.next(t), "good.csv", "1")
}

func TestLostEventsMakeItLook(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"}).start()
	require.NoError(t, f.source.Remove(f.dir)) // the kernel tells nothing from here on
	for i := range 10 {
		f.drop(fmt.Sprintf("%05d.csv", i), "x")
	}
	f.source.Errors <- fsnotify.ErrEventOverflow
	for range 10 {
		f.in.next(t)
	}
	f.stop()
	require.Len(t, f.in.all(), 10)
	require.Equal(t, 1, strings.Count(f.log.String(), "file events were lost"))
}

// When the source of hints ends by itself the timer goes on alone, and the machine does not spin.
func TestSourceOfHintsEnds(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	f.w.Rescan = 5 * time.Millisecond
	f.start()
	require.NoError(t, f.source.Close())
	f.drop("a.csv", "1")
	f.taken(f.in.next(t), "a.csv", "1")
}

func TestSettleZeroByRename(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"}).start()
	f.drop("a.csv", "1")
	f.taken(f.in.next(t), "a.csv", "1")
	f.drop("a.csv", "1") // the same once more: a delivery with the same key, which the inbox knows
	f.taken(f.in.next(t), "a.csv", "1")
	f.drop("a.csv", "2")
	f.taken(f.in.next(t), "a.csv", "2")
	f.drop("a.txt", "no match")
	f.look("a.txt")
	f.stop()
	require.Len(t, f.in.all(), 3, "the clock stood still")
}

func TestFolderIsMissing(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*"})
	f.w.Trigger.Watch = filepath.Join(f.dir, "none", "*")
	err := f.w.Run(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, f.w.Trigger.Watch)
}

func TestManual(t *testing.T) {
	t.Parallel()
	require.Equal(t, &Delivery{Kind: "manual", Trigger: "manual", Pipeline: "p", Params: json.RawMessage(`{"a":1}`)}, Manual("p", json.RawMessage(`{"a":1}`)))
}

// Between the look and the reading a file may be swapped for a symbolic link: it is not followed.
func TestSwappedForASymlink(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	f.drop("b.csv", "not meant")
	require.NoError(t, os.Symlink(filepath.Join(f.dir, "b.csv"), filepath.Join(f.dir, "a.csv")))
	f.w.dir = f.dir
	info, err := os.Stat(filepath.Join(f.dir, "b.csv"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no second attempt
	require.Equal(t, again, f.w.deliver(ctx, "a.csv", fingerprint(info)))
	require.Zero(t, f.sealer.reads.Load())
	require.Empty(t, f.in.all())
}
