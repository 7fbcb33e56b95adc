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
	own  *registered   // the delivery's own plan; nil is that of its pipeline
	blob events.Digest // of a body that is too long for an event
	done chan accepted
}

type accepted struct {
	receipt trigger.Receipt
	err     error
}

// ErrPlan says that the plan that a delivery brings is none.
var ErrPlan = errors.New("the plan cannot be run")

// Accept stores a delivery and decides its fate. It returns once both are durable; trigger.ErrBusy, ErrFull and
// ErrClosed say that nothing was stored. It implements trigger.Inbox.
func (e *Engine) Accept(ctx context.Context, d *trigger.Delivery) (trigger.Receipt, error) {
	if !e.Ready() {
		return trigger.Receipt{}, trigger.ErrClosed
	}
	a := &accepting{d: d, done: make(chan accepted, 1)}
	if d.Plan != nil {
		b, err := d.Plan.Encode()
		if err != nil {
			return trigger.Receipt{}, err
		}
		if a.own, err = freeze(Pipeline{Plan: d.Plan}, b); err != nil {
			return trigger.Receipt{}, fmt.Errorf("%w: %w", ErrPlan, err)
		}
	}
	if len(d.Body) > events.MaxInline {
		info, err := e.o.Artifacts.Put(ctx, bytes.NewReader(d.Body))
		if err != nil {
			return trigger.Receipt{}, storeError(err)
		}
		a.blob = info.Digest
	}
	if err := e.enqueue(a); err != nil {
		return trigger.Receipt{}, err
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

// enqueue hands a delivery to the loop, if there is room. A stage that starts a child run waits for room: it is work that
// was taken in already.
func (e *Engine) enqueue(a *accepting) error {
	if a.d.Child != nil {
		if !e.submit(input{delivery: a}) {
			return trigger.ErrClosed
		}
		return nil
	}
	select {
	case e.inputs <- input{delivery: a}:
		e.refuseLate()
		return nil
	case <-e.loopDone:
		return trigger.ErrClosed
	default:
		return trigger.ErrBusy
	}
}

func (in input) refuse() {
	switch {
	case in.delivery != nil:
		in.delivery.done <- accepted{err: trigger.ErrClosed}
	case in.act != nil:
		in.act.done <- trigger.ErrClosed
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

// accept decides a delivery's fate and appends it, with the run that it becomes.
func (u *unit) accept(a *accepting) {
	p := a.own
	if p == nil {
		p = u.engine.pipeline(a.d.Pipeline)
	}
	refused := a.d.Refused
	switch {
	case refused != nil:
	case p == nil:
		refused = &trigger.Refusal{Code: "E_REF", Reason: fmt.Sprintf("there is no pipeline %q", a.d.Pipeline)}
	case p.Refusal != nil:
		refused = p.Refusal
	case p.Missing != nil && len(a.d.Params) == 0:
		refused = p.Missing
	case len(u.engine.live) >= u.engine.o.MaxLive && a.d.Child == nil: // a run must not wait for a child that is refused
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
	if len(d.Params) == 0 {
		d.Params = p.Defaults
	}
	d.Run = u.engine.o.NewID()
	l, ignored, err := u.newRun(p, &d, a.d)
	if err != nil {
		d.Run, d.Code, d.Reason, d.Body = events.ID{}, "E_EXPR", err.Error(), nil
		u.deliver(a, events.DeliveryRejected, d)
		return
	}
	if ignored != "" {
		d.Run, d.Code, d.Reason = events.ID{}, "E_CONCURRENCY", ignored
		u.deliver(a, events.DeliveryIgnored, d)
		return
	}
	u.create(p, l, u.deliver(a, events.DeliveryReceived, d), a.d)
}

// newRun makes a run that nothing is recorded of yet, and finds its concurrency group. ignored says why there is none:
// its group is full, and what is over is skipped.
func (u *unit) newRun(p *registered, d *events.Data, from *trigger.Delivery) (l *live, ignored string, err error) {
	l = &live{run: events.NewRun(p.graph)}
	c := p.Plan.Concurrency
	if c == nil {
		return l, "", nil
	}
	if l.group, err = u.engine.group(c, p.Plan, d, from.Rerun); err != nil {
		return nil, "", err
	}
	groups := u.engine.schedule.Groups
	if from.Child != nil && groups.Within(from.Child.Parent, l.group) {
		return l, "", nil
	}
	switch c.Overflow {
	case "skip":
		if n := groups.Going(l.group) + groups.Waiting(l.group); n >= c.Max {
			return nil, fmt.Sprintf("%d of at most %d runs of the group %s go on", n, c.Max, l.group), nil
		}
	case "cancel_oldest":
		if members := groups.Members(l.group); len(members) >= c.Max {
			oldest := members[0]
			u.must(u.engine.live[oldest.ID], &events.Event{Stream: oldest.ID, Type: events.RunCancelRequested,
				Data: events.Data{Reason: "a newer run of the group " + l.group + " takes its place"}})
		}
	}
	return l, "", nil
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
	d.Seed = a.d.Seed
	if !a.d.Logical.IsZero() {
		d.Logical = a.d.Logical.UnixNano()
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
func (u *unit) create(p *registered, l *live, delivered *events.Event, from *trigger.Delivery) {
	if !u.engine.known[p.graph.Digest] {
		u.engine.known[p.graph.Digest] = true
		u.engine.plans[p.graph.Digest] = p.graph
		u.batch.Plans = append(u.batch.Plans, storage.PlanRow{Digest: p.graph.Digest, Pipeline: p.Plan.Pipeline, Bytes: p.bytes})
	}
	d := &delivered.Data
	u.engine.live[d.Run] = l
	created := events.Data{Pipeline: p.Plan.Pipeline, Plan: p.graph.Digest, Params: d.Params, Kind: d.Kind, Trigger: d.Trigger,
		Delivery: delivered.Stream, Trace: d.Trace, Group: l.group, Sample: from.Sample,
		Logical: d.Logical, Seed: d.Seed}
	if from.Fresh {
		created.Fresh = 1
	}
	if c := from.Child; c != nil {
		created.Parent, created.Depth = c.Parent, c.Depth
	}
	if r := from.Rerun; r != nil {
		created.Forked, created.From, created.Kind, created.Trigger, created.Reason, created.Actor = r.Of, r.From, r.Kind, r.Trigger, r.Reason, r.Actor
		if !r.Delivery.IsZero() {
			created.Delivery = r.Delivery
		}
	}
	u.must(l, &events.Event{Stream: d.Run, Type: events.RunCreated, Cause: delivered.ID, Data: created})
}
