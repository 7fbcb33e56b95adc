package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/web"
)

// runTest runs one test with an engine and a data directory of its own, which is removed afterwards.
func (a *app) runTest(ctx context.Context, c testCase) testJSON {
	r := testJSON{File: c.file, Pipeline: c.plan.Pipeline, Test: c.test.Name, Verdict: "passed", Differences: []difference{}}
	began := time.Now()
	if err := a.carryOutTest(ctx, c, &r); err != nil {
		r.Differences = append(r.Differences, difference{"run", "a run", a.exitText(err)})
	}
	r.Duration = time.Since(began).Milliseconds()
	if len(r.Differences) > 0 {
		r.Verdict = "failed"
	}
	return r
}

// exitText says what went wrong as the program would.
func (a *app) exitText(err error) string {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.Error()
	}
	return a.classify(err).Error()
}

func (a *app) carryOutTest(ctx context.Context, c testCase, r *testJSON) (err error) {
	dir, err := os.MkdirTemp("", "apollo-test-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeAll(dir)) }()
	b := a.forTest(dir)
	for name, value := range c.test.Secrets {
		path := filepath.Join(b.data, "secrets", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(value), 0o600)); err != nil {
			return err
		}
	}
	plan, err := json.Marshal(b.withMocks(c))
	if err != nil {
		return err
	}
	l, err := b.testEngine(ctx)
	if err != nil {
		return err
	}
	defer func() { l.stop(); err = errors.Join(err, l.close(context.WithoutCancel(ctx))) }()
	receipt, err := l.StartRun(ctx, web.StartRequest{Plan: plan, Params: c.test.Params, Input: c.test.Input, InputName: c.test.InputName, Sample: c.test.Sample})
	if err == nil {
		err = b.mustBeRun(receipt.Fate, receipt.Code, receipt.Reason)
	}
	if err != nil {
		return err
	}
	return b.judge(ctx, l, receipt.Run, c.test, r)
}

// forTest makes the program that runs a test: no secret of the surroundings reaches it.
func (a *app) forTest(dir string) *app {
	b := *a
	b.data, b.output, b.tasks = filepath.Join(dir, "data"), "json", maps.Clone(a.tasks)
	b.env = func(name string) string {
		if strings.HasPrefix(name, "APOLLO_SECRET_") {
			return ""
		}
		return a.env(name)
	}
	return &b
}

// removeAll removes a data directory, whose artifacts and inputs may not be written.
func removeAll(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o700) //nolint:gosec // a directory needs its x bits
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(dir))
}

// testEngine starts an engine that nobody else reaches.
func (a *app) testEngine(ctx context.Context) (*local, error) {
	n, err := a.open(zerolog.New(a.err).Level(zerolog.ErrorLevel), a.die)
	if err != nil {
		return nil, err
	}
	if err := n.engine.Start(ctx); err != nil {
		return nil, errors.Join(err, n.close(context.WithoutCancel(ctx)))
	}
	l := &local{node: n}
	l.wake, l.stop = n.store.Wake()
	return l, nil
}

// judge waits for the run's end and compares it with what the test expects. A run that takes too long is cancelled.
func (a *app) judge(ctx context.Context, l *local, run events.ID, t *configs.Test, r *testJSON) error {
	v, err := openView(ctx, l.reader(), run, a.logsDir())
	if err != nil {
		return err
	}
	limited, done := context.WithTimeout(ctx, t.Timeout)
	defer done()
	view := a.newProgress()
	if err = v.untilEnd(limited, l, view); err != nil && limited.Err() != nil {
		rest := context.WithoutCancel(ctx)
		if err = l.CancelRun(rest, run, web.By{Reason: "the test ended"}); err == nil || a.exitOfError(err) == exitConflict {
			err = v.untilEnd(rest, l, view)
		}
		r.Differences = append(r.Differences, difference{"timeout", "an end within " + t.Timeout.String(), "none"})
	}
	if err != nil {
		return err
	}
	got := v.json()
	r.State = got.State
	j := &judgement{expect: &t.Expect, run: got, artifacts: l.artifacts, logs: v}
	j.compare()
	r.Differences = append(r.Differences, j.differences...)
	r.Logs = j.tails(len(r.Differences) > 0)
	return nil
}

// mockTask begins the names of the tasks that stand in for bodies; no registered task can be called so.
const mockTask = "mock:"

// withMocks gives the plan in which a task carries out each stage that is stood in for. What the executor would have needed is
// taken out with it, so that an approval asks nobody and a container needs no image.
func (a *app) withMocks(c testCase) *events.Plan {
	plan := *c.plan
	plan.Stages = append([]events.Stage{}, plan.Stages...)
	for i := range plan.Stages {
		s := &plan.Stages[i]
		m, mocked := c.test.Mocks[s.Name]
		if !mocked {
			continue
		}
		outputs := s.Outputs
		s.Executor, s.With = "task", json.RawMessage(`{"name":"`+mockTask+s.Name+`"}`)
		s.Secrets, s.Resources, s.Isolation, s.Network = nil, nil, "", ""
		a.tasks[mockTask+s.Name] = func(_ context.Context, call *executor.TaskCall) error { return standIn(m, outputs, call) }
	}
	return &plan
}

func standIn(m configs.Mock, outputs []events.Output, call *executor.TaskCall) error {
	if m.Fail != nil && (m.Fails == 0 || call.Attempt <= m.Fails) {
		failure := *m.Fail
		return &failure
	}
	for _, o := range outputs {
		if value, ok := m.Values[o.Role]; ok {
			if err := call.SetOutput(o.Role, value); err != nil {
				return err
			}
		}
		content, ok := m.Files[o.Role]
		if !ok {
			continue
		}
		dir, err := call.OutDir()
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(o.Path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			return fmt.Errorf("write what stands in for %s: %w", o.Role, err)
		}
	}
	return nil
}
