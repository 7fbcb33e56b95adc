package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// TestANoopTaskMakesNothing: no directory is made for an attempt that has no files.
func TestANoopTaskMakesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	o := b.run(attempt(&events.Stage{}), nothing)
	o.Data.Pinned = nil
	want(t, o, Outcome{Data: &events.Data{}})
	for _, dir := range []string{b.WorkDir, b.LogDir} {
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("%s was made", dir)
		}
	}
}

func TestWorkDirectories(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := attempt(&events.Stage{})
	messy := body(func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		if _, f := files(map[string]string{"deep/er/file": "x"})(ctx, c); f != nil {
			return &executor.Result{}, f
		}
		return &executor.Result{}, nil
	})
	failing := body(func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		r, _ := messy(ctx, c)
		return r, &events.Failure{Class: events.ExecFailed, Reason: "exit code 1", Exit: 1}
	})
	want(t, b.run(first, messy).Failure, (*events.Failure)(nil))
	if _, err := os.Lstat(filepath.Join(b.WorkDir, first.Run.String())); err == nil {
		t.Error("the run's directory is left behind")
	}
	want(t, b.run(first, failing).Failure.Exit, 1)
	second := attempt(&events.Stage{})
	second.Number = 2
	want(t, b.run(second, messy).Failure, (*events.Failure)(nil))
	want(t, b.kept(), []string{first.Run.String() + "/load/1"}) // of the failure, and only that
}

// TestReadOnlyDirectoriesAreRemoved: a stage may leave what an ordinary removal cannot enter.
func TestReadOnlyDirectoriesAreRemoved(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Log("SHOWS LITTLE as root, whom no mode stops")
	}
	dir := filepath.Join(t.TempDir(), "work")
	want(t, errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), os.WriteFile(filepath.Join(dir, "a", "b", "f"), nil, 0o400),
		os.Chmod(filepath.Join(dir, "a", "b"), 0o500), os.Chmod(filepath.Join(dir, "a"), 0)), nil)
	want(t, removeTree(dir), nil)
	want(t, removeTree(dir), nil)
}

// TestTheRunsDirectoryStaysWhileAnAttemptNeedsIt: one attempt ends while another has just made its parent directories.
func TestTheRunsDirectoryStaysWhileAnAttemptNeedsIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	inner := attempt(&events.Stage{Name: "inner"})
	b.Executors["fake"] = files(map[string]string{"f": "x"})
	outer := attempt(&events.Stage{Name: "outer", Executor: "outer"})
	b.Executors["outer"] = body(func(ctx context.Context, _ *executor.Call) (*executor.Result, *events.Failure) {
		run := filepath.Join(b.WorkDir, outer.Run.String())
		want(t, os.MkdirAll(run, 0o700), nil)
		want(t, b.Run(ctx, inner).Failure, (*events.Failure)(nil))
		want(t, os.Mkdir(filepath.Join(run, "outer"), 0o700), nil)
		return &executor.Result{}, nil
	})
	want(t, b.Run(t.Context(), outer).Failure, (*events.Failure)(nil))
}

// TestAttemptsOfOneRunDoNotDisturbEachOther: one attempt ends and tidies up while another makes its directories below
// the same run.
func TestAttemptsOfOneRunDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	d := b.put("x")
	b.Executors["fake"] = files(map[string]string{"o": "y"})
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			a := attempt(&events.Stage{Name: fmt.Sprintf("s%d", i%40), Inputs: []events.Input{{Role: "in", From: "trigger.file", Expr: true}},
				Outputs: []events.Output{{Role: "o", Path: "o"}}})
			a.Number = i/40 + 1
			a.Delivery = func(context.Context) (*events.Data, error) { return &events.Data{File: "f", Blob: d}, nil }
			if o := b.Run(context.Background(), a); o.Failure != nil {
				t.Error(o.Failure)
			}
		})
	}
	wg.Wait()
	left, err := os.ReadDir(b.WorkDir)
	want(t, err, nil)
	want(t, len(left), 0)
	want(t, len(b.dirs.active), 0)
}

