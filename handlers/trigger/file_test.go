package trigger

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// settles lets time pass until the file is taken. The watcher may look at it only once it has taken in the result of
// something that was before, and then the file has stood still from that moment on.
func (f *folder) settles(name string) *Delivery {
	f.tb.Helper()
	for deadline := time.After(patience); ; {
		f.look(name)
		select {
		case d := <-f.in.arrived:
			return d
		case <-deadline:
			require.FailNow(f.tb, "the file is not taken")
		default:
			f.clock.advance(time.Second)
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
