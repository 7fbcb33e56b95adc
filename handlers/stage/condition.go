package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// Conditions evaluates what decides on a stage before it runs, over the data that its attempt would see.
type Conditions struct{ Artifacts Artifacts }

// When evaluates the stage's condition.
func (c Conditions) When(ctx context.Context, a *Attempt) events.Check {
	e := &evaluation{ctx: ctx, attempt: a, artifacts: c.Artifacts, files: map[string]*file{}}
	return e.check(events.Check{Kind: "when", Expr: a.Stage.When})
}

// Items evaluates the list of a foreach stage and gives it as it is recorded: a JSON array.
func (c Conditions) Items(ctx context.Context, a *Attempt) (items json.RawMessage, count int, check events.Check) {
	e := &evaluation{ctx: ctx, attempt: a, artifacts: c.Artifacts, files: map[string]*file{}}
	check = events.Check{Kind: "foreach", Expr: a.Stage.Foreach}
	v, f := e.eval(check.Expr)
	if f != nil {
		check.Error = f.Reason
		return nil, 0, check
	}
	check.Inputs = e.readBy(check.Expr)
	items, count, err := e.recordItems(v)
	if err != nil {
		check.Error = err.Error()
		return nil, 0, check
	}
	check.Holds = true
	return items, count, check
}

func (e *evaluation) recordItems(v any) (json.RawMessage, int, error) {
	list, ok := listOf(v)
	if !ok {
		return nil, 0, fmt.Errorf("E_FOREACH: the expression gave %s, not a list", describe(v))
	}
	if len(list) > events.MaxItems {
		return nil, 0, fmt.Errorf("E_FOREACH: the list has %d items, and at most %d are allowed", len(list), events.MaxItems)
	}
	recorded := make([]any, len(list))
	for i, one := range list {
		var err error
		if recorded[i], err = e.recordItem(one); err != nil {
			return nil, 0, err
		}
	}
	b, err := json.Marshal(recorded)
	return b, len(list), err
}

// listOf takes any list: a range gives whole numbers, not values of any type.
func listOf(v any) ([]any, bool) {
	if list, ok := v.([]any); ok {
		return list, true
	}
	r := reflect.ValueOf(v)
	if r.Kind() != reflect.Slice {
		return nil, false
	}
	list := make([]any, r.Len())
	for i := range list {
		list[i] = r.Index(i).Interface()
	}
	return list, true
}

func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "a map"
	case string:
		return "text"
	case bool:
		return fmt.Sprint(v)
	}
	return "a number"
}

// Item gives one of the items of a recorded list; number counts from 1.
func Item(items []json.RawMessage, number int) json.RawMessage {
	if number < 1 || number > len(items) {
		return nil
	}
	return items[number-1]
}

// check evaluates a condition and records what it read.
func (e *evaluation) check(c events.Check) events.Check {
	v, f := e.eval(c.Expr)
	if f != nil {
		c.Error = f.Reason
		return c
	}
	c.Inputs = e.readBy(c.Expr)
	holds, ok := v.(bool)
	if !ok {
		c.Error = fmt.Sprintf("the condition gave %s, not true or false", describe(v))
	}
	c.Holds = holds
	return c
}

// maxRecorded is the most that a check records of one value, in bytes of JSON; of a longer one, its digest.
const maxRecorded = 256

// readBy gives each path that the expression reads, with its value: an object in the order of the paths.
func (e *evaluation) readBy(src string) json.RawMessage {
	paths := configs.Paths(src)
	if len(paths) == 0 {
		return nil
	}
	sort.Strings(paths)
	var b bytes.Buffer
	b.WriteByte('{')
	for i, path := range paths {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(path) //nolint:errchkjson // text always has a JSON form
		b.Write(name)
		b.WriteByte(':')
		b.Write(e.recorded(path))
	}
	b.WriteByte('}')
	return b.Bytes()
}

func (e *evaluation) recorded(path string) []byte {
	v, f := e.eval(path)
	if f != nil {
		return []byte("null")
	}
	value, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	if len(value) > maxRecorded {
		return []byte(`"` + events.DigestOf(value).String() + `"`)
	}
	return value
}

