package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

const (
	deliverBatch = 100         // messages of one unit of work
	safetyNet    = time.Second // between two looks at the log when no commit signals
)

// outputs is what the handlers of one unit of work have published.
type outputs struct {
	mu     sync.Mutex
	list   []storage.Outgoing
	parked []storage.ParkedRow // messages that no delivery got through
	closed bool                // the unit is on its way into the log: what comes later stands for itself
}

// add takes messages into the unit, unless it is closed.
func (o *outputs) add(list []storage.Outgoing) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.list = append(o.list, list...)
	}
	return !o.closed
}

func (o *outputs) mark() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.list)
}

func (o *outputs) drop(mark int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = o.list[:mark]
}

func (o *outputs) close() *storage.Batch {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	return &storage.Batch{Messages: o.list, Parked: o.parked}
}

type outputsKey struct{}

// publisher appends messages to the log. Inside a handler, with the consumed message's context, it only adds to the
// unit of work, as long as that is open.
type publisher struct {
	store  *Store
	mu     sync.Mutex
	closed bool
}

// Publisher gives a Watermill publisher for topics that are no Apollo events: those come into the log by Commit alone.
func (s *Store) Publisher() message.Publisher { return &publisher{store: s} }

// Publish returns once the messages are durable, or are part of the unit of work.
func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return fmt.Errorf("publish: %w", storage.ErrClosed)
	}
	if _, err := events.ParseType(topic); err == nil {
		return fmt.Errorf("publish: topic %s is an event type: events are appended by the engine", topic)
	}
	if len(msgs) == 0 {
		return nil
	}
	list := make([]storage.Outgoing, len(msgs))
	for i, m := range msgs {
		list[i] = storage.Outgoing{Topic: topic, Message: m}
	}
	if unit, ok := msgs[0].Context().Value(outputsKey{}).(*outputs); ok && unit.add(list) {
		return nil
	}
	return p.store.Commit(&storage.Batch{Messages: list})
}

