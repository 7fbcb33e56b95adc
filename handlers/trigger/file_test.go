package trigger

import (
	"bytes"
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
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

// folder is a watched folder in a test, with another one beside it to rename from.
type folder struct {
	tb     testing.TB
	in     *fakeInbox
	sealer *fakeSealer
	clock  *fakeClock
	log    *logBuffer
	source *fsnotify.Watcher // what the watcher listens to; nil when that failed
	w      *Watcher
	dir    string
	beside string
	stop   func() // ends Run and waits for it
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newFolder(tb testing.TB, trigger events.FileTrigger) *folder {
	tb.Helper()
	root := tb.TempDir()
	f := &folder{tb: tb, in: newInbox(), sealer: &fakeSealer{}, clock: clockAt(1_700_000_000), log: &logBuffer{}, stop: func() {},
		dir: filepath.Join(root, "watched"), beside: filepath.Join(root, "beside")}
	require.NoError(tb, os.Mkdir(f.dir, 0o700))
	require.NoError(tb, os.Mkdir(f.beside, 0o700))
	trigger.Watch = filepath.Join(f.dir, trigger.Watch)
	f.w = &Watcher{Pipeline: "orders", Trigger: trigger, Inbox: f.in, Sealer: f.sealer, Clock: f.clock.now, Logger: zerolog.New(f.log), Rescan: time.Hour}
	tb.Cleanup(func() { f.stop() })
	return f
}

// start runs the watcher; it returns when the folder has been looked at once.
func (f *folder) start() *folder {
	f.tb.Helper()
	listens := f.w.Notify == nil || f.source != nil
	if listens {
		source, err := fsnotify.NewWatcher()
		require.NoError(f.tb, err)
		f.source, f.w.Notify = source, func() (*fsnotify.Watcher, error) { return source, nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.w.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(f.tb, receive(f.tb, ended))
	})
	if listens {
		f.look("")
	}
	return f
}

// look makes the watcher look at a name, and returns when it has.
func (f *folder) look(name string) {
	f.tb.Helper()
	for range 2 { // the second is taken when the first was looked at
		select {
		case f.source.Events <- fsnotify.Event{Name: filepath.Join(f.dir, name)}:
		case <-time.After(patience):
			require.FailNow(f.tb, "the watcher takes no hints")
		}
	}
}

func (f *folder) write(name, content string) {
	f.tb.Helper()
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(f.tb, err)
	_, err = file.WriteString(content)
	require.NoError(f.tb, errors.Join(err, file.Close()))
}

// drop brings a whole file in by rename.
func (f *folder) drop(name, content string) {
	f.tb.Helper()
	from := filepath.Join(f.beside, name)
	require.NoError(f.tb, os.WriteFile(from, []byte(content), 0o600))
	require.NoError(f.tb, os.Rename(from, filepath.Join(f.dir, name)))
}

func (f *folder) rename(from, to string) {
	f.tb.Helper()
	require.NoError(f.tb, os.Rename(filepath.Join(f.dir, from), filepath.Join(f.dir, to)))
}

// taken fails unless d is the delivery of a file with this name and content.
func (f *folder) taken(d *Delivery, name, content string) {
	f.tb.Helper()
	digest := events.DigestOf([]byte(content))
	require.Nil(f.tb, d.Refused)
	require.Equal(f.tb, &File{Name: name, Digest: digest, Size: int64(len(content))}, d.File)
	require.Equal(f.tb, name+"/"+digest.String(), d.Key)
	require.Equal(f.tb, "file", d.Kind)
	require.Equal(f.tb, "orders", d.Pipeline)
	require.Equal(f.tb, "file:"+f.w.Trigger.Watch, d.Trigger)
	f.sealer.mu.Lock()
	defer f.sealer.mu.Unlock()
	require.Equal(f.tb, content, string(f.sealer.content[digest]), "what was sealed")
}

// temporaryFromTable gives each temporary name of the table, as its uploader would make it.
func temporaryFromTable(tb testing.TB) []string {
	tb.Helper()
	fill := strings.NewReplacer("<hex>", "3f2a9c01", "XXXXXX", "A1B2C3", "0000\u2026", "000000000007")
	var names []string
	for i, line := range strings.Split(strings.TrimSpace(string(testdata(tb, "files/temp_name_patterns.tsv"))), "\n") {
		field := strings.Split(line, "\t")
		if i == 0 || strings.HasPrefix(field[0], "rsync --inplace") || field[0] == "vsftpd" {
			continue // those write under the final name
		}
		for part := range strings.SplitSeq(strings.ReplaceAll(field[1], ", ", " / "), " / ") {
			names = append(names, fill.Replace(part))
		}
	}
	require.Greater(tb, len(names), 20)
	return names
}

func TestTemporaryNames(t *testing.T) {
	t.Parallel()
	for _, name := range append(temporaryFromTable(t), ".a.csv.Xy12Zz", "a.csv.ocTransferId1.part", ".in.a.csv.", "two\nlines.csv.part", "UPPER.CSV.FILEPART") {
		name, _, _ = strings.Cut(name, "/") // of a file in a hidden folder, the folder
		assert.True(t, temporary(name), "%q", name)
	}
	for _, name := range append(awkward(t), "report.csv", "part.csv", "tmp.csv", "a.part.csv", "14913", "~", "a#b.csv", "download") {
		assert.Equal(t, name == "~", temporary(name), "%q", name)
	}
}

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
	f.look("a.csv")
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
	f.look("empty.csv")
	f.clock.advance(10 * time.Second)
	f.look("empty.csv")
	f.taken(f.in.next(t), "empty.csv", "after all")
	f.stop()
	require.Len(t, f.in.all(), 3, "refused once")
}

func TestEmptyFileAllowed(t *testing.T) {
	t.Parallel()
	f := newFolder(t, events.FileTrigger{Watch: "*.csv", AllowEmpty: true}).start()
	f.drop("empty.csv", "")
	f.taken(f.in.next(t), "empty.csv", "")
}

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
