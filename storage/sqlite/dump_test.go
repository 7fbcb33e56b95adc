package sqlite_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/storage"
)

// dump reads everything that the contract can read.
func dump(t testing.TB, s storage.Store) string {
	t.Helper()
	text, err := tryDump(s)
	must(t, err)
	return text
}

func tryDump(s storage.Store) (string, error) {
	ctx := context.Background()
	var out strings.Builder
	log := make([]storage.Record, 100)
	for after := int64(0); ; {
		n, err := s.Scan(ctx, after, log)
		if err != nil {
			return "", err
		}
		if n == 0 {
			break
		}
		for i := range n {
			after = log[i].Position
			fmt.Fprintf(&out, "%+v\n", log[i])
			if log[i].Sequence > 1 {
				continue
			}
			of, err := s.Events(ctx, log[i].Stream, 0, 1000)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&out, "%+v\n", of)
			if plan := log[i].Data.Plan; !plan.IsZero() {
				b, err := s.Plan(ctx, plan)
				if err != nil {
					return "", err
				}
				fmt.Fprintf(&out, "%s\n", b)
			}
		}
	}
	err := dumpRows(ctx, s, &out)
	return out.String(), err
}

func dumpRows(ctx context.Context, s storage.Store, out *strings.Builder) error {
	runs, err := s.Runs(ctx, storage.RunFilter{Page: storage.Page{Limit: 10000}})
	if err != nil {
		return err
	}
	for _, r := range runs {
		stages, err := s.Stages(ctx, r.ID)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%+v %+v\n", r, stages)
	}
	unfinished, err := s.Unfinished(ctx, storage.Page{Limit: 10000})
	if err != nil {
		return err
	}
	deliveries, err := s.Deliveries(ctx, storage.DeliveryFilter{Page: storage.Page{Limit: 10000}})
	if err != nil {
		return err
	}
	parked, err := s.Parked(ctx)
	if err != nil {
		return err
	}
	cursor, err := s.Cursor(ctx, "topic", "g")
	fmt.Fprintf(out, "%+v\n%+v\n%+v\n%d\n", unfinished, deliveries, parked, cursor)
	return err
}