// Close ends the publisher, not the store.
func (p *publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// Subscriber consumes topics for one consumer group. A batch is read with no transaction open and delivered in order;
// what its handlers publish is stored together with the cursor in one commit. A nack drops what the message's handler
// published and delivers it again, alone; an Apollo event that was delivered again Options.Redeliveries times is parked
// and the rest goes on. Within a process one subscription of a group and topic consumes at a time.
type subscriber struct {
	store   *Store
	group   string
	offsets Offsets
	ctx     context.Context // the life of every subscription
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
}

// Subscriber gives a Watermill subscriber for a consumer group.
func (s *Store) Subscriber(group string) message.Subscriber {
	b := &subscriber{store: s, group: group}
	b.ctx, b.cancel = context.WithCancel(s.life)
	return b
}

// Close ends every subscription and waits until their handlers are done with.
func (b *subscriber) Close() error {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.wg.Wait()
	return nil
}

// Subscribe begins to deliver a topic.
func (b *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, fmt.Errorf("subscribe: %w", storage.ErrClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(b.ctx, cancel)
	out := make(chan *message.Message)
	b.wg.Add(1)
	begun := b.store.task(func() {
		defer b.wg.Done()
		defer close(out)
		defer cancel()
		defer stop()
		b.consume(ctx, topic, out)
	})
	if !begun {
		b.wg.Done()
		cancel()
		return nil, fmt.Errorf("subscribe: %w", storage.ErrClosed)
	}
	return out, nil
}

func (b *subscriber) consume(ctx context.Context, topic string, out chan<- *message.Message) {
	wake, unwake := b.store.Wake()
	defer unwake()
	turn := b.store.turns.of(topic + "\x00" + b.group)
	seen := int64(0) // a rare topic: what was searched in vain is not searched again at every commit
	for ctx.Err() == nil {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		head := b.store.Head()
		n, err := b.unit(ctx, topic, seen, out)
		<-turn
		if err != nil && ctx.Err() == nil {
			b.store.o.Logger.Error().Err(err).Str("topic", topic).Str("group", b.group).Msg("consume")
		}
		if n > 0 && err == nil {
			continue
		}
		if err == nil {
			seen = head
		}
		select {
		case <-wake:
		case <-time.After(safetyNet):
		case <-ctx.Done():
		}
	}
}

// unit reads, delivers and commits one batch. It gives how many messages were taken.
func (b *subscriber) unit(ctx context.Context, topic string, after int64, out chan<- *message.Message) (int, error) {
	batch, err := b.next(ctx, topic, after)
	if err != nil || len(batch) == 0 {
		return 0, err
	}
	unit := &outputs{}
	taken := 0
	for ; taken < len(batch) && b.deliver(ctx, unit, batch[taken], out); taken++ {
	}
	if taken == 0 {
		return 0, nil
	}
	commit := unit.close()
	commit.Cursors = []storage.Cursor{{Topic: topic, Group: b.group, Position: batch[taken-1].Offset}}
	return taken, b.store.Commit(commit)
}

func (b *subscriber) next(ctx context.Context, topic string, after int64) (batch []wsql.Row, err error) {
	schema := Schema{Batch: deliverBatch, After: after}
	q, err := schema.SelectQuery(wsql.SelectQueryParams{Topic: topic, ConsumerGroup: b.group, OffsetsAdapter: b.offsets})
	if err != nil {
		return nil, err
	}
	rows, err := b.store.read.QueryContext(ctx, q.Query, q.Args...)
	if err != nil {
		return nil, damage(err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		row, err := schema.UnmarshalMessage(wsql.UnmarshalMessageParams{Row: rows})
		if err != nil {
			return nil, err
		}
		batch = append(batch, row)
	}
	return batch, damage(rows.Err())
}

// deliver hands over one message until it is acked. It gives false when the subscription ended first.
func (b *subscriber) deliver(ctx context.Context, unit *outputs, row wsql.Row, out chan<- *message.Message) bool {
	mark := unit.mark()
	for nacks := 0; ; {
		msg := row.Msg.Copy()
		mctx, cancel := context.WithCancel(context.WithValue(ctx, outputsKey{}, unit))
		msg.SetContext(mctx)
		acked, ended := hand(ctx, msg, out)
		cancel()
		if acked {
			return true
		}
		unit.drop(mark)
		if ended {
			return false
		}
		nacks++
		if most := b.store.o.Redeliveries; most > 0 && nacks > most {
			if parked, ok := b.park(row, nacks); ok {
				unit.parked = append(unit.parked, parked)
				return true
			}
		}
	}
}

// park sets an Apollo event aside. Other messages have no row to go into: they are delivered until they are taken.
func (b *subscriber) park(row wsql.Row, nacks int) (p storage.ParkedRow, ok bool) {
	stream := row.Msg.Metadata.Get("stream")
	event, err := events.ParseID(row.Msg.UUID)
	if _, known := events.ParseType(row.Msg.Metadata.Get("type")); known != nil || err != nil {
		return p, false
	}
	of, err := events.ParseID(stream)
	p = storage.ParkedRow{Event: event, Stream: of, Handler: b.group, Reason: fmt.Sprintf("refused %d times by the consumer group", nacks), At: b.store.o.Clock().UnixNano()}
	b.store.o.Logger.Error().Stringer("event", event).Stringer("stream", of).Str("group", b.group).Int("times", nacks).Msg("event parked")
	return p, err == nil
}

func hand(ctx context.Context, msg *message.Message, out chan<- *message.Message) (acked, ended bool) {
	select {
	case out <- msg:
	case <-ctx.Done():
		return false, true
	}
	select {
	case <-msg.Acked():
		return true, false
	case <-msg.Nacked():
		return false, false
	case <-ctx.Done():
		return false, true
	}
}

// turns gives one token for each topic and group: whoever holds it consumes.
type turns struct {
	mu     sync.Mutex
	tokens map[string]chan struct{}
}

func (t *turns) of(key string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tokens == nil {
		t.tokens = map[string]chan struct{}{}
	}
	if t.tokens[key] == nil {
		t.tokens[key] = make(chan struct{}, 1)
	}
	return t.tokens[key]
}
