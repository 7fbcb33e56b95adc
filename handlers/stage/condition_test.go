package stage

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

func conditionsOf(b *bench) Conditions { return Conditions{Artifacts: b.store} }

// TestWhenIsRecordedWithWhatItRead: the value, the data behind it, and why there is none.
func TestWhenIsRecordedWithWhatItRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	long := `"` + strings.Repeat("x", maxRecorded) + `"`
	for name, c := range map[string]struct {
		when string
		want events.Check
	}{
		"true": {"params.n > 2 && stages.fetch.outputs.count == 7",
			events.Check{Holds: true, Inputs: json.RawMessage(`{"params.n":3,"stages.fetch.outputs.count":7}`)}},
		"false":         {"params.n > 3", events.Check{Inputs: json.RawMessage(`{"params.n":3}`)}},
		"no such value": {"params.m > 3", events.Check{Error: "evaluate \"params.m > 3\": invalid operation: <nil> > int (1:10)\n | params.m > 3\n | .........^"}},
		"no condition":  {"params.n", events.Check{Inputs: json.RawMessage(`{"params.n":3}`), Error: "the condition gave a number, not true or false"}},
		"a state":       {`stages.fetch.state == "completed"`, events.Check{Holds: true, Inputs: json.RawMessage(`{"stages.fetch.state":"completed"}`)}},
		"a fact":        {`len(run.failed) == 1`, events.Check{Holds: true, Inputs: json.RawMessage(`{"run.failed":["x"]}`)}},
		"a long value":  {"len(params.text) > 0", events.Check{Holds: true, Inputs: json.RawMessage(`{"params.text":"` + events.DigestOf([]byte(long)).String() + `"}`)}},
		"an item":       {"item.id in [1, 2]", events.Check{Holds: true, Inputs: json.RawMessage(`{"item.id":2}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := attempt(&events.Stage{When: c.when})
			a.Params = json.RawMessage(`{"n":3,"text":` + long + `}`)
			a.Facts = map[string]any{"failed": []any{"x"}}
			a.Item, a.Value = 2, json.RawMessage(`{"id":2}`)
			a.Upstream = map[string]*Upstream{"fetch": {State: events.Completed, Results: []events.Result{{Role: "count", Value: json.RawMessage("7")}}}}
			c.want.Kind, c.want.Expr = "when", c.when
			want(t, conditionsOf(b).When(context.Background(), a), c.want)
		})
	}
}

// TestItems: lists of values and of files come as they are recorded; anything else is refused with the reason.
func TestItems(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	digest := b.put("1,2\n")
	split := &Upstream{State: events.Completed, Foreach: true, Items: [][]events.Result{
		{{Role: "part", Digest: digest, Size: 4, Records: 1, Name: "part.csv"}}, nil}}
	for name, c := range map[string]struct {
		foreach, items, err string
		count               int
	}{
		"values":       {"params.list", `[1,"b",{"c":null}]`, "", 3},
		"a range":      {"1..4", `[1,2,3,4]`, "", 4},
		"none":         {"filter(params.list, false)", `[]`, "", 0},
		"files":        {"stages.split.outputs.part", `[{"$file":{"role":"","digest":"` + digest.String() + `","size":4,"records":1,"name":"part.csv"}},null]`, "", 2},
		"no list":      {"params.n", "", "E_FOREACH: the expression gave a number, not a list", 0},
		"a false file": {"params.false", "", "E_FOREACH: an item has the key $file, which marks files", 0},
		"too many":     {"1..100001", "", "E_FOREACH: the list has 100001 items, and at most 100000 are allowed", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := attempt(&events.Stage{Foreach: c.foreach})
			a.Params = json.RawMessage(`{"list":[1,"b",{"c":null}],"n":3,"false":[{"$file":{"digest":"` + digest.String() + `"}}]}`)
			a.Upstream = map[string]*Upstream{"split": split}
			items, count, check := conditionsOf(b).Items(context.Background(), a)
			want(t, []any{string(items), count, check.Error, check.Holds}, []any{c.items, c.count, c.err, c.err == ""})
		})
	}
}

// TestItemIsWhatTheStageGets: a value by environment and expression, a file as an input.
func TestItemIsWhatTheStageGets(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	digest := b.put("1,2\n")
	a := attempt(&events.Stage{Inputs: []events.Input{{Role: "part", From: "item", Expr: true}}})
	a.Item, a.Value = 2, json.RawMessage(`{"$file":{"role":"","digest":"`+digest.String()+`","size":4,"records":1,"name":"part.csv"}}`)
	var text string
	var call executor.Call
	o := b.run(a, func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		content, _ := os.ReadFile(c.Inputs["part"].Path)
		text, call = string(content), *c
		return &executor.Result{}, nil
	})
	want(t, []any{o.Failure, text, len(call.Value), call.Item, filepath.Base(filepath.Dir(call.Dir)), call.Key},
		[]any{(*events.Failure)(nil), "1,2\n", 0, 2, "load#2", a.Run.String() + "/load#2"})
	a = attempt(&events.Stage{Env: map[string]string{"ID": "${{ item.id }}"}})
	a.Item, a.Value = 1, json.RawMessage(`{"id":7}`)
	b.run(a, func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		want(t, []any{string(c.Value), c.Env["ID"]}, []any{`{"id":7}`, "7"})
		return &executor.Result{}, nil
	})
}

// TestListOfFiles: the outputs of a foreach stage lie in one directory in the order of its items, without the missing.
func TestListOfFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	up := &Upstream{State: events.Completed, Foreach: true}
	for i := range 11 {
		if i == 4 {
			up.Items = append(up.Items, nil)
			continue
		}
		up.Items = append(up.Items, []events.Result{{Role: "o", Digest: b.put(strings.Repeat("x", i)), Size: int64(i), Records: -1, Name: "o.txt"}})
	}
	a := attempt(&events.Stage{Inputs: []events.Input{{Role: "all", From: "stages.each.outputs.o", Expr: true}}})
	a.Upstream = map[string]*Upstream{"each": up}
	o := b.run(a, func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		entries, _ := os.ReadDir(c.Inputs["all"].Path)
		var names []string
		for _, e := range entries {
			info, _ := e.Info()
			names = append(names, e.Name()+" "+strings.Repeat("x", int(info.Size())))
		}
		want(t, names[:5], []string{"01-o.txt ", "02-o.txt x", "03-o.txt xx", "04-o.txt xxx", "06-o.txt xxxxx"})
		want(t, len(names), 10)
		return &executor.Result{}, nil
	})
	want(t, o.Failure, (*events.Failure)(nil))
	want(t, b.kept(), []string{})
}

// TestSettingsAreResolved: expressions in an executor's settings become values; scripts and frozen plans stay.
func TestSettingsAreResolved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := attempt(&events.Stage{With: json.RawMessage(`{"url":"${{ params.url }}","list":["${{ params.n }}","a"],"map":{"k":"${{ params.m }}"},"script":"echo ${{ x }}","plan":{"a":"${{ y }}"}}`)})
	a.Params = json.RawMessage(`{"url":"http://x","n":12345678901234567890,"m":{"a":[1]}}`)
	b.run(a, func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		want(t, string(c.With), `{"list":[12345678901234567890,"a"],"map":{"k":{"a":[1]}},"plan":{"a":"${{ y }}"},"script":"echo ${{ x }}","url":"http://x"}`)
		return &executor.Result{}, nil
	})
	a.Stage.With = json.RawMessage(`{"headers":{"X":"${{ params.no.such }}"}}`)
	o := b.run(a, nothing)
	want(t, []any{o.Failure.Class, o.Failure.Pointer}, []any{events.BadInput, "/with/headers/X"})
}

const rows = "a,b\n1,2\n3,4\n"

// TestGates: what is not met is told with its numbers, and the outputs are kept, sealed, for whoever opens the gate.
func TestGates(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	csv := []events.Output{{Role: "n"}, {Role: "rows", Path: "r.csv", Format: "csv"}}
	for name, c := range map[string]struct {
		gates  []events.Gate
		want   *events.Failure
		checks int
	}{
		"met":     {[]events.Gate{{Check: "outputs.rows.records == 2 && outputs.n > 3"}, {Check: "metrics.duration_ms >= 0 && outputs.rows.size == 12"}}, nil, 2},
		"not met": {[]events.Gate{{Check: "outputs.n > 3"}, {Check: "outputs.rows.records > 2", Message: "too few"}, {Check: "outputs.n > 9"}}, &events.Failure{Class: events.GateRejected, Reason: "too few", Expected: "outputs.rows.records > 2", Actual: `{"outputs.rows.records":2}`}, 3},
		"broken":  {[]events.Gate{{Check: "outputs.n.x > 2"}}, &events.Failure{Class: events.GateRejected, Reason: "the gate is not met: outputs.n.x > 2", Expected: "outputs.n.x > 2"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := attempt(&events.Stage{Outputs: csv, Gate: c.gates})
			steps := &bench{TB: t, store: b.store, Steps: &Steps{Artifacts: b.store, WorkDir: t.TempDir(), LogDir: t.TempDir(), Executors: map[string]executor.Executor{}}}
			o := steps.run(a, func(ctx context.Context, call *executor.Call) (*executor.Result, *events.Failure) {
				r, f := files(map[string]string{"r.csv": rows})(ctx, call)
				r.Values = map[string]json.RawMessage{"n": json.RawMessage("4")}
				return r, f
			})
			if c.want != nil && o.Failure != nil && c.want.Actual == "" {
				c.want.Actual = o.Failure.Actual
			}
			want(t, o.Failure, c.want)
			want(t, []any{len(o.Data.Checks), len(o.Data.Outputs)}, []any{c.checks, 2})
		})
	}
}

// TestReconcile: what went out is compared with what came in; a warning is recorded and fails nothing.
func TestReconcile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	in := b.put("a,b\n1,2\n3,4\n5,6\n")
	for name, c := range map[string]struct {
		expect, level string
		want          *events.Failure
		holds         bool
	}{
		"holds":     {"to.records <= from.records", "error", nil, true},
		"a warning": {"to.records == from.records", "warning", nil, false},
		"an error": {"to.records == from.records", "error", &events.Failure{Class: events.BadOutput, Expected: "to.records == from.records",
			Actual: `{"from.records":3,"to.records":2}`, Reason: "the comparison of inputs.in with outputs.rows does not hold: to.records == from.records"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := attempt(&events.Stage{Inputs: []events.Input{{Role: "in", From: "stages.fetch.outputs.in", Expr: true, Format: "csv"}},
				Outputs:   []events.Output{{Role: "rows", Path: "r.csv", Format: "csv"}},
				Reconcile: []events.Reconcile{{From: "inputs.in", To: "outputs.rows", Expect: c.expect, Level: c.level}}})
			a.Upstream = map[string]*Upstream{"fetch": {Results: []events.Result{{Role: "in", Digest: in, Size: 16, Records: -1, Name: "in.csv"}}}}
			steps := &bench{TB: t, store: b.store, Steps: &Steps{Artifacts: b.store, WorkDir: t.TempDir(), LogDir: t.TempDir(), Executors: map[string]executor.Executor{}}}
			o := steps.run(a, files(map[string]string{"r.csv": rows}))
			want(t, o.Failure, c.want)
			want(t, []any{len(o.Data.Checks), o.Data.Checks[0].Holds, o.Data.Checks[0].Level}, []any{1, c.holds, c.level})
		})
	}
}

// TestBrokenConditionFailsTheAttempt: nothing of the stage runs.
func TestBrokenConditionFailsTheAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := attempt(&events.Stage{})
	a.Broken = "evaluate: no such value"
	o := b.run(a, func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
		t.Error("the stage ran")
		return &executor.Result{}, nil
	})
	want(t, o.Failure, &events.Failure{Class: events.BadInput, Reason: "evaluate: no such value"})
}
