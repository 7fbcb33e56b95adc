package trigger

import (
	"context"
	"encoding/binary"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/apollo-11/apollo/events"
)

func TestMain(m *testing.M) {
	// After 413 net/http itself lingers for 500 ms, so that the sender can read the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience is how long a test waits for a signal before it calls it missing.
const patience = 60 * time.Second

// fakeInbox keeps deliveries in memory. The first delivery of a key becomes a run, a refused one is rejected.
type fakeInbox struct {
	arrived chan *Delivery // every stored delivery; roomy enough never to block
	mu      sync.Mutex
	fail    []error // given first, one a call; nothing is stored then
	calls   int
	stored  []*Delivery
	first   map[string]Receipt
}

func newInbox(fail ...error) *fakeInbox {
	return &fakeInbox{arrived: make(chan *Delivery, 20_000), fail: fail, first: map[string]Receipt{}}
}

func (f *fakeInbox) Accept(_ context.Context, d *Delivery) (Receipt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if len(f.fail) > 0 {
		err := f.fail[0]
		f.fail = f.fail[1:]
		return Receipt{}, err
	}
	f.stored = append(f.stored, d)
	f.arrived <- d
	r := Receipt{Delivery: numbered(1, len(f.stored)), Fate: "run", Run: numbered(2, len(f.stored))}
	before, known := f.first[d.Trigger+"\x00"+d.Key]
	switch {
	case d.Refused != nil:
		return Receipt{Delivery: r.Delivery, Fate: "rejected", Code: d.Refused.Code, Reason: d.Refused.Reason}, nil
	case known:
		return Receipt{Delivery: r.Delivery, Fate: "duplicate", Run: before.Run, DuplicateOf: before.Delivery}, nil
	}
	f.first[d.Trigger+"\x00"+d.Key] = r
	return r, nil
}

func (f *fakeInbox) all() []*Delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stored)
}

func numbered(kind byte, n int) (id events.ID) {
	id[0] = kind
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// next waits for the next stored delivery.
func (f *fakeInbox) next(tb testing.TB) *Delivery {
	tb.Helper()
	return receive(tb, f.arrived)
}

func receive[T any](tb testing.TB, from <-chan T) T {
	tb.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(tb, "the signal did not come")
		panic("unreachable")
	}
}

// fakeClock stands still until it is moved.
type fakeClock struct {
	mu sync.Mutex
	at time.Time
}

func clockAt(unix int64) *fakeClock { return &fakeClock{at: time.Unix(unix, 0)} }

func (c *fakeClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// fakeSealer reads a file whole; the content is found again by its digest.
type fakeSealer struct {
	reads   atomic.Int64
	before  func(f *os.File) error // called first when set
	mu      sync.Mutex
	content map[events.Digest][]byte
}

func (s *fakeSealer) Seal(_ context.Context, f *os.File) (events.Digest, int64, error) {
	s.reads.Add(1)
	if s.before != nil {
		if err := s.before(f); err != nil {
			return events.Digest{}, 0, err
		}
	}
	b, err := io.ReadAll(f)
	digest := events.DigestOf(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	added := map[events.Digest][]byte{digest: b}
	if s.content == nil {
		s.content = added
	}
	maps.Copy(s.content, added)
	return digest, int64(len(b)), err
}

func testdata(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", filepath.FromSlash(name)))
	require.NoError(tb, err)
	return b
}
