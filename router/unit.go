package router

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/storage"
)

// live is a run that has not ended, folded in memory.
type live struct {
	run     *events.Run
	dirty   bool                       // in unit.runs
	written events.Chain               // mark of the run's row as it was last written
	changed []int32                    // stages whose rows the unit must write
	params  map[string]json.RawMessage // decoded; read-only once it is there
	group   string                     // of a run that is about to be created
	of      map[int]*stage.Upstream    // stages as expressions see them, by place; read-only once they are there
	items   map[int][]json.RawMessage  // of foreach stages, by place; likewise
	rerun   *events.Run                // the run that this one is a rerun of
	hits    map[int]*events.Data       // results that it takes over from other runs, by place
}

// unit is a unit of work: what one pass of the engine's loop takes in, and everything that follows from it. It is one
// commit.
type unit struct {
	engine     *Engine
	epoch      uint64
	now        int64 // Unix nanoseconds: the time of every event in the unit
	batch      storage.Batch
	runs       []*live
	pending    []int             // indexes into batch.Events of events that no handler has seen yet
	keys       []storage.KeyHash // idempotency keys first seen in this unit
	claims     []claim           // stages claimed in this unit
	starts     []*body           // to start once the unit is durable
	interrupts []*body           // to interrupt once the unit is durable
	finished   []*finished       // outcomes in this unit
	replies    []func(error)
	quiet      []func()    // called once the unit is durable and its bodies have started
	ended      []events.ID // runs that ended in this unit
	parked     *storage.ParkedRow
	scratch    []byte
}

type claim struct {
	live    *live
	stage   int
	attempt int
	token   uint64
	again   bool // of an engine that died
}

// append seals an event of a run, applies it and takes it into the unit. What the table refuses leaves no trace.
func (u *unit) append(r *events.Run, e *events.Event) error {
	l := u.engine.live[e.Stream]
	if l == nil || l.run != r {
		return fmt.Errorf("append %s: run %s is not live", e.Type.Short(), e.Stream)
	}
	at := len(u.batch.Events)
	u.batch.Events = append(u.batch.Events, storage.Sealed{Event: *e})
	sealed := &u.batch.Events[at]
	sealed.Encoded = u.seal(&r.Chain, &sealed.Event)
	if err := r.Apply(&sealed.Event); err != nil {
		r.Chain.Sequence, r.Chain.Head = sealed.Sequence-1, sealed.Prev
		u.batch.Events = u.batch.Events[:at]
		return err
	}
	u.touch(l, &sealed.Event)
	u.pending = append(u.pending, at)
	return nil
}

// seal gives the event its id, time and place in the chain, and returns its encoded data.
func (u *unit) seal(c *events.Chain, e *events.Event) []byte {
	e.ID, e.Time = u.engine.o.NewID(), u.now
	encoded := e.Data.AppendEncoded(make([]byte, 0, 96))
	u.scratch = c.Seal(e, encoded, u.scratch)
	return encoded
}

// touch notes which rows the event changes and what to do once it is durable.
func (u *unit) touch(l *live, e *events.Event) {
	if !l.dirty {
		l.dirty = true
		u.runs = append(u.runs, l)
	}
	switch e.Type {
	case events.RunCreated:
		u.engine.schedule.Timers.AddDeadline(l.run)
	case events.RunCancelRequested:
		u.interrupts = append(u.interrupts, u.engine.bodiesOf(l.run.ID)...)
	case events.RunCompleted, events.RunFailed, events.RunCancelled:
		u.engine.schedule.Groups.Leave(l.run)
	case events.RunResumed:
		l.of = nil
		u.engine.schedule.Timers.AddDeadline(l.run)
		for i := range l.run.Stages {
			l.changed = append(l.changed, int32(i))
		}
		return
	}
	if e.Type.Entity() == "stage" {
		u.touchStage(l, e)
	}
}

