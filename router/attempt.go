package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
)

// attempt gathers what an attempt of a stage, or a condition of it, may know. The loop calls it; what it gives is
// read-only from then on.
func (e *Engine) attempt(l *live, i int) *stage.Attempt {
	r, s := l.run, &l.run.Stages[i]
	st := r.StageOf(i)
	a := &stage.Attempt{Run: r.ID, Plan: r.Graph.Plan, Stage: st, Index: i, Item: int(s.Item), Params: r.Params, Values: l.values(),
		Kind: r.Kind, Trigger: r.Trigger, From: r.Delivery, Logical: time.Unix(0, r.Logical).UTC(), Seed: r.Seed, Depth: r.Depth,
		Answer: s.Answer, Approved: s.Approved, Broken: s.Broken}
	if s.Item > 0 {
		items, err := e.items(l, int(s.Plan))
		if err != nil {
			a.Broken = err.Error()
		}
		a.Value = stage.Item(items, a.Item)
	}
	if len(st.Reads) > 0 {
		a.Upstream = make(map[string]*stage.Upstream, len(st.Reads))
		for _, name := range st.Reads {
			if k, ok := r.Graph.Index(name); ok {
				a.Upstream[name] = l.upstream(k)
			}
		}
	}
	if st.Facts {
		a.Facts = l.facts(i, e.unit.now)
	}
	delivery := r.Delivery
	a.Delivery = func(ctx context.Context) (*events.Data, error) { return e.delivery(ctx, delivery) }
	return a
}

// values decodes the run's parameters, once a run. What is no object shows at the first expression that asks for it.
func (l *live) values() map[string]json.RawMessage {
	if l.params == nil && len(l.run.Params) > 0 {
		_ = json.Unmarshal(l.run.Params, &l.params)
	}
	return l.params
}

// upstream gives how a stage stands. One that has ended is kept: all who read it share it.
func (l *live) upstream(i int) *stage.Upstream {
	if up := l.of[i]; up != nil {
		return up
	}
	s := &l.run.Stages[i]
	up := &stage.Upstream{State: s.State, Foreach: l.run.Graph.Plan.Stages[i].Foreach != ""}
	if s.Last != nil {
		up.Class, up.Reason, up.Duration, up.Results = s.Last.Class, s.Last.Reason, time.Duration(s.Ended-s.Started), s.Last.Outputs
	}
	for k := s.First; k < s.First+s.Count; k++ {
		var results []events.Result
		if one := &l.run.Stages[k]; one.State == events.Completed {
			results = one.Last.Outputs
		}
		up.Items = append(up.Items, results)
	}
	if s.State.Terminal() {
		if l.of == nil {
			l.of = map[int]*stage.Upstream{}
		}
		l.of[i] = up
	}
	return up
}

// facts is what expressions read as `run`: of the stages that this one needs, directly or through others.
func (l *live) facts(i int, now int64) map[string]any {
	r := l.run
	above, todo := map[int]bool{}, []int{int(r.Stages[i].Plan)}
	for len(todo) > 0 {
		for _, need := range r.Graph.Plan.Stages[todo[0]].Needs {
			if k, _ := r.Graph.Index(need); !above[k] {
				above[k] = true
				todo = append(todo, k)
			}
		}
		todo = todo[1:]
	}
	failed, state := []any{}, events.Completed
	for k := range r.Graph.Plan.Stages {
		if above[k] && r.Stages[k].State == events.Failed {
			failed = append(failed, r.Graph.Plan.Stages[k].Name)
			if !r.Graph.Plan.Stages[k].MayFail {
				state = events.Failed
			}
		}
	}
	return map[string]any{"id": r.ID.String(), "pipeline": r.Graph.Plan.Pipeline, "created": time.Unix(0, r.Created).UTC().Format(time.RFC3339Nano),
		"state": state.String(), "failed": failed, "duration_ms": int((now - r.Created) / int64(time.Millisecond))}
}

// items gives the items of a foreach stage; a long list is read from the artifact once a run.
func (e *Engine) items(l *live, i int) ([]json.RawMessage, error) {
	if items, ok := l.items[i]; ok {
		return items, nil
	}
	d := l.run.Stages[i].Items
	if d == nil {
		return nil, fmt.Errorf("the stage %s has no items", l.run.Graph.Plan.Stages[i].Name)
	}
	list := []byte(d.Items)
	if len(list) == 0 {
		var err error
		if list, err = e.artifact(d.Blob); err != nil {
			return nil, fmt.Errorf("read the items of %s: %w", l.run.Graph.Plan.Stages[i].Name, err)
		}
	}
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, fmt.Errorf("read the items of %s: %w", l.run.Graph.Plan.Stages[i].Name, err)
	}
	if l.items == nil {
		l.items = map[int][]json.RawMessage{}
	}
	l.items[i] = items
	return items, nil
}

func (e *Engine) artifact(d events.Digest) ([]byte, error) {
	r, err := e.o.Artifacts.Get(d)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // read only
	return io.ReadAll(r)
}

func (e *Engine) delivery(ctx context.Context, id events.ID) (*events.Data, error) {
	log, err := e.o.Store.Events(ctx, id, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("read delivery: %w", err)
	}
	if len(log) == 0 {
		return nil, fmt.Errorf("read delivery %s: not in the log", id)
	}
	return &log[0].Data, nil
}
