package compare

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"reflect"
	"slices"

	"github.com/apollo-11/apollo/events"
)

// Artifacts opens what runs have kept, by its digest. An error says that it cannot be had any more: the comparison then goes
// by the digests alone.
type Artifacts interface {
	Open(d events.Digest) (io.ReadCloser, error)
}

// Side is one of the two runs: from a store, from a file, or from wherever its events are.
type Side struct {
	Name      string       // as the user sees it
	Run       *events.Run  // folded as far as its log goes
	Delivery  *events.Data // that the run came from; nil when it is not known
	Artifacts Artifacts
}

// Options say how much is looked at.
type Options struct {
	Stage    string // only this one, or an instance as clean#3; empty is all
	All      bool   // stages that are the same are listed too, and the contents of all outputs are compared
	Limit    int    // rows, lines and values that are given of one output; 0 is 20
	External func(ctx context.Context, name string, a, b io.Reader) (string, error)
}

// The verdicts of a stage.
const (
	Same             = "same"
	Different        = "different"        // it was to do something else: because says what
	Nondeterministic = "nondeterministic" // all that its results may depend on is the same
	Inherited        = "inherited"        // it only passes on what a stage above it made differently
	OnlyA            = "only_a"
	OnlyB            = "only_b"
	Differs          = "differs" // of a whole comparison
)

// Result is what two runs differ in. Lists are in the order of the plan.
type Result struct {
	A         string  `json:"a"`
	B         string  `json:"b"`
	Verdict   string  `json:"verdict"`         // same or differs
	First     *string `json:"first_diverging"` // stage, or instance of one
	Kind      string  `json:"kind,omitempty"`  // verdict of that stage
	Because   []Field `json:"because"`         // what it differs for
	Run       []Field `json:"run"`             // what differs of the runs themselves
	Stages    []Stage `json:"stages"`          // those that differ in anything that is judged
	Same      int     `json:"same_stages"`
	Inherited int     `json:"inherited_stages"`
}

// Field is one thing that differs. A side that lacks it is null.
type Field struct {
	Group string `json:"group,omitempty"` // definition, command, params, inputs, env, executor, time
	Field string `json:"field"`
	A     any    `json:"a"`
	B     any    `json:"b"`
	Text  string `json:"diff,omitempty"` // unified, of texts that have several lines
}

// Stage is a stage, or an instance of one, in both runs.
type Stage struct {
	Stage      string          `json:"stage"`
	Item       *int            `json:"item"`             // number of a foreach stage's instance, in A where it is there
	ItemB      *int            `json:"item_b,omitempty"` // in B, when that is another
	Value      json.RawMessage `json:"value,omitempty"`  // of the item
	Verdict    string          `json:"verdict"`
	SameResult bool            `json:"same_result"`
	Pinned     bool            `json:"pinned"` // both sides have a pins document
	KeyA       string          `json:"key_a,omitempty"`
	KeyB       string          `json:"key_b,omitempty"`
	Because    []Field         `json:"because"`
	Status     []Field         `json:"status,omitempty"`   // state, class, reason
	From       []string        `json:"inherits,omitempty"` // stages that it has the difference from
	Outputs    []Output        `json:"outputs,omitempty"`
	Recorded   []Field         `json:"recorded,omitempty"` // no part of identity
	Accesses   *Accesses       `json:"accesses,omitempty"`

	counts bool // the comparison differs for it
	dirty  bool // its results differ: what reads them may inherit that
}

// Label names the stage, or its instance with the number.
func (s *Stage) Label() string {
	if s.Item == nil {
		return s.Stage
	}
	return (&events.Stage{Name: s.Stage}).Label(*s.Item)
}

// Output is one output that differs.
type Output struct {
	Role    string   `json:"role"`
	Ignored bool     `json:"ignored,omitempty"` // the stage says that it may
	A       *Blob    `json:"a"`
	B       *Blob    `json:"b"`
	Content *Content `json:"content,omitempty"`
}

