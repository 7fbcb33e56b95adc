package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// output is a declared output that the stage left, between its check and its sealing.
type output struct {
	*events.Output
	value   json.RawMessage // nil for a file
	records int64           // of a directory: its files
	size    int64           // of a file, in bytes
}

func (o *output) dir() bool { return strings.HasSuffix(o.Path, "/") }

// takeOutputs finds every declared output and refuses what is no plain file below out. What was not declared stays
// behind.
func takeOutputs(ctx context.Context, _ *Steps, w *work) *events.Failure {
	if len(w.Stage.Outputs) == 0 {
		return nil
	}
	out, err := os.OpenRoot(filepath.Join(w.call.Dir, "out"))
	if err == nil {
		defer out.Close() //nolint:errcheck // a directory
	} else if !errors.Is(err, fs.ErrNotExist) {
		return cannot(ctx, "open the out directory", err)
	}
	for i := range w.Stage.Outputs {
		o := output{Output: &w.Stage.Outputs[i], records: -1}
		var found bool
		var f *events.Failure
		if o.Path == "" {
			found, f = w.takeValue(&o)
		} else {
			found, f = o.take(ctx, out)
		}
		if f != nil {
			return f
		}
		if found {
			w.outputs = append(w.outputs, o)
		}
	}
	return nil
}

func (w *work) takeValue(o *output) (bool, *events.Failure) {
	value, has := w.result.Values[o.Role]
	switch {
	case has:
		var compact bytes.Buffer // the form in which events keep it: spaces make no difference
		if err := json.Compact(&compact, value); err != nil {
			return false, o.bad("a JSON value", err.Error(), "the output "+o.Role+" is no JSON")
		}
		o.value = compact.Bytes()
		return true, nil
	case o.Optional:
		return false, nil
	}
	return false, o.bad("a value under "+o.Role+" in $APOLLO_OUTPUTS", "nothing", "the output "+o.Role+" was not set")
}

// take looks at the file of an output; out is nil when the stage left no directory.
func (o *output) take(ctx context.Context, out *os.Root) (bool, *events.Failure) {
	var info fs.FileInfo
	err := fs.ErrNotExist
	if out != nil {
		info, err = out.Lstat(filepath.Clean(o.Path))
	}
	kind := "file"
	if o.dir() {
		kind = "directory"
	}
	var actual string
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.Optional:
		return false, nil
	case errors.Is(err, fs.ErrNotExist):
		actual = "nothing"
	case err != nil:
		actual = "a path that leads out of the directory"
	case o.dir() && info.IsDir():
		return o.takeDir(ctx, out)
	case o.dir() || !info.Mode().IsRegular():
		actual = kindOf(info.Mode())
	default:
		o.size = info.Size()
		return true, nil
	}
	return false, o.bad("a "+kind+" out/"+o.Path, actual, fmt.Sprintf("the output %s: found %s at out/%s", o.Role, actual, o.Path))
}

// takeDir looks through a directory: everything in it must be what the store can keep.
func (o *output) takeDir(ctx context.Context, out *os.Root) (bool, *events.Failure) {
	m, err := artifacts.ReadDir(ctx, out, filepath.Clean(o.Path))
	switch {
	case errors.Is(err, artifacts.ErrSpecial):
		return false, o.bad("files, directories, and links that stay in out/"+o.Path, err.Error(), fmt.Sprintf("the output %s: %v", o.Role, err))
	case err != nil:
		return false, cannot(ctx, "look through the output "+o.Role, err)
	}
	files, size := m.Size()
	o.records, o.size = int64(files), size
	return true, nil
}

func (o *output) bad(expected, actual, reason string) *events.Failure {
	return &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role, Expected: expected, Actual: actual, Reason: reason}
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a directory"
	case m.IsRegular():
		return "a file"
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// checkOutputs holds every output against its format and contract, and counts its records.
func checkOutputs(ctx context.Context, s *Steps, w *work) *events.Failure {
	for i := range w.outputs {
		o := &w.outputs[i]
		report, f := w.checkOutput(ctx, o)
		if f == nil && report != nil {
			f = s.broken(ctx, w, report, events.BadOutput, "output "+o.Role)
		}
		if f != nil {
			return f
		}
	}
	return nil
}