func TestCancelledContexts(t *testing.T) {
	t.Parallel()
	own := &events.Failure{Class: events.Timeout, Reason: "the run is over its deadline"}
	for name, c := range map[string]struct {
		cause error
		want  events.Failure
	}{
		"a person":  {errors.New("the run was cancelled"), events.Failure{Class: events.Aborted, Reason: "the run was cancelled"}},
		"a failure": {fmt.Errorf("deadline: %w", own), *own},
		"the clock": {context.DeadlineExceeded, events.Failure{Class: events.Timeout, Reason: "the attempt ran out of time"}},
	} {
		for _, when := range []string{"before", "during", "in a step"} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ran := false
				b.Executors["fake"] = body(func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
					ran = true
					cancel(c.cause)
					return &executor.Result{Leftovers: 3}, nil
				})
				a := attempt(&events.Stage{Outputs: []events.Output{{Role: "never", Path: "looked for"}}})
				switch when {
				case "before":
					cancel(c.cause)
				case "in a step":
					a.Stage.Inputs = []events.Input{{Role: "in", From: "trigger.file", Expr: true}}
					a.Delivery = func(ctx context.Context) (*events.Data, error) {
						cancel(c.cause)
						return nil, fmt.Errorf("read: %w", ctx.Err())
					}
				}
				o := b.Run(ctx, a)
				failure := *o.Failure
				failure.Pointer = ""
				want(t, failure, c.want)
				want(t, ran, when == "during")
				want(t, o.Data.Leftovers, map[bool]int{true: 3}[ran])
			})
		}
	}
}

func TestEvidence(t *testing.T) {
	t.Parallel()
	failed := &events.Failure{Class: events.ExecFailed, Reason: "exit code 3", Exit: 3}
	long := strings.Repeat("line\n", 10000)
	for name, c := range map[string]struct{ own, stderr, stdout, want string }{
		"nothing": {}, "stderr": {stderr: "oops", stdout: "out", want: "oops"}, "stdout": {stdout: "out", want: "out"},
		"the executor's": {own: "stack", stderr: "oops", want: "stack"}, "the tail": {stderr: long, want: long[len(long)-evidenceTail:]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			log := func(name, text string) executor.Log {
				path := filepath.Join(t.TempDir(), name)
				want(t, os.WriteFile(path, []byte(text), 0o600), nil)
				return executor.Log{Path: path, Bytes: int64(len(text)), Dropped: 1}
			}
			o := b.run(attempt(&events.Stage{}), func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
				f := *failed
				return &executor.Result{Evidence: c.own, Stderr: log("stderr", c.stderr), Stdout: log("stdout", c.stdout), Leftovers: 2,
					Segments: []executor.Segment{{Name: "load", Duration: time.Second}}, Usage: executor.Usage{User: 1, System: 2, MaxRSS: 3}}, &f
			})
			want(t, o.Failure.Exit, 3)
			if c.want == "" {
				want(t, o.Failure.Evidence.IsZero(), true)
			} else {
				want(t, b.get(o.Failure.Evidence), c.want)
			}
			o.Data.Pinned = nil
			want(t, *o.Data, events.Data{Leftovers: 2, Segments: []events.Segment{{Name: "load", Duration: time.Second}}, Usage: events.Usage{User: 1, System: 2, MaxRSS: 3},
				Stderr: events.LogRef{Bytes: int64(len(c.stderr)), Dropped: 1}, Stdout: events.LogRef{Bytes: int64(len(c.stdout)), Dropped: 1}})
		})
	}
}

// TestEvidenceOfACancelledAttempt is kept although the attempt's context has ended.
func TestEvidenceOfACancelledAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	b.Executors["fake"] = body(func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
		cancel()
		return &executor.Result{Evidence: "stack"}, &events.Failure{Class: events.Aborted, Reason: "cancelled"}
	})
	o := b.Run(ctx, attempt(&events.Stage{}))
	want(t, b.get(o.Failure.Evidence), "stack")
}

// fullStore takes nothing.
type fullStore struct{ Artifacts }

func (fullStore) Put(context.Context, io.Reader) (artifacts.Info, error) {
	return artifacts.Info{}, syscall.ENOSPC
}

func (fullStore) PutFile(context.Context, *os.Root, string) (artifacts.Info, error) {
	return artifacts.Info{}, syscall.ENOSPC
}

// TestFullStore: an output that cannot be kept fails the attempt as Apollo's own fault; evidence that cannot be kept
// changes nothing about the failure.
func TestFullStore(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := newBench(t)
	b.Artifacts, b.Logger = fullStore{b.store}, zerolog.New(&log)
	outputs := []events.Output{{Role: "a"}, {Role: "o", Path: "o", Format: "csv"}}
	good := body(func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		if _, f := files(map[string]string{"o": "id\n1\n"})(ctx, c); f != nil {
			return &executor.Result{}, f
		}
		return &executor.Result{Values: map[string]json.RawMessage{"a": json.RawMessage("1")}}, nil
	})
	o := b.run(attempt(&events.Stage{Outputs: outputs}), good)
	want(t, *o.Failure, events.Failure{Class: events.System, Reason: "cannot seal the output o: no space left on device"})
	want(t, len(o.Data.Outputs), 0)
	want(t, len(b.kept()), 1)
	o = b.run(attempt(&events.Stage{Outputs: outputs[1:]}), files(map[string]string{"o": "id,id\n"}))
	want(t, *o.Failure, events.Failure{Class: events.BadOutput, Pointer: "1:4", Expected: "readable CSV", Actual: "the header has the column id twice, at 1:4",
		Reason: "output o: E_CSV: the header has the column id twice, at 1:4"})
	want(t, strings.Contains(log.String(), "keep evidence"), true)
}

