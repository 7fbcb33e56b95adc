package bench

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/mattn/go-sqlite3" // the limit is taken with the driver that the product uses
)

// commitLimit is S1: bare single-row transactions on SQLite with synchronous=FULL.
type commitLimit struct {
	perSecond float64
	times     times
}

const limitPayload = 120 // bytes a row

// measureCommits runs bare transactions for the duration on a fresh file in dir.
func measureCommits(dir string, d time.Duration) (commitLimit, error) {
	path := filepath.Join(dir, fmt.Sprintf("limit-%d.db", time.Now().UnixNano()))
	defer removeDatabase(path)
	db, err := sql.Open("sqlite3", "file:"+url.PathEscape(path)+"?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_txlock=immediate")
	if err != nil {
		return commitLimit{}, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE event(id INTEGER PRIMARY KEY, run_id INT, seq INT, kind INT, at INT, payload BLOB, UNIQUE(run_id, seq))`); err != nil {
		return commitLimit{}, fmt.Errorf("commit limit: %w", err)
	}
	insert, err := db.Prepare(`INSERT INTO event(run_id, seq, kind, at, payload) VALUES(?,?,?,?,?)`)
	if err != nil {
		return commitLimit{}, fmt.Errorf("commit limit: %w", err)
	}
	defer insert.Close()
	payload := make([]byte, limitPayload)
	var l commitLimit
	begin := time.Now()
	for i := 0; time.Since(begin) < d; i++ {
		t := time.Now()
		if _, err := insert.Exec(i/20, i%20, 1, t.UnixNano(), payload); err != nil {
			return l, fmt.Errorf("commit limit: %w", err)
		}
		l.times = append(l.times, time.Since(t))
	}
	l.perSecond = float64(len(l.times)) / time.Since(begin).Seconds()
	return l, nil
}

func removeDatabase(path string) {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(path + suffix)
	}
}

// execLimit is X: bare os/exec of sh -c true.
type execLimit struct {
	one       times   // one at a time
	perSecond float64 // two at a time
}

func measureExec(ctx context.Context, d time.Duration) (execLimit, error) {
	var l execLimit
	for begin := time.Now(); time.Since(begin) < d/2; {
		t := time.Now()
		if err := exec.CommandContext(ctx, "sh", "-c", "true").Run(); err != nil {
			return l, fmt.Errorf("exec limit: %w", err)
		}
		l.one = append(l.one, time.Since(t))
	}
	var n atomic.Int64
	var failed atomic.Pointer[error]
	var pair sync.WaitGroup
	begin := time.Now()
	for range 2 {
		pair.Go(func() {
			for time.Since(begin) < d/2 {
				if err := exec.CommandContext(ctx, "sh", "-c", "true").Run(); err != nil {
					failed.Store(&err)
					return
				}
				n.Add(1)
			}
		})
	}
	pair.Wait()
	if err := failed.Load(); err != nil {
		return l, fmt.Errorf("exec limit: %w", *err)
	}
	l.perSecond = float64(n.Load()) / time.Since(begin).Seconds()
	return l, nil
}

// measureScan is the bare ordered scan: rows a second of the events table of a store, every column read.
func measureScan(path string) (rowsPerSecond float64, rows int, err error) {
	db, err := sql.Open("sqlite3", "file:"+url.PathEscape(path)+"?mode=ro&_query_only=1")
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	begin := time.Now()
	cursor, err := db.Query(`SELECT position, topic, stream, seq, id, time, cause, prev, data FROM events ORDER BY position`)
	if err != nil {
		return 0, 0, fmt.Errorf("scan limit: %w", err)
	}
	defer cursor.Close()
	var numbers [4]int64
	var blobs [5]sql.RawBytes
	for cursor.Next() {
		if err := cursor.Scan(&numbers[0], &numbers[1], &blobs[0], &numbers[2], &blobs[1], &numbers[3], &blobs[2], &blobs[3], &blobs[4]); err != nil {
			return 0, 0, fmt.Errorf("scan limit: %w", err)
		}
		rows++
	}
	if err := cursor.Err(); err != nil {
		return 0, 0, fmt.Errorf("scan limit: %w", err)
	}
	return float64(rows) / time.Since(begin).Seconds(), rows, nil
}
