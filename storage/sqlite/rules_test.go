package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

// reachable closes the table over what one commit may hold: a unit of work moves a row by many events at once.
func reachable(entity string) (can [events.Skipped + 1][events.Skipped + 1]bool) {
	for s := range can {
		can[s][s] = true
	}
	for _, move := range events.Transitions() {
		if move.Event.Entity() == entity {
			can[move.From][move.To] = true
		}
	}
	if entity == "stage" { // run.resumed moves the stages of its run that have not completed
		for s := events.Pending; s <= events.Skipped; s++ {
			can[s][events.Pending] = can[s][events.Pending] || s != events.Completed
		}
	}
	for via := range can {
		for from := range can {
			for to := range can {
				can[from][to] = can[from][to] || can[from][via] && can[via][to]
			}
		}
	}
	return can
}

func ended(s events.State) int64 {
	if s.Terminal() {
		return 5
	}
	return 0
}

func TestRowsMoveAsTheTableSays(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), sqlite.Options{})
	m := &storetest.Maker{}
	runs, stages := reachable("run"), reachable("stage")
	for from := events.Pending; from <= events.Skipped; from++ {
		for to := events.Pending; to <= events.Skipped; to++ {
			run := storage.RunRow{ID: m.ID(), Pipeline: "p", State: from, Created: 1, Ended: ended(from)}
			if err := s.Commit(&storage.Batch{Runs: []storage.RunRow{run}}); (err == nil) != (from != events.Skipped) {
				t.Errorf("a run that is %s: %v", from, err)
			}
			run.State, run.Ended = to, ended(to)
			if err := s.Commit(&storage.Batch{Runs: []storage.RunRow{run}}); from != events.Skipped && (err == nil) != runs[from][to] {
				t.Errorf("run from %s to %s: %v", from, to, err)
			}
			stage := storage.StageRow{Run: run.ID, Stage: "s", State: from, Attempt: 1, Started: 2, Ended: ended(from)}
			must(t, s.Commit(&storage.Batch{Stages: []storage.StageRow{stage}}))
			stage.State, stage.Ended = to, ended(to)
			if err := s.Commit(&storage.Batch{Stages: []storage.StageRow{stage}}); (err == nil) != stages[from][to] {
				t.Errorf("stage from %s to %s: %v", from, to, err)
			}
		}
	}
}

func TestRowsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir, sqlite.Options{})
	id := (&storetest.Maker{}).ID()
	for name, b := range map[string]*storage.Batch{
		"run in no state":              {Runs: []storage.RunRow{{ID: id, Created: 1}}},
		"run in state 7":               {Runs: []storage.RunRow{{ID: id, State: 7, Ended: 1}}},
		"pending run with an end":      {Runs: []storage.RunRow{{ID: id, State: events.Pending, Ended: 1}}},
		"completed run without an end": {Runs: []storage.RunRow{{ID: id, State: events.Completed}}},
		"stage in state 0":             {Stages: []storage.StageRow{{Run: id}}},
		"running without an attempt":   {Stages: []storage.StageRow{{Run: id, State: events.Running, Started: 1}}},
		"running and not started":      {Stages: []storage.StageRow{{Run: id, State: events.Running, Attempt: 1}}},
		"skipped without an end":       {Stages: []storage.StageRow{{Run: id, State: events.Skipped}}},
		"delivery with another fate":   {Deliveries: []storage.DeliveryRow{{ID: id, Fate: "eaten"}}},
	} {
		if err := s.Commit(b); err == nil {
			t.Errorf("%s was stored", name)
		}
	}
	db := raw(t, filepath.Join(dir, sqlite.FileName))
	fill(t, s, 1)
	for _, statement := range []string{`UPDATE runs SET state = 2, ended = NULL`, `UPDATE runs SET state = 9`, `UPDATE stages SET state = 1, ended = NULL`, `UPDATE events SET data = x'00'`, `DELETE FROM events`} {
		if _, err := db.Exec(statement); err == nil {
			t.Errorf("%s was done", statement)
		}
	}
}
