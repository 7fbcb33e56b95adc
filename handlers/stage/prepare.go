package stage

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
	"github.com/apollo-11/apollo/handlers/executor"
)

// prepare turns the plan's inputs, parameters, environment and secrets into what the executor gets. It makes no
// directory unless there is a file to place.
func prepare(ctx context.Context, s *Steps, w *work) *events.Failure {
	a, c := w.Attempt, &w.call
	c.Run, c.Pipeline, c.Stage, c.Attempt = a.Run, a.Plan.Pipeline, a.Stage.Name, a.Number
	run := a.Run.String()
	c.Key = run + "/" + a.Stage.Name
	c.Dir, c.LogDir = s.attemptDirs(a, run)
	c.With, c.Pin, c.Timeout, c.Grace, c.Started = a.Stage.With, a.Stage.Pin, a.Stage.Timeout, a.Stage.Grace, a.Started
	c.LogicalTime, c.Seed = a.Logical, seed(a)
	if c.Params = a.Values; c.Params == nil && len(a.Params) > 0 {
		if err := json.Unmarshal(a.Params, &c.Params); err != nil {
			return cannot(ctx, "read the parameters", err)
		}
	}
	if len(a.Stage.Inputs)+len(a.Stage.Env)+len(a.Stage.Secrets) == 0 {
		return nil
	}
	e := &evaluation{ctx: ctx, attempt: a, artifacts: s.Artifacts, files: map[string]*file{}}
	if f := w.prepareInputs(ctx, s, e); f != nil {
		return f
	}
	if f := w.prepareEnv(e); f != nil {
		return f
	}
	return w.prepareSecrets(s)
}

// seed gives a stage its own seed, the same on every attempt: derived from the run and the stage.
func seed(a *Attempt) uint64 {
	h := events.DigestOf(append(a.Run[:], a.Stage.Name...))
	return binary.BigEndian.Uint64(h[:8])
}

func (w *work) prepareInputs(ctx context.Context, s *Steps, e *evaluation) *events.Failure {
	w.call.Inputs = make(map[string]executor.Input, len(w.Stage.Inputs))
	for i := range w.Stage.Inputs {
		in := &w.Stage.Inputs[i]
		if f := w.prepareInput(ctx, s, e, in); f != nil {
			if f.Pointer == "" {
				f.Pointer = "/inputs/" + in.Role
			}
			return f
		}
	}
	if len(w.inputs) > 0 {
		if err := os.Chmod(filepath.Join(w.call.Dir, "in"), 0o500); err != nil { //nolint:gosec // a directory needs its x bits
			return cannot(ctx, "close the input directory", err)
		}
	}
	return nil
}

// unlockInputs makes the input directories of an attempt that is over like others, so that whoever looks into the failure
// can remove them.
func (w *work) unlockInputs() {
	if len(w.inputs) == 0 {
		return
	}
	_ = os.Chmod(filepath.Join(w.call.Dir, "in"), 0o700) //nolint:gosec // a directory needs its x bits
	for role := range w.inputs {
		_ = os.Chmod(filepath.Join(w.call.Dir, "in", role), 0o700) //nolint:gosec // as above
	}
}

func (w *work) prepareInput(ctx context.Context, s *Steps, e *evaluation, in *events.Input) *events.Failure {
	var v any = in.From
	if in.Expr {
		var f *events.Failure
		if v, f = e.eval(in.From); f != nil {
			return f
		}
		if found := e.fileOf(v); found != nil {
			return w.place(ctx, s, in.Role, found)
		}
	}
	value, err := json.Marshal(v)
	if err != nil {
		return &events.Failure{Class: events.BadInput, Reason: fmt.Sprintf("the input %s is no value: %v", in.Role, err)}
	}
	w.call.Inputs[in.Role] = executor.Input{Value: value}
	return nil
}

