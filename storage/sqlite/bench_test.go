package sqlite_test

import (
	"path/filepath"
	"testing"

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
}

func BenchmarkScan(b *testing.B) {
	s := open(b, b.TempDir(), sqlite.Options{})
	fill(b, s, 500)
	n := 0
	for b.Loop() {
		for after := int64(0); ; {
			log, err := s.Scan(b.Context(), after, 1000)
			must(b, err)
			if len(log) == 0 {
				break
			}
			n, after = n+len(log), log[len(log)-1].Position
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}
