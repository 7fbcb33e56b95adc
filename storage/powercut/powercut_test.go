package powercut_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// record runs a child with the recorder below it and gives the log of what it did.
func record(t *testing.T, child, dir string, env ...string) (log []operation, said string, err error) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: the recorder cannot be built")
	}
	tmp := t.TempDir()
	library, path := filepath.Join(tmp, "recorder.so"), filepath.Join(tmp, "log")
	if out, err := exec.CommandContext(t.Context(), cc, "-O1", "-Wall", "-shared", "-fPIC", "-o", library, filepath.Join("testdata", "recorder.c"), "-ldl", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("build the recorder: %v\n%s", err, out)
	}
	marks, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer marks.Close()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	c.ExtraFiles = []*os.File{marks}
	c.Env = append(os.Environ(), "LD_PRELOAD="+library, "POWERCUT_LOG="+path, "POWERCUT_DIR="+dir, "POWERCUT_CHILD="+child, "POWERCUT_MARKS="+strconv.Itoa(3))
	c.Env = append(c.Env, env...)
	out, err := c.CombinedOutput()
	log = readLog(t, path)
	if len(log) == 0 {
		t.Fatalf("the recorder saw nothing; %v\n%s", err, out)
	}
	return log, string(out), err
}

// disk is what the files of the store hold: what is synced, and what may or may not have reached the disk.
type disk struct {
	synced   map[string][]byte
	unsynced []operation
	events   []events.ID // acknowledged
}

func (d *disk) do(o operation) {
	switch o.op {
	case opAcknowledged:
		for id := range slices.Chunk(o.data, len(events.ID{})) {
			d.events = append(d.events, events.ID(id))
		}
	case opSync:
		// The directory's sync makes the unlinks durable; a file's sync makes what was done to it durable, and with it
		// that the file of this name is there.
		d.unsynced = slices.DeleteFunc(d.unsynced, func(u operation) bool {
			if o.path == "" && u.op == opUnlink || o.path != "" && u.path == o.path {
				apply(d.synced, u)
				return true
			}
			return false
		})
		if _, there := d.synced[o.path]; !there && o.path != "" {
			d.synced[o.path] = nil
		}
	default:
		d.unsynced = append(d.unsynced, o)
	}
}

// apply does one operation to files. A file is replaced, never changed in place: others may hold it.
func apply(files map[string][]byte, o operation) {
	content := files[o.path]
	switch o.op {
	case opUnlink:
		delete(files, o.path)
		return
	case opTruncate:
		size := int(o.offset)
		content = append(slices.Clone(content[:min(len(content), size)]), make([]byte, max(0, size-len(content)))...)
	case opWrite:
		end := int(o.offset) + len(o.data)
		content = append(slices.Clone(content), make([]byte, max(0, end-len(content)))...)
		copy(content[o.offset:], o.data)
	}
	files[o.path] = content
}

const sector = 512

// torn is the disk with a random part of what is not synced: of each write all, nothing or some sectors.
func (d *disk) torn(r *rand.Rand) map[string][]byte {
	files := maps.Clone(d.synced)
	for _, o := range d.unsynced {
		switch r.IntN(3) {
		case 0:
			continue
		case 1:
			apply(files, o)
			continue
		}
		if o.op != opWrite {
			continue
		}
		for at := 0; at < len(o.data); at += sector {
			if r.IntN(2) == 0 {
				apply(files, operation{op: opWrite, path: o.path, offset: o.offset + int64(at), data: o.data[at:min(len(o.data), at+sector)]})
			}
		}
	}
	return files
}

// whole is the disk with all that was done: the process died, the machine did not.
func (d *disk) whole() map[string][]byte {
	files := maps.Clone(d.synced)
	for _, o := range d.unsynced {
		apply(files, o)
	}
	return files
}

// state is one thing that a disk may hold after a cut.
type state struct {
	name  string
	files map[string][]byte
	acked []events.ID
}