// place puts a file input, read-only and with the run's time as its own, into in/<role>/<name>.
func (w *work) place(ctx context.Context, s *Steps, role string, f *file) *events.Failure {
	dir := filepath.Join(w.call.Dir, "in", role)
	err := os.MkdirAll(dir, 0o700)
	if err != nil {
		return cannot(ctx, "make the input directory", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return cannot(ctx, "open the input directory", err)
	}
	defer root.Close() //nolint:errcheck // a directory
	name := safeName(f.name)
	if f.inline != nil {
		err = root.WriteFile(name, f.inline, 0o444)
	} else {
		err = s.Artifacts.CopyTo(ctx, f.digest, root, name)
	}
	if err == nil {
		err = errors.Join(root.Chtimes(name, w.Logical, w.Logical), root.Chmod(".", 0o500))
	}
	if err != nil {
		return cannot(ctx, "place the input "+role, err)
	}
	placed := *f
	placed.path = filepath.Join(dir, name)
	if w.inputs == nil {
		w.inputs = map[string]*file{}
	}
	w.inputs[role] = &placed
	w.call.Inputs[role] = executor.Input{Path: placed.path}
	return nil
}

// safeName keeps a dropped file's own name for the stage unless it could mean something else to a shell or a path.
func safeName(name string) string {
	ext := filepath.Ext(name)
	plain := func(s string) bool {
		return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" && s[0] != '-' && s[0] != '.'
	}
	switch {
	case plain(name) && len(name) <= 128:
		return name
	case len(ext) > 1 && len(ext) <= 16 && plain(ext[1:]):
		return "data" + ext
	}
	return "data"
}

func (w *work) prepareEnv(e *evaluation) *events.Failure {
	if len(w.Stage.Env) == 0 {
		return nil
	}
	w.call.Env = make(map[string]string, len(w.Stage.Env))
	for name, text := range w.Stage.Env {
		if src, ok := configs.Expression(text); ok {
			v, f := e.eval(src)
			if f != nil {
				f.Pointer = "/env/" + name
				return f
			}
			formatted, err := configs.FormatValue(v)
			if err != nil {
				return &events.Failure{Class: events.BadInput, Pointer: "/env/" + name, Reason: err.Error()}
			}
			text = formatted
		}
		if len(text) > events.MaxInline {
			return &events.Failure{Class: events.BadInput, Pointer: "/env/" + name, Expected: fmt.Sprintf("at most %d bytes", events.MaxInline),
				Actual: fmt.Sprintf("%d bytes", len(text)), Reason: "the variable " + name + " is too long; an input goes by file"}
		}
		w.call.Env[name] = text
	}
	return nil
}

func (w *work) prepareSecrets(s *Steps) *events.Failure {
	if len(w.Stage.Secrets) == 0 {
		return nil
	}
	w.call.Secrets = make(map[string]string, len(w.Stage.Secrets))
	for name, ref := range w.Stage.Secrets {
		value, err := s.Secrets(ref)
		if err != nil {
			return &events.Failure{Class: events.BadInput, Pointer: "/secrets/" + name, Reason: err.Error()}
		}
		w.call.Secrets[name] = value
	}
	return nil
}

// checkInputs holds every input with a format or a contract against it, before the stage runs.
func checkInputs(ctx context.Context, s *Steps, w *work) *events.Failure {
	for i := range w.Stage.Inputs {
		in := &w.Stage.Inputs[i]
		placed := w.inputs[in.Role]
		if in.Contract == "" && (in.Format == "" || placed == nil) {
			continue
		}
		c, f := contractOf(w.Plan, in.Contract, nil)
		var report *contract.Report
		switch {
		case f != nil:
		case placed != nil:
			report, f = checkFile(ctx, os.DirFS(filepath.Dir(placed.path)), filepath.Base(placed.path), in.Format, c)
		default:
			report, f = checkValue(w.call.Inputs[in.Role].Value, c, events.BadInput)
		}
		if f == nil {
			f = s.broken(ctx, report, events.BadInput, "input "+in.Role)
		}
		if f != nil {
			return f
		}
	}
	return nil
}
