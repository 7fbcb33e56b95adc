package stage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
)

// output is a file output between its check and its sealing.
type output struct {
	*events.Output
	records int64
	missing bool
}

// checkInputs holds every input with a contract against it, before the stage runs.
func checkInputs(ctx context.Context, s *Steps, w *work) *events.Failure {
	for i := range w.Stage.Inputs {
		in := &w.Stage.Inputs[i]
		if in.Contract == "" {
			continue
		}
		c, f := contractOf(w.Plan, in.Contract, nil)
		if f != nil {
			return f
		}
		var report *contract.Report
		if placed := w.inputs[in.Role]; placed != nil {
			report, f = checkFile(ctx, os.DirFS(filepath.Dir(placed.path)), filepath.Base(placed.path), in.Format, c)
		} else {
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

// broken makes the failure of a report that found something, with the whole report as evidence.
func (s *Steps) broken(ctx context.Context, r *contract.Report, class events.Class, what string) *events.Failure {
	f := r.Failure(class)
	if f == nil {
		return nil
	}
	f.Reason = what + ": " + f.Reason
	if proof, err := json.MarshalIndent(r, "", "  "); err == nil && s.Artifacts != nil {
		f.Evidence = s.store(ctx, proof)
	}
	return f
}

func checkFile(ctx context.Context, dir fs.FS, name, format string, c *contract.Contract) (*contract.Report, *events.Failure) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, systemFailure("open "+name, err)
	}
	defer f.Close()
	report, err := contract.Check(ctx, format, c, f)
	if err != nil {
		return nil, systemFailure("check "+name, err)
	}
	return report, nil
}

func checkValue(value json.RawMessage, c *contract.Contract, class events.Class) (*contract.Report, *events.Failure) {
	v, err := contract.DecodeStrict(value)
	if err != nil {
		return nil, &events.Failure{Class: class, Reason: err.Error()}
	}
	return c.CheckValue(v), nil
}

// takeOutputs finds every declared output below out and refuses what is no plain file there. What was not declared
// stays behind.
func takeOutputs(_ context.Context, _ *Steps, w *work) *events.Failure {
	for i := range w.Stage.Outputs {
		o := &w.Stage.Outputs[i]
		if o.Path == "" {
			if _, has := w.result.Values[o.Role]; !has && !o.Optional {
				return &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role, Expected: "a value under " + o.Role + " in $APOLLO_OUTPUTS",
					Actual: "none", Reason: "the output " + o.Role + " was not set"}
			}
			continue
		}
		found := output{Output: o, records: -1}
		if f := w.look(&found); f != nil {
			return f
		}
		w.outputs = append(w.outputs, found)
	}
	return nil
}

func (w *work) look(o *output) *events.Failure {
	fail := func(actual string) *events.Failure {
		return &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role, Expected: "a file out/" + o.Path, Actual: actual,
			Reason: fmt.Sprintf("the output %s: %s at out/%s", o.Role, actual, o.Path)}
	}
	root, err := os.OpenRoot(filepath.Join(w.call.Dir, "out"))
	if errors.Is(err, fs.ErrNotExist) && o.Optional {
		o.missing = true
		return nil
	}
	if err != nil {
		return fail("nothing")
	}
	defer root.Close()
	info, err := root.Lstat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.Optional:
		o.missing = true
	case errors.Is(err, fs.ErrNotExist):
		return fail("nothing")
	case err != nil:
		return fail("a path that leads out of the directory")
	case !info.Mode().IsRegular():
		return fail("a " + kindOf(info.Mode()))
	}
	return nil
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	}
	return "special file"
}

// checkOutputs holds every output against its contract and counts its records.
func checkOutputs(ctx context.Context, s *Steps, w *work) *events.Failure {
	for i := range w.Stage.Outputs {
		o := &w.Stage.Outputs[i]
		value, has := w.result.Values[o.Role]
		if o.Path != "" || !has {
			continue
		}
		c, f := contractOf(w.Plan, o.Contract, o.Schema)
		if f == nil && c != nil {
			var report *contract.Report
			if report, f = checkValue(value, c, events.BadOutput); f == nil {
				f = s.broken(ctx, report, events.BadOutput, "output "+o.Role)
			}
		}
		if f != nil {
			return f
		}
	}
	for i := range w.outputs {
		if f := w.checkOutput(ctx, s, &w.outputs[i]); f != nil {
			return f
		}
	}
	return nil
}

func (w *work) checkOutput(ctx context.Context, s *Steps, o *output) *events.Failure {
	if o.missing || o.Format == "" && o.Contract == "" {
		return nil
	}
	c, f := contractOf(w.Plan, o.Contract, nil)
	if f != nil {
		return f
	}
	root, err := os.OpenRoot(filepath.Join(w.call.Dir, "out"))
	if err != nil {
		return systemFailure("open the out directory", err)
	}
	defer root.Close()
	report, f := checkFile(ctx, root.FS(), o.Path, o.Format, c)
	if f != nil {
		return f
	}
	o.records = report.Records
	return s.broken(ctx, report, events.BadOutput, "output "+o.Role)
}

// seal moves file outputs into the artifact store and records every output.
func seal(ctx context.Context, s *Steps, w *work) *events.Failure {
	for i := range w.Stage.Outputs {
		role := w.Stage.Outputs[i].Role
		if v, has := w.result.Values[role]; has && w.Stage.Outputs[i].Path == "" {
			w.out.Outputs = append(w.out.Outputs, events.Result{Role: role, Digest: events.DigestOf(v), Size: int64(len(v)), Records: -1, Value: v})
		}
	}
	if len(w.outputs) == 0 {
		return nil
	}
	root, err := os.OpenRoot(filepath.Join(w.call.Dir, "out"))
	if err != nil {
		return sealNothing(w, err)
	}
	defer root.Close()
	for i := range w.outputs {
		o := &w.outputs[i]
		if o.missing {
			continue
		}
		info, err := s.Artifacts.PutFile(ctx, root, o.Path)
		if err != nil {
			return systemFailure("seal the output "+o.Role, err)
		}
		w.out.Outputs = append(w.out.Outputs, events.Result{Role: o.Role, Digest: info.Digest, Size: info.Size, Records: o.records, Name: filepath.Base(o.Path)})
	}
	return nil
}

// sealNothing is right when every declared file was optional and missing.
func sealNothing(w *work, err error) *events.Failure {
	for i := range w.outputs {
		if !w.outputs[i].missing {
			return systemFailure("open the out directory", err)
		}
	}
	return nil
}

// removeTree removes a work directory, also when the stage left read-only directories in it.
func removeTree(dir string) error {
	err := os.RemoveAll(dir)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = os.Chmod(path, 0o700) //nolint:gosec // a directory needs its x bits
		}
		return nil
	})
	return os.RemoveAll(dir)
}