// Blob is an output on one side.
type Blob struct {
	Digest  string          `json:"digest"`
	Size    int64           `json:"size"`
	Records *int64          `json:"records"`
	Name    string          `json:"name,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
}

// Accesses are what only one side did beside its declarations.
type Accesses struct {
	A []events.Pair `json:"a"`
	B []events.Pair `json:"b"`
}

// contents is how many stages have the contents of their outputs compared when nobody asks for all.
const contents = 10

// Runs compares two runs.
func Runs(ctx context.Context, a, b *Side, o Options) (*Result, error) {
	if o.Limit <= 0 {
		o.Limit = 20
	}
	c := &comparison{ctx: ctx, o: o, a: newHalf(a), b: newHalf(b), dirty: map[string]bool{}, params: map[string]bool{}}
	c.a.params, c.b.params = unlike(c.a.params, c.b.params)
	r := &Result{A: a.Name, B: b.Name, Verdict: Same, Because: []Field{}, Run: c.runFields(), Stages: []Stage{}}
	looked := 0
	var first *Stage
	for _, p := range pair(c.a, c.b) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := c.stage(p)
		switch s.Verdict {
		case Same:
			r.Same++
		case Inherited:
			r.Inherited++
		}
		if s.counts {
			r.Verdict = Differs
		}
		if s.counts && s.Verdict != Inherited && (first == nil || first.SameResult && !s.SameResult) {
			kept := s
			first = &kept
		}
		if o.Stage != "" && (o.Stage == s.Label() || o.Stage == s.Stage) || o.Stage == "" && (o.All || s.Verdict != Same) {
			own := s.Verdict != Inherited && s.Verdict != Same && !s.SameResult
			if o.All || o.Stage != "" || own && looked < contents {
				looked++
				c.details(&s, p)
			}
			r.Stages = append(r.Stages, s)
		}
	}
	r.conclude(first)
	return r, nil
}

// conclude names the first stage that diverges. Runs that ended otherwise differ, whatever their stages say.
func (r *Result) conclude(first *Stage) {
	if first != nil {
		label := first.Label()
		r.First, r.Kind, r.Because = &label, first.Verdict, first.Because
		return
	}
	for _, f := range r.Run {
		if slices.Contains([]string{"pipeline", "state", "class"}, f.Field) {
			r.Verdict, r.Because = Differs, append(r.Because, f)
		}
	}
}

// comparison is one call of Runs. It goes through the stages in topological order.
type comparison struct {
	ctx    context.Context //nolint:containedctx // of one comparison
	o      Options
	a, b   *half
	dirty  map[string]bool // stages with other results so far
	params map[string]bool // parameters that a stage with other results has named already
}

// unlike leaves out of two objects what is the same in both: it is looked at once, not for every stage.
func unlike(a, b any) (x, y any) {
	left, _ := a.(map[string]any)
	right, _ := b.(map[string]any)
	maps.DeleteFunc(left, func(key string, value any) bool {
		other, both := right[key]
		if same := both && reflect.DeepEqual(value, other); same {
			delete(right, key)
			return true
		}
		return false
	})
	return left, right
}

// runFields gives what differs of the runs as a whole.
func (c *comparison) runFields() []Field {
	x, y := c.a.Run, c.b.Run
	fields := []Field{}
	add := func(name string, a, b any) {
		if a != b {
			fields = append(fields, Field{Field: name, A: a, B: b})
		}
	}
	add("pipeline", x.Graph.Plan.Pipeline, y.Graph.Plan.Pipeline)
	add("plan", x.Graph.Digest.String(), y.Graph.Digest.String())
	add("state", x.State.String(), y.State.String())
	add("class", string(x.Class), string(y.Class))
	add("trigger", x.Kind, y.Kind)
	for _, change := range changes(c.a.params, c.b.params) {
		fields = append(fields, change.field("params", "params."))
	}
	add("input", c.a.delivered(), c.b.delivered())
	add("logical_time", instant(x.Logical), instant(y.Logical))
	add("seed", seed(x.Seed), seed(y.Seed))
	return fields
}
