package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// MaxDepth is how many runs may stand above a child run.
const MaxDepth = 10

// Runs starts runs of other pipelines for stages, and waits for them. Its methods return early when the context ends, but
// a run that can be started at once is.
type Runs interface {
	// StartChild starts a run, or gives the one that was started with the same key. That the run is refused is an
	// events.Failure.
	StartChild(ctx context.Context, c Child) (events.ID, error)
	// WaitChild returns once the run has ended. That one of its outputs has no value is an events.Failure.
	WaitChild(ctx context.Context, run events.ID) (ChildEnd, error)
	// CancelChild asks the run to end; that it has ended already is no error.
	CancelChild(ctx context.Context, run events.ID, reason string) error
}

// Child is a run that a stage starts.
type Child struct {
	Plan   *events.Plan
	Params json.RawMessage // object, resolved
	Key    string          // the same for the same attempt
	Parent events.ID
	Depth  int

	Logical time.Time // those of the stage
	Seed    uint64
}

// ChildEnd is how a child run ended. Outputs are those of its plan, by role.
type ChildEnd struct {
	State   events.State
	Class   events.Class
	Stage   string // that failed first
	Reason  string
	Outputs map[string]events.Result
}

// Files copies artifacts to where a stage's outputs are looked for.
type Files interface {
	Place(ctx context.Context, d events.Digest, root *os.Root, name string, p artifacts.Placing) error
}

// Pipelines carries out stages that are runs of another pipeline. Such a stage holds no slot and has no process: when the
// engine is started again it goes on waiting for the same run.
type Pipelines struct {
	runs  Runs
	files Files
}

// NewPipelines makes the executor.
func NewPipelines(runs Runs, files Files) *Pipelines { return &Pipelines{runs: runs, files: files} }

// Spec implements Executor.
func (*Pipelines) Spec() Spec {
	return Spec{Name: "pipeline", Doc: "Runs another pipeline and waits for its end.", With: json.RawMessage(
		`{"type":"object","additionalProperties":false,"required":["name","plan"],"properties":{"name":{"type":"string"},"params":{"type":"object"},
"plan":{"type":"object","description":"The other pipeline, frozen."}}}`)}
}

type pipelineSettings struct {
	Name   string                     `json:"name"`
	Params map[string]json.RawMessage `json:"params"`
	Plan   *events.Plan               `json:"plan"`
}

// Execute implements Executor.
func (e *Pipelines) Execute(ctx context.Context, c *Call) (*Result, *events.Failure) {
	result := new(Result)
	var settings pipelineSettings
	if failure := decodeSettings(c.With, &settings); failure != nil {
		return result, failure
	}
	if settings.Plan == nil || e.runs == nil {
		return result, &events.Failure{Class: events.System, Reason: "the pipeline " + settings.Name + " is not frozen into the plan, or this engine starts no runs"}
	}
	if c.Depth >= MaxDepth {
		return result, &events.Failure{Class: events.BadInput, Expected: fmt.Sprintf("at most %d", MaxDepth), Actual: strconv.Itoa(c.Depth + 1),
			Reason: fmt.Sprintf("E_DEPTH: the run of %s would have %d runs above it", settings.Name, c.Depth+1)}
	}
	params, problems := configs.ResolveParams(settings.Plan, settings.Params)
	if len(problems) > 0 {
		return result, &events.Failure{Class: events.BadInput, Pointer: "/with/params", Reason: problems[0].Code + ": " + problems[0].Message,
			Expected: problems[0].Expected}
	}
	encoded, err := json.Marshal(params)
	if err != nil {
		return result, systemFailure("write the parameters", err)
	}
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, &events.Failure{Class: events.Timeout, Expected: c.Timeout.String(),
			Reason: fmt.Sprintf("the run of %s took longer than the time-out of %s", settings.Name, c.Timeout)})
		defer cancel()
	}
	return result, e.carry(ctx, c, result, Child{Plan: settings.Plan, Params: encoded, Key: fmt.Sprintf("%s/%d", c.Key, c.Attempt),
		Parent: c.Run, Depth: c.Depth + 1, Logical: c.LogicalTime, Seed: c.Seed})
}

