package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
)

// errNoWork is a mistake in the wiring: these handlers live inside the engine's unit of work.
var errNoWork = errors.New("message carries no unit of work")

// Topics are the events after which something may have to follow. Most starts let nothing follow: the bus delivers those
// of runs and stages only when something is due, as after the start of a foreach stage.
func Topics() []events.Type {
	return []events.Type{events.RunCreated, events.RunStarted, events.RunResumed, events.RunCancelRequested, events.StageStarted, events.StageCompleted,
		events.StageFailed, events.StageSkipped, events.StageCancelled}
}

// Conditions answers what a decision asks of a run's data. A condition that cannot be evaluated is a check with an
// Error: the stage's attempt then fails with it.
type Conditions interface {
	// When evaluates the condition of the stage at the place.
	When(r *events.Run, stage int) events.Check
	// Items evaluates the list of a foreach stage. A long one is an artifact.
	Items(r *events.Run, stage int) Items
	// Reused gives what the stage came to in the run that this one is a rerun of, or nil when it runs anew.
	Reused(r *events.Run, stage int) *events.Data
	// Cached gives the result that the stage takes over from another run, with the same stage key, or nil when it has to run.
	// It gives the same as long as the unit of work goes on.
	Cached(r *events.Run, stage int) *events.Data
}

// Items are the items of a foreach stage.
type Items struct {
	List  json.RawMessage // array; empty when it is in Blob
	Blob  events.Digest
	Count int
	Check events.Check
}

// Handler decides what follows an event. It asks events.Run.Decide and claims at once what Line has a slot for.
type Handler struct {
	Line       *Line
	Timers     *Timers
	Groups     *Groups
	Conditions Conditions
	Worker     string       // recorded on each claim
	Stopped    func() bool  // true once no stage may start any more; may be nil
	Now        func() int64 // of the unit of work, Unix nanoseconds
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
	p := production{ctx: w.Context, run: w.Run, cause: w.Event.ID, messages: make([]*message.Message, 0, len(decisions))}
	for i := range decisions {
		d := &decisions[i]
		e := p.event()
		d.Record(w.Run, e)
		switch d.Type {
		case events.StageQueued:
			h.ready(w.Run, d.Stage, e)
		case events.StageCompleted:
			if err := h.pass(w.Run, d.Stage, e); err != nil {
				return nil, err
			}
		case events.RunStarted:
			if !h.admit(w.Run, e) {
				return p.messages, nil // whatever else was due waits with it
			}
		}
	}
	return p.messages, nil
}

// production gathers what a handler emits for one run.
type production struct {
	ctx      context.Context //nolint:containedctx // of one message
	run      *events.Run
	cause    events.ID
	messages []*message.Message
}

func (p *production) event() *events.Event {
	m, e := Produce(p.ctx, p.run)
	e.Stream, e.Cause = p.run.ID, p.cause
	p.messages = append(p.messages, m)
	return e
}

// admit lets a run start, or records what it waits for.
func (h *Handler) admit(r *events.Run, e *events.Event) bool {
	if !h.Groups.Bound(r) {
		return true
	}
	ok, why := h.Groups.TryEnter(r)
	if !ok {
		e.Type, e.Data.Waits, e.Data.Reason = events.RunQueued, "concurrency", why
		h.Groups.Wait(r)
	}
	return ok
}

// ready turns a ready stage into what follows for it: its outputs, when it has them already; skipped, when its condition
// is false; its instances; a wait for a person or a time; a claim, when a slot and the resources are free and nobody
// waits for them; or a place in line. A stage that starts at once was never in a queue.
func (h *Handler) ready(r *events.Run, i int, e *events.Event) {
	st, s := r.StageOf(i), &r.Stages[i]
	if done := h.done(r, i); done != nil {
		h.startAlone(r, i, e, Items{List: done.Items, Blob: done.Blob, Count: done.Count})
		return
	}
	broken := false
	if st.When != "" && st.WhenItem == (s.Item > 0) && s.First == 0 {
		check := h.Conditions.When(r, i)
		e.Data.Checks = append(e.Data.Checks, check)
		if broken = check.Error != ""; !broken && !check.Holds {
			e.Type, e.Data.Reason = events.StageSkipped, "its condition is false: "+st.When
			return
		}
	}
	switch {
	case s.First > 0: // of a run that was continued: its instances are those that it has
		h.startAlone(r, i, e, Items{List: s.Items.Items, Blob: s.Items.Blob, Count: s.Items.Count})
		return
	case !broken && st.Foreach != "" && s.Item == 0:
		items := h.Conditions.Items(r, i)
		e.Data.Checks = append(e.Data.Checks, items.Check)
		if items.Check.Error == "" {
			h.startAlone(r, i, e, items)
			return
		}
	case !broken && st.Executor == "approval":
		e.Data.Waits = "approval"
		if st.Timeout > 0 {
			e.Data.Due = h.Now() + int64(st.Timeout)
		}
		return
	case !broken && st.Delay > 0:
		e.Data.Waits, e.Data.Due = "delay", h.Now()+int64(st.Delay)
		return
	}
	if !broken && h.takeOver(r, i, e) {
		return
	}
	h.claimOrWait(r, i, e)
}

// takeOver records the start of a stage that takes over the result of another run.
func (h *Handler) takeOver(r *events.Run, i int, e *events.Event) bool {
	if r.Fresh || h.Stopped != nil && h.Stopped() {
		return false
	}
	hit := h.Conditions.Cached(r, i)
	if hit == nil {
		return false
	}
	h.startAlone(r, i, e, Items{})
	e.Data.Cached = hit.Cached
	return true
}

