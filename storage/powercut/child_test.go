package powercut_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// children are what this test binary does instead of testing, with the recorder below it.
var children = map[string]func(dir string) error{"commit": commitRuns, "failing": commitUntilFailure}

func TestMain(m *testing.M) {
	if child := children[os.Getenv("POWERCUT_CHILD")]; child != nil {
		if err := child(os.Getenv("POWERCUT_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rounds are how often the child opens and closes the store: a close moves the write-ahead log into the file.
const rounds, runsPerRound = 2, 4

func commitRuns(dir string) error {
	for range rounds {
		s, err := sqlite.Open(dir, sqlite.Options{})
		if err != nil {
			return err
		}
		for range runsPerRound {
			if err := commitRun(s); err != nil {
				return errors.Join(err, s.Close())
			}
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// commitUntilFailure goes on until the store refuses, and holds that it refuses everything from then on.
func commitUntilFailure(dir string) error {
	fatal := 0
	s, err := sqlite.Open(dir, sqlite.Options{OnFatal: func(error) { fatal++ }})
	if err != nil {
		return err
	}
	for range 1000 {
		if err = commitRun(s); err != nil {
			break
		}
	}
	if !errors.Is(err, storage.ErrFsync) {
		return fmt.Errorf("after a failed fsync: %w, want E_STORE_FSYNC", err)
	}
	for range 3 {
		if err := commitRun(s); !errors.Is(err, storage.ErrFsync) {
			return fmt.Errorf("a commit after the failure: %w, want E_STORE_FSYNC", err)
		}
	}
	if fatal != 1 {
		return fmt.Errorf("the process was told %d times to stop", fatal)
	}
	_ = s.Close()
	return nil
}

// commitRun stores a delivery and its run of one stage in three batches, and marks each as acknowledged.
func commitRun(s *sqlite.Store) error {
	plan := &events.Plan{Schema: events.PlanSchema, Pipeline: "powercut", Stages: []events.Stage{{Name: "work", Executor: "task"}}}
	encoded, err := plan.Encode()
	if err != nil {
		return err
	}
	g, err := events.NewGraph(plan, events.DigestOf(encoded))
	if err != nil {
		return err
	}
	w := &writing{store: s, run: events.NewRun(g), id: newID()}
	delivery, chain := newID(), events.Chain{}
	received := &events.Event{Stream: delivery, Type: events.DeliveryReceived, Data: events.Data{Kind: "manual", Trigger: "manual",
		Pipeline: "powercut", Run: w.id, Body: bytes.Repeat([]byte{'x'}, 6000)}} // more than a page
	w.seal(&chain, received)
	var row storage.DeliveryRow
	row.Project(received, chain.Head)
	w.batch.Deliveries = append(w.batch.Deliveries, row)
	w.batch.Plans = append(w.batch.Plans, storage.PlanRow{Digest: g.Digest, Pipeline: plan.Pipeline, Bytes: encoded})
	for _, batch := range [][]events.Event{
		{{Type: events.RunCreated, Cause: received.ID, Data: events.Data{Pipeline: "powercut", Plan: g.Digest, Kind: "manual", Trigger: "manual", Delivery: delivery}}, {Type: events.RunStarted}},
		{{Type: events.StageStarted, Data: events.Data{Stage: "work", Attempt: 1, Worker: "w"}}},
		{{Type: events.StageCompleted, Data: events.Data{Stage: "work", Attempt: 1, Token: 3}}, {Type: events.RunCompleted}},
	} {
		for i := range batch {
			if err := w.append(&batch[i]); err != nil {
				return err
			}
		}
		if err := w.commit(); err != nil {
			return err
		}
	}
	return nil
}

func newID() events.ID { return events.ID(uuid.Must(uuid.NewV7())) }

// writing is a run on its way into the store.
type writing struct {
	store *sqlite.Store
	run   *events.Run
	id    events.ID
	batch storage.Batch
	clock int64
}

func (w *writing) seal(c *events.Chain, e *events.Event) {
	w.clock++
	e.ID, e.Time = newID(), w.clock
	encoded := e.Data.AppendEncoded(nil)
	c.Seal(e, encoded, nil)
	w.batch.Events = append(w.batch.Events, storage.Sealed{Event: *e, Encoded: encoded})
}

func (w *writing) append(e *events.Event) error {
	e.Stream = w.id
	w.seal(&w.run.Chain, e)
	return w.run.Apply(e)
}

// commit stores the batch and marks its events as acknowledged, in the recorder's own log.
func (w *writing) commit() error {
	w.batch.Runs = append(w.batch.Runs, storage.RunRowOf(w.run))
	if last := w.batch.Events[len(w.batch.Events)-1].Type; last != events.RunStarted {
		w.batch.Stages = append(w.batch.Stages, storage.StageRowOf(w.run, 0))
	}
	if err := w.store.Commit(&w.batch); err != nil {
		return err
	}
	var ids []byte
	for i := range w.batch.Events {
		ids = append(ids, w.batch.Events[i].ID[:]...)
	}
	w.batch = storage.Batch{}
	return mark(ids)
}

// The operations of the log; all but the last come from the recorder.
const (
	opWrite = iota + 1
	opTruncate
	opSync
	opUnlink
	opAcknowledged
)

// mark appends the ids of acknowledged events to the log.
func mark(ids []byte) error {
	fd, err := strconv.Atoi(os.Getenv("POWERCUT_MARKS"))
	if err != nil {
		return err
	}
	var b []byte
	b = binary.NativeEndian.AppendUint32(b, opAcknowledged)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint64(b, 0)
	b = binary.NativeEndian.AppendUint64(b, uint64(len(ids)))
	_, err = syscall.Write(fd, append(b, ids...)) // an os.File would close the descriptor when it is collected
	return err
}

// operation is one record of the log.
type operation struct {
	op     uint32
	path   string
	offset int64
	data   []byte
}

func readLog(t *testing.T, path string) (log []operation) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const head = 24
	for len(b) >= head {
		o := operation{op: binary.NativeEndian.Uint32(b), offset: int64(binary.NativeEndian.Uint64(b[8:]))}
		paths, data := int(binary.NativeEndian.Uint32(b[4:])), int(binary.NativeEndian.Uint64(b[16:]))
		o.path, o.data = string(b[head:head+paths]), slices.Clone(b[head+paths:head+paths+data])
		log, b = append(log, o), b[head+paths+data:]
	}
	if len(b) > 0 {
		t.Fatalf("%d bytes after the last record", len(b))
	}
	return log
}
