package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/storage"
)

// accepting is a delivery on its way into the log.
type accepting struct {
	d    *trigger.Delivery
	blob events.Digest // of a body that is too long for an event
	done chan accepted
}

type accepted struct {
	receipt trigger.Receipt
	err     error
}

// cancelling is a wish to end a run.
type cancelling struct {
	run    events.ID
	reason string
	done   chan error
}

// ErrEnded says that a run cannot be cancelled because it has ended.
var ErrEnded = errors.New("the run has ended already")

// Accept stores a delivery and decides its fate. It returns once both are durable; trigger.ErrBusy, ErrFull and
// ErrClosed say that nothing was stored. It implements trigger.Inbox.
func (e *Engine) Accept(ctx context.Context, d *trigger.Delivery) (trigger.Receipt, error) {
	if !e.Ready() {
		return trigger.Receipt{}, trigger.ErrClosed
	}
	a := &accepting{d: d, done: make(chan accepted, 1)}
	if len(d.Body) > events.MaxInline {
		info, err := e.o.Artifacts.Put(ctx, bytes.NewReader(d.Body))
		if err != nil {
			return trigger.Receipt{}, storeError(err)
		}
		a.blob = info.Digest
	}
	select {
	case e.inputs <- input{delivery: a}:
		e.refuseLate()
	case <-e.loopDone:
		return trigger.Receipt{}, trigger.ErrClosed
	default:
		return trigger.Receipt{}, trigger.ErrBusy
	}
	select {
	case r := <-a.done:
		return r.receipt, r.err
	case <-e.done:
		select {
		case r := <-a.done:
			return r.receipt, r.err
		default:
			return trigger.Receipt{}, trigger.ErrClosed
		}
	}
}

// Cancel asks a run to end. It returns once the wish is durable: the stages end afterwards, each when its processes are
// gone. storage.ErrNotFound and ErrEnded are told apart.
func (e *Engine) Cancel(ctx context.Context, run events.ID, reason string) error {
	c := &cancelling{run: run, reason: reason, done: make(chan error, 1)}
	if !e.Ready() || !e.submit(input{cancel: c}) {
		return trigger.ErrClosed
	}
	select {
	case err := <-c.done:
		if errors.Is(err, ErrEnded) {
			if _, found := e.o.Store.Run(ctx, run); found != nil {
				return found
			}
		}
		return err
	case <-e.done:
		return trigger.ErrClosed
	}
}

func (in input) refuse() {
	switch {
	case in.delivery != nil:
		in.delivery.done <- accepted{err: trigger.ErrClosed}
	case in.cancel != nil:
		in.cancel.done <- trigger.ErrClosed
	case in.outcome != nil:
		in.outcome.settle(trigger.ErrClosed)
	case in.quiet != nil:
		in.quiet()
	}
}

func storeError(err error) error {
	if errors.Is(err, storage.ErrFull) {
		return fmt.Errorf("%w: %w", trigger.ErrFull, err)
	}
	return err
}

func (u *unit) cancel(c *cancelling) {
	l := u.engine.live[c.run]
	if l == nil || l.run.State.Terminal() {
		c.done <- ErrEnded
		return
	}
	u.replies = append(u.replies, func(err error) { c.done <- err })
	if l.run.Cancelling() {
		return
	}
	u.must(l, &events.Event{Stream: c.run, Type: events.RunCancelRequested, Data: events.Data{Reason: c.reason}})
}

// accept decides a delivery's fate and appends it, with the run that it becomes.
func (u *unit) accept(a *accepting) {
	p := u.engine.pipeline(a.d.Pipeline)
	refused := a.d.Refused
	switch {
	case refused != nil:
	case p == nil:
		refused = &trigger.Refusal{Code: "E_REF", Reason: fmt.Sprintf("there is no pipeline %q", a.d.Pipeline)}
	case p.Refusal != nil:
		refused = p.Refusal
	case p.Missing != nil && len(a.d.Params) == 0:
		refused = p.Missing
	case len(u.engine.live) >= u.engine.o.MaxLive:
		a.done <- accepted{err: trigger.ErrBusy}
		return
	}
	d := u.deliveryData(a)
	if refused != nil {
		d.Code, d.Reason, d.Body = refused.Code, refused.Reason, nil
		u.deliver(a, events.DeliveryRejected, d)
		return
	}
	first, seen, err := u.firstWith(a.d)
	if err != nil {
		a.done <- accepted{err: err}
		return
	}
	if seen {
		d.Run, d.Delivery, d.Body, d.Reason = first.run, first.delivery, nil, "the key was seen before"
		u.deliver(a, events.DeliveryDuplicated, d)
		return
	}
	d.Run = u.engine.o.NewID()
	if len(d.Params) == 0 {
		d.Params = p.Defaults
	}
	delivered := u.deliver(a, events.DeliveryReceived, d)
	u.create(p, delivered, a.d.Sample)
}

