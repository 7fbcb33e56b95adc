package router

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/schedule"
)

// anyTopic is the publish topic of every handler: the topic of an event is its type.
const anyTopic = "*"

// bus is the engine's Pub/Sub: it hands the events of the current unit of work to the handlers one at a time, in log
// order, and takes what they publish into the same unit. Durability is the unit's, not the bus's.
type bus struct {
	engine   *Engine
	mu       sync.Mutex
	topics   [256][]chan *message.Message
	produced []*schedule.Work // by the handler of the message that is being delivered
	closed   bool
	calls    chan func() // handlers that want the loop's goroutine
	called   chan struct{}
}

func newBus(e *Engine) *bus {
	return &bus{engine: e, calls: make(chan func()), called: make(chan struct{})}
}

// Subscribe gives the channel of an event type.
func (b *bus) Subscribe(_ context.Context, topic string) (<-chan *message.Message, error) {
	t, err := events.ParseType(topic)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.New("bus closed")
	}
	ch := make(chan *message.Message)
	b.topics[t] = append(b.topics[t], ch)
	return ch, nil
}

// Publish hands produced events to the unit of work that is being handled, which seals and applies them once the handler
// is done.
func (b *bus) Publish(_ string, msgs ...*message.Message) error {
	for _, m := range msgs {
		w, ok := schedule.WorkOf(m)
		if !ok {
			return errors.New("publish outside a unit of work")
		}
		b.produced = append(b.produced, w)
	}
	return nil
}

// take appends what was published to the unit.
func (b *bus) take() error {
	defer func() { b.produced = b.produced[:0] }()
	for _, w := range b.produced {
		if err := b.engine.unit.append(w.Run, w.Event); err != nil {
			return err
		}
	}
	return nil
}

// Close ends every subscription. Watermill's router calls it once a handler; the first call counts.
func (b *bus) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	for _, subscribers := range b.topics {
		for _, ch := range subscribers {
			close(ch)
		}
	}
	return nil
}

// deliver hands an event to everyone who subscribed to its type and waits until they are done. It reports whether all
// of them took it; what they published is in the unit by then.
func (b *bus) deliver(r *events.Run, e *events.Event) bool {
	for _, ch := range b.topics[e.Type] {
		msg := message.NewMessage("", nil)
		msg.SetContext(&schedule.Work{Context: context.Background(), Event: e, Run: r})
		ch <- msg
		if !b.await(msg) {
			b.produced = b.produced[:0]
			return false
		}
		if err := b.take(); err != nil {
			b.engine.o.Logger.Error().Err(err).Msg("what a handler produced is refused")
			return false
		}
	}
	return true
}

// wanted reports whether an event has to be delivered. After most starts nothing is due, and the scheduler, unless
// somebody else subscribed too, need not hear of them.
func (b *bus) wanted(r *events.Run, t events.Type) bool {
	switch n := len(b.topics[t]); {
	case n == 0:
		return false
	case n == 1 && (t == events.StageStarted || t == events.RunStarted):
		return r.Due()
	}
	return true
}

// await waits until a message is acked or nacked, and runs its handler meanwhile.
func (b *bus) await(msg *message.Message) (acked bool) {
	for {
		select {
		case call := <-b.calls:
			call()
			b.called <- struct{}{}
		case <-msg.Acked():
			return true
		case <-msg.Nacked():
			return false
		}
	}
}

// lend runs a handler on the loop's goroutine, which waits for it anyway. Watermill starts a goroutine for each message;
// its stack would have to grow for every one of them, which takes longer than the handler.
func (b *bus) lend(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		b.calls <- func() { produced, err = h(msg) }
		<-b.called
		return produced, err
	}
}
