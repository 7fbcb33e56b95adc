package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/storage"
)

// children tells those who wait for the end of a run.
type children struct {
	mu      sync.Mutex
	waiting map[events.ID][]chan struct{}
}

// watch gives a channel that is closed once the run has ended and that is durable. A run that has ended already is not
// told of: look after calling.
func (c *children) watch(run events.ID) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[events.ID][]chan struct{}{}
	}
	ch := make(chan struct{})
	c.waiting[run] = append(c.waiting[run], ch)
	return ch
}

func (c *children) ended(runs []events.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		return
	}
	for _, run := range runs {
		for _, ch := range c.waiting[run] {
			close(ch)
		}
		delete(c.waiting, run)
	}
}

// StartChild implements executor.Runs. The key makes it the same run however often a stage that was interrupted asks.
func (e *Engine) StartChild(ctx context.Context, c executor.Child) (events.ID, error) {
	d := &trigger.Delivery{Kind: "pipeline", Trigger: "stage:" + c.Key, Pipeline: c.Plan.Pipeline, Key: c.Key, Params: c.Params,
		Plan: c.Plan, Child: &trigger.Child{Parent: c.Parent, Depth: c.Depth}, Logical: c.Logical, Seed: c.Seed}
	if _, err := events.NewGraph(c.Plan, events.Digest{}); err != nil {
		return events.ID{}, err
	}
	var receipt trigger.Receipt
	err := e.untilStored(ctx, func() (err error) {
		receipt, err = e.Accept(ctx, d)
		return err
	})
	if err != nil {
		return events.ID{}, err
	}
	if !receipt.Run.IsZero() {
		return receipt.Run, nil
	}
	if receipt.Fate == "duplicate" { // the first answer did not arrive
		row, err := e.o.Store.Delivery(ctx, receipt.DuplicateOf)
		if err != nil {
			return events.ID{}, err
		}
		receipt.Code, receipt.Reason = row.Code, row.Reason
	}
	return events.ID{}, &events.Failure{Class: events.ExecFailed, Expected: "a run of " + c.Plan.Pipeline, Actual: "none",
		Reason: receipt.Code + ": " + receipt.Reason}
}

// untilStored asks again while the store cannot take it: a full disk delays a child run and fails no stage. A stage that
// goes on after a restart may ask before the engine takes anything in.
func (e *Engine) untilStored(ctx context.Context, ask func() error) error {
	select {
	case <-e.taking:
	case <-e.done:
	}
	for {
		err := ask()
		if err == nil || errors.Is(err, trigger.ErrClosed) || errors.Is(err, ErrEnded) || errors.Is(err, storage.ErrNotFound) {
			return err
		}
		select {
		case <-time.After(resyncPause):
		case <-ctx.Done():
			return err
		case <-e.done:
			return err
		}
	}
}

// CancelChild implements executor.Runs.
func (e *Engine) CancelChild(ctx context.Context, run events.ID, reason string) error {
	err := e.untilStored(ctx, func() error { return e.Cancel(ctx, run, "", reason) })
	if errors.Is(err, ErrEnded) {
		return nil
	}
	return err
}

// WaitChild implements executor.Runs.
func (e *Engine) WaitChild(ctx context.Context, id events.ID) (executor.ChildEnd, error) {
	for {
		ended := e.children.watch(id)
		row, err := e.o.Store.Run(ctx, id)
		if err != nil {
			return executor.ChildEnd{}, err
		}
		if row.State.Terminal() {
			return e.childEnd(ctx, id, row.Plan)
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return executor.ChildEnd{}, context.Cause(ctx)
		case <-e.done:
			return executor.ChildEnd{}, trigger.ErrClosed
		}
	}
}

// childEnd folds a run that has ended and evaluates its plan's outputs.
func (e *Engine) childEnd(ctx context.Context, id events.ID, digest events.Digest) (executor.ChildEnd, error) {
	g, err := storage.ReadGraph(ctx, e.o.Store, digest)
	if err != nil {
		return executor.ChildEnd{}, err
	}
	plan := g.Plan
	run, err := e.refold(g, id, nil)
	if err != nil {
		return executor.ChildEnd{}, err
	}
	end := executor.ChildEnd{State: run.State, Class: run.Class, Stage: run.Culprit, Reason: run.Reason}
	if run.State != events.Completed {
		return end, nil
	}
	l := &live{run: run}
	a := &stage.Attempt{Run: id, Plan: plan, Stage: &events.Stage{}, Params: run.Params, Upstream: map[string]*stage.Upstream{},
		Logical: time.Unix(0, run.Logical).UTC(), Seed: run.Seed, Delivery: func(ctx context.Context) (*events.Data, error) { return e.delivery(ctx, run.Delivery) }}
	for i := range plan.Stages {
		a.Upstream[plan.Stages[i].Name] = l.upstream(i)
	}
	end.Outputs = map[string]events.Result{}
	for _, o := range plan.Outputs {
		v, err := e.o.Conditions.Value(ctx, a, o.From)
		var f *events.Failure
		if errors.As(err, &f) && f.Class == events.BadInput {
			return end, &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role, Expected: o.From, Actual: f.Reason,
				Reason: fmt.Sprintf("the output %s of the pipeline %s has no value: %s", o.Role, plan.Pipeline, f.Reason)}
		}
		if err != nil {
			return end, fmt.Errorf("the output %s of the pipeline %s: %w", o.Role, plan.Pipeline, err)
		}
		if end.Outputs[o.Role], err = stage.ResultOf(v); err != nil {
			return end, fmt.Errorf("the output %s of the pipeline %s: %w", o.Role, plan.Pipeline, err)
		}
	}
	return end, nil
}
