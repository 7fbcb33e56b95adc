package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Task is a Go function that serves as a stage. It must return soon after ctx ends. An error fails the attempt: with
// its own class when it is, or wraps, an *events.Failure (see Fail), else with exec_failed.
type Task func(ctx context.Context, call *TaskCall) error

// Fail gives an error that ends the attempt with the class and the reason, one sentence.
func Fail(class events.Class, reason string) error {
	return &events.Failure{Class: class, Reason: reason}
}

// TaskCall is what a task may know and do. It has every field of Call, of which With is better read by Settings.
type TaskCall struct {
	*Call
	settings json.RawMessage

	mu       sync.Mutex
	closed   bool
	size     int
	values   map[string]json.RawMessage
	segments []Segment
	marked   time.Time
}

// Settings decodes the stage's `with` into a struct, and refuses fields that the struct does not have.
func (t *TaskCall) Settings(into any) error {
	if len(t.settings) == 0 {
		return nil
	}
	if failure := decodeSettings(t.settings, into); failure != nil {
		return failure
	}
	return nil
}

// Param decodes a parameter.
func (t *TaskCall) Param(name string, into any) error {
	return decodeValue("parameter", name, t.Params[name], into)
}

// Value decodes an input that is a value.
func (t *TaskCall) Value(role string, into any) error {
	return decodeValue("input", role, t.Inputs[role].Value, into)
}

func decodeValue(kind, name string, raw json.RawMessage, into any) error {
	if raw == nil {
		return &events.Failure{Class: events.BadInput, Pointer: "/" + name, Reason: fmt.Sprintf("the %s %q is missing", kind, name)}
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return &events.Failure{Class: events.BadInput, Pointer: "/" + name, Reason: fmt.Sprintf("the %s %q has the wrong type: %v", kind, name, err)}
	}
	return nil
}

// Open opens an input for reading, whether it is a file or a value. The caller closes it.
func (t *TaskCall) Open(role string) (io.ReadCloser, error) {
	in, ok := t.Inputs[role]
	switch {
	case !ok:
		return nil, Fail(events.BadInput, fmt.Sprintf("the input %q is missing", role))
	case in.Path == "":
		return io.NopCloser(strings.NewReader(textOf(in.Value))), nil
	}
	f, err := os.Open(in.Path)
	if err != nil {
		return nil, fmt.Errorf("open input %s: %w", role, err)
	}
	return f, nil
}

// OutDir makes the directory for file outputs, at the first call, and gives its path.
func (t *TaskCall) OutDir() (string, error) {
	out := filepath.Join(t.Dir, "out")
	if err := os.MkdirAll(out, 0o700); err != nil {
		return "", fmt.Errorf("make the out directory: %w", err)
	}
	return out, nil
}

// SetOutput sets a small output of the stage. All of them together are bounded like APOLLO_OUTPUTS.
func (t *TaskCall) SetOutput(role string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return &events.Failure{Class: events.BadOutput, Pointer: "/" + role, Reason: fmt.Sprintf("the output %q is no JSON: %v", role, err)}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	size := t.size + len(raw) - len(t.values[role])
	if size > maxOutputs {
		return &events.Failure{Class: events.BadOutput, Pointer: "/" + role, Expected: fmt.Sprintf("at most %d bytes", maxOutputs),
			Reason: "the values of the stage are too large; a file output has no such limit"}
	}
	if t.closed {
		return errors.New("the attempt has ended")
	}
	if t.values == nil {
		t.values = make(map[string]json.RawMessage)
	}
	t.values[role], t.size = raw, size
	return nil
}

// Segment marks the beginning of a timing segment, and the end of the one before.
func (t *TaskCall) Segment(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); !t.closed && len(t.segments) < maxSegments {
		t.endSegment(now)
		t.segments, t.marked = append(t.segments, Segment{Name: name}), now
	}
}

func (t *TaskCall) endSegment(now time.Time) {
	if n := len(t.segments); n > 0 {
		t.segments[n-1].Duration = now.Sub(t.marked)
	}
}

// close takes what the task has set; what it does later changes nothing.
func (t *TaskCall) close(result *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endSegment(time.Now())
	t.closed = true
	result.Values, result.Segments = t.values, t.segments
}

