package provenance

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/bundle"
)

// ErrNoSubject says that a run has no output: a statement would be about nothing.
var ErrNoSubject = errors.New("E_NO_SUBJECT: no stage of the run has an output that a statement could be about")

// The fixed texts of a statement.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = "https://github.com/apollo-11/apollo/run/v1" // docs/carry.md says what its parameters are
	builderID     = "https://github.com/apollo-11/apollo"
)

type statement struct {
	Type          string       `json:"_type"`
	Subject       []descriptor `json:"subject"`
	PredicateType string       `json:"predicateType"`
	Predicate     predicate    `json:"predicate"`
}

// descriptor is in-toto's ResourceDescriptor.
type descriptor struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      map[string]string `json:"digest,omitempty"`
	MediaType   string            `json:"mediaType,omitempty"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string         `json:"buildType"`
		ExternalParameters   map[string]any `json:"externalParameters"`
		InternalParameters   map[string]any `json:"internalParameters"`
		ResolvedDependencies []descriptor   `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID      string            `json:"id"`
			Version map[string]string `json:"version,omitempty"`
		} `json:"builder"`
		Metadata struct {
			InvocationID string `json:"invocationId"`
			StartedOn    string `json:"startedOn"`
			FinishedOn   string `json:"finishedOn"`
		} `json:"metadata"`
		Byproducts []descriptor `json:"byproducts"`
	} `json:"runDetails"`
}

// Statement writes an in-toto statement, version 1, with SLSA provenance, version 1, about the outputs of a run that has
// ended. It is not signed. It gives what the run is made of.
func Statement(ctx context.Context, to io.Writer, from bundle.Source, files bundle.Artifacts, o bundle.Options) (*bundle.Manifest, error) {
	f, err := collect(ctx, from, files, o)
	if err != nil {
		return nil, err
	}
	s := statement{Type: statementType, PredicateType: predicateType}
	f.outputs(func(label string, r *events.Result) {
		name := label + "/" + r.Role
		s.Subject = append(s.Subject, describe(name, r.Digest))
	})
	if len(s.Subject) == 0 {
		return nil, ErrNoSubject
	}
	f.define(&s.Predicate)
	f.tell(&s.Predicate)
	e := json.NewEncoder(to)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return f.m, e.Encode(s)
}

func describe(name string, d events.Digest) descriptor {
	return descriptor{Name: name, Digest: map[string]string{"sha256": plain(d)}}
}

// define says what was asked for, and what it depended on.
func (f *facts) define(p *predicate) {
	d := &p.BuildDefinition
	d.BuildType = buildType
	d.ExternalParameters = map[string]any{"pipeline": f.run.Graph.Plan.Pipeline, "trigger": f.run.Kind}
	if len(f.run.Params) > 0 {
		d.ExternalParameters["params"] = f.run.Params
	}
	stages := map[string]any{}
	for _, a := range f.attempts {
		if a.done && !a.key.IsZero() {
			stages[a.label] = map[string]any{"key": a.key.String(), "attempt": a.number}
		}
	}
	d.InternalParameters = map[string]any{"run": f.run.ID.String(), "logical_time": instant(f.run.Logical), "stages": stages}
	seen := map[events.Digest]bool{}
	add := func(name string, digest events.Digest) {
		if !digest.IsZero() && !seen[digest] {
			seen[digest] = true
			d.ResolvedDependencies = append(d.ResolvedDependencies, describe(name, digest))
		}
	}
	add("plan", f.run.Graph.Digest)
	if in, is := f.brought(); is {
		add("trigger", in.Digest)
	}
	made := map[events.Digest]bool{}
	f.outputs(func(_ string, r *events.Result) { made[r.Digest] = true })
	for _, a := range f.attempts {
		if a.pins != nil {
			add(a.label+"/definition", a.pins.Definition)
		}
		for i := range a.inputs {
			if in := &a.inputs[i]; !made[in.Digest] { // what the run made itself is no dependency of it
				add(a.label+"/"+in.Role, in.Digest)
			}
		}
		f.pinned(a, &d.ResolvedDependencies)
	}
}

// pinned adds what else an attempt pinned by a digest: an image, an interpreter.
func (f *facts) pinned(a *attempt, to *[]descriptor) {
	all := a.tools
	if a.data != nil {
		all = slices.Concat(all, a.data.Pins)
	}
	for _, pin := range all {
		if slices.ContainsFunc(*to, func(d descriptor) bool { return d.Name == a.label+"/"+pin.Name }) {
			continue
		}
		var digest events.Digest
		if len(pin.Value) >= 71 && digest.UnmarshalText([]byte(pin.Value[len(pin.Value)-71:])) == nil {
			one := describe(a.label+"/"+pin.Name, digest)
			one.Annotations = map[string]any{"as": pin.Value}
			*to = append(*to, one)
		}
	}
}

// tell says how the run went.
func (f *facts) tell(p *predicate) {
	r := &p.RunDetails
	r.Builder.ID = builderID
	for _, a := range f.attempts {
		if a.machine != nil {
			r.Builder.Version = map[string]string{"apollo": a.machine.Apollo, "go": a.machine.Go}
		}
	}
	r.Metadata.InvocationID = f.run.ID.String()
	r.Metadata.StartedOn, r.Metadata.FinishedOn = second(f.run.Started), second(f.run.Ended)
	log := describe("log", f.head)
	log.Annotations = map[string]any{"state": f.run.State.String(), "what": "hash of the last event of the run's hash chain"}
	r.Byproducts = []descriptor{log}
	for _, a := range f.attempts {
		if a.data == nil {
			continue
		}
		if !a.data.Evidence.IsZero() {
			r.Byproducts = append(r.Byproducts, describe("evidence/"+a.id(), a.data.Evidence))
		}
		if !a.data.Machine.IsZero() {
			r.Byproducts = append(r.Byproducts, describe("machine/"+a.id(), a.data.Machine))
		}
	}
}

// second gives an instant as the specification writes it: without fractions.
func second(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }
