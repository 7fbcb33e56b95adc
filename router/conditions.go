package router

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/schedule"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/trigger"
)

// conditions answers the scheduler from the folded runs. The loop calls it.
type conditions struct{ *Engine }

// When implements schedule.Conditions.
func (e conditions) When(r *events.Run, i int) events.Check {
	l := e.live[r.ID]
	if l == nil || e.o.Conditions == nil {
		return events.Check{Kind: "when", Expr: r.StageOf(i).When, Error: "this engine evaluates no conditions"}
	}
	return e.o.Conditions.When(context.Background(), e.attempt(l, i))
}

// Items implements schedule.Conditions.
func (e conditions) Items(r *events.Run, i int) (items schedule.Items) {
	l := e.live[r.ID]
	if l == nil || e.o.Conditions == nil {
		items.Check = events.Check{Kind: "foreach", Expr: r.StageOf(i).Foreach, Error: "this engine evaluates no conditions"}
		return items
	}
	items.List, items.Count, items.Check = e.o.Conditions.Items(context.Background(), e.attempt(l, i))
	if len(items.List) <= events.MaxInline {
		return items
	}
	info, err := e.o.Artifacts.Put(context.Background(), bytes.NewReader(items.List))
	if err != nil {
		items.Check.Error, items.Check.Holds = "keep the items: "+err.Error(), false
		return items
	}
	items.List, items.Blob = nil, info.Digest
	return items
}

// Reused implements schedule.Conditions: what completed in the run that this one is a rerun of is taken over, unless it
// is the stage from which everything runs anew, or below that.
func (e conditions) Reused(r *events.Run, i int) *events.Data {
	l := e.live[r.ID]
	if l == nil {
		return nil
	}
	e.origin(l)
	if !reusable(r, l.rerun, i) {
		return nil
	}
	k, ok := l.rerun.Find(r.StageOf(i).Name, int(r.Stages[i].Item))
	if !ok || l.rerun.Stages[k].State != events.Completed {
		return nil
	}
	s := &l.rerun.Stages[k]
	if s.First > 0 && s.Item == 0 {
		return s.Items
	}
	return s.Last
}

// origin gives the run that a run is a rerun of, folded; an empty one when it cannot be read.
func (e *Engine) origin(l *live) *events.Run {
	if l.rerun == nil {
		of, err := e.refold(l.run.Graph, l.run.Forked, nil)
		if err != nil {
			e.o.Logger.Error().Err(err).Stringer("run", l.run.ID).Msg("read the run that this one is a rerun of: everything runs anew")
			of = events.NewRun(l.run.Graph)
		}
		l.rerun = of
	}
	return l.rerun
}

// reusable reports whether a stage, and all that it needs, completed in the earlier run and lies not at or below the
// stage from which everything runs anew.
func reusable(r, of *events.Run, i int) bool {
	seen, todo := map[int]bool{}, []int{int(r.Stages[i].Plan)}
	for len(todo) > 0 {
		k := todo[0]
		todo = todo[1:]
		st := &r.Graph.Plan.Stages[k]
		if st.Name == r.From || len(of.Stages) <= k || of.Stages[k].State != events.Completed {
			return false
		}
		for _, need := range st.Needs {
			if n, _ := r.Graph.Index(need); !seen[n] {
				seen[n] = true
				todo = append(todo, n)
			}
		}
	}
	return true
}

// group gives the name of the concurrency group of a run that is about to be made.
func (e *Engine) group(c *events.Concurrency, plan *events.Plan, d *events.Data, rerun *trigger.Rerun) (string, error) {
	src, ok := configs.Expression(c.Group)
	if !ok {
		return c.Group, nil
	}
	a := &stage.Attempt{Plan: plan, Stage: &events.Stage{}, Params: d.Params, Kind: d.Kind, Trigger: d.Trigger,
		Logical: time.Unix(0, cmp.Or(d.Logical, e.unit.now)).UTC(), Delivery: func(context.Context) (*events.Data, error) { return d, nil }}
	if rerun != nil {
		a.Kind, a.Trigger, a.From = rerun.Kind, rerun.Trigger, rerun.Delivery
	}
	if rerun != nil && !rerun.Delivery.IsZero() {
		a.Delivery = func(ctx context.Context) (*events.Data, error) { return e.delivery(ctx, rerun.Delivery) }
	}
	if e.o.Conditions == nil {
		return "", fmt.Errorf("the concurrency group %s: this engine evaluates no conditions", c.Group)
	}
	v, err := e.o.Conditions.Value(context.Background(), a, src)
	if err != nil {
		return "", fmt.Errorf("the concurrency group: %w", err)
	}
	name, err := configs.FormatValue(v)
	if err != nil {
		return "", fmt.Errorf("the concurrency group: %w", err)
	}
	if name = strings.TrimSpace(name); name == "" || len(name) > 256 {
		return "", fmt.Errorf("the concurrency group %s gives a name of %d bytes; 1 to 256 are allowed", c.Group, len(name))
	}
	return name, nil
}