func (u *unit) deliveryData(a *accepting) events.Data {
	d := events.Data{Kind: a.d.Kind, Trigger: a.d.Trigger, Pipeline: a.d.Pipeline, Key: a.d.Key, Params: a.d.Params,
		Trace: a.d.Traceparent, Size: int64(len(a.d.Body)), Body: a.d.Body}
	if !a.blob.IsZero() {
		d.Blob, d.Body = a.blob, nil
	}
	if f := a.d.File; f != nil {
		d.File, d.Blob, d.Size = f.Name, f.Digest, f.Size
	}
	for name, value := range a.d.Headers {
		d.Headers = append(d.Headers, events.Pair{Name: name, Value: value})
	}
	slices.SortFunc(d.Headers, func(x, y events.Pair) int { return strings.Compare(x.Name, y.Name) })
	return d
}

// firstWith finds the first delivery with the same key: in the units that are not durable yet, then in the store.
func (u *unit) firstWith(d *trigger.Delivery) (firstWithKey, bool, error) {
	if d.Key == "" {
		return firstWithKey{}, false, nil
	}
	key := storage.HashKey(d.Pipeline, d.Trigger, d.Key)
	if first, ok := u.engine.keys[key]; ok {
		return first, true, nil
	}
	row, err := u.engine.o.Store.DeliveryByKey(context.Background(), key)
	switch {
	case err == nil:
		return firstWithKey{row.ID, row.Run}, true, nil
	case errors.Is(err, storage.ErrNotFound):
		return firstWithKey{}, false, nil
	}
	return firstWithKey{}, false, err
}

// deliver appends the delivery's one event and its row, and answers the sender once they are durable.
func (u *unit) deliver(a *accepting, t events.Type, d events.Data) *events.Event {
	var chain events.Chain
	e := &events.Event{Stream: u.engine.o.NewID(), Type: t, Data: d}
	encoded := u.seal(&chain, e)
	u.batch.Events = append(u.batch.Events, storage.Sealed{Event: *e, Encoded: encoded})
	var row storage.DeliveryRow
	row.Project(e, chain.Head)
	u.batch.Deliveries = append(u.batch.Deliveries, row)
	receipt := trigger.Receipt{Delivery: e.Stream, Run: d.Run, DuplicateOf: d.Delivery, Fate: row.Fate, Code: d.Code, Reason: d.Reason}
	key := row.KeyHash
	if key != (storage.KeyHash{}) {
		u.engine.keys[key] = firstWithKey{e.Stream, d.Run}
		u.keys = append(u.keys, key)
	}
	u.replies = append(u.replies, func(err error) {
		if err != nil {
			a.done <- accepted{err: storeError(err)}
			return
		}
		a.done <- accepted{receipt: receipt}
	})
	return e
}

// create appends run.created with the frozen plan and every pin.
func (u *unit) create(p *registered, delivered *events.Event, sample int) {
	if !u.engine.known[p.graph.Digest] {
		u.engine.known[p.graph.Digest] = true
		u.engine.plans[p.graph.Digest] = p.graph
		u.batch.Plans = append(u.batch.Plans, storage.PlanRow{Digest: p.graph.Digest, Pipeline: p.Plan.Pipeline, Bytes: p.bytes})
	}
	l := &live{run: events.NewRun(p.graph)}
	u.engine.live[delivered.Data.Run] = l
	d := &delivered.Data
	u.must(l, &events.Event{Stream: d.Run, Type: events.RunCreated, Cause: delivered.ID, Data: events.Data{
		Pipeline: p.Plan.Pipeline, Plan: p.graph.Digest, Params: d.Params, Kind: d.Kind, Trigger: d.Trigger,
		Delivery: delivered.Stream, Trace: d.Trace, Sample: sample}})
}
