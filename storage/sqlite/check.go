package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/apollo-11/apollo/storage"
)

// Check is fsck: SQLite's own check of the file, then the log by itself (hash chains, plans, what may follow what), then
// the rows against the log. Every problem is reported with its place.
// It sees the log and the rows as they are when it begins.
func (s *Store) Check(ctx context.Context, report func(storage.Problem)) error {
	if s.warning != "" {
		report(storage.Problem{Code: "E_STORE_WAL", Place: s.path + "-wal", What: s.warning})
	}
	if err := intact(s.path); err != nil {
		report(storage.Problem{Code: "E_STORE_CORRUPT", Place: s.path, What: err.Error()})
	}
	return s.snapshot(ctx, func(view *reads) error {
		s.checkLog(ctx, newRebuild(s, view, false), report)
		return nil
	})
}

func (s *Store) checkLog(ctx context.Context, b *rebuild, report func(storage.Problem)) {
	err := b.walk(ctx, func(position int64, err error) {
		code := "E_INVARIANT"
		if errors.Is(err, storage.ErrCorrupt) {
			code = "E_STORE_CORRUPT"
		}
		report(storage.Problem{Code: code, Place: fmt.Sprintf("events position %d", position), What: err.Error()})
	})
	if err == nil {
		err = b.extra(ctx)
	}
	err = errors.Join(err, b.view.sums(ctx, report))
	if err != nil {
		report(storage.Problem{Code: "E_STORE_CORRUPT", Place: s.path, What: err.Error()})
	}
	for _, d := range b.differences {
		report(storage.Problem{Code: "E_STORE_ROW", Place: d.Table + " " + d.Key, What: "is " + d.Live + ", the log says " + d.FromTheLog})
	}
}
