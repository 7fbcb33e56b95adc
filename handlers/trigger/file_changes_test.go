package trigger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

func TestGrowingFileWaits(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv", Settle: 10 * time.Second}).start()
	for range 5 {
		f.write("a.csv", "a piece\n")
		f.look("a.csv")
		f.clock.advance(9 * time.Second)
		f.look("a.csv")
		require.Zero(t, f.sealer.reads.Load(), "it did not stand still for 10 s")
	}
	f.clock.advance(time.Second)
	f.look("a.csv")
	f.taken(f.in.next(t), "a.csv", strings.Repeat("a piece\n", 5))
	f.stop()
	require.Len(t, f.in.all(), 1)
}

func TestSettleWithoutFurtherEvents(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv", Settle: 20 * time.Millisecond})
	f.w.Clock = time.Now
	f.start()
	f.write("a.csv", "whole")
	f.taken(f.in.next(t), "a.csv", "whole")
}

func TestFileThatNeverStandsStillIsReportedOnce(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv", Settle: 10 * time.Second})
	f.w.MaxWait = time.Minute
	f.start()
	for range 20 {
		f.write("a.csv", "x")
		f.look("a.csv")
		f.clock.advance(9 * time.Second)
	}
	d := f.in.next(t)
	require.Equal(t, "E_DROP_UNSTABLE", d.Refused.Code)
	require.Equal(t, "a.csv", d.File.Name)
	f.clock.advance(time.Second)
	f.look("a.csv")
	f.taken(f.in.next(t), "a.csv", strings.Repeat("x", 20))
	f.stop()
	require.Len(t, f.in.all(), 2, "reported once")
}

func TestWrittenWhileItIsRead(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	var once sync.Once
	f.sealer.before = func(file *os.File) error {
		once.Do(func() { f.write("a.csv", ", second half") })
		return nil
	}
	f.start().drop("a.csv", "first half")
	f.taken(f.in.next(t), "a.csv", "first half, second half")
	f.stop()
	require.Len(t, f.in.all(), 1)
	require.EqualValues(t, 2, f.sealer.reads.Load())
}

// A file that is taken away and brought anew while it is being read gives one delivery, of the new content.
func TestReplacedWhileItIsRead(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	reading, goOn := make(chan struct{}, 10), make(chan struct{})
	f.sealer.before = func(*os.File) error {
		reading <- struct{}{}
		<-goOn
		return nil
	}
	f.start().drop("a.csv", "old")
	receive(t, reading)
	require.NoError(t, os.Remove(filepath.Join(f.dir, "a.csv")))
	f.look("a.csv")
	f.drop("a.csv", "new")
	f.look("a.csv")
	require.Empty(t, reading, "the new file waits until the old one is done with")
	close(goOn)
	f.taken(f.in.next(t), "a.csv", "new")
	f.look("a.csv")
	f.stop()
	require.Len(t, f.in.all(), 1)
	require.EqualValues(t, 2, f.sealer.reads.Load(), "and each content was read once")
}

// R10: a writer may pause for longer than settle. While it has the file open the file is not whole, also when it has no
// bytes yet.
func TestOpenForWriting(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	f.w.dir = f.dir
	path := filepath.Join(f.dir, "a.csv")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	attempt := func() outcome {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		return f.w.deliver(t.Context(), "a.csv", fingerprint(info))
	}
	require.Equal(t, open, attempt(), "it has no bytes yet")
	_, err = file.WriteString("first half, ")
	require.NoError(t, err)
	require.Equal(t, open, attempt())
	require.Empty(t, f.in.all())

	reading, err := os.Open(path)
	require.NoError(t, err)
	defer reading.Close()
	f.w.Clock = time.Now
	f.start()
	_, err = file.WriteString("second half")
	require.NoError(t, errors.Join(err, file.Close()))
	f.taken(f.in.next(t), "a.csv", "first half, second half")
	f.stop()
	require.Len(t, f.in.all(), 1, "once, and though somebody reads it")
}

// Looking whether a file is open for writing keeps nobody from opening it.
func TestOpenForWritingDisturbsNobody(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 2000 {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			if assert.NoError(t, err) {
				assert.NoError(t, file.Close())
			}
		}
	}()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	for busy := true; busy; {
		beingWritten(file)
		select {
		case <-ended:
			busy = false
		default:
		}
	}
	require.False(t, beingWritten(file))
}

