package cmd

import (
	"encoding/json"

	"github.com/apollo-11/apollo/events"
)

// seen is what the log says of a run for people only: the folded state has no use for it.
type seen struct {
	queued    map[int]queued // by place, of stages that have waited
	checks    map[int][]events.Check
	opened    map[int]string            // who opened the stage's gate
	items     map[int][]json.RawMessage // of foreach stages; long lists are artifacts, and not here
	found     []events.Data             // irreproducible results
	held      string                    // why the run itself waits
	canceller string
	forkedFor string // why the run was made of an ended one
	forkedBy  string
	proofs    map[int]*proof // of stages by place, and of the run itself
}

// queued is how a stage came to wait the last time.
type queued struct {
	since  int64
	reason string
}

// newView makes a view of a run that is folded already, or is to be.
func newView(r *events.Run, logs string) *view {
	return &view{run: r, logs: logs, seen: seen{queued: map[int]queued{}, checks: map[int][]events.Check{}, opened: map[int]string{},
		items: map[int][]json.RawMessage{}}}
}

// see takes in an event that the run has just taken.
func (v *seen) see(r *events.Run, e *events.Event) {
	d := &e.Data
	switch e.Type {
	case events.RunCreated:
		if !d.Forked.IsZero() {
			v.forkedFor, v.forkedBy = d.Reason, d.Actor
		}
	case events.RunQueued:
		v.held = d.Reason
	case events.RunCancelRequested:
		v.canceller = d.Actor
	case events.RunResumed:
		v.canceller = ""
	case events.RunVerified, events.StageVerified, events.StageIrreproducibleFound:
		v.prove(r, e)
	}
	i, ok := r.Find(d.Stage, d.Item)
	if !ok || e.Type.Entity() != "stage" {
		return
	}
	switch e.Type {
	case events.StageQueued:
		v.queued[i] = queued{e.Time, d.Reason}
		v.checks[i] = nil
	case events.StageRetryScheduled:
		v.queued[i] = queued{e.Time, ""}
	case events.StageStarted:
		v.checks[i] = decisive(v.checks[i]) // those of an earlier attempt are over
		if len(d.Items) > 0 {
			var items []json.RawMessage
			_ = json.Unmarshal(d.Items, &items) // a list that cannot be read has no values to show
			v.items[i] = items
		}
	case events.StageIrreproducibleFound:
		v.found = append(v.found, *d)
	case events.StageGateOpened:
		v.opened[i] = d.Actor
	}
	v.checks[i] = append(v.checks[i], d.Checks...)
	if len(v.checks[i]) == 0 {
		delete(v.checks, i)
	}
}

// decisive keeps the conditions that decided whether a stage runs, and drops those of its work.
func decisive(checks []events.Check) (kept []events.Check) {
	for _, c := range checks {
		if c.Kind == "when" || c.Kind == "foreach" {
			kept = append(kept, c)
		}
	}
	return kept
}

// smallItem is the length in bytes of JSON up to which an item is shown.
const smallItem = 256

// item gives the value of an instance's item, when it is small.
func (v *view) item(i int) json.RawMessage {
	s := &v.run.Stages[i]
	if items := v.items[int(s.Plan)]; s.Item > 0 && int(s.Item) <= len(items) && len(items[s.Item-1]) <= smallItem {
		return items[s.Item-1]
	}
	return nil
}

// reused reports whether a rerun took the stage's outputs over: nobody has carried it out here.
func (v *view) reused(i int) bool {
	s := &v.run.Stages[i]
	return !v.run.Forked.IsZero() && s.State == events.Completed && s.Attempt > 0 && s.Worker == "" && s.First == 0 && s.Passed == nil && s.Cached.IsZero()
}