// TestPowerCut takes the power away after every operation of a child that commits, and holds that the store opens, is
// whole, and has every event that was acknowledged.
func TestPowerCut(t *testing.T) {
	t.Parallel()
	log, said, err := record(t, "commit", t.TempDir())
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("POWERCUT_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	torn := 1
	if os.Getenv("APOLLO_LONG") != "" {
		torn = 10
	}
	t.Logf("%d operations; POWERCUT_SEED=%d", len(log), seed)
	check(t, log, seed, torn)
}

func check(t *testing.T, log []operation, seed uint64, torn int) {
	t.Helper()
	states := make(chan state, 8)
	var workers sync.WaitGroup
	var checked, wrong counter
	root := roomFor(t)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for s := range states {
				checked.add()
				if err := opens(t.Context(), root, s); err != nil && wrong.add() <= 5 {
					t.Errorf("%s: %v", s.name, err)
				}
			}
		})
	}
	d := &disk{synced: map[string][]byte{}}
	r := rand.New(rand.NewPCG(seed, 0))
	acknowledged := 0
	for i, o := range log {
		d.do(o)
		at := fmt.Sprintf("cut after operation %d of %d", i+1, len(log))
		if o.op == opSync || o.op == opAcknowledged { // else what is synced is as before
			states <- state{at + ", synced data only", maps.Clone(d.synced), slices.Clone(d.events)}
		}
		if o.op == opAcknowledged {
			acknowledged++
			states <- state{at + ", all data", d.whole(), slices.Clone(d.events)}
		}
		for n := range torn {
			if len(d.unsynced) > 0 {
				states <- state{fmt.Sprintf("%s, torn %d", at, n), d.torn(r), slices.Clone(d.events)}
			}
		}
	}
	close(states)
	workers.Wait()
	t.Logf("%d states, %d acknowledged batches, %d wrong", checked.n, acknowledged, wrong.n)
	if want := rounds * runsPerRound * 3; acknowledged != want {
		t.Errorf("%d batches were acknowledged, want %d", acknowledged, want)
	}
}

// counter counts from several goroutines.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n
}

// roomFor gives a directory in memory where there is one: what is checked there was cut already.
func roomFor(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "powercut-") //nolint:usetesting // in memory, where there is such a place
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// opens holds that a state is a whole store with every acknowledged event.
func opens(ctx context.Context, root string, s state) (err error) {
	dir, err := os.MkdirTemp(root, "state-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, content := range s.files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return whole(ctx, dir, s.acked)
}

func whole(ctx context.Context, dir string, acked []events.ID) (err error) {
	store, err := sqlite.Open(dir, sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var found bytes.Buffer
	if err := store.Check(ctx, func(p storage.Problem) { fmt.Fprintf(&found, "\n%s %s: %s", p.Code, p.Place, p.What) }); err != nil {
		return err
	}
	if found.Len() > 0 {
		return fmt.Errorf("not whole:%s", &found)
	}
	there, page := map[events.ID]bool{}, make([]storage.Record, 1000)
	for after := int64(0); ; after = page[len(page)-1].Position {
		n, err := store.Scan(ctx, after, page)
		if err != nil {
			return err
		}
		for i := range n {
			there[page[i].ID] = true
		}
		if n < len(page) {
			break
		}
	}
	for i, id := range acked {
		if !there[id] {
			return fmt.Errorf("acknowledged event %d of %d is missing: %s", i+1, len(acked), id)
		}
	}
	return nil
}

// TestFsyncFailure lets the n-th fsync fail: the store says so, refuses everything after it, and what was acknowledged
// before is there when it is opened again.
func TestFsyncFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := sqlite.Open(dir, sqlite.Options{}) // the schema is made without failures
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 8; n++ {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			own := t.TempDir()
			if err := os.CopyFS(own, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			log, said, err := record(t, "failing", own, "POWERCUT_FAIL_SYNC="+strconv.Itoa(n))
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			d := &disk{synced: map[string][]byte{}}
			for _, o := range log {
				d.do(o)
			}
			if len(d.events) == 0 && n > 2 { // the first sync is of the write-ahead log's header
				t.Error("nothing was acknowledged before the failure")
			}
			if err := whole(t.Context(), own, d.events); err != nil {
				t.Error(err)
			}
		})
	}
}
