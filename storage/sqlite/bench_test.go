package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

// BenchmarkBareInsert is what the disk gives: SQLite alone, one small row a transaction, FULL.
func BenchmarkBareInsert(b *testing.B) {
	db := raw(b, filepath.Join(b.TempDir(), "bare.db")+"?_journal_mode=WAL&_synchronous=FULL")
	db.SetMaxOpenConns(1)
	_, err := db.Exec(`CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)`)
	must(b, err)
	insert, err := db.Prepare(`INSERT INTO t (data) VALUES (?)`)
	must(b, err)
	b.Cleanup(func() { _ = insert.Close() })
	data := make([]byte, 100)
	for b.Loop() {
		_, err := insert.Exec(data)
		must(b, err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkCommit1(b *testing.B)   { benchmarkCommit(b, 1) }
func BenchmarkCommit100(b *testing.B) { benchmarkCommit(b, 100) }

// benchmarkCommit stores so many events a commit, each with a stage's row.
func benchmarkCommit(b *testing.B, size int) {
	b.Helper()
	s := open(b, b.TempDir(), sqlite.Options{})
	m := &storetest.Maker{}
	var c events.Chain
	stream := m.ID()
	for b.Loop() {
		var batch storage.Batch
		for range size {
			e := m.Seal(&c, &events.Event{Stream: stream, Type: events.StageStarted, Data: events.Data{Stage: "build", Attempt: 1, Worker: "w1"}})
			batch.Events = append(batch.Events, e)
			batch.Stages = append(batch.Stages, storage.StageRow{Run: stream, Index: int(e.Sequence), Stage: "build", State: events.Running, Attempt: 1, Started: e.Time})
		}
		must(b, s.Commit(&batch))
	}
	b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/stage")
}

func BenchmarkScan(b *testing.B) {
	s := open(b, b.TempDir(), sqlite.Options{})
	fill(b, s, 500)
	n, page := 0, make([]storage.Record, 1000)
	for b.Loop() {
		for after := int64(0); ; {
			read, err := s.Scan(b.Context(), after, page)
			must(b, err)
			if read == 0 {
				break
			}
			n, after = n+read, page[read-1].Position
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkHops stores what the engine stores: 512 runs of five stages in flight, 128 of them a stage further in each
// commit. It reports the time within Commit alone.
func BenchmarkHops(b *testing.B) {
	const flight, unit, stages = 512, 128, 5
	s := open(b, b.TempDir(), sqlite.Options{})
	m := &storetest.Maker{}
	type flow struct {
		run, delivery events.ID
		chain         events.Chain
		at            int
	}
	flows := make([]flow, flight)
	next := 0
	var spent time.Duration
	for b.Loop() {
		var batch storage.Batch
		for range unit {
			f := &flows[next%flight]
			next++
			emit := func(t events.Type, d events.Data) *storage.Sealed {
				batch.Events = append(batch.Events, m.Seal(&f.chain, &events.Event{Stream: f.run, Type: t, Data: d}))
				return &batch.Events[len(batch.Events)-1]
			}
			row := func(state events.State, e *storage.Sealed) {
				r := storage.RunRow{ID: f.run, Pipeline: "chain", State: state, Sequence: e.Sequence, Head: f.chain.Head, Delivery: f.delivery, Kind: "manual", Created: e.Time, Started: e.Time}
				if state.Terminal() {
					r.Ended = e.Time
				}
				batch.Runs = append(batch.Runs, r)
			}
			if f.at == 0 {
				*f = flow{run: m.ID(), delivery: m.ID()}
				var c events.Chain
				e := m.Seal(&c, &events.Event{Stream: f.delivery, Type: events.DeliveryReceived, Data: events.Data{Kind: "manual", Pipeline: "chain", Key: f.run.String(), Run: f.run, Params: []byte(`{"n":1}`)}})
				var d storage.DeliveryRow
				d.Project(&e.Event, c.Head)
				batch.Events, batch.Deliveries = append(batch.Events, e), append(batch.Deliveries, d)
				emit(events.RunCreated, events.Data{Pipeline: "chain", Kind: "manual", Delivery: f.delivery, Params: []byte(`{"n":1}`)})
				row(events.Running, emit(events.RunStarted, events.Data{}))
			} else {
				e := emit(events.StageCompleted, events.Data{Stage: "s0000", Attempt: 1, Token: 3, Duration: 12345})
				batch.Stages = append(batch.Stages, storage.StageRow{Run: f.run, Index: f.at - 1, Stage: "s0000", State: events.Completed, Attempt: 1, Started: e.Time, Ended: e.Time})
			}
			if f.at == stages {
				row(events.Completed, emit(events.RunCompleted, events.Data{}))
				f.at = 0
				continue
			}
			e := emit(events.StageStarted, events.Data{Stage: "s0000", Attempt: 1, Worker: "engine", Token: 3})
			batch.Stages = append(batch.Stages, storage.StageRow{Run: f.run, Index: f.at, Stage: "s0000", State: events.Running, Attempt: 1, Started: e.Time})
			f.at++
		}
		begin := time.Now()
		must(b, s.Commit(&batch))
		spent += time.Since(begin)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*unit*stages/(stages+1)), "ns/stage")
}
