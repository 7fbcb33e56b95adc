package sqlite_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

// variety stores something of every kind: half of it ends in the file, half in the write-ahead log.
func variety(t *testing.T, s *sqlite.Store) {
	t.Helper()
	for i := range 2 {
		m := &storetest.Maker{Salt: uint32(i)}
		g, plan := storetest.Plan(fmt.Sprint("p", i), 3)
		for n := range 9 {
			row, b := m.Delivery(events.DeliveryReceived, events.Data{Pipeline: "p", Kind: "webhook", Trigger: "x", Key: fmt.Sprint(i, n), Body: []byte("body")})
			f := m.Begin(g, plan, row.ID)
			if n%3 > 0 {
				f.Decide()
				f.Report(0, events.StageCompleted)
			}
			if n%3 > 1 {
				f.Finish()
			}
			run := f.Take()
			run.Events, run.Deliveries = append(b.Events, run.Events...), b.Deliveries
			run.Messages = []storage.Outgoing{{Topic: fmt.Sprint("topic", n%2), Message: message.NewMessage(fmt.Sprint(n), []byte("payload"))}}
			run.Cursors = []storage.Cursor{{Topic: "topic", Group: "g", Position: int64(n)}}
			run.Parked = []storage.ParkedRow{{Event: m.ID(), Stream: row.ID, Handler: "h", Reason: "why", At: 1}}
			must(t, s.Commit(run))
		}
		if i == 0 {
			must(t, s.Checkpoint())
		}
	}
}

// messages reads the messages that are no events, past the store.
func messages(t *testing.T, dir string) (text string, err error) {
	t.Helper()
	db := raw(t, "file:"+filepath.Join(dir, sqlite.FileName)+"?mode=ro")
	defer db.Close()
	rows, err := db.Query(`SELECT position, name, e.id, time, data, metadata FROM events e JOIN topics t ON t.id = e.topic ORDER BY position`)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var position, name, id, at, data, metadata string
		if err := rows.Scan(&position, &name, &id, &at, &data, &metadata); err != nil {
			return "", err
		}
		text += fmt.Sprintf("%s %s %s %s %s %s\n", position, name, id, at, data, metadata)
	}
	return text, rows.Err()
}

// TestFlippedByteIsNamedOrHarmless spoils one byte of a copy, again and again: somebody names it, or all that can be
// read is as it was. APOLLO_FLIP_SEED repeats a test that failed.
func TestFlippedByteIsNamedOrHarmless(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("APOLLO_FLIP_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	t.Logf("seed %d", seed)
	live, from, clean := t.TempDir(), t.TempDir(), t.TempDir()
	variety(t, open(t, live, sqlite.Options{}))
	copyStore(t, live, from) // a live store moves its log into the file
	copyStore(t, from, clean)
	log, err := messages(t, clean)
	must(t, err)
	want := dump(t, open(t, clean, sqlite.Options{})) + log
	random := rand.New(rand.NewPCG(seed, 0))
	named := 0
	for range 300 {
		name, dir := sqlite.FileName, t.TempDir()
		if random.IntN(2) == 0 {
			name += "-wal"
		}
		copyStore(t, from, dir)
		b, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		at, mask := random.IntN(len(b)), byte(1+random.IntN(255))
		b[at] ^= mask
		must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
		have, problem := read(t, dir)
		switch {
		case problem != "":
			named++
		case have != want:
			t.Errorf("seed %d: byte %d of %s, xor %#x: silently wrong", seed, at, name, mask)
		}
		must(t, os.RemoveAll(dir))
	}
	t.Logf("%d of 300 were named, the others are harmless", named)
}

// read reads a store in every way; problem is the first thing that names the damage.
func read(t *testing.T, dir string) (all, problem string) {
	t.Helper()
	var said bytes.Buffer
	s, err := sqlite.Open(dir, sqlite.Options{Logger: zerolog.New(&said)})
	if err != nil {
		return "", err.Error()
	}
	defer s.Close()
	if strings.Contains(said.String(), "E_STORE_WAL") {
		return "", said.String()
	}
	if err := s.Check(t.Context(), func(p storage.Problem) { problem = fmt.Sprint(p) }); err != nil {
		return "", err.Error()
	}
	if problem != "" {
		return "", problem
	}
	all, err = tryDump(s)
	if err != nil {
		return "", err.Error()
	}
	log, err := messages(t, dir)
	if err != nil {
		return "", err.Error()
	}
	return all + log, ""
}
