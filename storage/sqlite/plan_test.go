package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// TestFiltersScanNoTable: every list of runs is read from an index or in the order of the table, whatever the filter is.
func TestFiltersScanNoTable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_ = open(t, dir, sqlite.Options{})
	db := raw(t, filepath.Join(dir, sqlite.FileName))
	for _, c := range []struct {
		filter storage.RunFilter
		uses   []string
	}{
		{storage.RunFilter{}, []string{"runs"}}, // in the order of its key, until the page is full
		{storage.RunFilter{Pipeline: "p"}, []string{"INDEX runs_unfinished", "INDEX runs_ended"}},
		{storage.RunFilter{State: events.Running}, []string{"INDEX runs_unfinished"}},
		{storage.RunFilter{State: events.Failed}, []string{"INDEX runs_not_completed"}},
		{storage.RunFilter{State: events.Cancelled}, []string{"INDEX runs_not_completed"}},
		{storage.RunFilter{State: events.Failed, Pipeline: "p"}, []string{"INDEX runs_ended"}},
	} {
		for _, page := range []storage.Page{{}, {After: events.ID{1}}} {
			c.filter.Page = page
			query, args := sqlite.RunsQuery(c.filter)
			plan := explain(t, db, query, args)
			for _, index := range c.uses {
				if !strings.Contains(plan, index) {
					t.Errorf("%+v does not use %q:\n%s", c.filter, index, plan)
				}
			}
		}
	}
}

// explain gives the lines of a query's plan.
func explain(t *testing.T, db *sql.DB, query string, args []any) string {
	t.Helper()
	rows, err := db.Query(`EXPLAIN QUERY PLAN `+query, args...)
	must(t, err)
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		must(t, rows.Scan(&id, &parent, &unused, &detail))
		plan.WriteString(detail + "\n")
	}
	must(t, rows.Err())
	return plan.String()
}
