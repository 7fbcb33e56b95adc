package router

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/storage"
)

// acting is what a person wants done with a run: cancel it, continue it, answer for it.
type acting struct {
	run   events.ID
	ended bool // the run has ended: it is folded from the store first
	over  bool // with ended: however it has ended; else it must have failed
	do    func(u *unit, l *live) error
	done  chan error
}

// What a person may ask for and cannot have.
var (
	ErrEnded      = errors.New("the run has ended already")
	ErrNotEnded   = errors.New("the run has not ended")
	ErrNotFailed  = errors.New("only a run that has failed can be resumed")
	ErrNotWaiting = errors.New("the stage does not wait for an approval")
	ErrNoGate     = errors.New("no gate has rejected the stage in its last attempt")
	ErrNoStage    = errors.New("the run has no such stage")
)

// act has something done in the loop. It returns once that is durable.
func (e *Engine) act(ctx context.Context, a *acting) error {
	a.done = make(chan error, 1)
	if !e.Ready() || !e.submit(input{act: a}) {
		return trigger.ErrClosed
	}
	select {
	case err := <-a.done:
		if errors.Is(err, ErrEnded) {
			if _, found := e.o.Store.Run(ctx, a.run); found != nil {
				return found
			}
		}
		return err
	case <-e.done:
		return trigger.ErrClosed
	}
}

// carryOut does what a person wants, and answers once it is durable.
func (u *unit) carryOut(a *acting) {
	l := u.engine.live[a.run]
	switch {
	case l != nil && l.run.State.Terminal():
		a.done <- ErrEnded
		return
	case l == nil && a.ended:
		var err error
		if l, err = u.takeUp(a.run, a.over); err != nil {
			a.done <- err
			return
		}
	case l == nil:
		a.done <- ErrEnded
		return
	case a.over:
		a.done <- ErrNotEnded
		return
	case a.ended:
		a.done <- ErrNotFailed
		return
	}
	if err := a.do(u, l); err != nil {
		if a.ended {
			delete(u.engine.live, a.run)
		}
		a.done <- err
		return
	}
	u.replies = append(u.replies, func(err error) { a.done <- err })
}

// takeUp folds a run that has ended: one that has failed, or with over any.
func (u *unit) takeUp(id events.ID, over bool) (*live, error) {
	row, err := u.engine.o.Store.Run(context.Background(), id)
	if err != nil {
		return nil, err
	}
	switch {
	case over && !row.State.Terminal():
		return nil, ErrNotEnded
	case !over && row.State != events.Failed:
		return nil, ErrNotFailed
	}
	if err := u.engine.load(context.Background(), &row); err != nil {
		return nil, err
	}
	return u.engine.live[id], nil
}

// Cancel asks a run to end. It returns once the wish is durable: the stages end afterwards, each when its processes are
// gone. storage.ErrNotFound and ErrEnded are told apart.
func (e *Engine) Cancel(ctx context.Context, run events.ID, actor, reason string) error {
	return e.act(ctx, &acting{run: run, do: func(u *unit, l *live) error {
		if l.run.Cancelling() {
			return nil
		}
		return u.append(l.run, &events.Event{Stream: run, Type: events.RunCancelRequested, Data: events.Data{Reason: reason, Actor: actor}})
	}})
}

// CancelFirst makes Start cancel a run that it finds unfinished, before anything of it is started again. Call it before
// Start.
func (e *Engine) CancelFirst(run events.ID, actor, reason string) {
	e.cancelFirst = append(e.cancelFirst, &events.Event{Stream: run, Type: events.RunCancelRequested, Data: events.Data{Reason: reason, Actor: actor}})
}

// Verified records what a verification of an ended run came to: stage.verified and stage.irreproducible_found events, and
// run.verified at the end. All of them are stored, or none. It returns once that is durable. ErrNotEnded, ErrNoStage and
// storage.ErrNotFound are told apart.
func (e *Engine) Verified(ctx context.Context, run events.ID, list []events.Event) error {
	return e.act(ctx, &acting{run: run, ended: true, over: true, do: func(u *unit, l *live) error {
		for i := range list {
			if err := mayFollowTheEnd(l.run, &list[i]); err != nil {
				return err
			}
		}
		for i := range list {
			u.must(l, &events.Event{Stream: run, Type: list[i].Type, Data: list[i].Data})
		}
		return nil
	}})
}

