package router_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/router"
)

// A rerun that is asked for twice with one key is one run, whoever lost the answer.
func TestSameRerunIsOne(t *testing.T) {
	t.Parallel()
	b := start(t, newMemory(), runner{}, nil, chain("p", "a", "b"))
	id := b.run("p")
	b.ends(id)
	ask := func(key string) events.ID {
		t.Helper()
		r, err := b.engine.Rerun(t.Context(), id, router.Again{From: "b", Key: key, Params: json.RawMessage(`{"n":1}`)})
		if err != nil || r.Run.IsZero() {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Run
	}
	first, same, other := ask("k"), ask("k"), ask("l")
	if first != same || first == other || first == id {
		t.Errorf("run %s became %s, %s and %s", id, first, same, other)
	}
	if row := b.ends(first); row.State != events.Completed || row.Forked != id {
		t.Errorf("%+v", row)
	}
	if _, err := b.engine.Rerun(t.Context(), id, router.Again{From: "c"}); !errors.Is(err, router.ErrNoStage) {
		t.Errorf("from a stage that is not there: %v", err)
	}
}
