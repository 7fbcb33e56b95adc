package schedule

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
)

// errNoWork is a mistake in the wiring: these handlers live inside the engine's unit of work.
var errNoWork = errors.New("message carries no unit of work")

// Topics are the events after which something may have to follow.
func Topics() []events.Type {
	return []events.Type{events.RunCreated, events.RunResumed, events.RunCancelRequested, events.StageCompleted,
		events.StageFailed, events.StageSkipped, events.StageCancelled}
}

// Handler decides what follows an event. It asks events.Run.Decide and claims at once what Line has a slot for.
type Handler struct {
	Line    *Line
	Worker  string      // recorded on each claim
	Stopped func() bool // true once no stage may start any more; may be nil
}

// Schedule is the Watermill handler.
func (h *Handler) Schedule(msg *message.Message) ([]*message.Message, error) {
	w, ok := WorkOf(msg)
	if !ok {
		return nil, errNoWork
	}
	decisions := w.Run.Decide()
	if len(decisions) == 0 {
		return nil, nil
	}
	produced := make([]*message.Message, len(decisions))
	for i := range decisions {
		d := &decisions[i]
		var e *events.Event
		produced[i], e = Produce(w.Context, w.Run)
		d.Record(w.Run, e)
		if d.Type == events.StageQueued {
			h.claimOrWait(w.Run, d.Stage, e)
		}
		e.Cause = w.Event.ID
	}
	return produced, nil
}

// claimOrWait turns a ready stage into stage.started when a slot is free and nobody waits for it, else into
// stage.queued: a stage that starts at once was never in a queue.
func (h *Handler) claimOrWait(r *events.Run, stage int, e *events.Event) {
	if (h.Stopped == nil || !h.Stopped()) && h.Line.TryClaim(r.Graph.Plan.Stages[stage].Executor) {
		h.start(r, stage, e)
		return
	}
	e.Data.Waits = "slot"
}

func (h *Handler) start(r *events.Run, stage int, e *events.Event) {
	e.Type = events.StageStarted
	e.Data.Attempt = r.Stages[stage].Attempt + 1
	e.Data.Worker = h.Worker
}

// Dispatch is the Watermill handler of stage.queued and stage.retry_scheduled: the stage enters the line.
func (h *Handler) Dispatch(msg *message.Message) ([]*message.Message, error) {
	w, ok := WorkOf(msg)
	if !ok {
		return nil, errNoWork
	}
	if stage, ok := w.Run.Graph.Index(w.Event.Data.Stage); ok {
		h.Line.Wait(w.Run, stage, w.Event.Data.Due)
	}
	return nil, nil
}

// Next claims for the stage that has waited longest and may start now; e is its stage.started. It gives false when
// nobody waits or no slot is free.
func (h *Handler) Next(now int64) (run *events.Run, e *events.Event, ok bool) {
	r, stage, ok := h.Line.next(now)
	if !ok {
		return nil, nil, false
	}
	e = &events.Event{Stream: r.ID, Data: events.Data{Stage: r.Graph.Plan.Stages[stage].Name}}
	h.start(r, stage, e)
	return r, e, true
}