// Tasks runs Go functions by name. No file or directory is made unless the function asks for one.
type Tasks struct {
	byName map[string]Task

	mu    sync.Mutex
	known map[string]taskSettings // decoded settings by their text: every attempt of a stage has the same
}

// taskSettings is a stage's with.
type taskSettings struct {
	Name string          `json:"name"`
	With json.RawMessage `json:"with"`
}

// maxKnown bounds how many settings are kept decoded.
const maxKnown = 1024

func (e *Tasks) settings(with json.RawMessage) (taskSettings, *events.Failure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known, ok := e.known[string(with)]; ok {
		return known, nil
	}
	var decoded taskSettings
	if failure := decodeSettings(with, &decoded); failure != nil {
		return decoded, failure
	}
	if len(e.known) >= maxKnown {
		clear(e.known)
	}
	e.known[string(with)] = decoded
	return decoded, nil
}

// NewTasks makes the executor of the functions.
func NewTasks(byName map[string]Task) *Tasks {
	return &Tasks{byName: maps.Clone(byName), known: map[string]taskSettings{}}
}

// Spec implements Executor.
func (e *Tasks) Spec() Spec {
	names, _ := json.Marshal(append([]string{}, slices.Sorted(maps.Keys(e.byName))...)) //nolint:errchkjson // strings always have a JSON form
	return Spec{
		Name: "task",
		Doc:  "Calls a Go function that is registered in this build.",
		With: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["name"],"properties":{
"name":{"type":"string","enum":` + string(names) + `},"with":{"description":"The function's own settings."}}}`),
	}
}

// Execute implements Executor. A task that does not return within the grace time after its end was asked for is
// abandoned: the attempt fails and says so, and nothing that the task does later is recorded.
func (e *Tasks) Execute(ctx context.Context, c *Call) (*Result, *events.Failure) {
	result := new(Result)
	settings, failure := e.settings(c.With)
	if failure != nil {
		return result, failure
	}
	task, ok := e.byName[settings.Name]
	if !ok {
		return result, &events.Failure{Class: events.ExecFailed, Reason: fmt.Sprintf("E_EXEC_NOTFOUND: no task %q in this build", settings.Name)}
	}
	if c.Timeout > 0 {
		timeout := &events.Failure{Class: events.Timeout, Expected: c.Timeout.String(),
			Reason: fmt.Sprintf("the task ran over its time-out of %s", c.Timeout)}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, timeout)
		defer cancel()
	}
	if cause := stopCause(ctx); cause != nil {
		return result, cause
	}
	call := &TaskCall{Call: c, settings: settings.With}
	abandoned, err := await(ctx, task, call)
	call.close(result)
	return result, taskFailure(ctx, err, abandoned, result)
}

// await calls the task and waits for it, but not for ever once ctx has ended.
func await(ctx context.Context, task Task, call *TaskCall) (abandoned bool, err error) {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the task ended its goroutine instead of returning")
		defer func() { done <- err }()
		err = protect(ctx, task, call)
	}()
	select {
	case err := <-done:
		return false, err
	case <-ctx.Done():
	}
	grace := call.Grace
	if grace <= 0 {
		grace = DefaultGrace
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return false, err
	case <-timer.C:
		return true, nil
	}
}

// taskPanic is a panic of a task, with the stack of its goroutine.
type taskPanic struct {
	value any
	stack string
}

func (p *taskPanic) Error() string { return fmt.Sprintf("the task panicked: %v", p.value) }

func protect(ctx context.Context, task Task, call *TaskCall) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &taskPanic{value: value, stack: string(debug.Stack())}
		}
	}()
	return task(ctx, call)
}

// taskFailure classes the end of a task.
func taskFailure(ctx context.Context, err error, abandoned bool, result *Result) *events.Failure {
	cause := stopCause(ctx)
	if abandoned {
		cause.Actual = "the task did not return within the grace time and was abandoned"
		return cause
	}
	var panicked *taskPanic
	var failure *events.Failure
	switch {
	case err == nil:
		return nil
	case errors.As(err, &panicked):
		result.Evidence = panicked.Error() + "\n" + panicked.stack
		return &events.Failure{Class: events.ExecFailed, Reason: panicked.Error()}
	case cause != nil:
		return cause
	case errors.As(err, &failure):
		own := *failure
		return &own
	}
	return &events.Failure{Class: events.ExecFailed, Reason: err.Error()}
}