// reconcile compares what came in with what went out.
func reconcile(ctx context.Context, s *Steps, w *work) *events.Failure {
	for _, r := range w.Stage.Reconcile {
		sides := map[string]any{}
		for name, side := range map[string]string{"from": r.From, "to": r.To} {
			group, role, _ := strings.Cut(side, ".")
			if group == "inputs" {
				sides[name] = w.inputValues(s, ctx)[role]
			} else {
				sides[name] = w.outputValues()[role]
			}
		}
		e, f := w.evaluation(ctx, s).with(sides)
		if f != nil {
			return f
		}
		c := e.check(events.Check{Kind: "reconcile", Expr: r.Expect, Level: r.Level})
		w.out.Checks = append(w.out.Checks, c)
		if (c.Error != "" || !c.Holds) && r.Level != "warning" {
			return notMet(c, events.BadOutput, "the comparison of "+r.From+" with "+r.To+" does not hold: "+r.Expect)
		}
	}
	return nil
}

// gates holds the outputs against the acceptance criteria. One that is not met ends the attempt once the outputs are
// sealed: a person may still let them pass.
func gates(ctx context.Context, s *Steps, w *work) *events.Failure {
	if len(w.Stage.Gate) == 0 {
		return nil
	}
	e, f := w.evaluation(ctx, s).with(map[string]any{"inputs": w.inputValues(s, ctx), "outputs": w.outputValues(), "metrics": w.metrics()})
	if f != nil {
		return f
	}
	for _, g := range w.Stage.Gate {
		c := e.check(events.Check{Kind: "gate", Expr: g.Check})
		w.out.Checks = append(w.out.Checks, c)
		if (c.Error != "" || !c.Holds) && w.rejected == nil {
			reason := g.Message
			if reason == "" {
				reason = "the gate is not met: " + g.Check
			}
			w.rejected = notMet(c, events.GateRejected, reason)
		}
	}
	return nil
}

// turnAway fails an attempt that a gate has rejected.
func turnAway(_ context.Context, _ *Steps, w *work) *events.Failure { return w.rejected }

func notMet(c events.Check, class events.Class, reason string) *events.Failure {
	f := &events.Failure{Class: class, Reason: reason, Expected: c.Expr, Actual: string(c.Inputs)}
	if c.Error != "" {
		f.Actual = c.Error
	}
	return f
}

// inputValues is what conditions see of the inputs, by role.
func (w *work) inputValues(s *Steps, ctx context.Context) map[string]any { //nolint:revive // the context is that of one step
	e := w.evaluation(ctx, s)
	values := map[string]any{}
	for role, f := range w.inputs {
		values[role] = e.fileValue(f)
	}
	for role, in := range w.call.Inputs {
		if v, err := decodeNumbers(in.Value); in.Path == "" && err == nil {
			values[role] = v
		}
	}
	return values
}

// outputValues is what conditions see of the outputs, by role. A file has no digest yet.
func (w *work) outputValues() map[string]any {
	values := map[string]any{}
	for i := range w.Stage.Outputs {
		values[w.Stage.Outputs[i].Role] = nil // an optional one that is missing
	}
	for i := range w.outputs {
		o := &w.outputs[i]
		if o.value == nil {
			values[o.Role] = map[string]any{"size": o.size, "records": o.records, "path": o.Path, "name": o.Path}
		} else if v, err := decodeNumbers(o.value); err == nil {
			values[o.Role] = v
		}
	}
	return values
}

// metrics is what gates see of the attempt's work: milliseconds and bytes.
func (w *work) metrics() map[string]any {
	u := w.result.Usage
	return map[string]any{"duration_ms": int(w.took.Milliseconds()), "cpu_ms": int((u.User + u.System).Milliseconds()), "max_rss": u.MaxRSS,
		"read": u.Read, "written": u.Written, "stdout": w.result.Stdout.Bytes, "stderr": w.result.Stderr.Bytes}
}

// Value evaluates an expression over the data that the attempt would see. A file comes as an events.Result.
func (c Conditions) Value(ctx context.Context, a *Attempt, expr string) (any, error) {
	e := &evaluation{ctx: ctx, attempt: a, artifacts: c.Artifacts, files: map[string]*file{}}
	v, f := e.eval(expr)
	if f != nil {
		return nil, f
	}
	if found := e.fileOf(v); found != nil {
		return events.Result{Digest: found.digest, Size: found.size, Records: found.count, Name: found.name}, nil
	}
	return v, nil
}

// ResultOf gives what Value gave as the output of a run: a file, or a value.
func ResultOf(v any) (events.Result, error) {
	if file, ok := v.(events.Result); ok {
		return file, nil
	}
	b, err := json.Marshal(v)
	return events.Result{Value: b, Records: -1}, err
}