// done gives the outputs that a stage has without running: a person let it pass the gate that had rejected them, another
// run had the same stage key, or the run is a rerun that takes them over.
func (h *Handler) done(r *events.Run, i int) *events.Data {
	switch s := &r.Stages[i]; {
	case s.Passed != nil:
		return s.Passed
	case s.State == events.Running && !s.Cached.IsZero():
		return h.Conditions.Cached(r, i)
	}
	if r.From == "" {
		return nil
	}
	return h.Conditions.Reused(r, i)
}

// pass fills in the outputs of a stage that was started to be completed with those that it has already.
func (h *Handler) pass(r *events.Run, i int, e *events.Event) error {
	if !r.Passing(i) {
		return nil
	}
	done := h.done(r, i)
	if done == nil {
		return fmt.Errorf("the outputs of %s, which are there already, cannot be found", r.StageOf(i).Name)
	}
	e.Data.Outputs, e.Data.Checks, e.Data.Pins = done.Outputs, done.Checks, done.Pins
	e.Data.Pinned, e.Data.PinnedAt, e.Data.Machine = done.Pinned, done.PinnedAt, done.Machine
	e.Data.Isolation, e.Data.Hermetic, e.Data.Cached = done.Isolation, done.Hermetic, r.Stages[i].Cached
	return nil
}

// claimOrWait turns a ready stage into stage.started when it can be claimed, else into stage.queued.
func (h *Handler) claimOrWait(r *events.Run, i int, e *events.Event) {
	if h.Stopped != nil && h.Stopped() {
		e.Data.Waits = waitsSlot
		return
	}
	ok, waits, why := h.Line.TryClaim(r.StageOf(i))
	if !ok {
		e.Data.Waits, e.Data.Reason = waits, why
		return
	}
	h.start(r, i, e)
	h.refuse(r, i, e)
}

func (h *Handler) start(r *events.Run, i int, e *events.Event) {
	e.Type = events.StageStarted
	e.Data.Attempt = r.Stages[i].Attempt + 1
	e.Data.Worker = h.Worker
}

// startAlone records the start of a stage that no worker carries out: a foreach stage, with its items, or one that has its
// outputs already.
func (h *Handler) startAlone(r *events.Run, i int, e *events.Event, items Items) {
	h.start(r, i, e)
	e.Data.Worker, e.Data.Items, e.Data.Blob, e.Data.Count = "", items.List, items.Blob, items.Count
}

// Dispatch is the Watermill handler of stage.queued, stage.retry_scheduled, stage.approved and stage.rejected: the stage
// enters the line, or waits for its instant or its person.
func (h *Handler) Dispatch(msg *message.Message) ([]*message.Message, error) {
	w, ok := WorkOf(msg)
	if !ok {
		return nil, errNoWork
	}
	if stage, ok := w.Run.Find(w.Event.Data.Stage, w.Event.Data.Item); ok {
		h.Wait(w.Run, stage)
	}
	if w.Event.Type == events.StageQueued && w.Run.Due() { // for whoever prefers that it goes first
		return h.Schedule(msg)
	}
	return nil, nil
}

// Wait lines up a stage that the log says is queued.
func (h *Handler) Wait(r *events.Run, stage int) {
	switch s := &r.Stages[stage]; {
	case s.Due > 0:
		h.Timers.Add(r, stage, s.Due)
	case s.Waits == "approval":
	default:
		h.Line.Wait(r, stage)
	}
}

// Next gives the next event that time or a free place brings: a run that may go, a deadline that has passed, the start of
// the stage that has waited longest. It gives false when there is none.
func (h *Handler) Next(now int64) (run *events.Run, e *events.Event, ok bool) {
	if r, ok := h.Groups.next(); ok {
		return r, &events.Event{Stream: r.ID, Type: events.RunStarted}, true
	}
	for t, ok := h.Timers.pop(now); ok; t, ok = h.Timers.pop(now) {
		if t.stage != wholeRun {
			h.due(t)
			continue
		}
		if t.waited() {
			return t.run, &events.Event{Stream: t.run.ID, Type: events.RunCancelRequested, Data: events.Data{Class: events.Timeout,
				Reason: "the run went over its deadline of " + t.run.Graph.Plan.Deadline.String()}}, true
		}
	}
	r, stage, ok := h.Line.next()
	if !ok {
		return nil, nil, false
	}
	e = &events.Event{Stream: r.ID, Data: events.Data{Stage: r.StageOf(stage).Name, Item: int(r.Stages[stage].Item)}}
	h.start(r, stage, e)
	h.refuse(r, stage, e)
	return r, e, true
}

// refuse makes the attempt of a stage fail that asks for more than there is.
func (h *Handler) refuse(r *events.Run, i int, e *events.Event) {
	if why := h.Line.Never(r.StageOf(i)); why != "" {
		e.Data.Checks = append(e.Data.Checks, events.Check{Kind: "resources", Expr: r.StageOf(i).Name, Error: why})
	}
}

// due lines up a stage whose instant has come, unless it no longer waits for that one: somebody answered, or the run was
// continued meanwhile.
func (h *Handler) due(t timer) {
	if s := &t.run.Stages[t.stage]; t.waits() && s.Due == t.due {
		h.Line.Wait(t.run, t.stage)
	}
}
