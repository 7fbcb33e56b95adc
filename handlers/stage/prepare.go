package stage

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// prepare turns the plan's inputs, parameters, environment and secrets into what the executor gets. It makes no
// directory unless there is a file to place.
func prepare(ctx context.Context, s *Steps, w *work) *events.Failure {
	if f := w.begin(s); f != nil {
		return f
	}
	if f := w.resolve(ctx, s); f != nil {
		return f
	}
	w.Perturb.alter(&w.call)
	if f := w.placeInputs(ctx, s); f != nil {
		return f
	}
	w.program = s.describe(ctx, w)
	return nil
}

// begin fills in what needs no evaluation.
func (w *work) begin(s *Steps) *events.Failure {
	a, c := w.Attempt, &w.call
	c.Run, c.Pipeline, c.Stage, c.Attempt = a.Run, a.Plan.Pipeline, a.Stage.Name, a.Number
	run := a.Run.String()
	c.Key = run + "/" + a.Stage.Label(a.Item)
	c.Item, c.Value, c.Depth, c.Outputs = a.Item, a.Value, a.Depth, a.Stage.Outputs
	if isFileItem(a.Value) {
		c.Value = nil // the stage gets the file as an input
	}
	c.Answer, c.Approved = a.Answer, a.Approved
	c.Resources, c.Network = a.Stage.Resources, a.Stage.Network
	c.Isolation, c.Require, c.Readable = a.Stage.Isolation, a.Stage.Require, a.Stage.Readable
	if c.Dir, c.LogDir = s.attemptDirs(a, run); w.dir != "" {
		c.Dir, c.LogDir = w.dir, filepath.Join(w.dir, "logs")
	}
	c.With, c.Pin, c.Timeout, c.Grace, c.Started = a.Stage.With, a.Stage.Pin, a.Stage.Timeout, a.Stage.Grace, a.Started
	w.clock()
	if c.Params = a.Values; c.Params == nil && len(a.Params) > 0 {
		if err := json.Unmarshal(a.Params, &c.Params); err != nil {
			return &events.Failure{Class: events.System, Reason: fmt.Sprintf("cannot read the parameters: %v", err)}
		}
	}
	return nil
}

// resolve evaluates every expression of the stage's data. It makes no file.
func (w *work) resolve(ctx context.Context, s *Steps) *events.Failure {
	if len(w.Stage.Inputs)+len(w.Stage.Env)+len(w.Stage.Secrets) == 0 && !hasExpression(w.Stage.With) {
		return nil
	}
	e := w.evaluation(ctx, s)
	w.sources = make(map[string]source, len(w.Stage.Inputs))
	for i := range w.Stage.Inputs {
		in := &w.Stage.Inputs[i]
		var from source
		var f *events.Failure
		if in.File != "" {
			from, f = w.takeIn(ctx, s, in)
		} else {
			from, f = e.source(in)
		}
		if f != nil {
			return at(f, in.Role)
		}
		w.sources[in.Role] = from
	}
	if f := w.prepareWith(e); f != nil {
		return f
	}
	if f := w.prepareEnv(e); f != nil {
		return f
	}
	return w.prepareSecrets(s)
}

// at says which input a failure is about.
func at(f *events.Failure, role string) *events.Failure {
	if f.Pointer == "" {
		f.Pointer = "/inputs/" + role
	}
	return f
}

// seed gives a stage, or an instance of it, its own seed, the same on every attempt: derived from the run's seed and its label.
func seed(a *Attempt) uint64 {
	return events.SeedOf(binary.BigEndian.AppendUint64(nil, a.Seed), []byte(a.Stage.Label(a.Item)))
}

func (w *work) placeInputs(ctx context.Context, s *Steps) *events.Failure {
	w.call.Inputs = make(map[string]executor.Input, len(w.Stage.Inputs))
	for i := range w.Stage.Inputs {
		role := w.Stage.Inputs[w.Perturb.turn(i, len(w.Stage.Inputs))].Role
		from := w.sources[role]
		if f := w.placeInput(ctx, s, role, &from); f != nil {
			return at(f, role)
		}
	}
	if len(w.inputs)+len(w.lists) > 0 {
		if err := os.Chmod(filepath.Join(w.call.Dir, "in"), 0o500); err != nil { //nolint:gosec // a directory needs its x bits
			return cannot(ctx, "close the input directory", err)
		}
	}
	return nil
}

// unlockInputs makes the input directories of an attempt that is over like others, so that whoever looks into the failure
// can remove them.
func (w *work) unlockInputs() {
	if len(w.inputs)+len(w.lists) == 0 {
		return
	}
	_ = os.Chmod(filepath.Join(w.call.Dir, "in"), 0o700) //nolint:gosec // a directory needs its x bits
	for role := range w.call.Inputs {
		if w.inputs[role] != nil || w.lists[role] {
			openDirs(filepath.Join(w.call.Dir, "in", role))
		}
	}
}

