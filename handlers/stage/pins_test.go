package stage

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

var update = flag.Bool("update", false, "write golden files anew")

// described is an executor that says what it would start: an interpreter that gets the settings as its arguments.
type described struct {
	body
	program executor.Program
	changes bool // the interpreter is another one each time
	asked   int
}

func (d *described) Describe(_ context.Context, c *executor.Call) (*executor.Program, *events.Failure) {
	p := d.program
	p.Path, p.Args = "/bin/fake", []string{"fake", filepath.Join(c.Dir, "script"), string(c.With)}
	p.Files = map[string]string{filepath.Join(c.Dir, "script"): "text"}
	if d.changes {
		d.asked++
		p.Toolchain = []events.Pair{{Name: "interpreter_digest", Value: fmt.Sprint("sha256:", d.asked)}}
	}
	return &p, nil
}

func hermetic(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
	return &executor.Result{Hermetic: true}, nil
}

// pinnedAttempt is an attempt with everything that can be pinned, and what can be changed of it.
type pinnedAttempt struct {
	*bench
	*Attempt
	ex *described
}

func newPinned(tb testing.TB) *pinnedAttempt {
	tb.Helper()
	b := newBench(tb)
	b.PinKey = []byte("key of the pins")
	secrets := map[string]string{"secret://token": "correct-horse"}
	b.Secrets = func(ref string) (string, error) { return secrets[ref], nil }
	yes := true
	a := attempt(&events.Stage{Name: "load", Executor: "fake", With: json.RawMessage(`{"script":"cp","to":"${{ params.region }}"}`), Same: &yes, Isolation: "enforce",
		Network: "none", Reads: []string{"fetch"}, Inputs: []events.Input{
			{Role: "a", From: "stages.fetch.outputs.a", Expr: true, Contract: "order", Format: "json"}, {Role: "b", From: "stages.fetch.outputs.b", Expr: true},
			{Role: "list", From: "stages.fetch.outputs.list", Expr: true}, {Role: "n", From: "stages.fetch.outputs.n", Expr: true}},
		Outputs: []events.Output{{Role: "out", Path: "out.txt", Optional: true}}, Env: map[string]string{"MODE": "fast", "REGION": "${{ params.region }}"},
		Secrets: map[string]string{"TOKEN": "secret://token"}, Resources: &events.Resources{CPU: 1, Memory: 1 << 20}, Gate: []events.Gate{{Check: "true"}}})
	a.Params = json.RawMessage(`{"limit":3,"region":"eu"}`)
	a.Item, a.Value, a.Seed = 2, json.RawMessage(`"two"`), 42
	a.Upstream = map[string]*Upstream{"fetch": {State: events.Completed, Results: []events.Result{
		{Role: "a", Digest: b.put(`{"id": 1}`), Name: "a.json", Size: 9}, {Role: "b", Digest: b.put("bb"), Name: "b.txt", Size: 2},
		{Role: "list", Value: json.RawMessage(`[1,2]`)}, {Role: "n", Value: json.RawMessage(`3`)}}}}
	p := &pinnedAttempt{bench: b, Attempt: a, ex: &described{body: hermetic, program: executor.Program{Toolchain: []events.Pair{
		{Name: "interpreter", Value: "/bin/fake"}, {Name: "interpreter_digest", Value: "sha256:aa"}, {Name: "interpreter_version", Value: "fake 1.0"}}}}}
	b.Executors["fake"] = p.ex
	return p
}

func (p *pinnedAttempt) fetched(role string) *events.Result {
	results := p.Upstream["fetch"].Results
	for i := range results {
		if results[i].Role == role {
			return &results[i]
		}
	}
	return nil
}

// carried is the event of the attempt's end.
func (p *pinnedAttempt) carried() *events.Data {
	p.Helper()
	o := p.Steps.Run(context.Background(), p.Attempt)
	if o.Failure != nil {
		p.Fatalf("the attempt failed: %+v", o.Failure)
	}
	return o.Data
}

