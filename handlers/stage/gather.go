package stage

import (
	"context"
	"encoding/json"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Recorded is where an attempt's data is read from. Each is asked only when the stage reads it.
type Recorded interface {
	// Values gives the run's parameters, decoded.
	Values() map[string]json.RawMessage
	// Upstream gives how the stage of the plan at the place stands.
	Upstream(i int) *Upstream
	// Items gives the items of the foreach stage at the place.
	Items(i int) ([]json.RawMessage, error)
	// Delivery gives what the run came from.
	Delivery(ctx context.Context, id events.ID) (*events.Data, error)
}

// Gather makes the attempt of the stage, or instance, at a place of a run, as the run stands; now is in Unix nanoseconds.
// The attempt's number and token are the caller's to set.
func Gather(r *events.Run, i int, from Recorded, now int64) *Attempt {
	s, st := &r.Stages[i], r.StageOf(i)
	a := &Attempt{Run: r.ID, Plan: r.Graph.Plan, Stage: st, Index: i, Item: int(s.Item), Params: r.Params, Values: from.Values(),
		Kind: r.Kind, Trigger: r.Trigger, From: r.Delivery, Logical: time.Unix(0, r.Logical).UTC(), Seed: r.Seed, Depth: r.Depth,
		Answer: s.Answer, Approved: s.Approved, Broken: s.Broken}
	if s.Item > 0 {
		items, err := from.Items(int(s.Plan))
		if err != nil {
			a.Broken = err.Error()
		}
		a.Value = Item(items, a.Item)
	}
	if len(st.Reads) > 0 {
		a.Upstream = make(map[string]*Upstream, len(st.Reads))
		for _, name := range st.Reads {
			if k, ok := r.Graph.Index(name); ok {
				a.Upstream[name] = from.Upstream(k)
			}
		}
	}
	if st.Facts {
		a.Facts = facts(r, i, now)
	}
	delivery := r.Delivery
	a.Delivery = func(ctx context.Context) (*events.Data, error) { return from.Delivery(ctx, delivery) }
	return a
}

// UpstreamOf gives how the stage of the plan at the place stands.
func UpstreamOf(r *events.Run, i int) *Upstream {
	s := &r.Stages[i]
	up := &Upstream{State: s.State, Foreach: r.Graph.Plan.Stages[i].Foreach != ""}
	if s.Last != nil {
		up.Class, up.Reason, up.Duration, up.Results = s.Last.Class, s.Last.Reason, time.Duration(s.Ended-s.Started), s.Last.Outputs
	}
	for k := s.First; k < s.First+s.Count; k++ {
		var results []events.Result
		if one := &r.Stages[k]; one.State == events.Completed {
			results = one.Last.Outputs
		}
		up.Items = append(up.Items, results)
	}
	return up
}

// facts is what expressions read as `run`: of the stages that this one needs, directly or through others.
func facts(r *events.Run, i int, now int64) map[string]any {
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
