package provenance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/bundle"
)

// facts are what the log says of a run that has ended.
type facts struct {
	run      *events.Run
	plan     []byte
	delivery *events.Data // what the run came from; nil is not known
	attempts []*attempt   // in the order of their starts
	results  map[string][]events.Result
	head     events.Digest // of the log
	m        *bundle.Manifest
	open     func(events.Digest) (io.ReadCloser, error) // an artifact of the manifest
	apollo   string                                     // version that exports
}

// attempt is one try of a stage.
type attempt struct {
	label   string // of the stage or instance
	stage   *events.Stage
	number  int
	started int64
	ended   int64
	done    bool // it completed
	data    *events.Data
	pins    *events.Pins // nil when the log has none
	key     events.Digest
	inputs  []events.PinnedInput // of the pins, else as far as the plan says them
	machine *events.Machine      // nil is not known
	tools   []events.Pair        // what carried it out: interpreter, image, each with its digest
}

// id names the attempt within its run.
func (a *attempt) id() string {
	return fmt.Sprintf("%s/%d", strings.ReplaceAll(a.label, "#", "/"), a.number)
}

// ErrNotEnded says that a run goes on: what it did cannot be said yet.
var ErrNotEnded = errors.New("E_NOT_ENDED: the run has not ended")

func collect(ctx context.Context, from bundle.Source, files bundle.Artifacts, o bundle.Options) (*facts, error) {
	m, open, err := bundle.Describe(ctx, from, files, o)
	if err != nil {
		return nil, err
	}
	if !m.Runs[0].State.Terminal() {
		return nil, ErrNotEnded
	}
	f := &facts{results: map[string][]events.Result{}, m: m, open: open, apollo: o.Apollo, head: m.Runs[0].Head}
	if f.plan, err = from.Plan(ctx, m.Runs[0].Plan); err != nil {
		return nil, err
	}
	graph, err := storage.DecodeGraph(f.plan, m.Runs[0].Plan)
	if err != nil {
		return nil, err
	}
	f.run = events.NewRun(graph)
	if err := f.readDelivery(ctx, from); err != nil {
		return nil, err
	}
	if err := f.fold(ctx, from); err != nil {
		return nil, err
	}
	return f, f.readDocuments()
}