// source is what an input is: one file, a list of files, or a value.
type source struct {
	file  *file
	list  []*file // nil where the list has null
	value json.RawMessage
}

// source evaluates where an input comes from. It makes no file.
func (e *evaluation) source(in *events.Input) (source, *events.Failure) {
	var v any = in.From
	if in.Expr {
		var f *events.Failure
		if v, f = e.eval(in.From); f != nil {
			return source{}, f
		}
		if found := e.fileOf(v); found != nil {
			return source{file: found}, nil
		}
		if list := e.filesOf(v); len(list) > 0 {
			return source{list: list}, nil
		}
	}
	value, err := json.Marshal(v)
	if err != nil {
		return source{}, &events.Failure{Class: events.BadInput, Reason: fmt.Sprintf("the input %s is no value: %v", in.Role, err)}
	}
	return source{value: value}, nil
}

func (w *work) placeInput(ctx context.Context, s *Steps, role string, from *source) *events.Failure {
	switch {
	case from.file != nil:
		return w.place(ctx, s, role, from.file)
	case from.list != nil:
		return w.placeAll(ctx, s, role, from.list)
	}
	w.call.Inputs[role] = executor.Input{Value: from.value}
	return nil
}

// place puts a file input, read-only and with the stage's time as its own, into in/<role>/<name>.
func (w *work) place(ctx context.Context, s *Steps, role string, f *file) *events.Failure {
	name := safeName(f.name)
	if failure := w.placeFiles(ctx, s, role, []placing{{f, name}}); failure != nil {
		return failure
	}
	placed := *f
	placed.path = filepath.Join(w.call.Dir, "in", role, name)
	w.inputs[role] = &placed
	w.call.Inputs[role] = executor.Input{Path: placed.path}
	return nil
}

// placeAll puts a list of files into in/<role>/, numbered in the order of the list; the input is the directory.
func (w *work) placeAll(ctx context.Context, s *Steps, role string, list []*file) *events.Failure {
	var places []placing
	width := len(strconv.Itoa(len(list)))
	for i, f := range list {
		if f != nil {
			places = append(places, placing{f, fmt.Sprintf("%0*d-%s", width, i+1, safeName(f.name))})
		}
	}
	if failure := w.placeFiles(ctx, s, role, places); failure != nil {
		return failure
	}
	if w.lists == nil {
		w.lists = map[string]bool{}
	}
	w.lists[role] = true
	w.call.Inputs[role] = executor.Input{Path: filepath.Join(w.call.Dir, "in", role)}
	return nil
}

// placing is a file and the name that it gets.
type placing struct {
	file *file
	name string
}

func (w *work) placeFiles(ctx context.Context, s *Steps, role string, list []placing) *events.Failure {
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
	if w.inputs == nil {
		w.inputs = map[string]*file{}
	}
	for i := range list {
		n := w.Perturb.turn(i, len(list))
		if err = w.placeOne(ctx, s, root, role, list[n], w.Perturb.modified(w.placed+n, w.call.LogicalTime)); err != nil {
			return cannot(ctx, "place the input "+role, err)
		}
	}
	w.placed += len(list)
	if err := root.Chmod(".", 0o500); err != nil {
		return cannot(ctx, "close the input directory", err)
	}
	return nil
}

func (w *work) placeOne(ctx context.Context, s *Steps, root *os.Root, role string, p placing, at time.Time) error {
	if p.file.inline != nil {
		return errors.Join(root.WriteFile(p.name, p.file.inline, 0o444), root.Chtimes(p.name, at, at))
	}
	how := artifacts.Placing{Time: at, Dir: p.file.dir(), Shared: w.guarded()}
	if how.Shared {
		w.linked = append(w.linked, link{role: role, placing: p})
	}
	return s.Artifacts.Place(ctx, p.file.digest, root, p.name, how)
}

// safeName keeps a dropped file's own name for the stage unless it could mean something else to a shell or a path.
func safeName(name string) string {
	name = strings.TrimSuffix(name, "/")
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
		if in.Contract == "" && (in.Format == "" || placed == nil) || w.lists[in.Role] {
			continue
		}
		c, f := contractOf(w.Plan, in.Contract, nil)
		var report *contract.Report
		switch {
		case f != nil:
		case placed != nil && placed.dir():
			f = &events.Failure{Class: events.BadInput, Pointer: "/inputs/" + in.Role, Expected: "a file", Actual: "a directory",
				Reason: "the input " + in.Role + " is a directory, which has no format to be checked"}
		case placed != nil:
			if report, f = checkFile(ctx, os.DirFS(filepath.Dir(placed.path)), filepath.Base(placed.path), in.Format, c); f == nil {
				placed.count = report.Records
			}
		default:
			report, f = checkValue(w.call.Inputs[in.Role].Value, c, events.BadInput)
		}
		if f == nil {
			f = s.broken(ctx, w, report, events.BadInput, "input "+in.Role)
		}
		if f != nil {
			return f
		}
	}
	return nil
}