// carry starts the child, waits for it and takes its outputs. When the stage is to end early the child is cancelled, and
// the stage ends once it has.
func (e *Pipelines) carry(ctx context.Context, c *Call, result *Result, child Child) *events.Failure {
	lasting := context.WithoutCancel(ctx)
	id, err := e.runs.StartChild(ctx, child)
	if err != nil {
		if cause := stopCause(ctx); cause != nil {
			return cause
		}
		return failureOr(err, "start a run of "+child.Plan.Pipeline)
	}
	result.Pins = []events.Pair{{Name: "run", Value: id.String()}}
	end, err := e.runs.WaitChild(ctx, id)
	if err != nil && errors.Is(context.Cause(ctx), ErrStopping) {
		return &events.Failure{Class: events.Lost, Reason: "the engine was stopped while the run " + id.String() + " went on"}
	}
	if cause := stopCause(ctx); cause != nil && err != nil {
		if err := e.runs.CancelChild(lasting, id, cause.Reason); err != nil {
			return systemFailure("cancel the run "+id.String(), err)
		}
		if _, err := e.runs.WaitChild(lasting, id); err != nil {
			return systemFailure("wait for the end of the run "+id.String(), err)
		}
		return cause
	}
	if err != nil {
		return failureOr(err, "wait for the run "+id.String())
	}
	if end.State != events.Completed {
		f := &events.Failure{Class: end.Class, Reason: fmt.Sprintf("the run %s of %s %s: %s", id, child.Plan.Pipeline, end.State, end.Reason),
			Pointer: end.Stage, Expected: "completed", Actual: end.State.String()}
		if f.Class == "" || f.Class == events.Aborted || f.Class == events.Lost {
			f.Class = events.ExecFailed
		}
		return f
	}
	return e.take(ctx, c, result, end.Outputs)
}

// failureOr gives an error that is a failure as it is.
func failureOr(err error, doing string) *events.Failure {
	if f, ok := errors.AsType[*events.Failure](err); ok {
		return f
	}
	return systemFailure(doing, err)
}

// take hands the child's outputs on under the roles that the stage declares.
func (e *Pipelines) take(ctx context.Context, c *Call, result *Result, outputs map[string]events.Result) *events.Failure {
	for i := range c.Outputs {
		o := &c.Outputs[i]
		r, has := outputs[o.Role]
		switch {
		case !has:
		case o.Optional && string(r.Value) == "null":
		case len(r.Value) > 0 && o.Path == "":
			if result.Values == nil {
				result.Values = map[string]json.RawMessage{}
			}
			result.Values[o.Role] = r.Value
		case len(r.Value) == 0 && o.Path != "" && strings.HasSuffix(r.Name, "/") != strings.HasSuffix(o.Path, "/"):
			return &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role,
				Reason: "one of the output " + o.Role + " of the child run and that of the stage is a directory, the other a file"}
		case len(r.Value) == 0 && o.Path != "":
			if err := e.place(ctx, c, r.Digest, o.Path); err != nil {
				return systemFailure("take the output "+o.Role, err)
			}
		default:
			return &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role,
				Reason: "the output " + o.Role + " of the child run is " + map[bool]string{true: "a value", false: "a file"}[len(r.Value) > 0] +
					", and the stage declares the other"}
		}
	}
	return nil
}

func (e *Pipelines) place(ctx context.Context, c *Call, d events.Digest, path string) error {
	out := filepath.Join(c.Dir, "out")
	if err := os.MkdirAll(filepath.Join(out, filepath.Dir(path)), 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(out)
	if err != nil {
		return err
	}
	how := artifacts.Placing{Dir: strings.HasSuffix(path, "/")}
	path = filepath.Clean(path)
	err = clearPath(root, path) // an engine that died may have come this far
	if err == nil {
		err = e.files.Place(ctx, d, root, path, how)
	}
	return errors.Join(err, root.Close())
}

// clearPath removes a file, or a directory whose own directories may be closed.
func clearPath(root *os.Root, path string) error {
	err := fs.WalkDir(root.FS(), path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = root.Chmod(p, 0o700)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, root.RemoveAll(path))
}