func (w *work) checkOutput(ctx context.Context, o *output) (*contract.Report, *events.Failure) {
	c, f := contractOf(w.Plan, o.Contract, o.Schema)
	switch {
	case f != nil:
		return nil, f
	case o.value != nil && c == nil, o.value == nil && c == nil && o.Format == "":
		return nil, nil
	case o.value != nil:
		return checkValue(o.value, c, events.BadOutput)
	}
	out, err := os.OpenRoot(filepath.Join(w.call.Dir, "out"))
	if err != nil {
		return nil, cannot(ctx, "open the out directory", err)
	}
	defer out.Close() //nolint:errcheck // a directory
	report, f := checkFile(ctx, out.FS(), filepath.Clean(o.Path), o.Format, c)
	if f == nil {
		o.records = report.Records
	}
	return report, f
}

// contractOf compiles a named contract of the plan, or an inline schema; nil when there is none.
func contractOf(p *events.Plan, name string, schema json.RawMessage) (*contract.Contract, *events.Failure) {
	if name != "" {
		known, ok := p.Contracts[name]
		if !ok {
			return nil, &events.Failure{Class: events.System, Reason: fmt.Sprintf("the plan has no contract %q", name)}
		}
		schema = known.Schema
	}
	if len(schema) == 0 {
		return nil, nil
	}
	c, err := contract.Compile(schema)
	if err != nil {
		return nil, &events.Failure{Class: events.System, Reason: err.Error()}
	}
	return c, nil
}

func checkFile(ctx context.Context, dir fs.FS, name, format string, c *contract.Contract) (*contract.Report, *events.Failure) {
	f, err := dir.Open(name)
	if err != nil {
		return nil, cannot(ctx, "open "+name, err)
	}
	defer f.Close() //nolint:errcheck // read only
	report, err := contract.Check(ctx, format, c, f)
	if err != nil {
		return nil, cannot(ctx, "check "+name, err)
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

// broken makes the failure of a report that found something, with the whole report as evidence.
func (s *Steps) broken(ctx context.Context, w *work, r *contract.Report, class events.Class, what string) *events.Failure {
	f := r.Failure(class)
	if f == nil {
		return nil
	}
	f.Reason = what + ": " + f.Reason
	if proof, err := json.MarshalIndent(r, "", "  "); err == nil {
		f.Evidence = s.keep(ctx, w, proof)
	}
	return f
}

// seal moves file outputs into the artifact store and records every output in the order of the plan.
func seal(ctx context.Context, s *Steps, w *work) *events.Failure {
	sealed := map[string]events.Result{} // by path: two roles may name one file
	for i := range w.outputs {
		o := &w.outputs[i]
		if o.value != nil {
			w.out.Outputs = append(w.out.Outputs, events.Result{Role: o.Role, Digest: events.DigestOf(o.value), Size: int64(len(o.value)),
				Records: -1, Value: o.value})
			continue
		}
		path := filepath.Clean(o.Path)
		r, done := sealed[path]
		if !done {
			var err error
			if r, err = w.sealFile(ctx, s, path, o.dir()); err != nil {
				return cannot(ctx, "seal the output "+o.Role, err)
			}
			sealed[path] = r
		}
		r.Role, r.Records = o.Role, o.records
		w.out.Outputs = append(w.out.Outputs, r)
	}
	return nil
}

func (w *work) sealFile(ctx context.Context, s *Steps, path string, dir bool) (events.Result, error) {
	out, err := os.OpenRoot(filepath.Join(w.call.Dir, "out"))
	if err != nil {
		return events.Result{}, err
	}
	defer out.Close() //nolint:errcheck // a directory
	if dir {
		info, err := s.Artifacts.PutDir(ctx, out, path)
		return events.Result{Digest: info.Digest, Size: info.Size, Name: filepath.Base(path) + "/"}, err
	}
	info, err := s.Artifacts.PutFile(ctx, out, path)
	if err != nil {
		return events.Result{}, err
	}
	return events.Result{Digest: info.Digest, Size: info.Size, Name: filepath.Base(path)}, nil
}
