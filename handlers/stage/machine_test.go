package stage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// machineStage reads one input from the machine.
func machineStage(path string) *events.Stage {
	return &events.Stage{Inputs: []events.Input{{Role: "ref", File: path}}, Readable: []string{"/opt/tool"}}
}

func TestInputsFromTheMachine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	ref := filepath.Join(dir, "ref.csv")
	want(t, errors.Join(os.WriteFile(ref, []byte("id\n1\n"), 0o600), os.Symlink("ref.csv", filepath.Join(dir, "current")), os.Mkdir(filepath.Join(dir, "all"), 0o700),
		os.WriteFile(filepath.Join(dir, "all", "x"), []byte("x"), 0o600)), nil)
	var seen string
	read := func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		path := c.Inputs["ref"].Path
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path = filepath.Join(path, "x")
		}
		content, err := os.ReadFile(path)
		want(t, err, nil)
		seen = strings.Join(append([]string{string(content)}, c.Readable...), " ")
		return &executor.Result{}, nil
	}
	pinned := func(o Outcome) events.PinnedInput {
		t.Helper()
		if o.Failure != nil {
			t.Fatal(o.Failure)
		}
		return pinsOf(t, o).Inputs[0]
	}
	for _, c := range []struct{ path, seen, kind, name string }{
		{ref, "id\n1\n", "file", "ref.csv"},
		{filepath.Join(dir, "current"), "id\n1\n", "file", "current"},
		{filepath.Join(dir, "all"), "x", "directory", "all"},
	} {
		a := attempt(machineStage(c.path))
		p := pinned(b.run(a, read))
		want(t, []any{seen, p.Kind, p.Name, p.Size}, []any{c.seen + " /opt/tool " + c.path, c.kind, c.name, int64(len(c.seen))})
		a.Stage.Inputs[0].File = "/nowhere/at/all" // it is not asked again
		a.Given, a.Number = map[string]events.PinnedInput{"ref": p}, 2
		again := pinned(b.run(a, read))
		want(t, again, p)
		want(t, seen, c.seen+" /opt/tool")
	}
	checked := machineStage(ref)
	checked.Inputs[0].Format, checked.Inputs[0].Contract = "csv", "order"
	want(t, b.run(attempt(checked), read).Failure, (*events.Failure)(nil))
	want(t, os.WriteFile(ref, []byte("id\nx\n"), 0o600), nil)
	want(t, b.run(attempt(checked), read).Failure.Class, events.BadInput)
}

func TestInputsThatAreNotOnTheMachine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	want(t, errors.Join(syscall.Mkfifo(fifo, 0o600), os.Mkdir(filepath.Join(dir, "d"), 0o700), os.Symlink("/etc/passwd", filepath.Join(dir, "d", "l"))), nil)
	for path, says := range map[string]string{"/nowhere/ref.csv": "no such file", fifo: "no plain file", filepath.Join(dir, "d"): "leads out of the directory"} {
		f := b.run(attempt(machineStage(path)), nothing).Failure
		if f == nil || f.Class != events.BadInput || f.Pointer != "/inputs/ref" || !strings.Contains(f.Reason, says) || !strings.Contains(f.Reason, path) || !strings.Contains(f.Reason, "inputs.ref.file") {
			t.Errorf("%s: %+v", path, f)
		}
	}
}

// TestInputsThatChange: a file of the machine that changes while the stage runs fails the attempt, however well it hides
// that; one whose times only moved does not.
func TestInputsThatChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ref, all := filepath.Join(dir, "ref"), filepath.Join(dir, "all")
	at := time.Unix(1_000_000, 0)
	write := func(path, text string) error {
		return errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at))
	}
	for name, c := range map[string]struct {
		path   string
		change func() error
		failed bool
	}{
		"nothing":         {ref, func() error { return nil }, false},
		"times":           {ref, func() error { return os.Chtimes(ref, time.Unix(5, 0), time.Unix(5, 0)) }, false},
		"same content":    {ref, func() error { return errors.Join(os.Remove(ref), os.WriteFile(ref, []byte("before"), 0o600)) }, false},
		"content":         {ref, func() error { return write(ref, "AFTER!") }, true},
		"gone":            {ref, func() error { return os.Remove(ref) }, true},
		"in a directory":  {all, func() error { return write(filepath.Join(all, "x"), "X") }, true},
		"one more":        {all, func() error { return write(filepath.Join(all, "y"), "y") }, true},
		"directory times": {all, func() error { return os.Chtimes(all, at, at) }, false},
	} {
		want(t, errors.Join(os.RemoveAll(all), os.Mkdir(all, 0o700), write(ref, "before"), write(filepath.Join(all, "x"), "x")), nil)
		f := newBench(t).run(attempt(machineStage(c.path)), func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
			want(t, c.change(), nil)
			return &executor.Result{}, nil
		}).Failure
		switch {
		case !c.failed && f != nil, c.failed && f == nil:
			t.Errorf("%s: %+v", name, f)
		case c.failed && (f.Class != events.BadInput || f.Pointer != "/inputs/ref" || !strings.Contains(f.Reason, "changed while the stage ran")):
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestMachineFilesAreReadOnce: a file that nobody has touched is not copied again, and one that was is.
func TestMachineFilesAreReadOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ref := filepath.Join(t.TempDir(), "ref")
	want(t, os.WriteFile(ref, []byte("first"), 0o600), nil)
	var digests []string
	run := func() {
		o := b.run(attempt(machineStage(ref)), nothing)
		want(t, o.Failure, (*events.Failure)(nil))
		digests = append(digests, pinsOf(t, o).Inputs[0].Digest.String())
	}
	run()
	want(t, len(b.Steps.seen.known), 0) // too new to be trusted
	info, err := os.Stat(ref)
	want(t, err, nil)
	b.Steps.seen.known = map[string]machineFile{ref: {stampOf(info), infoOf(b, "elsewhere")}} // as if it had been read before with this content
	run()
	want(t, os.WriteFile(ref, []byte("second"), 0o600), nil)
	run()
	want(t, digests, []string{events.DigestOf([]byte("first")).String(), events.DigestOf([]byte("elsewhere")).String(), events.DigestOf([]byte("second")).String()})
}