// mayFollowTheEnd refuses an event that is no part of a verification, or not of this run.
func mayFollowTheEnd(r *events.Run, e *events.Event) error {
	switch e.Type {
	case events.RunVerified:
		return nil
	case events.StageVerified, events.StageIrreproducibleFound:
		i, ok := r.Find(e.Data.Stage, e.Data.Item)
		if !ok {
			return fmt.Errorf("%w: %s", ErrNoStage, e.Data.Stage)
		}
		if s := r.Stages[i].State; s != events.Completed {
			return fmt.Errorf("%w: %s is %s, and only a completed stage is verified", ErrNoStage, e.Data.Stage, s)
		}
		return nil
	}
	return fmt.Errorf("%s is no part of a verification", e.Type.Short())
}

// Opening names a stage, or an instance of a foreach stage, whose gate is opened.
type Opening struct {
	Stage string
	Item  int
}

// Resume continues a failed run on its own plan: what has completed is not done again. The gates that are named are
// opened: the outputs that they had rejected are their stages'. It returns once that is durable.
func (e *Engine) Resume(ctx context.Context, run events.ID, actor, reason string, open ...Opening) error {
	return e.act(ctx, &acting{run: run, ended: true, do: func(u *unit, l *live) error {
		open, err := gates(l.run, open)
		if err != nil {
			return err
		}
		if err := u.append(l.run, &events.Event{Stream: run, Type: events.RunResumed, Data: events.Data{Reason: reason, Actor: actor}}); err != nil {
			return err
		}
		for _, o := range open {
			u.must(l, &events.Event{Stream: run, Type: events.StageGateOpened,
				Data: events.Data{Stage: o.Stage, Item: o.Item, Reason: reason, Actor: actor}})
		}
		return nil
	}})
}

// gates gives the openings that are meant: a foreach stage stands for all of its instances that a gate has rejected. An
// approval is no gate: who may open one need not be among those who may approve.
func gates(r *events.Run, open []Opening) (meant []Opening, err error) {
	for _, o := range open {
		i, ok := r.Find(o.Stage, o.Item)
		if !ok {
			return nil, fmt.Errorf("%w: %s", ErrNoStage, o.Stage)
		}
		first, last := i, i
		if s := &r.Stages[i]; s.First > 0 && o.Item == 0 {
			first, last = int(s.First), int(s.First+s.Count)-1
		}
		found := len(meant)
		for k := first; k <= last; k++ {
			s := &r.Stages[k]
			if s.State == events.Failed && s.Last != nil && s.Last.Class == events.GateRejected && r.StageOf(k).Executor != "approval" {
				meant = append(meant, Opening{Stage: o.Stage, Item: int(s.Item)})
			}
		}
		if len(meant) == found {
			return nil, fmt.Errorf("%w: %s", ErrNoGate, o.Stage)
		}
	}
	return meant, nil
}

// Answer is what a person says to a stage that waits for an approval.
type Answer struct {
	Stage   string
	Item    int
	Approve bool
	Actor   string
	Reason  string
	Form    json.RawMessage // object; empty when nothing is asked
}

// Answer records a person's answer. allowed is told the stage and says whether this person may give that answer. It
// returns once the answer is durable.
func (e *Engine) Answer(ctx context.Context, run events.ID, a Answer, allowed func(*events.Stage) error) error {
	return e.act(ctx, &acting{run: run, do: func(u *unit, l *live) error {
		i, ok := l.run.Find(a.Stage, a.Item)
		if !ok {
			return fmt.Errorf("%w: %s", ErrNoStage, a.Stage)
		}
		if s := &l.run.Stages[i]; s.State != events.Pending || s.Waits != "approval" || l.run.Cancelling() {
			return fmt.Errorf("%w: %s is %s", ErrNotWaiting, a.Stage, l.run.Stages[i].State)
		}
		if err := allowed(l.run.StageOf(i)); err != nil {
			return err
		}
		t := events.StageRejected
		if a.Approve {
			t = events.StageApproved
		}
		return u.append(l.run, &events.Event{Stream: run, Type: t,
			Data: events.Data{Stage: a.Stage, Item: a.Item, Actor: a.Actor, Reason: a.Reason, Answer: a.Form}})
	}})
}

