package stage

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage/artifacts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func want(tb testing.TB, got, want any) {
	tb.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		tb.Errorf("differs (-want +got):\n%s", diff)
	}
}

// body is a stage as a function of its call.
type body func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure)

func (b body) Spec() executor.Spec { return executor.Spec{Name: "fake"} }

func (b body) Execute(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
	return b(ctx, c)
}

// nothing is the body that does nothing.
func nothing(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
	return &executor.Result{}, nil
}

// values is a body that sets outputs.
func values(v map[string]string) body {
	return func(context.Context, *executor.Call) (*executor.Result, *events.Failure) {
		r := &executor.Result{Values: map[string]json.RawMessage{}}
		for role, text := range v {
			r.Values[role] = json.RawMessage(text)
		}
		return r, nil
	}
}

// files is a body that writes files below out.
func files(contents map[string]string) body {
	return func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		for name, text := range contents {
			path := filepath.Join(c.Dir, "out", name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				return &executor.Result{}, &events.Failure{Class: events.System, Reason: err.Error()}
			}
		}
		return &executor.Result{}, nil
	}
}

// bench is a Steps with a store and directories of its own.
type bench struct {
	testing.TB
	*Steps
	store *artifacts.Store
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	dir := tb.TempDir()
	store, err := artifacts.Open(filepath.Join(dir, "artifacts"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { want(tb, store.Close(), nil) })
	return &bench{TB: tb, store: store, Steps: &Steps{Artifacts: store, Executors: map[string]executor.Executor{},
		WorkDir: filepath.Join(dir, "work"), LogDir: filepath.Join(dir, "logs"),
		Secrets: func(ref string) (string, error) { return "", errors.New("no secret " + ref) }}}
}

// attempt is a first try of a stage in a plan with that stage alone.
func attempt(s *events.Stage) *Attempt {
	if s.Name == "" {
		s.Name = "load"
	}
	if s.Executor == "" {
		s.Executor = "fake"
	}
	plan := &events.Plan{Schema: 1, Pipeline: "orders", Stages: []events.Stage{*s}, Contracts: map[string]events.Contract{
		"order": {Schema: json.RawMessage(orderSchema)}}}
	return &Attempt{Run: events.ID{1, 2, 3}, Plan: plan, Stage: s, Number: 1, Token: 7,
		Logical:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Delivery: func(context.Context) (*events.Data, error) { return &events.Data{}, nil }}
}

const orderSchema = `{"type":"object","required":["id"],"properties":{"id":{"type":"integer"},"price":{"type":"number","minimum":0}}}`

// run carries out the attempt with a body.
func (b *bench) run(a *Attempt, do body) Outcome {
	b.Executors["fake"] = do
	return b.Run(context.Background(), a)
}

func (b *bench) put(content string) events.Digest {
	b.Helper()
	info, err := b.store.Put(context.Background(), strings.NewReader(content))
	if err != nil {
		b.Fatal(err)
	}
	return info.Digest
}

func (b *bench) get(d events.Digest) string {
	b.Helper()
	r, err := b.store.Get(d)
	if err != nil {
		b.Error(err)
		return ""
	}
	content, err := io.ReadAll(r)
	want(b, errors.Join(err, r.Close()), nil)
	return string(content)
}

// kept lists the attempt directories that are still there, relative to the work directory.
func (b *bench) kept() []string {
	all, _ := filepath.Glob(filepath.Join(b.WorkDir, "*", "*", "*"))
	for i := range all {
		all[i], _ = filepath.Rel(b.WorkDir, all[i])
	}
	return all
}