// TestPinsGolden holds the documents to the letter: another byte is another stage key in every store there is.
func TestPinsGolden(t *testing.T) {
	t.Parallel()
	p := newPinned(t)
	d := p.carried()
	var pins events.Pins
	want(t, json.Unmarshal(d.Pinned, &pins), nil)
	definition := strings.ReplaceAll(p.get(pins.Definition), runtime.GOOS+"/"+runtime.GOARCH, "OS/ARCH")
	got := strings.ReplaceAll(string(d.Pinned), pins.Definition.String(), "DEFINITION") + "\n" + definition + "\n"
	golden := filepath.Join("testdata", "pins.golden")
	if *update {
		want(t, os.MkdirAll("testdata", 0o750), nil)
		want(t, os.WriteFile(golden, []byte(got), 0o600), nil)
	}
	b, err := os.ReadFile(golden)
	want(t, err, nil)
	want(t, got, string(b))
	again, err := events.EncodeDocument(pins)
	want(t, err, nil)
	want(t, string(again), string(d.Pinned)) // reading it and writing it again changes nothing
	want(t, d.StageKey(), events.DigestOf(d.Pinned))
	key, ok := p.Key(context.Background(), p.Attempt)
	want(t, ok, true)
	want(t, string(key), string(d.Pinned)) // it is known before
	want(t, d.Shared, 1)
	for _, hidden := range []string{"correct-horse", p.WorkDir, p.Run.String()} {
		if strings.Contains(got, hidden) {
			t.Errorf("%q stands in the pins:\n%s", hidden, got)
		}
	}
}

