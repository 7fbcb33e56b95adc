package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
)

// attempt gathers what an attempt of a stage, or a condition of it, may know. The loop calls it; what it gives is
// read-only from then on.
func (e *Engine) attempt(l *live, i int) *stage.Attempt {
	return stage.Gather(l.run, i, recorded{e, l}, e.unit.now)
}

// recorded reads a live run's data, and keeps what its stages share. It implements stage.Recorded.
type recorded struct {
	engine *Engine
	live   *live
}

func (r recorded) Values() map[string]json.RawMessage     { return r.live.values() }
func (r recorded) Upstream(i int) *stage.Upstream         { return r.live.upstream(i) }
func (r recorded) Items(i int) ([]json.RawMessage, error) { return r.engine.items(r.live, i) }
func (r recorded) Delivery(ctx context.Context, id events.ID) (*events.Data, error) {
	return r.engine.delivery(ctx, id)
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
	up := stage.UpstreamOf(l.run, i)
	if l.run.Stages[i].State.Terminal() {
		if l.of == nil {
			l.of = map[int]*stage.Upstream{}
		}
		l.of[i] = up
	}
	return up
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
