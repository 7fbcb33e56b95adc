package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
)

// What cannot be verified.
var (
	ErrFactor   = errors.New("there is no such factor")
	ErrNoStage  = errors.New("the run has no such stage")
	ErrNotEnded = errors.New("the run has not ended")
)

// target is a stage of the run, or an instance, with everything that its recorded attempt was given.
type target struct {
	index   int
	stage   *events.Stage
	item    int
	stand   *events.Stand
	run     *events.Run
	attempt *stage.Attempt
	results []events.Result // recorded, as they are compared
	opened  bool            // a person let them pass the gate
	took    time.Duration   // of the recorded attempt

	filtered map[events.Digest]events.Digest // outputs by digest, after compare.normalise
}

// gather gives the stages that have come to an end of their own, in topological order; instances follow their stage.
func gather(r *events.Run, o *Options) ([]*target, error) {
	if !r.State.Terminal() {
		return nil, fmt.Errorf("%w: it is %s", ErrNotEnded, r.State)
	}
	for _, name := range o.Stages {
		if _, known := r.Graph.Index(name); !known {
			return nil, fmt.Errorf("%w: %s", ErrNoStage, name)
		}
	}
	from := newRecorded(r, o)
	var list []*target
	for p := range r.Graph.Plan.Stages { // which stand in topological order
		places := []int{p}
		if s := &r.Stages[p]; s.First > 0 {
			places = nil
			for k := s.First; k < s.First+s.Count; k++ {
				places = append(places, int(k))
			}
		} else if r.Graph.Plan.Stages[p].Foreach != "" {
			continue // without an item nothing of it was executed
		}
		for _, i := range places {
			s := &r.Stages[i]
			wanted := len(o.Stages) == 0 || slices.Contains(o.Stages, r.StageOf(i).Name)
			if !wanted || s.Last == nil || s.State != events.Completed && s.State != events.Failed {
				continue // it was never executed: there is no result
			}
			t := &target{index: i, stage: r.StageOf(i), item: int(s.Item), stand: s, run: r, opened: s.Passed != nil,
				results: s.Last.Outputs, took: time.Duration(s.Ended - s.Started)}
			t.attempt = stage.Gather(r, i, from, s.Started)
			t.attempt.Number, t.attempt.Token = s.Last.Attempt, s.Last.Token
			t.attempt.Given = given(s.Last, o.Artifacts)
			list = append(list, t)
		}
	}
	return list, nil
}

// given is what the recorded attempt was given, by role: an input from the machine is not taken from there again. What the
// pins do not say shows when the pins are rebuilt.
func given(last *events.Data, from Artifacts) map[string]events.PinnedInput {
	var pins events.Pins
	if json.Unmarshal(pinsOf(last, from), &pins) != nil {
		return nil
	}
	all := make(map[string]events.PinnedInput, len(pins.Inputs))
	for _, in := range pins.Inputs {
		all[in.Role] = in
	}
	return all
}

// pinsOf gives an attempt's pins document, nil when it has none or it is gone.
func pinsOf(last *events.Data, from Artifacts) []byte {
	if last.PinnedAt.IsZero() {
		return last.Pinned
	}
	b, err := content(from, last.PinnedAt)
	if err != nil {
		return nil
	}
	return b
}

// recorded reads what attempts were given from the folded run. It implements stage.Recorded.
type recorded struct {
	run    *events.Run
	o      *Options
	values map[string]json.RawMessage
	items  map[int][]json.RawMessage
}

func newRecorded(r *events.Run, o *Options) *recorded {
	d := &recorded{run: r, o: o, items: map[int][]json.RawMessage{}}
	_ = json.Unmarshal(r.Params, &d.values) // what is no object shows at the first expression that asks for it
	return d
}

func (d *recorded) Values() map[string]json.RawMessage { return d.values }
func (d *recorded) Upstream(i int) *stage.Upstream     { return stage.UpstreamOf(d.run, i) }

func (d *recorded) Delivery(ctx context.Context, id events.ID) (*events.Data, error) {
	return d.o.Delivery(ctx, id)
}

func (d *recorded) Items(i int) ([]json.RawMessage, error) {
	if items, known := d.items[i]; known {
		return items, nil
	}
	from := d.run.Stages[i].Items
	if from == nil {
		return nil, fmt.Errorf("the stage %s has no items", d.run.Graph.Plan.Stages[i].Name)
	}
	list := []byte(from.Items)
	if len(list) == 0 {
		var err error
		if list, err = content(d.o.Artifacts, from.Blob); err != nil {
			return nil, fmt.Errorf("read the items of %s: %w", d.run.Graph.Plan.Stages[i].Name, err)
		}
	}
	var items []json.RawMessage
	if err := json.Unmarshal(list, &items); err != nil {
		return nil, fmt.Errorf("read the items of %s: %w", d.run.Graph.Plan.Stages[i].Name, err)
	}
	d.items[i] = items
	return items, nil
}

func content(from Artifacts, d events.Digest) ([]byte, error) {
	r, err := from.Get(d)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // read only
	return io.ReadAll(r)
}