// TestKeyed changes one thing at a time. What the result may depend on makes another stage key, and nothing else does.
func TestKeyed(t *testing.T) {
	t.Parallel()
	base := newPinned(t).carried().StageKey()
	schema := func(text string) map[string]events.Contract {
		return map[string]events.Contract{"order": {Schema: json.RawMessage(text)}}
	}
	for name, change := range map[string]func(p *pinnedAttempt){
		"param":              func(p *pinnedAttempt) { p.Params = json.RawMessage(`{"limit":4,"region":"eu"}`) },
		"type of a param":    func(p *pinnedAttempt) { p.Params = json.RawMessage(`{"limit":"3","region":"eu"}`) },
		"another param":      func(p *pinnedAttempt) { p.Params = json.RawMessage(`{"limit":3,"region":"eu","x":null}`) },
		"bytes of an input":  func(p *pinnedAttempt) { p.fetched("b").Digest = p.put("bc") },
		"name of an input":   func(p *pinnedAttempt) { p.fetched("b").Name = "c.txt" },
		"value of an input":  func(p *pinnedAttempt) { p.fetched("n").Value = json.RawMessage(`"3"`) },
		"nesting of a value": func(p *pinnedAttempt) { p.fetched("list").Value = json.RawMessage(`[[1],2]`) },
		"inputs the other way round": func(p *pinnedAttempt) {
			p.Stage.Inputs[0].Format, p.Stage.Inputs[0].Contract = "", ""
			p.Stage.Inputs[0].From, p.Stage.Inputs[1].From = p.Stage.Inputs[1].From, p.Stage.Inputs[0].From
		},
		"role of an input":       func(p *pinnedAttempt) { p.Stage.Inputs[1].Role = "c" },
		"script":                 func(p *pinnedAttempt) { p.Stage.With = json.RawMessage(`{"script":"mv","to":"${{ params.region }}"}`) },
		"value of a setting":     func(p *pinnedAttempt) { p.Stage.With = json.RawMessage(`{"script":"cp","to":"${{ item }}"}`) },
		"literal variable":       func(p *pinnedAttempt) { p.Stage.Env["MODE"] = "slow" },
		"name of a variable":     func(p *pinnedAttempt) { p.Stage.Env["MODE2"] = "fast"; delete(p.Stage.Env, "MODE") },
		"variable of expression": func(p *pinnedAttempt) { p.Stage.Env["REGION"] = "${{ item }}" },
		"value of a secret":      func(p *pinnedAttempt) { p.Secrets = func(string) (string, error) { return "another-horse", nil } },
		"name of a secret":       func(p *pinnedAttempt) { p.Stage.Secrets = map[string]string{"TOKEN2": "secret://token"} },
		"interpreter's digest":   func(p *pinnedAttempt) { p.ex.program.Toolchain[1].Value = "sha256:bb" },
		"interpreter's version":  func(p *pinnedAttempt) { p.ex.program.Toolchain[2].Value = "fake 1.1" },
		"executor's variable":    func(p *pinnedAttempt) { p.ex.program.Env = map[string]string{"SEEDED": "0"} },
		"executor":               func(p *pinnedAttempt) { p.Stage.Executor, p.Executors["other"] = "other", p.ex },
		"logical time":           func(p *pinnedAttempt) { p.Logical = p.Logical.Add(time.Nanosecond) },
		"seed":                   func(p *pinnedAttempt) { p.Seed = 43 },
		"fixed clock":            func(p *pinnedAttempt) { p.Stage.Clock = "fixed" },
		"item":                   func(p *pinnedAttempt) { p.Value = json.RawMessage(`"three"`) },
		"number of the item":     func(p *pinnedAttempt) { p.Item = 3 },
		"network":                func(p *pinnedAttempt) { p.Stage.Network = "allow" },
		"isolation":              func(p *pinnedAttempt) { p.Stage.Isolation = "observe" },
		"readable":               func(p *pinnedAttempt) { p.Stage.Readable = []string{"/etc/hosts"} },
		"cpu":                    func(p *pinnedAttempt) { p.Stage.Resources.CPU = 2 },
		"stage":                  func(p *pinnedAttempt) { p.Stage.Name = "store" },
		"output":                 func(p *pinnedAttempt) { p.Stage.Outputs[0].Path = "other.txt" },
		"gate":                   func(p *pinnedAttempt) { p.Stage.Gate[0].Check = "1 < 2" },
		"contract":               func(p *pinnedAttempt) { p.Plan.Contracts = schema(`{"type":"object"}`) },
	} {
		t.Run("keyed "+name, func(t *testing.T) {
			t.Parallel()
			p := newPinned(t)
			change(p)
			if d := p.carried(); d.StageKey() == base {
				t.Errorf("the stage key is the same:\n%s", d.Pinned)
			}
		})
	}
	for name, change := range map[string]func(p *pinnedAttempt){
		"nothing":        func(*pinnedAttempt) {},
		"attempt":        func(p *pinnedAttempt) { p.Number, p.Token = 5, 99 },
		"run":            func(p *pinnedAttempt) { p.Run = events.ID{9} },
		"work directory": func(p *pinnedAttempt) { p.WorkDir, p.LogDir = p.TB.(*testing.T).TempDir(), p.TB.(*testing.T).TempDir() },
		"machine":        func(p *pinnedAttempt) { p.Machine = func() events.Machine { return events.Machine{Hostname: "other"} } },
		"trigger":        func(p *pinnedAttempt) { p.Kind, p.Trigger, p.From = "webhook", "webhook:/x", events.ID{7} },
		"start":          func(p *pinnedAttempt) { p.Started = func(int) {} },
		"time-out":       func(p *pinnedAttempt) { p.Stage.Timeout, p.Stage.Grace = time.Hour, time.Minute },
		"retries":        func(p *pinnedAttempt) { p.Stage.Retry = &events.Retry{Max: 3} },
		"memory":         func(p *pinnedAttempt) { p.Stage.Resources.Memory = 2 << 20 },
		"where a secret is": func(p *pinnedAttempt) {
			p.Stage.Secrets["TOKEN"] = "secret://token2"
			p.Secrets = func(string) (string, error) { return "correct-horse", nil }
		},
		"order of params":  func(p *pinnedAttempt) { p.Params = json.RawMessage(`{"region":"eu","limit":3}`) },
		"upstream's state": func(p *pinnedAttempt) { p.Upstream["fetch"].Duration = time.Hour },
	} {
		t.Run("not keyed "+name, func(t *testing.T) {
			t.Parallel()
			p := newPinned(t)
			change(p)
			if d := p.carried(); d.StageKey() != base {
				t.Errorf("another stage key:\n%s", d.Pinned)
			}
		})
	}
}

// TestPinsOfItems: the settings of a stage may differ from item to item. Which item came first makes no difference.
func TestPinsOfItems(t *testing.T) {
	t.Parallel()
	keys := func(order ...int) map[int]events.Digest {
		p, found := newPinned(t), map[int]events.Digest{}
		p.Stage.With = json.RawMessage(`{"script":"cp","to":"${{ item }}"}`)
		for _, item := range order {
			a := *p.Attempt
			a.Item, a.Value = item, json.RawMessage(fmt.Sprintf(`"item %d"`, item))
			found[item] = p.Steps.Run(t.Context(), &a).Data.StageKey()
		}
		return found
	}
	want(t, keys(1, 2, 3), keys(3, 1, 2))
}

