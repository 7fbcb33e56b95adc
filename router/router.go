package router

import (
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/schedule"
)

// Handler is one line of the list of handlers: a Watermill handler and the events that reach it.
type Handler struct {
	Name   string
	Topics []events.Type
	Handle message.HandlerFunc
}

// Builtin is the list of handlers: the whole life of a run, read from top to bottom.
func Builtin(s *schedule.Handler) []Handler {
	return []Handler{
		{"schedule", schedule.Topics(), s.Schedule}, // what follows an event: start, claim, wait, skip, end
		{"dispatch", []events.Type{events.StageQueued, events.StageRetryScheduled, events.StageApproved, events.StageRejected}, s.Dispatch}, // who waits in line
	}
}

// chain is the list of middleware, outermost first.
func (e *Engine) chain() []message.HandlerMiddleware {
	return []message.HandlerMiddleware{
		e.measure,            // metrics hook: handler, topic, duration, error
		e.park,               // a message that keeps failing is set aside with its reason; the rest goes on
		e.bus.lend,           // the loop lends its goroutine to the handler
		middleware.Recoverer, // a panic is an error
		e.collect,            // what is produced goes into the unit of work
	}
}

// wire makes the Watermill router from the two lists and the bus.
func (e *Engine) wire(handlers []Handler) error {
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	r.AddMiddleware(e.chain()...)
	for _, h := range handlers {
		for _, topic := range h.Topics {
			r.AddHandler(h.Name+"."+topic.Short(), topic.String(), e.bus, anyTopic, e.bus, h.Handle)
		}
	}
	e.router = r
	return nil
}
