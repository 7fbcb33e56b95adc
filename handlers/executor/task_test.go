package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
)

// runTask executes a function as a task.
func runTask(ctx context.Context, t *testing.T, change func(*Call), task Task) (*Result, *events.Failure) {
	t.Helper()
	c := newCall(t, "-")
	c.With = json.RawMessage(`{"name":"it","with":{"limit":7}}`)
	if change != nil {
		change(c)
	}
	r, failure := NewTasks(map[string]Task{"it": task}).Execute(ctx, c)
	if _, err := os.Stat(c.Dir); err == nil && change == nil {
		t.Error("a directory was made")
	}
	return r, failure
}

func TestTaskReadsAndWrites(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(file, []byte("rows"), 0o600); err != nil {
		t.Fatal(err)
	}
	give := func(c *Call) {
		c.Params = map[string]json.RawMessage{"region": []byte(`"eu"`)}
		c.Inputs = map[string]Input{"n": {Value: []byte("9007199254740993")}, "drop": {Path: file}}
	}
	r, failure := runTask(t.Context(), t, give, func(_ context.Context, call *TaskCall) error {
		var settings struct{ Limit int }
		var region string
		var n json.Number
		if err := errors.Join(call.Settings(&settings), call.Param("region", &region), call.Value("n", &n)); err != nil {
			return err
		}
		f, err := call.Open("drop")
		if err != nil {
			return err
		}
		defer f.Close()
		rows, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		out, err := call.OutDir()
		if err != nil {
			return err
		}
		call.Segment("write")
		text := fmt.Sprintf("%d %s %s %s %d", settings.Limit, region, n, rows, call.Attempt)
		return errors.Join(call.SetOutput("n", n), os.WriteFile(filepath.Join(out, "o"), []byte(text), 0o600), call.SetOutput("text", text))
	})
	if failure != nil {
		t.Fatal(failure)
	}
	if got := string(r.Values["text"]); got != `"7 eu 9007199254740993 rows 1"` || string(r.Values["n"]) != "9007199254740993" {
		t.Errorf("got %s", r.Values)
	}
	if len(r.Segments) != 1 || r.Segments[0].Name != "write" || r.Segments[0].Duration <= 0 {
		t.Errorf("segments %+v", r.Segments)
	}
}

func TestTaskFailures(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	short := func(c *Call) { c.Timeout, c.Grace = 20*time.Millisecond, 20*time.Millisecond }
	for name, test := range map[string]struct {
		change   func(*Call)
		task     Task
		class    events.Class
		text     string
		evidence string
	}{
		"error":             {task: func(context.Context, *TaskCall) error { return errors.New("no luck") }, class: events.ExecFailed, text: "no luck"},
		"chosen class":      {task: func(context.Context, *TaskCall) error { return fmt.Errorf("x: %w", Fail(events.BadInput, "row 3")) }, class: events.BadInput, text: "row 3"},
		"missing parameter": {task: func(_ context.Context, c *TaskCall) error { return c.Param("p", new(int)) }, class: events.BadInput, text: `"p"`},
		"unknown setting":   {task: func(_ context.Context, c *TaskCall) error { return c.Settings(&struct{ Max int }{}) }, class: events.ExecFailed, text: "limit"},
		"large value": {task: func(_ context.Context, c *TaskCall) error { return c.SetOutput("v", strings.Repeat("x", maxOutputs)) },
			class: events.BadOutput, text: "too large"},
		"panic":           {task: func(context.Context, *TaskCall) error { panic("boom") }, class: events.ExecFailed, text: "boom", evidence: "TestTaskFailures"},
		"nil pointer":     {task: func(context.Context, *TaskCall) error { var p *Call; p.Attempt++; return nil }, class: events.ExecFailed, text: "nil pointer", evidence: "task_test.go"}, //nolint:govet // what it does wrong is the test
		"Goexit":          {task: func(context.Context, *TaskCall) error { runtime.Goexit(); return nil }, class: events.ExecFailed, text: "goroutine"},
		"time-out":        {change: short, task: func(ctx context.Context, _ *TaskCall) error { <-ctx.Done(); return ctx.Err() }, class: events.Timeout, text: "20ms"},
		"ignores its end": {change: short, task: func(context.Context, *TaskCall) error { <-release; return nil }, class: events.Timeout, text: "20ms"},
		"not registered":  {change: func(c *Call) { c.With = []byte(`{"name":"other"}`) }, task: nil, class: events.ExecFailed, text: "E_EXEC_NOTFOUND"},
	} {
		t.Run(name, func(t *testing.T) {
			r, failure := runTask(t.Context(), t, test.change, test.task)
			if failure == nil || failure.Class != test.class || !strings.Contains(failure.Reason, test.text) || !strings.Contains(r.Evidence, test.evidence) {
				t.Errorf("got %+v, %q", failure, r.Evidence)
			}
		})
	}
}

func TestTaskCancelled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	_, failure := runTask(ctx, t, nil, func(ctx context.Context, call *TaskCall) error {
		cancel(errors.New("li cancelled it"))
		<-ctx.Done()
		return ctx.Err()
	})
	if failure == nil || failure.Class != events.Aborted || !strings.Contains(failure.Reason, "li cancelled it") {
		t.Errorf("got %+v", failure)
	}
}

func TestSpecsAreJSON(t *testing.T) {
	for _, e := range Builtin(Settings{Tasks: map[string]Task{"b": nil, "a": nil}}) {
		if s := e.Spec(); s.Name == "" || s.Doc == "" || !json.Valid(s.With) {
			t.Errorf("%+v", s)
		}
	}
}
