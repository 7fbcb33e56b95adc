package stage

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage"
)

var partsOutput = []events.Output{{Role: "parts", Path: "made/parts/"}}

// upstreamParts makes an attempt that reads a directory which another stage wrote.
func upstreamParts(r events.Result) *Attempt {
	a := attempt(&events.Stage{Name: "read", Inputs: []events.Input{{Role: "parts", From: "stages.load.outputs.parts", Expr: true}}, Reads: []string{"load"}})
	a.Upstream = map[string]*Upstream{"load": {State: events.Completed, Results: []events.Result{r}}}
	return a
}

func TestDirectoriesGoFromStageToStage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	content := map[string]string{"made/parts/a.csv": "a\n", "made/parts/deep/b": "bb"}
	o := b.run(attempt(&events.Stage{Outputs: partsOutput}), files(content))
	if o.Failure != nil {
		t.Fatal(o.Failure)
	}
	r := o.Data.Outputs[0]
	want(t, r, events.Result{Role: "parts", Digest: r.Digest, Size: 4, Records: 2, Name: "parts/"})
	want(t, strings.HasPrefix(b.get(r.Digest), `{"schema":1,"entries":[{"path":"a.csv","type":"file",`), true)
	reader := func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		dir := c.Inputs["parts"].Path
		want(t, dir, filepath.Join(c.Dir, "in", "parts", "parts"))
		for name, text := range content {
			b, err := os.ReadFile(filepath.Join(dir, strings.TrimPrefix(name, "made/parts/")))
			want(t, err, nil)
			want(t, string(b), text)
		}
		err := os.WriteFile(filepath.Join(dir, "deep", "b"), []byte("x"), 0o600)
		want(t, errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0, true)
		return &executor.Result{}, nil
	}
	again := upstreamParts(r)
	o = b.run(again, reader)
	want(t, o.Failure, (*events.Failure)(nil))
	want(t, strings.Contains(string(o.Data.Pinned), `"inputs":[{"role":"parts","kind":"directory","digest":"`+r.Digest.String()+`","size":4,"name":"parts"}]`), true)
	want(t, len(b.kept()), 0)
	again.Number = 2
	o = b.run(again, func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
		return &executor.Result{}, &events.Failure{Class: events.ExecFailed, Reason: "no"}
	})
	want(t, o.Failure.Class, events.ExecFailed)
	want(t, os.RemoveAll(b.WorkDir), nil) // whoever looked into the failure removes it
	again.Stage.Inputs[0].Format = "csv"
	again.Number = 3
	o = b.run(again, nothing)
	want(t, []any{o.Failure.Class, o.Failure.Pointer}, []any{events.BadInput, "/inputs/parts"})
}

func TestDirectoriesThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(out string) error
		says string
	}{
		"missing":        {func(string) error { return nil }, "found nothing"},
		"file":           {func(out string) error { return os.WriteFile(filepath.Join(out, "made", "parts"), nil, 0o600) }, "found a file"},
		"link":           {func(out string) error { return os.Symlink("../made", filepath.Join(out, "made", "parts")) }, "found a symbolic link"},
		"fifo inside":    {inParts(func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "f"), 0o600) }), `"f" is p`},
		"link that goes": {inParts(func(dir string) error { return os.Symlink("../../secret", filepath.Join(dir, "f")) }), "leads out of the directory"},
		"absolute link":  {inParts(func(dir string) error { return os.Symlink("/etc/passwd", filepath.Join(dir, "f")) }), "leads out of the directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			o := b.run(attempt(&events.Stage{Outputs: partsOutput}), func(_ context.Context, call *executor.Call) (*executor.Result, *events.Failure) {
				out := filepath.Join(call.Dir, "out")
				want(t, errors.Join(os.MkdirAll(filepath.Join(out, "made"), 0o700), c.make(out)), nil)
				return &executor.Result{}, nil
			})
			if o.Failure == nil || o.Failure.Class != events.BadOutput || o.Failure.Pointer != "/outputs/parts" || !strings.Contains(o.Failure.Reason, c.says) {
				t.Errorf("%+v", o.Failure)
			}
		})
	}
	b := newBench(t)
	missing := []events.Output{{Role: "parts", Path: "parts/", Optional: true}, {Role: "file", Path: "f", Optional: true}}
	want(t, b.run(attempt(&events.Stage{Outputs: missing}), nothing).Failure, (*events.Failure)(nil))
}

