package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/mattn/go-sqlite3"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// reads are the queries, on the pool or within one transaction.
type reads struct {
	q    querier
	bare func(ctx context.Context, read func(*sqlite3.SQLiteConn) error) error // lends a connection of the same
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Plan gives a plan's canonical bytes.
func (s *reads) Plan(ctx context.Context, digest events.Digest) ([]byte, error) {
	var b []byte
	err := s.q.QueryRowContext(ctx, `SELECT bytes FROM plans WHERE digest = ?`, digest[:]).Scan(&b)
	return b, missing(err, "plan", digest)
}

func missing(err error, what string, key fmt.Stringer) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%s %s: %w", what, key, storage.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("read %s %s: %w", what, key, damage(err))
	}
	return nil
}

const runColumns = `id, pipeline, plan, state, seq, head, delivery, forked, sample, kind, created, started, ended, stage, class, reason, waits, parent, imported, pruned, verified, findings`

type scanner interface{ Scan(to ...any) error }

// column reads a nullable column into a plain value: NULL is the zero value.
type column[T any] struct{ to *T }

// Scan implements sql.Scanner.
func (c column[T]) Scan(from any) error {
	var n sql.Null[T]
	if err := n.Scan(from); err != nil {
		return err
	}
	*c.to = n.V
	return nil
}

func nullable[T any](to *T) column[T] { return column[T]{to} }

// fixed reads an id or digest of a set length; NULL is zero.
type fixed []byte

// Scan implements sql.Scanner.
func (f fixed) Scan(from any) error {
	b, _ := from.([]byte)
	if !copyInto(f, b) {
		return fmt.Errorf("%w: %d bytes where %d are due", storage.ErrCorrupt, len(b), len(f))
	}
	return nil
}

func scanRun(row scanner) (r storage.RunRow, err error) {
	err = row.Scan(fixed(r.ID[:]), &r.Pipeline, fixed(r.Plan[:]), &r.State, &r.Sequence, fixed(r.Head[:]), fixed(r.Delivery[:]), fixed(r.Forked[:]),
		nullable(&r.Sample), nullable(&r.Kind), &r.Created, nullable(&r.Started), nullable(&r.Ended), nullable(&r.Stage), nullable((*string)(&r.Class)), nullable(&r.Reason),
		nullable(&r.Waits), fixed(r.Parent[:]), nullable(&r.Imported), nullable(&r.Pruned), nullable(&r.Verified), nullable(&r.Findings))
	return r, err
}

// Run gives a run's row.
func (s *reads) Run(ctx context.Context, id events.ID) (storage.RunRow, error) {
	r, err := scanRun(s.q.QueryRowContext(ctx, `SELECT `+runColumns+` FROM runs WHERE id = ?`, id[:]))
	return r, missing(err, "run", id)
}

// Result gives the first result that was recorded for a stage key, unless its run was pruned or imported.
func (s *reads) Result(ctx context.Context, key events.Digest) (storage.ResultRow, error) {
	r := storage.ResultRow{Key: key}
	err := s.q.QueryRowContext(ctx, `SELECT run, seq FROM results WHERE key = ? AND NOT `+ofPruned, key[:]).Scan(fixed(r.Run[:]), &r.Sequence)
	return r, missing(err, "result", key)
}

// list reads the rows of a query.
func list[T any](ctx context.Context, s *reads, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := s.q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list: %w", damage(err))
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("list: %w", damage(err))
		}
		all = append(all, one)
	}
	return all, damage(rows.Err())
}

// where joins conditions that hold.
type where struct {
	terms []string
	args  []any
}

func (w *where) add(holds bool, term string, arg any) {
	if holds {
		w.terms, w.args = append(w.terms, term), append(w.args, arg)
	}
}

func (w *where) String() string {
	if len(w.terms) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.terms, " AND ")
}

func limitOf(p storage.Page) int {
	if p.Limit <= 0 {
		return 50
	}
	return p.Limit
}

// Runs lists runs, newest first.
func (s *reads) Runs(ctx context.Context, f storage.RunFilter) ([]storage.RunRow, error) {
	query, args := runsQuery(f)
	return list(ctx, s, scanRun, query, args...)
}

// runsQuery looks for what has ended and for what has not in an index of their own, so that a filter costs no scan. The
// conditions of the indexes stand in the text: SQLite must see them.
func runsQuery(f storage.RunFilter) (query string, args []any) {
	const order = ` ORDER BY id DESC LIMIT ?`
	halves := []string{"true"}
	switch {
	case f.State == events.None && f.Pipeline != "":
		halves = []string{"state <= 2", "state >= 3"}
	case f.State > events.Completed && f.Pipeline == "":
		halves = []string{fmt.Sprintf("state > 3 AND state = %d", f.State)}
	case f.State.Terminal():
		halves = []string{fmt.Sprintf("state >= 3 AND state = %d", f.State)}
	case f.State != events.None:
		halves = []string{fmt.Sprintf("state <= 2 AND state = %d", f.State)}
	}
	parts := make([]string, len(halves))
	for i, half := range halves {
		w := where{terms: []string{half}}
		w.add(f.Pipeline != "", "pipeline = ?", f.Pipeline)
		w.add(!f.After.IsZero(), "id < ?", f.After[:])
		parts[i] = `SELECT ` + runColumns + ` FROM (SELECT ` + runColumns + ` FROM runs` + w.String() + order + `)`
		args = append(append(args, w.args...), limitOf(f.Page))
	}
	return strings.Join(parts, ` UNION ALL `) + order, append(args, limitOf(f.Page))
}

