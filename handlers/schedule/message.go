package schedule

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
)

// Work is what travels with a message inside a unit of work: the event that it carries, decoded, and the run it
// belongs to, folded up to and including that event.
type Work struct {
	context.Context
	Event *events.Event
	Run   *events.Run
}

type workKey struct{}

// Value gives the Work itself under its own key.
func (w *Work) Value(key any) any {
	if key == (workKey{}) {
		return w
	}
	return w.Context.Value(key)
}

// WorkOf gives what travels with the message, or false for a message from outside a unit of work.
func WorkOf(msg *message.Message) (*Work, bool) {
	w, ok := msg.Context().Value(workKey{}).(*Work)
	return w, ok
}

// produced is a message with what it carries, in one piece of memory.
type produced struct {
	message message.Message
	work    Work
	event   events.Event
}

// Produce makes a message that carries a new event, which the caller fills in. The event's id, time, place in the chain
// and bytes come from the unit of work that takes it in.
func Produce(ctx context.Context, run *events.Run) (*message.Message, *events.Event) {
	p := new(produced)
	p.work = Work{Context: ctx, Event: &p.event, Run: run}
	p.message.SetContext(&p.work)
	return &p.message, &p.event
}