func inParts(do func(dir string) error) func(string) error {
	return func(out string) error {
		dir := filepath.Join(out, "made", "parts")
		return errors.Join(os.MkdirAll(dir, 0o700), do(dir))
	}
}

// TestGuardedInputsAreLinks: under enforcement an input need not be copied. What the stage does to the inode's mode, and what
// people do to a failed attempt that is kept, changes no artifact.
func TestGuardedInputsAreLinks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	d := b.put("id\n1\n")
	a := attempt(&events.Stage{Executor: "shell", Isolation: "enforce", Inputs: []events.Input{{Role: "in", From: "trigger.file", Expr: true}}})
	a.Delivery = func(context.Context) (*events.Data, error) { return &events.Data{File: "a.csv", Blob: d}, nil }
	w := &work{Attempt: a}
	want(t, w.begin(b.Steps), (*events.Failure)(nil))
	w.call.Isolation = "enforce"
	want(t, w.guarded(), true)
	want(t, w.resolve(t.Context(), b.Steps), (*events.Failure)(nil))
	want(t, w.placeInputs(t.Context(), b.Steps), (*events.Failure)(nil))
	path := w.call.Inputs["in"].Path
	blob := func() os.FileInfo {
		hex := d.String()[len("sha256:"):]
		info, err := os.Stat(filepath.Join(filepath.Dir(b.WorkDir), "artifacts", "sha256", hex[:2], hex[2:]))
		want(t, err, nil)
		return info
	}
	info, err := os.Stat(path)
	want(t, err, nil)
	if !os.SameFile(info, blob()) {
		t.Skip("this file system clones") // a link is not needed
	}
	want(t, os.Chmod(path, 0o666), nil)
	b.unlink(t.Context(), w, true)
	w.unlockInputs()
	want(t, blob().Mode().Perm(), fs.FileMode(0o444))
	info, err = os.Stat(path)
	want(t, err, nil)
	want(t, os.SameFile(info, blob()), false)
	want(t, errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, []byte("x"), 0o600), os.RemoveAll(b.WorkDir)), nil)
	want(t, b.get(d), "id\n1\n")
}

// TestAnEnforcedStageCannotWriteThroughALink: the stage finds its inputs in the store itself and can do nothing to them, also
// not as root, and not after it has changed the mode.
func TestAnEnforcedStageCannotWriteThroughALink(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, ex := range executor.Builtin(executor.Settings{Owner: "enforced-link"}) {
		b.Executors[ex.Spec().Name] = ex
	}
	d := b.put("id\n1\n")
	run := func(number int, script string) Outcome {
		with, err := json.Marshal(map[string]string{"script": script})
		want(t, err, nil)
		a := attempt(&events.Stage{Executor: "shell", With: with, Isolation: "enforce", Network: "none", Inputs: []events.Input{{Role: "f", From: "trigger.file", Expr: true}},
			Outputs: []events.Output{{Role: "copy", Path: "copy"}}})
		a.Number = number
		a.Delivery = func(context.Context) (*events.Data, error) { return &events.Data{File: "a.csv", Blob: d}, nil }
		return b.Run(t.Context(), a)
	}
	if can := executor.Isolated(); can.Level != executor.LevelSeccomp && os.Getenv("CI") != "true" { // there the kernel can
		t.Skipf("this kernel has no more than %+v", can)
	}
	o := run(1, `chmod 666 "$APOLLO_IN_F"; cat "$APOLLO_IN_F" > copy`)
	if o.Failure != nil {
		t.Fatal(o.Failure)
	}
	want(t, o.Data.Outputs[0].Digest, d)
	for i, script := range []string{`echo x >> "$APOLLO_IN_F"`, `: > "$APOLLO_IN_F"`, `chmod 666 "$APOLLO_IN_F"; echo x >> "$APOLLO_IN_F"`, `chmod 700 "${APOLLO_IN_F%/*}"; rm -f "$APOLLO_IN_F"; exit 3`} {
		if o := run(i+2, script); o.Failure == nil {
			t.Errorf("%s: %+v", script, o.Data)
		}
		want(t, b.get(d), "id\n1\n")
	}
	want(t, b.store.Check(t.Context(), func(p storage.Problem) { t.Errorf("%+v", p) }), nil)
}
