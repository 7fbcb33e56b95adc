package stage

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// TestLay lays an attempt out: what its executor would find is there, nothing below the work directory is made, and what it
// depends on is what a real attempt records.
func TestLay(t *testing.T) {
	t.Parallel()
	p := newPinned(t)
	dir := filepath.Join(t.TempDir(), "laid")
	l, f := p.Lay(t.Context(), p.Attempt, dir)
	if f != nil {
		t.Fatal(f.Reason)
	}
	var found []string
	want(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		info, err2 := d.Info()
		want(t, err2, nil)
		below, _ := filepath.Rel(dir, path)
		found = append(found, info.Mode().Perm().String()+" "+below)
		if !d.IsDir() && filepath.Dir(filepath.Dir(below)) == "in" {
			want(t, info.ModTime().UTC(), p.Logical)
		}
		return err
	}), nil)
	want(t, found, []string{"-rwx------ .", "-r-x------ in", "-r-x------ in/a", "-r--r--r-- in/a/a.json", "-r-x------ in/b", "-r--r--r-- in/b/b.txt", "-rwx------ out",
		"-rw------- script", "-rwx------ state", "-rwx------ tmp"})
	env, f := l.Environ(nil)
	want(t, f, (*events.Failure)(nil))
	for _, variable := range []string{"TOKEN=correct-horse", "MODE=fast", "REGION=eu", "APOLLO_IN_B=" + filepath.Join(dir, "in", "b", "b.txt"), "APOLLO_ITEM=two"} {
		if !slices.Contains(env, variable) {
			t.Errorf("%s is not in %q", variable, env)
		}
	}
	env, _ = l.Environ(map[string]string{"TOKEN": "token"})
	if !slices.Contains(env, "TOKEN=token") {
		t.Errorf("the secret is not replaced in %q", env)
	}
	want(t, p.kept(), []string{})
	want(t, string(l.Pinned), string(p.carried().Pinned))

	var call *executor.Call
	p.ex.body = func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		call = c
		return &executor.Result{Values: map[string]json.RawMessage{}}, &events.Failure{Class: events.ExecFailed, Reason: "no: correct-horse", Exit: 3}
	}
	o := p.Rehearse(t.Context(), l)
	if o.Failure == nil || o.Failure.Exit != 3 || o.Failure.Reason != "no: ***" || call.Dir != dir || o.Data.StageKey() != events.DigestOf(l.Pinned) {
		t.Errorf("rehearsed: %+v in %s", o.Failure, call.Dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "in", "b", "b.txt")); err != nil {
		t.Error("the directory did not stay as it was")
	}
	want(t, p.kept(), []string{})
}

// TestLayFails: what ends an attempt before its command ends the laying out.
func TestLayFails(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(p *pinnedAttempt){
		"broken condition": func(p *pinnedAttempt) { p.Broken = "it cannot be evaluated" },
		"expression":       func(p *pinnedAttempt) { p.Stage.Env["REGION"] = "${{ params.nosuch.deep }}" },
		"artifact is gone": func(p *pinnedAttempt) { p.fetched("b").Digest = events.DigestOf([]byte("never stored")) },
		"no such executor's program": func(p *pinnedAttempt) {
			p.Stage.Executor, p.Stage.With = "shell", json.RawMessage(`{"script":"x","interpreter":"no-such-interpreter"}`)
			p.Executors["shell"] = executor.NewShell(executor.Settings{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPinned(t)
			change(p)
			if l, f := p.Lay(t.Context(), p.Attempt, filepath.Join(t.TempDir(), "laid")); f == nil || l != nil || f.Reason == "" {
				t.Errorf("laid out %v, %+v", l, f)
			}
		})
	}
}