// TestShellStage takes a real script through all steps.
func TestShellStage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, ex := range executor.Builtin(executor.Settings{Owner: "stage-test"}) {
		b.Executors[ex.Spec().Name] = ex
	}
	d := b.put("id,price\n1,2\n2,3\n")
	script := `head -n 2 "$APOLLO_IN_DROP" > clean.csv; echo "{\"kept\": 1}" > "$APOLLO_OUTPUTS"; echo "$APOLLO_IDEMPOTENCY_KEY" >&2`
	with, err := json.Marshal(map[string]string{"script": script})
	want(t, err, nil)
	a := attempt(&events.Stage{Executor: "shell", With: with, Inputs: []events.Input{{Role: "drop", From: "trigger.file", Expr: true, Format: "csv", Contract: "order"}},
		Outputs: []events.Output{{Role: "clean", Path: "clean.csv", Format: "csv", Contract: "order"}, {Role: "kept"}}})
	a.Delivery = func(context.Context) (*events.Data, error) { return &events.Data{File: "drop.csv", Blob: d}, nil }
	o := b.Run(t.Context(), a)
	want(t, o.Failure, (*events.Failure)(nil))
	want(t, len(o.Data.Outputs), 2)
	want(t, b.get(o.Data.Outputs[0].Digest), "id,price\n1,2\n")
	want(t, []any{o.Data.Outputs[0].Records, string(o.Data.Outputs[1].Value), o.Data.Stderr.Bytes}, []any{int64(1), "1", int64(len(a.Run.String() + "/load\n"))})
	want(t, b.kept(), []string{})
	a.Stage.With = json.RawMessage(`{"script":"echo broken >&2; exit 9"}`)
	o = b.Run(t.Context(), a)
	want(t, []any{o.Failure.Class, o.Failure.Exit, b.get(o.Failure.Evidence)}, []any{events.ExecFailed, 9, "broken\n"})
	want(t, len(b.kept()), 1)
}

func BenchmarkNoop(b *testing.B) {
	bench := newBench(b)
	bench.Executors["fake"] = body(nothing)
	a := attempt(&events.Stage{})
	for b.Loop() {
		if o := bench.Run(context.Background(), a); o.Failure != nil {
			b.Fatal(o.Failure)
		}
	}
}

// What the plan says of a plug-in reaches it; one that is not there is named.
func TestPluginOfAStage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var pin string
	out := b.run(attempt(&events.Stage{Pin: "duck@1.0 sha256:00"}), func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		pin = c.Pin
		return &executor.Result{}, nil
	})
	if out.Failure != nil || pin != "duck@1.0 sha256:00" {
		t.Errorf("%+v, pin %q", out.Failure, pin)
	}
	out = b.Run(context.Background(), attempt(&events.Stage{Executor: "duck"}))
	if out.Failure == nil || out.Failure.Class != events.System || !strings.HasPrefix(out.Failure.Reason, `E_PLUGIN_MISSING: no plug-in "duck"`) {
		t.Errorf("%+v", out.Failure)
	}
	out = b.Run(context.Background(), attempt(&events.Stage{Executor: "container"}))
	if out.Failure == nil || !strings.HasPrefix(out.Failure.Reason, "E_INTERNAL: ") {
		t.Errorf("%+v", out.Failure)
	}
}

// TestLogDigests: what was written to a stream is known by its digest, unless some of it was left out.
func TestLogDigests(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Executors["shell"] = executor.NewShell(executor.Settings{Owner: t.TempDir()})
	o := b.Run(t.Context(), attempt(&events.Stage{Executor: "shell", With: []byte(`{"script":"echo out; echo err >&2"}`)}))
	want(t, []events.Digest{o.Data.Out, o.Data.Err}, []events.Digest{events.DigestOf([]byte("out\n")), events.DigestOf([]byte("err\n"))})
	o = b.Run(t.Context(), attempt(&events.Stage{Executor: "shell", With: []byte(`{"script":"head -c 20000000 /dev/zero"}`)}))
	want(t, []any{o.Data.Stdout.Dropped > 0, o.Data.Out.IsZero(), o.Data.Err.IsZero()}, []any{true, true, true})
}