func TestGoneBeforeItWasRead(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv", Settle: 10 * time.Second}).start()
	for _, name := range []string{"gone.csv", "back.csv", "renamed.csv"} {
		f.write(name, "content of "+name)
		f.look(name)
	}
	f.clock.advance(9 * time.Second)
	require.NoError(t, os.Remove(filepath.Join(f.dir, "gone.csv")))
	require.NoError(t, os.Remove(filepath.Join(f.dir, "back.csv")))
	f.rename("renamed.csv", "final.csv")
	for _, name := range []string{"gone.csv", "back.csv", "renamed.csv", "final.csv"} {
		f.look(name)
	}
	f.clock.advance(5 * time.Second)
	f.look("gone.csv")
	require.Empty(t, f.in.all(), "it may still come back")
	f.write("back.csv", "content of back.csv")
	f.look("back.csv")
	f.clock.advance(5 * time.Second)
	got := map[string]*Delivery{}
	for _, name := range []string{"gone.csv", "renamed.csv", "final.csv"} {
		f.look(name)
	}
	for range 2 {
		d := f.in.next(t)
		got[d.File.Name] = d
	}
	require.Equal(t, "E_DROP_GONE", got["gone.csv"].Refused.Code)
	f.taken(got["final.csv"], "final.csv", "content of renamed.csv")
	f.clock.advance(5 * time.Second)
	f.look("back.csv")
	f.taken(f.in.next(t), "back.csv", "content of back.csv")
	f.stop()
	require.Len(t, f.in.all(), 3, "nothing is said about a name that became another one")
}

func TestGoneWhileItIsRead(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	f.w.Clock = time.Now
	f.sealer.before = func(*os.File) error { return os.Remove(filepath.Join(f.dir, "a.csv")) }
	f.start().drop("a.csv", "1")
	require.Equal(t, "E_DROP_GONE", f.in.next(t).Refused.Code)
	f.stop()
	require.Len(t, f.in.all(), 1)
}

// The kernel may tell of the new name late.
func TestRenamedWhileItIsRead(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"})
	var once sync.Once
	renamed := make(chan struct{})
	f.sealer.before = func(*os.File) error {
		once.Do(func() {
			assert.NoError(t, f.source.Remove(f.dir))
			f.rename("a.csv", "b.csv")
			close(renamed)
		})
		return nil
	}
	f.start().drop("a.csv", "1")
	receive(t, renamed)
	for range 20 { // meanwhile the reading ends, and its result is looked at
		f.look("a.csv")
	}
	f.look("b.csv")
	f.taken(f.in.next(t), "b.csv", "1")
	f.w.busy.Wait() // a slow machine may still be reading the old name
	for range 20 {  // its result is taken in between two of these, and then the name is missed
		f.look("a.csv")
	}
	f.clock.advance(goneWait)
	f.look("a.csv")
	f.stop()
	require.Len(t, f.in.all(), 1, "nothing is said about the old name")
	require.Empty(t, f.w.waiting)
}

// A folder that is removed or renamed and made anew is watched again, and its events are heard again.
func TestFolderIsMadeAnew(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(f *folder) error{
		"removed": func(f *folder) error { return os.RemoveAll(f.dir) },
		"renamed": func(f *folder) error { return os.Rename(f.dir, f.dir+"-old") },
	} {
		for _, slowly := range []bool{false, true} {
			t.Run(fmt.Sprint(name, slowly), func(t *testing.T) {
				t.Parallel()
				f := newFolder(t, events.FileTrigger{Watch: "*.csv"}).start()
				require.NoError(t, away(f))
				if slowly {
					require.Eventually(t, func() bool { return strings.Contains(f.log.String(), "no such file") }, patience, time.Millisecond)
				}
				require.NoError(t, os.Mkdir(f.dir, 0o700))
				f.drop("a.csv", "1")
				f.taken(f.in.next(t), "a.csv", "1")
				f.drop("b.csv", "2") // the timer is an hour away: only a hint can tell of it
				f.taken(f.in.next(t), "b.csv", "2")
				f.stop()
				require.Len(t, f.in.all(), 2)
			})
		}
	}
}

// A new folder may have the inode of the old one; that the old one went is enough to listen anew.
func TestFolderIsMadeAnewWithTheSameInode(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv"}).start()
	require.NoError(t, f.source.Remove(f.dir))
	f.source.Events <- fsnotify.Event{Name: f.dir, Op: fsnotify.Remove}
	f.look("")
	f.drop("a.csv", "1")
	f.taken(f.in.next(t), "a.csv", "1")
}

func TestEmptyFile(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv", Settle: 10 * time.Second}).start()
	f.write("later.csv", "")
	f.write("empty.csv", "")
	f.look("later.csv")
	f.look("empty.csv")
	f.clock.advance(9 * time.Second)
	f.write("later.csv", "now it has bytes") // as Firefox does
	f.look("later.csv")
	f.clock.advance(time.Second)
	f.look("empty.csv")
	d := f.in.next(t)
	require.Equal(t, "empty.csv", d.File.Name)
	require.Equal(t, "E_DROP_EMPTY", d.Refused.Code)
	f.clock.advance(9 * time.Second)
	f.look("later.csv")
	f.taken(f.in.next(t), "later.csv", "now it has bytes")
	f.look("empty.csv")
	f.write("empty.csv", "after all")
	f.taken(f.settles("empty.csv"), "empty.csv", "after all")
	f.stop()
	require.Len(t, f.in.all(), 3, "refused once")
}

func TestEmptyFileAllowed(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv", AllowEmpty: true}).start()
	f.drop("empty.csv", "")
	f.taken(f.in.next(t), "empty.csv", "")
}
