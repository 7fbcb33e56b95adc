package sqlite_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// TestRowOfAnotherShapeIsCorrupt puts values into a row that no commit writes.
func TestRowOfAnotherShapeIsCorrupt(t *testing.T) {
	t.Parallel()
	for _, change := range []string{`topic = 0`, `topic = 256`, `topic = 1.5`, `seq = 'first'`, `time = 'now'`, `stream = x'01'`, `id = 'sixteen letters.'`,
		`cause = x'01'`, `prev = 7`, `data = 'text'`, `data = x'00'`} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := open(t, dir, sqlite.Options{})
			run := fill(t, s, 1)[0]
			db := raw(t, filepath.Join(dir, sqlite.FileName))
			for _, statement := range []string{`DROP TRIGGER events_stay`, `UPDATE events SET ` + change + ` WHERE seq = 3`} {
				_, err := db.Exec(statement)
				must(t, err)
			}
			if n, err := s.Scan(t.Context(), 0, make([]storage.Record, 10)); n != 0 || !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("scan: %d events, %v", n, err)
			}
			log, err := s.Events(t.Context(), run, 1, 10)
			if change == `stream = x'01'` || change == `seq = 'first'` {
				return // no longer of the run, or not after any sequence
			}
			if log != nil || !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("events: %d, %v", len(log), err)
			}
		})
	}
}