func TestLongPins(t *testing.T) {
	t.Parallel()
	p := newPinned(t)
	long := strings.Repeat("x", events.MaxPinned+1)
	p.Params = json.RawMessage(`{"limit":3,"region":"` + long + `"}`)
	d := p.carried()
	if strings.Contains(string(d.Pinned), long) || !strings.Contains(string(d.Pinned), events.DigestOf([]byte(`"`+long+`"`)).String()) {
		t.Errorf("a long value does not stand as its digest:\n%s", d.Pinned)
	}
	params := map[string]string{"limit": "3", "region": "eu"}
	for i := range 100 {
		params[fmt.Sprint("p", i)] = long[:1000]
	}
	encoded, err := json.Marshal(params)
	want(t, err, nil)
	p.Params, p.Values = encoded, nil
	d = p.carried()
	want(t, len(d.Pinned), 0)
	document := p.get(d.PinnedAt)
	if len(document) <= events.MaxInline || events.DigestOf([]byte(document)) != d.StageKey() {
		t.Errorf("a document of %d bytes under %s", len(document), d.StageKey())
	}
	key, ok := p.Key(t.Context(), p.Attempt)
	want(t, ok, true)
	want(t, events.DigestOf(key), d.StageKey())
}

// TestPinsTellApart: attempts whose data differ in anything have different documents, also where values are made to look like
// others: like the digests that stand for long ones, or like the ends of their neighbours.
func TestPinsTellApart(t *testing.T) {
	t.Parallel()
	p := newPinned(t)
	long := strings.Repeat("x", 2*events.MaxPinned)
	quoted, err := json.Marshal(long)
	want(t, err, nil)
	digest := events.DigestOf(quoted).String()
	texts := []string{"", "a", "b", "a,b", `a","b`, "a=b", "a\nb", "null", "$WORK", long, digest, events.DigestOf([]byte(long)).String(), "sha256:"}
	raw := []string{`null`, `0`, `"0"`, `[]`, `[[]]`, `{}`, `[1,2]`, `[[1],2]`, string(quoted), fmt.Sprintf(`{"digest":%q,"size":%d}`, digest, len(quoted)), fmt.Sprintf("%q", digest)}
	type data struct {
		Params map[string]string
		N      string // of an input
		Item   string
		Env    string
	}
	document := func(d *data) string {
		params := map[string]json.RawMessage{"env": json.RawMessage(fmt.Sprintf("%q", d.Env))}
		for name, value := range d.Params {
			params[name] = json.RawMessage(value)
		}
		encoded, err := json.Marshal(params)
		want(t, err, nil)
		a := *p.Attempt
		st := *a.Stage
		st.With, st.Env, st.Inputs = json.RawMessage(`{}`), map[string]string{"E": "${{ params.env }}"}, p.Stage.Inputs[3:]
		// the value of env is a parameter too: it must not be that alone which tells documents apart
		a.Stage, a.Params, a.Value = &st, encoded, json.RawMessage(d.Item)
		a.Upstream = map[string]*Upstream{"fetch": {Results: []events.Result{{Role: "n", Value: json.RawMessage(d.N)}}}}
		w := &work{Attempt: &a}
		if f := w.begin(p.Steps); f != nil {
			t.Fatal(f)
		}
		if f := w.resolve(t.Context(), p.Steps); f != nil {
			t.Fatal(f)
		}
		w.call.Params = maps.Clone(w.call.Params)
		delete(w.call.Params, "env")
		b, err := p.pins(w, &definition{})
		want(t, err, nil)
		return string(b)
	}
	seen := map[string]string{}
	alone := func(what string, d data) {
		doc := document(&d)
		if other, twice := seen[doc]; twice {
			t.Errorf("%s and %s have one document:\n%s", other, what, doc)
		}
		seen[doc] = what
	}
	for _, text := range texts {
		alone("env "+text, data{N: "1", Item: "1", Env: text})
	}
	for _, value := range raw {
		alone("n "+value, data{N: value, Item: "1", Env: "e"})
		alone("item "+value, data{N: "1", Item: value, Env: "e"})
		alone("param "+value, data{Params: map[string]string{"a": value}, N: "1", Item: "1", Env: "e"})
	}
	rapid.Check(t, func(r *rapid.T) {
		draw := func(label string) *data {
			return &data{Params: rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "ab"}), rapid.SampledFrom(raw), 0, 2).Draw(r, label+" params"),
				N: rapid.SampledFrom(raw).Draw(r, label+" n"), Item: rapid.SampledFrom(raw).Draw(r, label+" item"), Env: rapid.SampledFrom(texts).Draw(r, label+" env")}
		}
		one, other := draw("one"), draw("other")
		if rapid.Bool().Draw(r, "nearly the same") { // else most pairs differ in much
			keep := *one
			keep.Env, other = other.Env, &keep
			if rapid.Bool().Draw(r, "in n") {
				other.Env, other.N = one.Env, rapid.SampledFrom(raw).Draw(r, "another n")
			}
		}
		a, b := document(one), document(other)
		if same := reflect.DeepEqual(one, other); same != (a == b) {
			r.Fatalf("the data are the same: %v, the documents: %v\n%+v\n%+v\n%s\n%s", same, a == b, one, other, a, b)
		}
	})
}

