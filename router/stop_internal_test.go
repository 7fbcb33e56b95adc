package router

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/storage"
)

// nowhere is a store that keeps nothing.
type nowhere struct{ storage.Store }

func (nowhere) Commit(*storage.Batch) error { return nil }
func (nowhere) Head() int64                 { return 0 }

type idle struct{}

func (idle) Run(ctx context.Context, _ *stage.Attempt) stage.Outcome {
	<-ctx.Done()
	return stage.Outcome{}
}

// TestQuietAfterBodiesStart: a stop that asks for quiet in the unit in which a stage was claimed is answered once that
// stage's body runs. Answered before, the stop found nobody to wait for, and the body's result came too late.
func TestQuietAfterBodiesStart(t *testing.T) {
	t.Parallel()
	e, err := New(Options{Store: nowhere{}, Runner: idle{}, Clock: time.Now, Logger: zerolog.Nop(),
		NewID: func() events.ID { return events.ID(uuid.Must(uuid.NewV7())) }})
	if err != nil {
		t.Fatal(err)
	}
	close(e.loopDone) // nobody takes in what the body brings
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: "p", Stages: []events.Stage{{Name: "a", Executor: "task"}}}
	g, err := events.NewGraph(p, events.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	u := e.begin()
	run := events.NewRun(g)
	if err := run.Apply(&events.Event{Stream: events.ID{1}, Sequence: 1, Type: events.RunCreated}); err != nil {
		t.Fatal(err)
	}
	b := e.newBody(claim{live: &live{run: run}, attempt: 1, token: 1})
	u.starts = append(u.starts, b)
	answered := false
	e.take(u, input{quiet: func() {
		answered = true
		if !b.started.Load() {
			t.Error("quiet was answered before the body had started")
		}
	}})
	e.commitOne(u)
	if !answered {
		t.Error("quiet was not answered")
	}
	b.cancel(errStopping)
	e.outcomes.Wait()
}