// Again is how an ended run is run anew.
type Again struct {
	From   string          // stage from which everything runs anew; empty is all of it
	Params json.RawMessage // object; empty takes the run's own
	Key    string          // idempotency key: the same key is one run; may be empty
	Fresh  bool            // the new run takes over no result by its stage key
	Reason string          // why, in one sentence
	Actor  string          // who wants it
	Input  *Input          // instead of the file or body that was delivered; nil takes that
}

// Input is what a rerun works on instead of what its run was given.
type Input struct {
	Content []byte
	Name    string // as a file, when the run was given none; a delivered file keeps its name
	File    bool   // a run that was given nothing gets it as a file, and not as the body
}

// Rerun starts a new run on an ended run's plan and delivery, with its logical time and seed, and with other parameters or
// another input where they are given. With a stage, what completed and does not lie at or below it is taken over. ErrNotEnded and ErrNoStage are told apart.
func (e *Engine) Rerun(ctx context.Context, of events.ID, again Again) (trigger.Receipt, error) {
	row, err := e.o.Store.Run(ctx, of)
	if err != nil {
		return trigger.Receipt{}, err
	}
	g, err := storage.ReadGraph(ctx, e.o.Store, row.Plan)
	if err != nil {
		return trigger.Receipt{}, err
	}
	plan := g.Plan
	if err := mayRerun(&row, plan, again.From); err != nil {
		return trigger.Receipt{}, err
	}
	log, err := e.o.Store.Events(ctx, of, 0, 1)
	if err != nil || len(log) == 0 {
		return trigger.Receipt{}, errors.Join(err, storage.ErrNotFound)
	}
	created, logical := &log[0].Data, cmp.Or(log[0].Data.Logical, log[0].Time)
	params := again.Params
	if len(params) == 0 {
		params = created.Params
	}
	d := &trigger.Delivery{Kind: "manual", Trigger: "rerun:" + of.String(), Pipeline: row.Pipeline, Params: params, Plan: plan, Key: again.Key, Fresh: again.Fresh,
		Logical: time.Unix(0, logical).UTC(), Seed: cmp.Or(created.Seed, events.SeedOf(of[:])),
		Sample: created.Sample, Rerun: &trigger.Rerun{Of: of, Delivery: created.Delivery, Kind: created.Kind, Trigger: created.Trigger, From: again.From,
			Reason: again.Reason, Actor: again.Actor}}
	if again.Input != nil {
		if err := e.replaceInput(ctx, d, again.Input); err != nil {
			return trigger.Receipt{}, err
		}
	}
	return e.Accept(ctx, d)
}

// replaceInput makes the delivery of a rerun bring another file or body, under the name and with the headers of the one that
// it takes the place of.
func (e *Engine) replaceInput(ctx context.Context, d *trigger.Delivery, in *Input) error {
	old, err := e.delivery(ctx, d.Rerun.Delivery)
	if err != nil {
		return err
	}
	d.Rerun.Delivery, d.Sample, d.Headers = events.ID{}, 0, map[string]string{}
	for _, h := range old.Headers {
		d.Headers[h.Name] = h.Value
	}
	if old.File == "" && (!in.File || old.Size > 0) {
		d.Body = in.Content
		return nil
	}
	info, err := e.o.Artifacts.Put(ctx, bytes.NewReader(in.Content))
	if err != nil {
		return storeError(err)
	}
	d.File = &trigger.File{Name: cmp.Or(old.File, in.Name), Digest: info.Digest, Size: info.Size}
	return nil
}

// mayRerun refuses a run that goes on: what it has done so far would be taken over, and no more.
func mayRerun(row *storage.RunRow, plan *events.Plan, from string) error {
	if !row.State.Terminal() {
		return fmt.Errorf("%w: it is %s", ErrNotEnded, row.State)
	}
	if from != "" && !slices.ContainsFunc(plan.Stages, func(s events.Stage) bool { return s.Name == from }) {
		return fmt.Errorf("%w: %s", ErrNoStage, from)
	}
	return nil
}