// Unfinished lists pending and running runs, oldest first.
func (s *reads) Unfinished(ctx context.Context, p storage.Page) ([]storage.RunRow, error) {
	return list(ctx, s, scanRun, `SELECT `+runColumns+` FROM runs WHERE state <= 2 AND id > ? ORDER BY id LIMIT ?`, p.After[:], limitOf(p))
}

// FindRuns gives the ids whose text form begins with the prefix, in small or capital letters, newest first.
func (s *reads) FindRuns(ctx context.Context, prefix string, limit int) ([]events.ID, error) {
	const form = "00000000-0000-0000-0000-000000000000"
	if len(prefix) > len(form) {
		return nil, nil
	}
	for i, c := range strings.ToUpper(prefix) {
		if dash := form[i] == '-'; dash != (c == '-') || !dash && !strings.ContainsRune("0123456789ABCDEF", c) {
			return nil, nil
		}
	}
	digits := strings.ReplaceAll(prefix, "-", "")
	return list(ctx, s, func(row scanner) (id events.ID, err error) {
		err = row.Scan(fixed(id[:]))
		return id, err
	}, `SELECT id FROM runs WHERE id >= unhex(?) AND id <= unhex(?) ORDER BY id DESC LIMIT ?`,
		digits+strings.Repeat("0", 32-len(digits)), digits+strings.Repeat("F", 32-len(digits)), limit)
}

// Stages lists a run's stages in the plan's order.
func (s *reads) Stages(ctx context.Context, run events.ID) ([]storage.StageRow, error) {
	return list(ctx, s, func(row scanner) (r storage.StageRow, err error) {
		err = row.Scan(fixed(r.Run[:]), &r.Index, &r.Stage, &r.State, &r.Attempt, nullable(&r.Waits), nullable(&r.Started), nullable(&r.Ended),
			nullable(&r.Due), nullable((*string)(&r.Class)), nullable(&r.Reason), nullable(&r.Item))
		return r, err
	}, `SELECT run, idx, stage, state, attempt, waits, started, ended, due, class, reason, item FROM stages WHERE run = ? ORDER BY idx`, run[:])
}

const deliveryColumns = `id, kind, trigger, pipeline, key, keyhash, received, fate, run, first, code, reason, seq, head`

func scanDelivery(row scanner) (d storage.DeliveryRow, err error) {
	err = row.Scan(fixed(d.ID[:]), &d.Kind, &d.Trigger, &d.Pipeline, nullable(&d.Key), fixed(d.KeyHash[:]), &d.Received, &d.Fate, fixed(d.Run[:]),
		fixed(d.First[:]), nullable(&d.Code), nullable(&d.Reason), &d.Sequence, fixed(d.Head[:]))
	return d, err
}

// Delivery gives a delivery's row.
func (s *reads) Delivery(ctx context.Context, id events.ID) (storage.DeliveryRow, error) {
	d, err := scanDelivery(s.q.QueryRowContext(ctx, `SELECT `+deliveryColumns+` FROM deliveries WHERE id = ?`, id[:]))
	return d, missing(err, "delivery", id)
}

// Deliveries lists deliveries, newest first.
func (s *reads) Deliveries(ctx context.Context, f storage.DeliveryFilter) ([]storage.DeliveryRow, error) {
	var w where
	w.add(f.Pipeline != "", "pipeline = ?", f.Pipeline)
	w.add(f.Fate != "", "fate = ?", f.Fate)
	w.add(!f.After.IsZero(), "id < ?", f.After[:])
	return list(ctx, s, scanDelivery, `SELECT `+deliveryColumns+` FROM deliveries`+w.String()+` ORDER BY id DESC LIMIT ?`, append(w.args, limitOf(f.Page))...)
}

// Parked lists the events that were set aside.
func (s *reads) Parked(ctx context.Context) ([]storage.ParkedRow, error) {
	return list(ctx, s, func(row scanner) (p storage.ParkedRow, err error) {
		err = row.Scan(fixed(p.Event[:]), fixed(p.Stream[:]), &p.Handler, &p.Reason, &p.At)
		return p, err
	}, `SELECT event, stream, handler, reason, at FROM parked ORDER BY at, event`)
}

// Cursor gives how far a consumer group has come, 0 when it has not begun.
func (s *reads) Cursor(ctx context.Context, topic, group string) (position int64, err error) {
	err = s.q.QueryRowContext(ctx, `SELECT position FROM cursors WHERE topic = ? AND grp = ?`, topic, group).Scan(&position)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return position, damage(err)
}
