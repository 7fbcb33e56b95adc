package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"

	"github.com/mattn/go-sqlite3"

	"github.com/apollo-11/apollo/storage"
)

// table is how rows of one kind are written. Most of the cost of a small row is that of its statement, so rows go in
// many to a statement.
type table struct {
	insert   string // verb, table and columns
	columns  int
	conflict string // what happens when the row is there; none: the transaction is rolled back
}

// sizes are the numbers of rows that a statement takes: the few of a single step, and the many under load.
var sizes = [...]int{16, 4, 2, 1}

func (t *table) statement(rows int) string {
	values := "(?" + strings.Repeat(", ?", t.columns-1) + ")"
	return t.insert + " VALUES " + values + strings.Repeat(", "+values, rows-1) + t.conflict
}

// put writes n rows of a table. The function binds the values of one of them.
func (w *writer) put(t *table, n int, row func(i int)) error {
	for i := 0; i < n; {
		at := slices.IndexFunc(sizes[:], func(size int) bool { return size <= n-i })
		st, err := w.bulk(t, at)
		if err != nil {
			return err
		}
		w.args = w.args[:0]
		for end := i + sizes[at]; i < end; i++ {
			row(i)
		}
		if err := step(st, w.args); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) bulk(t *table, at int) (*sqlite3.SQLiteStmt, error) {
	kept := w.tables[t]
	if kept == nil {
		kept = new([len(sizes)]*sqlite3.SQLiteStmt)
		w.tables[t] = kept
	}
	if kept[at] == nil {
		st, err := compile(w.conn, t.statement(sizes[at]))
		if err != nil {
			return nil, err
		}
		kept[at] = st
	}
	return kept[at], nil
}

// bind gives the next arguments of a row.
func (w *writer) bind(values ...driver.Value) {
	for _, v := range values {
		w.args = append(w.args, driver.NamedValue{Ordinal: len(w.args) + 1, Value: v})
	}
}

// step executes a statement to its end. It goes by the driver's query path, which binds and steps in one call into C;
// the exec path takes a call for each argument.
func step(st *sqlite3.SQLiteStmt, args []driver.NamedValue) error {
	rows, err := st.QueryContext(context.Background(), args)
	if err != nil {
		return err
	}
	return rows.Close()
}

// run executes a statement that is kept for ever.
func (w *writer) run(query string, args ...driver.Value) error {
	st, err := w.prepare(query)
	if err != nil {
		return err
	}
	w.args = w.args[:0]
	w.bind(args...)
	return step(st, w.args)
}

func (w *writer) prepare(query string) (*sqlite3.SQLiteStmt, error) {
	if st := w.stmts[query]; st != nil {
		return st, nil
	}
	st, err := compile(w.conn, query)
	if err == nil {
		w.stmts[query] = st
	}
	return st, err
}

func compile(conn *sqlite3.SQLiteConn, query string) (*sqlite3.SQLiteStmt, error) {
	prepared, err := conn.Prepare(query)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	st, ok := prepared.(*sqlite3.SQLiteStmt)
	if !ok {
		return nil, fmt.Errorf("driver gave a %T", prepared)
	}
	return st, nil
}

// appendAll stores a batch's events at once. It takes for granted that their places are free: where one is not, the
// whole transaction is rolled back, to be done again with care.
func (w *writer) appendAll(log []storage.Sealed) error {
	for i := range log {
		if err := w.follows(&log[i]); err != nil {
			return err
		}
		w.remember(&log[i])
	}
	return w.put(&eventTable, len(log), func(i int) { w.bindEvent(&log[i]) })
}

func (w *writer) bindEvent(e *storage.Sealed) {
	w.position++
	w.bind(w.position, int64(e.Type), e.Stream[:], int64(e.Sequence), e.ID[:], e.Time, blob(e.Cause[:]), blob(e.Prev[:]), nonNil(e.Encoded), w.sum.event(&e.Event, e.Encoded)) //nolint:gosec // small
}
