package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

func found(err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	return err
}

// mend puts rebuilt rows in the place of the live ones. They are removed first: a row that is wrong may be one that the
// table's own rules would not let move.
func (b *rebuild) mend(batch *storage.Batch) error {
	if !b.write || batch.Rows() == 0 {
		return nil
	}
	return b.s.writer.replace(&replacement{Batch: *batch})
}

// replacement is a batch of rebuilt rows, and the keys of the results that it replaces or removes.
type replacement struct {
	storage.Batch
	results []events.Digest
}

// replace is called with connLock held.
func (w *writer) replace(batch *replacement) (err error) {
	if w.fatal != nil {
		return w.fatal
	}
	if err := w.exec("BEGIN IMMEDIATE"); err != nil {
		return w.classify(err)
	}
	for i := 0; err == nil && i < len(batch.Runs); i++ {
		err = w.run(`DELETE FROM runs WHERE id = ?`, batch.Runs[i].ID[:])
	}
	for i := 0; err == nil && i < len(batch.Stages); i++ {
		err = w.run(`DELETE FROM stages WHERE run = ? AND idx = ?`, batch.Stages[i].Run[:], int64(batch.Stages[i].Index))
	}
	for i := 0; err == nil && i < len(batch.Deliveries); i++ {
		err = w.run(`DELETE FROM deliveries WHERE id = ?`, batch.Deliveries[i].ID[:])
	}
	for i := 0; err == nil && i < len(batch.results); i++ {
		err = w.run(`DELETE FROM results WHERE key = ?`, batch.results[i][:])
	}
	if err == nil {
		err = w.writeRows(&batch.Batch)
	}
	if err == nil {
		err = w.exec("COMMIT")
	}
	if err != nil && !w.conn.AutoCommit() {
		err = errors.Join(err, w.exec("ROLLBACK"))
	}
	if err != nil {
		return w.classify(err)
	}
	return nil
}

// extra finds live rows that no event accounts for.
func (b *rebuild) extra(ctx context.Context) error {
	for _, t := range []struct {
		table, orphans string
		want           int64
	}{
		{"runs", `SELECT count(*) FROM runs`, b.counts.runs},
		{"stages", `SELECT count(*) FROM stages`, b.counts.stages},
		{"deliveries", `SELECT count(*) FROM deliveries`, b.counts.deliveries},
	} {
		var have int64
		if err := b.view.q.QueryRowContext(ctx, t.orphans).Scan(&have); err != nil {
			return damage(err)
		}
		if have > t.want && len(b.differences) == 0 {
			b.differ(t.table, "*", fmt.Sprintf("%d rows", have), fmt.Sprintf("%d rows", t.want))
		}
	}
	return b.compareResults(ctx)
}
