package router

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/handlers/schedule"
	"github.com/apollo-11/apollo/storage"
)

// Metrics is told about every message that a handler took. It must be quick and safe for concurrent use.
type Metrics interface {
	Handled(handler, topic string, took time.Duration, err error)
}

func (e *Engine) measure(h message.HandlerFunc) message.HandlerFunc {
	if e.o.Metrics == nil {
		return h
	}
	return func(msg *message.Message) ([]*message.Message, error) {
		begin := e.o.Clock()
		produced, err := h(msg)
		e.o.Metrics.Handled(message.HandlerNameFromCtx(msg.Context()), message.SubscribeTopicFromCtx(msg.Context()), e.o.Clock().Sub(begin), err)
		return produced, err
	}
}

// tries is how often a message is handed to its handler before it is parked.
const tries = 3

// park redelivers a failing message alone and, at the cap, sets it aside with its reason. Handlers only return what
// they produce, so a failed try has left nothing behind.
func (e *Engine) park(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		var err error
		for range tries {
			var produced []*message.Message
			if produced, err = h(msg); err == nil {
				return produced, nil
			}
		}
		w, ok := schedule.WorkOf(msg)
		if !ok {
			return nil, err
		}
		name := message.HandlerNameFromCtx(msg.Context())
		e.o.Logger.Error().Err(err).Str("handler", name).Stringer("run", w.Event.Stream).Str("event", w.Event.Type.Short()).Msg("event parked")
		e.unit.parked = &storage.ParkedRow{Event: w.Event.ID, Stream: w.Event.Stream, Handler: name,
			Reason: fmt.Sprintf("%d tries failed: %.500s", tries, err.Error()), At: e.unit.now}
		return nil, nil
	}
}

// collect takes what a handler has produced into the unit of work, with the context of the message that led to it unless
// it brought its own. Nothing is left for the router to publish: its own way there costs five contexts, a map and, since
// each message has a new goroutine, a larger stack.
func (e *Engine) collect(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err != nil {
			return nil, err
		}
		for _, p := range produced {
			if _, ok := schedule.WorkOf(p); !ok {
				p.SetContext(msg.Context())
			}
		}
		return nil, e.bus.Publish(anyTopic, produced...)
	}
}
