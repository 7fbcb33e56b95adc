package executor

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// endedChild is a child run that has completed with one file.
type endedChild struct{ file events.Digest }

func (endedChild) StartChild(context.Context, Child) (events.ID, error) { return events.ID{1}, nil }

func (c endedChild) WaitChild(context.Context, events.ID) (ChildEnd, error) {
	return ChildEnd{State: events.Completed, Outputs: map[string]events.Result{"card": {Digest: c.file, Name: "card.txt"}}}, nil
}

func (endedChild) CancelChild(context.Context, events.ID, string) error { return nil }

// TestAChildsFileIsTakenAgain: an engine died after it had put the child's file in place; the next one goes on with the same
// attempt, in the same directory.
func TestAChildsFileIsTakenAgain(t *testing.T) {
	t.Parallel()
	store, err := artifacts.Open(filepath.Join(t.TempDir(), "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	info, err := store.Put(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	plan := &events.Plan{Schema: events.PlanSchema, Pipeline: "child", Stages: []events.Stage{{Name: "a", Executor: "task"}}}
	with, err := json.Marshal(map[string]any{"name": "child", "plan": plan})
	if err != nil {
		t.Fatal(err)
	}
	c := &Call{Dir: t.TempDir(), Stage: "call", Attempt: 1, With: with, Outputs: []events.Output{{Role: "card", Path: "cards/card.txt"}}}
	for range 2 {
		if _, failure := NewPipelines(endedChild{info.Digest}, store).Execute(t.Context(), c); failure != nil {
			t.Fatal(failure)
		}
		if content, err := os.ReadFile(filepath.Join(c.Dir, "out", "cards", "card.txt")); err != nil || string(content) != "hello" {
			t.Errorf("%q, %v", content, err)
		}
	}
}