// artifact reads a document; nil when the store has it no more.
func (f *facts) artifact(d events.Digest) ([]byte, error) {
	if d.IsZero() || !f.has(d) {
		return nil, nil
	}
	r, err := f.open(d)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func (f *facts) readDelivery(ctx context.Context, from bundle.Source) error {
	row, err := from.Run(ctx, f.m.Runs[0].Run)
	if err != nil || row.Delivery.IsZero() {
		return err
	}
	log, err := from.Events(ctx, row.Delivery, 0, 1)
	if err == nil && len(log) > 0 {
		f.delivery = &log[0].Data
	}
	return err
}

func (f *facts) fold(ctx context.Context, from bundle.Source) error {
	open := map[string]*attempt{}
	for e, err := range storage.Stream(ctx, from, f.m.Runs[0].Run, 0) {
		if err != nil {
			return err
		}
		if err := f.run.Apply(&e.Event); err != nil {
			return err
		}
		f.note(&e.Event, open)
	}
	return nil
}

// note takes in the start or the end of an attempt. A foreach stage that only waits for its instances is no attempt.
func (f *facts) note(e *events.Event, open map[string]*attempt) {
	i, ok := f.run.Graph.Index(e.Data.Stage)
	if !ok {
		return
	}
	stage := &f.run.Graph.Plan.Stages[i]
	label := stage.Label(e.Data.Item)
	switch e.Type {
	case events.StageStarted:
		open[label] = &attempt{label: label, stage: stage, number: e.Data.Attempt, started: e.Time}
		if e.Data.Count == 0 && len(e.Data.Items) == 0 && e.Data.Blob.IsZero() {
			f.attempts = append(f.attempts, open[label])
		}
	case events.StageCompleted, events.StageFailed, events.StageRetryScheduled, events.StageCancelled:
		if a := open[label]; a != nil {
			a.ended, a.data, a.done = e.Time, &e.Data, e.Type == events.StageCompleted
			delete(open, label)
		}
		if e.Type == events.StageCompleted {
			f.results[label] = e.Data.Outputs
		}
	}
}

// readDocuments reads what the attempts depended on: their pins, and the machine.
func (f *facts) readDocuments() error {
	machines, definitions := map[events.Digest]*events.Machine{}, map[events.Digest][]events.Pair{}
	for _, a := range f.attempts {
		if a.data == nil {
			continue
		}
		a.key = a.data.StageKey()
		document := []byte(a.data.Pinned)
		if len(document) == 0 {
			var err error
			if document, err = f.artifact(a.data.PinnedAt); err != nil {
				return err
			}
		}
		if pins := new(events.Pins); len(document) > 0 && json.Unmarshal(document, pins) == nil {
			a.pins, a.inputs = pins, pins.Inputs
			tools, err := f.toolchain(pins.Definition, definitions)
			if err != nil {
				return err
			}
			a.tools = tools
		} else {
			a.inputs = f.declared(a)
		}
		d := a.data.Machine
		if _, known := machines[d]; !known && !d.IsZero() {
			b, err := f.artifact(d)
			if err != nil {
				return err
			}
			if m := new(events.Machine); len(b) > 0 && json.Unmarshal(b, m) == nil {
				machines[d] = m
			}
		}
		a.machine = machines[d]
	}
	return nil
}

// toolchain gives what carries a stage out, as its definition says.
func (f *facts) toolchain(definition events.Digest, known map[events.Digest][]events.Pair) ([]events.Pair, error) {
	tools, read := known[definition]
	if read {
		return tools, nil
	}
	b, err := f.artifact(definition)
	if err != nil {
		return nil, err
	}
	if d := new(events.Definition); len(b) > 0 && json.Unmarshal(b, d) == nil {
		tools = d.Toolchain
	}
	known[definition] = tools
	return tools, nil
}

// brought gives the file or body that the run came with; false when it came with none.
func (f *facts) brought() (in events.PinnedInput, is bool) {
	switch d := f.delivery; {
	case d == nil:
	case !d.Blob.IsZero():
		return events.PinnedInput{Digest: d.Blob, Size: d.Size, Name: d.File}, true
	case len(d.Body) > 0:
		return events.PinnedInput{Digest: events.DigestOf(d.Body), Size: int64(len(d.Body)), Name: "body"}, true
	}
	return in, false
}

var upstream = regexp.MustCompile(`^stages\.([a-z0-9_-]+)\.outputs\.([a-z0-9_-]+)$`)

// declared gives the inputs of an attempt without pins, as far as the plan alone says where they come from.
func (f *facts) declared(a *attempt) (inputs []events.PinnedInput) {
	for _, in := range a.stage.Inputs {
		p := events.PinnedInput{Role: in.Role, Kind: "file"}
		from := strings.TrimSpace(in.From)
		parts := upstream.FindStringSubmatch(from)
		switch {
		case in.Expr && parts != nil:
			k := slices.IndexFunc(f.results[parts[1]], func(r events.Result) bool { return r.Role == parts[2] })
			if k < 0 {
				continue
			}
			r := &f.results[parts[1]][k]
			p.Digest, p.Size, p.Name, p.Value = r.Digest, r.Size, r.Name, r.Value
		case in.Expr && f.delivery != nil && (from == "trigger.file" || from == "trigger.body") && !f.delivery.Blob.IsZero():
			p.Digest, p.Size, p.Name = f.delivery.Blob, f.delivery.Size, f.delivery.File
		default:
			continue
		}
		if len(p.Value) > 0 {
			p.Kind = "value"
		}
		inputs = append(inputs, p)
	}
	return inputs
}

// outputs gives the outputs of everything that completed, in the order of the plan.
func (f *facts) outputs(each func(label string, r *events.Result)) {
	for i := range f.run.Stages {
		s := &f.run.Stages[i]
		label := f.run.StageOf(i).Label(int(s.Item))
		if s.State != events.Completed || s.First > 0 && s.Item == 0 { // the instances have the outputs of a foreach stage
			continue
		}
		for k := range f.results[label] {
			each(label, &f.results[label][k])
		}
	}
}

// has reports whether an artifact can be had.
func (f *facts) has(d events.Digest) bool {
	_, found := slices.BinarySearchFunc(f.m.Artifacts, d, func(c bundle.Content, d events.Digest) int { return bytes.Compare(c.Digest[:], d[:]) })
	return found
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func plain(d events.Digest) string { return strings.TrimPrefix(d.String(), "sha256:") }
