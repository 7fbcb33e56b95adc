package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// view is a run folded from its log as far as that goes: the same for every command that shows one.
type view struct {
	run  *events.Run
	logs string // directory of the logs
}

const viewPage = 2000

// openView reads a run's plan and stands before its first event.
func openView(ctx context.Context, s storage.Store, id events.ID, logs string) (*view, error) {
	row, err := s.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	g, err := loadGraph(ctx, s, row.Plan)
	if err != nil {
		return nil, err
	}
	v := &view{run: events.NewRun(g), logs: filepath.Join(logs, id.String())}
	v.run.ID = id
	return v, nil
}

// advance folds what the log has gained; each, when set, sees every new event after it was applied. A log whose chain is
// broken is an error that names the place.
func (v *view) advance(ctx context.Context, s storage.Store, each func(e *events.Event)) error {
	var scratch []byte
	for {
		page, err := s.Events(ctx, v.run.ID, v.run.Chain.Sequence, viewPage)
		if err != nil {
			return err
		}
		for i := range page {
			if scratch, err = v.run.Chain.Follow(&page[i].Event, page[i].Encoded, scratch); err != nil {
				return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
			}
			if err := v.run.Apply(&page[i].Event); err != nil {
				return err
			}
			if each != nil {
				each(&page[i].Event)
			}
		}
		if len(page) < viewPage {
			return nil
		}
	}
}

// loadView folds a run as far as its log goes.
func loadView(ctx context.Context, s storage.Store, id events.ID, logs string) (*view, error) {
	v, err := openView(ctx, s, id, logs)
	if err == nil {
		err = v.advance(ctx, s, nil)
	}
	return v, err
}

func loadGraph(ctx context.Context, s storage.Store, digest events.Digest) (*events.Graph, error) {
	b, err := s.Plan(ctx, digest)
	if err != nil {
		return nil, err
	}
	if events.DigestOf(b) != digest {
		return nil, fmt.Errorf("plan %s: %w: its bytes have another digest", digest, storage.ErrCorrupt)
	}
	plan, err := events.DecodePlan(b)
	if err != nil {
		return nil, err
	}
	return events.NewGraph(plan, digest)
}

// The JSON shape of run and show: fields may be added, never renamed.
type runJSON struct {
	Run       string      `json:"run"`
	Pipeline  string      `json:"pipeline"`
	State     string      `json:"state"`
	Forked    *string     `json:"forked_from"`
	Sample    int         `json:"sample"`
	CreatedAt string      `json:"created_at"`
	Duration  int64       `json:"duration_ms"`
	Class     string      `json:"class,omitempty"`
	Reason    string      `json:"reason,omitempty"`
	Plan      string      `json:"plan"`
	Delivery  string      `json:"delivery,omitempty"`
	Trigger   string      `json:"trigger"`
	Params    any         `json:"params,omitempty"`
	Stages    []stageJSON `json:"stages"`
}

type stageJSON struct {
	Stage     string                `json:"stage"`
	Item      *string               `json:"item"`
	State     string                `json:"state"`
	Attempt   int                   `json:"attempt"`
	Class     string                `json:"class"`
	Reason    string                `json:"reason"`
	WaitsFor  string                `json:"waits_for"`
	StartedAt string                `json:"started_at"`
	Duration  int64                 `json:"duration_ms"`
	Segments  []segmentJSON         `json:"segments"`
	Outputs   map[string]outputJSON `json:"outputs"`
	Pointer   string                `json:"pointer,omitempty"`
	Expected  string                `json:"expected,omitempty"`
	Actual    string                `json:"actual,omitempty"`
	Exit      *int                  `json:"exit,omitempty"`
	Signal    string                `json:"signal,omitempty"`
	Evidence  string                `json:"evidence,omitempty"`
	Leftovers int                   `json:"leftovers,omitempty"`
	MaxRSS    int64                 `json:"max_rss,omitempty"`
	CPU       int64                 `json:"cpu_ms,omitempty"`
}

type segmentJSON struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

type outputJSON struct {
	Digest  string          `json:"digest"`
	Size    int64           `json:"size"`
	Records *int64          `json:"records"`
	Name    string          `json:"name,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
}

func (v *view) json() runJSON {
	r := v.run
	j := runJSON{Run: r.ID.String(), Pipeline: r.Graph.Plan.Pipeline, State: r.State.String(), Sample: r.Sample, CreatedAt: stamp(r.Created),
		Class: string(r.Class), Reason: r.Reason, Plan: r.Graph.Digest.String(), Delivery: r.Delivery.String(), Trigger: orText(r.Trigger, r.Kind)}
	if !r.Forked.IsZero() {
		forked := r.Forked.String()
		j.Forked = &forked
	}
	if len(r.Params) > 0 {
		j.Params = r.Params
	}
	if r.Ended > 0 {
		j.Duration = max(0, r.Ended-r.Created) / 1e6
	}
	j.Stages = make([]stageJSON, len(r.Stages))
	for i := range r.Stages {
		j.Stages[i] = v.stage(i)
	}
	return j
}

func (v *view) stage(i int) stageJSON {
	s := &v.run.Stages[i]
	j := stageJSON{Stage: v.run.StageOf(i).Name, State: s.State.String(), Attempt: s.Attempt, WaitsFor: s.Waits, StartedAt: stamp(s.Started),
		Segments: []segmentJSON{}, Outputs: map[string]outputJSON{}}
	if s.Started > 0 && s.Ended > 0 {
		j.Duration = max(0, s.Ended-s.Started) / 1e6
	}
	d := s.Last
	if d == nil {
		return j
	}
	j.Class, j.Reason, j.Pointer, j.Expected, j.Actual = string(d.Class), d.Reason, d.Pointer, d.Expected, d.Actual
	j.Signal, j.Evidence, j.Leftovers = d.Signal, d.Evidence.String(), d.Leftovers
	j.MaxRSS, j.CPU = d.Usage.MaxRSS, (d.Usage.User + d.Usage.System).Milliseconds()
	if d.Class == events.ExecFailed && d.Signal == "" {
		exit := d.Exit
		j.Exit = &exit
	}
	for _, seg := range d.Segments {
		j.Segments = append(j.Segments, segmentJSON{seg.Name, float64(seg.Duration) / 1e6})
	}
	for _, o := range d.Outputs {
		out := outputJSON{Digest: o.Digest.String(), Size: o.Size, Name: o.Name, Value: o.Value}
		if o.Records >= 0 {
			out.Records = &o.Records
		}
		j.Outputs[o.Role] = out
	}
	return j
}

// logFile gives where an attempt's stream was kept.
func (v *view) logFile(stage string, attempt int, stream string) string {
	return filepath.Join(v.logs, stage, strconv.Itoa(attempt), stream)
}

func (a *app) logsDir() string { return filepath.Join(a.data, "logs") }
