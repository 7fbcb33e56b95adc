package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/mattn/go-sqlite3"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

const eventColumns = `topic, stream, seq, id, time, cause, prev, data`

// Events gives a stream's events after a sequence, in order.
func (s *reads) Events(ctx context.Context, stream events.ID, after uint64, limit int) (log []storage.Sealed, err error) {
	err = s.rows(ctx, `SELECT `+eventColumns+` FROM events WHERE stream = ? AND seq > ? ORDER BY seq LIMIT ?`, func(row []driver.Value) error {
		var e storage.Sealed
		if err := readEvent(row, &e); err != nil {
			return err
		}
		log = append(log, e)
		return nil
	}, stream[:], int64(after), int64(limit)) //nolint:gosec // small
	if err != nil {
		return nil, fmt.Errorf("read events of %s: %w", stream, err)
	}
	return log, nil
}

// Scan fills a page with the events of all streams after a position, in order. Messages that are no Apollo events are
// passed over.
func (s *reads) Scan(ctx context.Context, after int64, page []storage.Record) (n int, err error) {
	err = s.rows(ctx, `SELECT `+eventColumns+`, position FROM events WHERE position > ? AND topic < 1000 ORDER BY position LIMIT ?`, func(row []driver.Value) error {
		r := &page[n]
		r.Position, _ = row[len(row)-1].(int64) // the row's own number
		n++
		return readEvent(row, &r.Sealed)
	}, after, int64(len(page)))
	if err != nil {
		return 0, fmt.Errorf("scan log after %d: %w", after, err)
	}
	return n, nil
}

// rows walks the rows of a query without database/sql, which costs more than the row itself. Bytes in a row are the
// callee's to keep, the row is not.
func (s *reads) rows(ctx context.Context, query string, each func(row []driver.Value) error, args ...driver.Value) error {
	named := make([]driver.NamedValue, len(args))
	for i, v := range args {
		named[i] = driver.NamedValue{Ordinal: i + 1, Value: v}
	}
	return damage(s.bare(ctx, func(conn *sqlite3.SQLiteConn) error {
		rows, err := conn.QueryContext(ctx, query, named)
		if err != nil {
			return err
		}
		row := make([]driver.Value, len(rows.Columns()))
		for err = rows.Next(row); err == nil; err = rows.Next(row) {
			if err = each(row); err != nil {
				break
			}
		}
		return errors.Join(ignore(err, io.EOF), rows.Close())
	}))
}

// pool lends any connection of a pool.
func pool(db *sql.DB) func(context.Context, func(*sqlite3.SQLiteConn) error) error {
	return func(ctx context.Context, read func(*sqlite3.SQLiteConn) error) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		return errors.Join(lend(conn, read), conn.Close())
	}
}

// lend gives the driver's connection for the time of a read.
func lend(conn *sql.Conn, read func(*sqlite3.SQLiteConn) error) error {
	return conn.Raw(func(c any) error {
		bare, ok := c.(*sqlite3.SQLiteConn)
		if !ok {
			return fmt.Errorf("driver gave a %T", c)
		}
		return read(bare)
	})
}

// readEvent reads one row, whatever e held before.
func readEvent(row []driver.Value, e *storage.Sealed) error {
	topic, _ := row[0].(int64)
	seq, numbered := row[2].(int64)
	at, timed := row[4].(int64)
	data, encoded := row[7].([]byte)
	fixed := blobInto(e.Stream[:], row[1]) && blobInto(e.ID[:], row[3]) && blobInto(e.Cause[:], row[5]) && blobInto(e.Prev[:], row[6])
	if !numbered || !timed || !encoded || !fixed || topic < 1 || topic > 255 {
		return fmt.Errorf("%w: event row with fields of the wrong size", storage.ErrCorrupt)
	}
	e.Type, e.Sequence, e.Time, e.Encoded = events.Type(topic), uint64(seq), at, data //nolint:gosec // checked by the hash chain
	if err := e.Data.Decode(e.Encoded); err != nil {
		return fmt.Errorf("%w: event %s: %w", storage.ErrCorrupt, e.ID, err)
	}
	return nil
}

func blobInto(to []byte, from driver.Value) bool {
	b, isBlob := from.([]byte)
	return (isBlob || from == nil) && copyInto(to, b)
}

// copyInto fills an id or digest; nothing is zero.
func copyInto(to, from []byte) bool {
	if len(from) != 0 && len(from) != len(to) {
		return false
	}
	clear(to[copy(to, from):])
	return true
}
