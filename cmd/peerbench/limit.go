package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3" // registers "sqlite3"; modernc's driver, which DBOS brings, registers "sqlite", so the two do not clash
)

// maxDrift is how far the limit may move around a figure, as a fraction of the smaller reading, before the figure is void.
const maxDrift = 0.20

// s1Warmup is how many transactions a probe runs untimed, so that the first growth of file and WAL is not in the figure.
const s1Warmup = 100

const s1Schema = `CREATE TABLE events(
	id INTEGER PRIMARY KEY,
	run_id TEXT NOT NULL,
	seq INTEGER NOT NULL,
	kind TEXT NOT NULL,
	at INTEGER NOT NULL,
	payload BLOB NOT NULL,
	UNIQUE(run_id, seq)
)`

// limit is one reading of S1, the physical limit: durable single-row transactions on bare SQLite.
type limit struct {
	perSecond float64   // transactions per second, one connection
	times     []float64 // one transaction, ms, sorted
}

// probeLimit measures S1 for the given window in a fresh database under dir.
func probeLimit(ctx context.Context, dir string, window time.Duration) (limit, error) {
	db, err := openMattn(ctx, filepath.Join(dir, "s1.db"))
	if err != nil {
		return limit{}, err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, s1Schema); err != nil {
		return limit{}, fmt.Errorf("create S1 table: %w", err)
	}
	insert, err := db.PrepareContext(ctx, `INSERT INTO events(run_id, seq, kind, at, payload) VALUES(?, ?, ?, ?, ?)`)
	if err != nil {
		return limit{}, fmt.Errorf("prepare S1 insert: %w", err)
	}
	defer insert.Close()
	return timeInserts(ctx, insert, window)
}

// timeInserts runs the prepared insert one row a transaction until the window is over. Rows are 20 events a run with 120 B of payload.
func timeInserts(ctx context.Context, insert *sql.Stmt, window time.Duration) (limit, error) {
	payload := []byte(strings.Repeat("x", 120))
	var times []float64
	var start time.Time
	for i := 0; ; i++ {
		if i == s1Warmup {
			start = time.Now()
		}
		before := time.Now()
		if i > s1Warmup && before.Sub(start) >= window {
			slices.Sort(times)
			return limit{perSecond: float64(len(times)) / before.Sub(start).Seconds(), times: times}, nil
		}
		_, err := insert.ExecContext(ctx, fmt.Sprintf("run-%08d", i/20), i%20, "stage.completed", before.UnixNano(), payload)
		if err != nil {
			return limit{}, fmt.Errorf("insert S1 row: %w", err)
		}
		if i >= s1Warmup {
			times = append(times, milliseconds(time.Since(before)))
		}
	}
}

// requireFull refuses a store that does not promise what S1 promises: WAL and synchronous=FULL, read back on conns connections held at once.
// A library may have set its own pragmas on some connections of the pool only.
func requireFull(ctx context.Context, db *sql.DB, conns int) error {
	for range conns {
		conn, err := db.Conn(ctx)
		if err != nil {
			return fmt.Errorf("take connection: %w", err)
		}
		defer conn.Close()
		var synchronous int
		var journal string
		if err := conn.QueryRowContext(ctx, `PRAGMA synchronous`).Scan(&synchronous); err != nil {
			return fmt.Errorf("read back synchronous: %w", err)
		}
		if err := conn.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&journal); err != nil {
			return fmt.Errorf("read back journal mode: %w", err)
		}
		if synchronous != 2 || journal != "wal" {
			return fmt.Errorf("store has synchronous=%d journal_mode=%s, want 2 (FULL) and wal", synchronous, journal)
		}
	}
	return nil
}

// openMattn opens one durable connection through the driver that S1 is measured with.
func openMattn(ctx context.Context, path string) (*sql.DB, error) {
	return openFull(ctx, "sqlite3", "file:"+path+"?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_txlock=immediate", 1)
}

// openModernc opens a pool of durable connections through the pure Go driver, for the peer that takes no other.
func openModernc(ctx context.Context, path string, conns int) (*sql.DB, error) {
	return openFull(ctx, "sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"+
		"&_pragma=foreign_keys(ON)&_txlock=immediate", conns)
}

func openFull(ctx context.Context, driver, dsn string, conns int) (*sql.DB, error) {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	if err := requireFull(ctx, db, conns); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// percentile returns the nearest-rank percentile of sorted values: the smallest value that at least p (0..1] of them do not exceed.
// It is 0 for no values.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// drift returns how far two readings are apart as a fraction of the smaller; it is +Inf when a reading is not positive.
func drift(a, b float64) float64 {
	low, high := min(a, b), max(a, b)
	if low <= 0 {
		return math.Inf(1)
	}
	return high/low - 1
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