// TestShared: a result is for others only when its stage says that it is always the same, nothing was in reach that is not
// pinned, and what carried it out was the same before and after.
func TestShared(t *testing.T) {
	t.Parallel()
	no := false
	for name, change := range map[string]func(p *pinnedAttempt){
		"nothing said":            func(p *pinnedAttempt) { p.Stage.Same = nil },
		"not deterministic":       func(p *pinnedAttempt) { p.Stage.Same = &no },
		"observed only":           func(p *pinnedAttempt) { p.Stage.Isolation = "observe" },
		"network not said":        func(p *pinnedAttempt) { p.Stage.Network = "" },
		"network allowed":         func(p *pinnedAttempt) { p.Stage.Network = "allow" },
		"unpinned files":          func(p *pinnedAttempt) { p.Stage.Readable = []string{"/etc"} },
		"gate over another stage": func(p *pinnedAttempt) { p.Stage.Gate[0].Check = "stages.fetch.outputs.n == 3" },
		"gate over the run": func(p *pinnedAttempt) {
			p.Stage.Gate[0].Check = `run.state != "failed"`
			p.Facts = map[string]any{"state": "running"}
		},
		"comparison over another": func(p *pinnedAttempt) {
			p.Stage.Reconcile = []events.Reconcile{{From: "inputs.n", To: "inputs.n", Expect: "to <= stages.fetch.outputs.n"}}
		},
		"not hermetic":        func(p *pinnedAttempt) { p.ex.body = nothing },
		"another interpreter": func(p *pinnedAttempt) { p.ex.changes = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPinned(t)
			change(p)
			d := p.carried()
			if d.Shared != 0 {
				t.Error("others may take the result over")
			}
			if d.StageKey().IsZero() {
				t.Error("it has no stage key")
			}
		})
	}
	t.Run("criteria over what is pinned", func(t *testing.T) {
		t.Parallel()
		p := newPinned(t)
		p.Stage.Gate[0].Check = `inputs.n == 3 && params.region == "eu" && item == "two" && metrics.duration_ms >= 0 && outputs.out == nil`
		p.Stage.Reconcile = []events.Reconcile{{From: "inputs.n", To: "inputs.n", Expect: "from == to"}}
		want(t, p.carried().Shared, 1)
	})
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		p := newPinned(t)
		p.Stage.Gate[0].Check = "false"
		o := p.Steps.Run(t.Context(), p.Attempt)
		want(t, o.Data.Shared, 0)
		want(t, o.Data.StageKey().IsZero(), false)
	})
}

// TestInputsHaveTheStagesTime: with a fixed clock nothing of the run's own time reaches the stage.
func TestInputsHaveTheStagesTime(t *testing.T) {
	t.Parallel()
	p := newPinned(t)
	p.Stage.Clock = "fixed"
	var at time.Time
	p.ex.body = func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		info, err := os.Stat(c.Inputs["b"].Path)
		want(t, err, nil)
		at = info.ModTime().UTC()
		want(t, at, c.LogicalTime)
		return &executor.Result{}, nil
	}
	p.carried()
	want(t, at, fixedTime)
}

// TestAReplacedInterpreterIsPinnedAsThat: of an interpreter that another one took the place of while the attempt ran nobody
// knows which it was, whether the result is for others or not.
func TestAReplacedInterpreterIsPinnedAsThat(t *testing.T) {
	t.Parallel()
	for _, replaced := range []bool{false, true} {
		p := newPinned(t)
		p.Stage.Same, p.Stage.Isolation = nil, "observe"
		p.ex.changes = replaced
		var pins events.Pins
		var d events.Definition
		want(t, json.Unmarshal(p.carried().Pinned, &pins), nil)
		want(t, json.Unmarshal([]byte(p.get(pins.Definition)), &d), nil)
		want(t, slices.ContainsFunc(d.Toolchain, func(t events.Pair) bool { return t.Name == "replaced" }), replaced)
	}
}
