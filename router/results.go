package router

import (
	"context"
	"errors"
	"slices"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/storage"
)

// results is what the loop knows of results that runs may take over.
type results struct {
	recent map[events.Digest]recentResult               // that may not be durable yet
	runs   map[events.ID]map[events.Digest]*events.Data // of runs that were read, by stage key
	order  []events.ID                                  // of their reading
}

type recentResult struct {
	storage.ResultRow
	data *events.Data
}

const (
	maxRecent  = 8192 // results kept by key
	maxOrigins = 16   // runs whose results are kept
)

func newResults() results {
	return results{recent: map[events.Digest]recentResult{}, runs: map[events.ID]map[events.Digest]*events.Data{}}
}

// Cached implements schedule.Conditions.
func (e conditions) Cached(r *events.Run, i int) *events.Data {
	l := e.live[r.ID]
	st := r.StageOf(i)
	if l == nil || e.o.Keys == nil || !stage.Shareable(st) {
		return nil
	}
	if hit, known := l.hits[i]; known && r.Stages[i].State == events.Running {
		return hit
	}
	hit := e.find(l, i)
	if l.hits == nil {
		l.hits = map[int]*events.Data{}
	}
	l.hits[i] = hit
	return hit
}

// find looks for a result with the stage's key whose outputs are still there.
func (e conditions) find(l *live, i int) *events.Data {
	document, ok := e.o.Keys.Key(context.Background(), e.attempt(l, i))
	if !ok {
		return nil
	}
	key := events.DigestOf(document)
	row, found, err := e.result(key)
	if err != nil {
		e.o.Logger.Error().Err(err).Msg("look for a result to take over: the stage runs")
	}
	if !found {
		return nil
	}
	d := e.resultOf(row)
	if d == nil || !e.whole(d.Outputs) {
		return nil
	}
	hit := *d
	hit.Cached = row.Run
	return &hit
}

// result finds the first result with a key: of units that may not be durable yet, then in the store.
func (e *Engine) result(key events.Digest) (row storage.ResultRow, found bool, err error) {
	if r, found := e.results.recent[key]; found {
		return r.ResultRow, true, nil
	}
	row, err = e.o.Store.Result(context.Background(), key)
	if errors.Is(err, storage.ErrNotFound) {
		return row, false, nil
	}
	return row, err == nil, err
}

// resultOf gives the data of the event that a result stands in. Runs whose results are taken over one after the other are
// read once.
func (e *Engine) resultOf(row storage.ResultRow) *events.Data {
	if r, known := e.results.recent[row.Key]; known {
		return r.data
	}
	of, known := e.results.runs[row.Run]
	if of[row.Key] == nil { // not read yet, or read before the run came to this result
		run, err := e.foldWhole(row.Run)
		if err != nil {
			e.o.Logger.Error().Err(err).Stringer("run", row.Run).Msg("read a run whose result would be taken over")
			return nil
		}
		of = map[events.Digest]*events.Data{}
		for k := range run.Stages {
			if s := &run.Stages[k]; s.State == events.Completed && s.Last != nil && s.Last.Shared == 1 {
				of[s.Last.StageKey()] = s.Last
			}
		}
		if !known && len(e.results.order) >= maxOrigins {
			delete(e.results.runs, e.results.order[0])
			e.results.order = e.results.order[1:]
		}
		if !known {
			e.results.order = append(e.results.order, row.Run)
		}
		e.results.runs[row.Run] = of
	}
	return of[row.Key]
}

// foldWhole folds a run from the store, with its own plan.
func (e *Engine) foldWhole(id events.ID) (*events.Run, error) {
	row, err := e.o.Store.Run(context.Background(), id)
	if err != nil {
		return nil, err
	}
	g := e.plans[row.Plan]
	if g == nil {
		if g, err = e.readPlan(context.Background(), row.Plan); err != nil {
			return nil, err
		}
	}
	return e.refold(g, id, nil)
}

// whole reports whether every artifact among the outputs is there.
func (e *Engine) whole(outputs []events.Result) bool {
	for i := range outputs {
		if o := &outputs[i]; len(o.Value) == 0 && !e.o.Artifacts.Has(o.Digest) {
			return false
		}
	}
	return true
}

// compare holds the result of an attempt against an earlier one with the same stage key, and records where they differ. A
// result that others may take over is entered under its key.
func (u *unit) compare(l *live, i int) {
	e := u.engine
	s := &l.run.Stages[i]
	if s.Last.Shared == 0 && l.run.Forked.IsZero() {
		return // nothing to compare it with
	}
	key := s.Last.StageKey()
	if key.IsZero() {
		return
	}
	var earlier *events.Data
	var of events.ID
	if s.Last.Shared == 1 {
		row, found, err := e.result(key)
		switch {
		case err != nil:
			e.o.Logger.Error().Err(err).Msg("look for an earlier result with the same stage key")
		case found:
			earlier, of = e.resultOf(row), row.Run
		default:
			u.enter(recentResult{storage.ResultRow{Key: key, Run: l.run.ID, Sequence: l.run.Chain.Sequence}, s.Last})
		}
	}
	if earlier == nil && !l.run.Forked.IsZero() {
		origin := e.origin(l)
		if k, ok := origin.Find(l.run.StageOf(i).Name, int(s.Item)); ok {
			if before := &origin.Stages[k]; before.State == events.Completed && before.Last.StageKey() == key {
				earlier, of = before.Last, l.run.Forked
			}
		}
	}
	if earlier != nil {
		u.find(l, i, earlier, of)
	}
}

func (u *unit) enter(row recentResult) {
	recent := u.engine.results.recent
	if len(recent) >= maxRecent {
		clear(recent)
	}
	recent[row.Key] = row
	u.batch.Results = append(u.batch.Results, row.ResultRow)
}

// find records a second, different result for one stage key.
func (u *unit) find(l *live, i int, earlier *events.Data, of events.ID) {
	st, last := l.run.StageOf(i), l.run.Stages[i].Last
	var ignore []string
	if st.Compare != nil {
		ignore = st.Compare.Ignore
	}
	role, differ := events.Differ(earlier.Outputs, last.Outputs, ignore)
	if !differ {
		return
	}
	digest := func(list []events.Result) string {
		if k := slices.IndexFunc(list, func(r events.Result) bool { return r.Role == role }); k >= 0 {
			return list[k].Digest.String()
		}
		return "missing"
	}
	u.must(l, &events.Event{Stream: l.run.ID, Type: events.StageIrreproducibleFound, Data: events.Data{Stage: st.Name, Item: last.Item, Attempt: last.Attempt,
		PinnedAt: last.StageKey(), Role: role, Expected: digest(earlier.Outputs), Actual: digest(last.Outputs), Run: of,
		Reason: "the same pins gave another output " + role + " in run " + of.String()}})
}
