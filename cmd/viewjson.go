package cmd

import (
	"encoding/json"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// The JSON shape of run and show: fields may be added, never renamed.
type runJSON struct {
	Run         string        `json:"run"`
	Pipeline    string        `json:"pipeline"`
	State       string        `json:"state"`
	Forked      *string       `json:"forked_from"`
	From        string        `json:"from,omitempty"` // of a rerun
	RerunFor    string        `json:"rerun_reason,omitempty"`
	RerunBy     string        `json:"rerun_by,omitempty"`
	Parent      string        `json:"parent,omitempty"`
	Sample      int           `json:"sample"`
	CreatedAt   string        `json:"created_at"`
	Duration    int64         `json:"duration_ms"`
	WaitsFor    string        `json:"waits_for,omitempty"`
	WaitsReason string        `json:"waits_reason,omitempty"`
	Group       string        `json:"group,omitempty"`
	Class       string        `json:"class,omitempty"`
	Reason      string        `json:"reason,omitempty"`
	Actor       string        `json:"cancelled_by,omitempty"`
	Plan        string        `json:"plan"`
	Resumed     bool          `json:"resumed,omitempty"` // on that plan
	Delivery    string        `json:"delivery,omitempty"`
	Trigger     string        `json:"trigger"`
	Params      any           `json:"params,omitempty"`
	Imported    string        `json:"imported_at,omitempty"` // from another store
	Verified    *proofJSON    `json:"verified,omitempty"`
	Findings    []findingJSON `json:"findings,omitempty"` // irreproducible results
	Stages      []stageJSON   `json:"stages"`
}

type stageJSON struct {
	Stage       string                `json:"stage"`
	Item        *int                  `json:"item"` // number of a foreach stage's instance, from 1
	Value       json.RawMessage       `json:"value,omitempty"`
	State       string                `json:"state"`
	Attempt     int                   `json:"attempt"`
	Class       string                `json:"class"`
	Reason      string                `json:"reason"`
	WaitsFor    string                `json:"waits_for"`
	WaitsReason string                `json:"waits_reason,omitempty"`
	WaitsSince  string                `json:"waits_since,omitempty"`
	Due         string                `json:"due,omitempty"`
	StartedAt   string                `json:"started_at"`
	Duration    int64                 `json:"duration_ms"`
	Segments    []segmentJSON         `json:"segments"`
	Outputs     map[string]outputJSON `json:"outputs"`
	Items       *int                  `json:"items,omitempty"`       // of a foreach stage
	Child       string                `json:"child,omitempty"`       // run that the stage started
	Answer      *answerJSON           `json:"answer,omitempty"`      // of the person who was asked
	OpenedBy    string                `json:"opened_by,omitempty"`   // who let the stage pass its gate
	Reused      bool                  `json:"reused,omitempty"`      // taken over from the run that this one is a rerun of
	Cached      string                `json:"cached_from,omitempty"` // run whose result was taken over
	Key         string                `json:"stage_key,omitempty"`   // SHA-256 of the pins document
	Checks      []events.Check        `json:"checks,omitempty"`
	Pins        []events.Pair         `json:"pins,omitempty"`
	Pointer     string                `json:"pointer,omitempty"`
	Expected    string                `json:"expected,omitempty"`
	Actual      string                `json:"actual,omitempty"`
	Exit        *int                  `json:"exit,omitempty"`
	Signal      string                `json:"signal,omitempty"`
	Evidence    string                `json:"evidence,omitempty"`
	Leftovers   int                   `json:"leftovers,omitempty"`
	MaxRSS      int64                 `json:"max_rss,omitempty"`
	CPU         int64                 `json:"cpu_ms,omitempty"`
	Isolation   string                `json:"isolation,omitempty"` // level that was reached
	Hermetic    bool                  `json:"hermetic,omitempty"`  // nothing could be reached that was not declared
	Accesses    []events.Pair         `json:"accesses,omitempty"`
	Declare     []string              `json:"declare,omitempty"` // lines of YAML that declare the accesses
	Verified    *proofJSON            `json:"verified,omitempty"`
	Findings    int                   `json:"findings,omitempty"`
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

type answerJSON struct {
	Approved bool            `json:"approved"`
	By       string          `json:"by"`
	Reason   string          `json:"reason"`
	Form     json.RawMessage `json:"form,omitempty"`
}

func (v *view) json() runJSON {
	r := v.run
	j := runJSON{Run: r.ID.String(), Pipeline: r.Graph.Plan.Pipeline, State: r.State.String(), From: r.From, Sample: r.Sample,
		CreatedAt: stamp(r.Created), Group: r.Group, Class: string(r.Class), Reason: r.Reason, Actor: v.canceller, Plan: r.Graph.Digest.String(), RerunFor: v.forkedFor, RerunBy: v.forkedBy,
		Resumed: r.Resumed(), Delivery: r.Delivery.String(), Trigger: orText(r.Trigger, r.Kind), WaitsFor: r.Waits, Imported: stamp(r.Imported), Verified: v.proofJSON(wholeRun)}
	if r.Waits != "" {
		j.WaitsReason = v.held
	}
	if !r.Forked.IsZero() {
		forked := r.Forked.String()
		j.Forked = &forked
	}
	if !r.Parent.IsZero() {
		j.Parent = r.Parent.String()
	}
	if len(r.Params) > 0 {
		j.Params = r.Params
	}
	if r.Ended > 0 {
		j.Duration = max(0, r.Ended-r.Created) / 1e6
	}
	j.Findings = v.findings()
	j.Stages = make([]stageJSON, len(r.Stages))
	for i := range r.Stages {
		j.Stages[i] = v.stage(i)
	}
	return j
}

// itemNumber gives the number of an instance, nil for a stage of the plan.
func itemNumber(s *events.Stand) *int {
	if s.Item == 0 {
		return nil
	}
	n := int(s.Item)
	return &n
}

func (v *view) stage(i int) stageJSON {
	s := &v.run.Stages[i]
	j := stageJSON{Stage: v.run.StageOf(i).Name, Item: itemNumber(s), Value: v.item(i), State: s.State.String(), Attempt: s.Attempt, WaitsFor: s.Waits,
		StartedAt: stamp(s.Started), Segments: []segmentJSON{}, Outputs: map[string]outputJSON{}, Checks: v.checks[i], OpenedBy: v.opened[i],
		Reused: v.reused(i), Verified: v.proofJSON(i), Findings: v.findingsAt(i)}
	if s.Started > 0 && s.Ended > 0 {
		j.Duration = max(0, s.Ended-s.Started) / 1e6
	}
	if s.First > 0 {
		n := int(s.Count)
		j.Items = &n
	}
	if s.State == events.Pending && s.Queued {
		j.WaitsReason, j.WaitsSince, j.Due = v.queued[i].reason, stamp(v.queued[i].since), stamp(s.Due)
	}
	if a := s.Answer; a != nil {
		j.Answer = &answerJSON{Approved: s.Approved, By: a.Actor, Reason: a.Reason, Form: a.Answer}
	}
	if s.Last != nil {
		j.ended(s.Last)
	}
	return j
}

// ended adds what the event says that ended the stage, or its last attempt.
func (j *stageJSON) ended(d *events.Data) {
	j.Class, j.Reason, j.Pointer, j.Expected, j.Actual = string(d.Class), d.Reason, d.Pointer, d.Expected, d.Actual
	j.Signal, j.Evidence, j.Leftovers = d.Signal, d.Evidence.String(), d.Leftovers
	j.Isolation, j.Hermetic, j.Accesses, j.Declare = d.Isolation, d.Hermetic == 1, d.Accesses, executor.Declare(d.Accesses)
	j.MaxRSS, j.CPU = d.Usage.MaxRSS, (d.Usage.User + d.Usage.System).Milliseconds()
	if key := d.StageKey(); !key.IsZero() {
		j.Key = key.String()
	}
	if !d.Cached.IsZero() {
		j.Cached = d.Cached.String()
	}
	if d.Class == events.ExecFailed && d.Signal == "" {
		exit := d.Exit
		j.Exit = &exit
	}
	for _, seg := range d.Segments {
		j.Segments = append(j.Segments, segmentJSON{seg.Name, float64(seg.Duration) / 1e6})
	}
	for _, pin := range d.Pins {
		if j.Pins = append(j.Pins, pin); pin.Name == "run" {
			j.Child = pin.Value
		}
	}
	for _, o := range d.Outputs {
		out := outputJSON{Digest: o.Digest.String(), Size: o.Size, Name: o.Name, Value: o.Value}
		if o.Records >= 0 {
			out.Records = &o.Records
		}
		j.Outputs[o.Role] = out
	}
}