func (u *unit) touchStage(l *live, e *events.Event) {
	i, ok := l.run.Find(e.Data.Stage, e.Data.Item)
	if !ok {
		return
	}
	l.changed = append(l.changed, int32(i)) //nolint:gosec // small
	if e.Type != events.StageStarted {
		return
	}
	if e.Data.Worker != "" { // else nobody has to do anything: a foreach stage, or one that has its outputs already
		u.claims = append(u.claims, claim{live: l, stage: i, attempt: e.Data.Attempt, token: e.Sequence})
	}
	if s := &l.run.Stages[i]; l.run.Resumed() && s.First > 0 {
		for k := s.First; k < s.First+s.Count; k++ {
			l.changed = append(l.changed, k)
		}
	}
}

// cascade hands every event that no handler has seen to its handlers, and what they publish too, until nothing is left.
func (u *unit) cascade() {
	for len(u.pending) > 0 {
		i := u.pending[0]
		u.pending = u.pending[1:]
		e := &u.batch.Events[i].Event // stays as it is when the slice grows: events are immutable
		l := u.engine.live[e.Stream]
		if l == nil || !u.engine.bus.wanted(l.run, e.Type) {
			continue
		}
		mark := len(u.batch.Events)
		ok := u.engine.bus.deliver(l.run, e)
		if ok && u.parked == nil {
			continue
		}
		u.poison(l, e, mark)
	}
}

// poison ends a run whose event no handler could take: what they published for it is dropped, the event is set aside
// and the run fails with class system, so that it does not stay running for ever.
func (u *unit) poison(l *live, e *events.Event, mark int) {
	if u.parked == nil {
		u.parked = &storage.ParkedRow{Event: e.ID, Stream: e.Stream, Handler: "bus", At: u.now,
			Reason: "what the handlers produced may not follow the log"}
	}
	u.batch.Parked = append(u.batch.Parked, *u.parked)
	u.rollback(l, mark)
	reason := "event parked: " + u.parked.Reason
	u.parked = nil
	if l.run.State == events.Pending {
		_ = u.append(l.run, &events.Event{Stream: l.run.ID, Type: events.RunStarted, Cause: e.ID})
	}
	if l.run.State == events.Running {
		_ = u.append(l.run, &events.Event{Stream: l.run.ID, Type: events.RunFailed, Cause: e.ID,
			Data: events.Data{Class: events.System, Reason: reason}})
	}
	u.pending = slices.DeleteFunc(u.pending, func(at int) bool { return at >= len(u.batch.Events) || u.batch.Events[at].Stream == l.run.ID }) // nothing follows the end of a run
	u.interrupts = append(u.interrupts, u.engine.bodiesOf(l.run.ID)...)
}

// rollback drops the events that were appended after the mark and folds the run anew from what remains.
func (u *unit) rollback(l *live, mark int) {
	if len(u.batch.Events) == mark {
		u.engine.lineUp() // a handler that failed may have claimed something
		return
	}
	u.batch.Events = u.batch.Events[:mark]
	u.claims = slices.DeleteFunc(u.claims, func(c claim) bool { return c.live == l && c.token > u.lastSequence(l.run.ID) })
	folded, err := u.engine.refold(l.run.Graph, l.run.ID, u.batch.Events)
	if err != nil {
		u.engine.o.Logger.Error().Err(err).Stringer("run", l.run.ID).Msg("fold after a poisoned event")
		return
	}
	*l.run = *folded
	u.engine.lineUp()
}

func (u *unit) lastSequence(run events.ID) uint64 {
	for _, v := range slices.Backward(u.batch.Events) {
		if v.Stream == run {
			return v.Sequence
		}
	}
	return 0
}

// close projects the rows of everything that changed.
func (u *unit) close() {
	for _, l := range u.runs {
		if l.written != l.run.Mark {
			l.written = l.run.Mark
			u.batch.Runs = append(u.batch.Runs, storage.RunRowOf(l.run))
		}
		seen := -1
		if len(l.changed) > 1 {
			slices.Sort(l.changed)
		}
		for _, i := range l.changed {
			if int(i) != seen {
				seen = int(i)
				u.batch.Stages = append(u.batch.Stages, storage.StageRowOf(l.run, seen))
			}
		}
		l.dirty, l.changed = false, l.changed[:0]
	}
}
