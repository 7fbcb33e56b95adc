package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
)

// pythonCall gives a call of a Python stage.
func pythonCall(tb testing.TB, s map[string]any) *Call {
	tb.Helper()
	c := newCall(tb, "-")
	with, err := json.Marshal(s)
	if err != nil {
		tb.Fatal(err)
	}
	c.With = with
	c.Stage = fmt.Sprintf("stage-%d%03d", os.Getpid(), serial.Add(1)) // processes of two attempts are told apart by their marks
	return c
}

func newPython(tb testing.TB, pip map[string]string) *Python {
	tb.Helper()
	return NewPython(Settings{Owner: owner, Cache: filepath.Join(tb.TempDir(), "cache"), Pip: pip})
}

func runPython(tb testing.TB, p *Python, c *Call) *Result {
	tb.Helper()
	r, failure := p.Execute(context.Background(), c)
	if failure != nil {
		tb.Fatalf("failure %+v\nstderr: %s\nevidence: %s", failure, r.Stderr.Tail(4096), r.Evidence)
	}
	return r
}

func pin(r *Result, name string) string {
	i := slices.IndexFunc(r.Pins, func(p events.Pair) bool { return p.Name == name })
	if i < 0 {
		return ""
	}
	return r.Pins[i].Value
}

// The whole environment, the arguments, the directory and the search path of a program.
func TestPythonSeesExactlyThis(t *testing.T) {
	t.Setenv("PYTHONPATH", "/leaked")
	c := pythonCall(t, map[string]any{"args": []any{"a b", 7, true, nil, `it's "$HOME"`, []int{1}}, "script": `
import json, os, sys
json.dump({"env": dict(os.environ), "args": sys.argv[1:], "cwd": os.getcwd(), "user": sys.flags.no_user_site,
  "path": [p for p in sys.path if p.startswith(os.environ["HOME"]) or p in ("", "/leaked")]}, open("seen", "w"))
json.dump({"n": 9007199254740993}, open(os.environ["APOLLO_OUTPUTS"], "w"))
`})
	c.Env = map[string]string{"MODE": "fast"}
	c.Secrets = map[string]string{"TOKEN": "s3cr3t-token"}
	c.Inputs = map[string]Input{"drop": {Path: "/data/a b.csv"}}
	c.Params = map[string]json.RawMessage{"region": json.RawMessage(`"eu"`)}
	r := runPython(t, newPython(t, nil), c)
	var got struct {
		Env  map[string]string
		Args []string
		Cwd  string
		User int
		Path []string
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(c.Dir, "out", "seen"))), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a b", "7", "true", "", `it's "$HOME"`, "[1]"}, got.Args); diff != "" {
		t.Error(diff)
	}
	if got.Cwd != filepath.Join(c.Dir, "out") || got.User != 1 || string(r.Values["n"]) != "9007199254740993" {
		t.Errorf("cwd %s, no_user_site %d, values %s", got.Cwd, got.User, r.Values)
	}
	for _, path := range got.Path {
		if path != c.Dir || versionOf(t) >= "3.11" { // older ones look beside the program
			t.Errorf("the search path holds %q", path)
		}
	}
	for name := range got.Env {
		if strings.HasPrefix(name, "APOLLO_") && name != "APOLLO_IN_DROP" {
			delete(got.Env, name)
		}
	}
	want := map[string]string{"APOLLO_IN_DROP": "/data/a b.csv", "HOME": c.Dir + "/tmp", "LANG": "C.UTF-8", "MODE": "fast", "PATH": stagePath,
		"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "PYTHONNOUSERSITE": "1", "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1",
		"SOURCE_DATE_EPOCH": "1796018400", "TMPDIR": c.Dir + "/tmp", "TOKEN": "s3cr3t-token", "TZ": "UTC"}
	delete(got.Env, "LC_CTYPE") // Python's own
	if diff := cmp.Diff(want, got.Env); diff != "" {
		t.Error(diff)
	}
}

// versionOf gives 3.11 of the interpreter that stages get.
func versionOf(t *testing.T) string {
	t.Helper()
	path, ok := lookPath("python3", stagePath)
	if !ok {
		t.Fatal("these tests need python3 in " + stagePath)
	}
	out, err := exec.Command(path, "-c", "import platform; print(platform.python_version())").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestPythonIsPinned(t *testing.T) {
	t.Setenv("PATH", fakePythonDir(t)+":"+os.Getenv("PATH"))
	p := newPython(t, nil)
	var hashes []string
	for range 2 {
		r := runPython(t, p, pythonCall(t, map[string]any{"script": "print(hash('apollo'))"}))
		hashes = append(hashes, string(r.Stdout.Tail(100)))
		path, _ := lookPath("python3", stagePath)
		binary, err := filepath.EvalSymlinks(path)
		if err != nil {
			t.Fatal(err)
		}
		digest := events.DigestOf([]byte(read(t, binary))).String()
		want := []events.Pair{{Name: "python", Value: versionOf(t)}, {Name: "python_digest", Value: digest}}
		if diff := cmp.Diff(want, r.Pins); diff != "" {
			t.Error(diff)
		}
	}
	if hashes[0] != hashes[1] || len(hashes[0]) < 3 {
		t.Errorf("hashes of one text: %q", hashes)
	}
}

// fakePythonDir is a directory with a python3 that nobody must find.
func fakePythonDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\nexit 9\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// An interpreter that is replaced under its name is another one; so is what a wrapper leads to.
func TestPythonIsReadAgainWhenItChanges(t *testing.T) {
	path, _ := lookPath("python3", stagePath)
	binary := read(t, path)
	p := newPython(t, nil)
	changing := filepath.Join(t.TempDir(), "python3")
	wrapper := filepath.Join(t.TempDir(), "python3")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec "+changing+" \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tail := range []string{"", "changed"} {
		if err := os.WriteFile(changing+".new", []byte(binary+tail), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(changing+".new", changing); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{changing, wrapper} {
			r := runPython(t, p, pythonCall(t, map[string]any{"interpreter": name, "script": "print(1)"}))
			if got, want := pin(r, "python_digest"), events.DigestOf([]byte(binary+tail)).String(); got != want {
				t.Errorf("%s: digest %s, want %s", name, got, want)
			}
		}
	}
	if len(p.known) != 1 {
		t.Errorf("known are %+v", p.known)
	}
}

func TestPythonFailures(t *testing.T) {
	nul, _ := json.Marshal("a\x00b")
	for name, test := range map[string]struct {
		with   map[string]any
		change func(*Call)
		want   events.Failure
	}{
		"exit":               {with: map[string]any{"script": "import sys; sys.exit(3)"}, want: events.Failure{Class: events.ExecFailed, Exit: 3, Reason: "code 3"}},
		"exception":          {with: map[string]any{"script": "1/0"}, want: events.Failure{Class: events.ExecFailed, Exit: 1, Reason: "code 1"}},
		"signal":             {with: map[string]any{"script": "import os; os.kill(os.getpid(), 11)"}, want: events.Failure{Class: events.ExecFailed, Signal: "SIGSEGV", Reason: "SIGSEGV"}},
		"empty":              {with: map[string]any{"script": " "}, want: events.Failure{Class: events.ExecFailed, Reason: "empty"}},
		"missing":            {with: map[string]any{"script": "1", "interpreter": "python3.999"}, want: events.Failure{Class: events.ExecFailed, Reason: `E_PYTHON: the interpreter "python3.999" is not installed; install it`}},
		"options":            {with: map[string]any{"script": "1", "interpreter": "python3 -O"}, want: events.Failure{Class: events.ExecFailed, Reason: "E_PYTHON"}},
		"no Python":          {with: map[string]any{"script": "1", "interpreter": "/bin/false"}, want: events.Failure{Class: events.ExecFailed, Reason: "E_PYTHON: /bin/false does not answer"}},
		"talks":              {with: map[string]any{"script": "1", "interpreter": "/bin/echo"}, want: events.Failure{Class: events.ExecFailed, Reason: "E_PYTHON: /bin/echo does not answer"}},
		"unknown setting":    {with: map[string]any{"script": "1", "venv": "x"}, want: events.Failure{Class: events.ExecFailed, Reason: "venv"}},
		"NUL":                {with: map[string]any{"script": "1", "args": []any{"x", json.RawMessage(nul)}}, want: events.Failure{Class: events.BadInput, Pointer: "/args/1", Reason: "NUL"}},
		"declared":           {with: map[string]any{"script": "1"}, change: func(c *Call) { c.Env = map[string]string{"PYTHONHASHSEED": "7"} }, want: events.Failure{Class: events.ExecFailed, Pointer: "/env/PYTHONHASHSEED", Reason: "E_ENV_NAME"}},
		"declared as secret": {with: map[string]any{"script": "1"}, change: func(c *Call) { c.Secrets = map[string]string{"PYTHONPATH": "/x"} }, want: events.Failure{Class: events.ExecFailed, Pointer: "/env/PYTHONPATH", Reason: "E_ENV_NAME"}},
		"time-out":           {with: map[string]any{"script": "import signal; signal.pause()"}, change: func(c *Call) { c.Timeout = 1 }, want: events.Failure{Class: events.Timeout, Reason: "time-out of 1ns", Signal: "SIGTERM"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := pythonCall(t, test.with)
			if test.change != nil {
				test.change(c)
			}
			r, failure := newPython(t, nil).Execute(t.Context(), c)
			if failure == nil || failure.Class != test.want.Class || failure.Exit != test.want.Exit || failure.Signal != test.want.Signal ||
				failure.Pointer != test.want.Pointer && test.want.Pointer != "" || !strings.Contains(failure.Reason, test.want.Reason) {
				t.Errorf("got %+v", failure)
			}
			if (failure.Exit != 0 || failure.Signal != "") && pin(r, "python") == "" {
				t.Error("a failed program is not pinned")
			}
		})
	}
}

// The user's own packages are out of reach, of the program and of those that it starts.
func TestPythonHasNoUserSite(t *testing.T) {
	c := pythonCall(t, map[string]any{"script": `
import subprocess, sys
for start in ([sys.executable], ["python3"]):
    r = subprocess.run(start + ["-c", "import stray"], capture_output=True, text=True)
    print("ModuleNotFoundError" in r.stderr)
import stray
`})
	version := minor(versionOf(t))
	if err := writeFile(filepath.Join(c.Dir, ".local/lib/python"+version+"/site-packages/stray.py"), "print('in')"); err != nil {
		t.Fatal(err)
	}
	r, failure := newPython(t, nil).Execute(t.Context(), c)
	if failure == nil || string(r.Stdout.Tail(100)) != "True\nTrue\n" || !strings.Contains(string(r.Stderr.Tail(4096)), "No module named 'stray'") {
		t.Errorf("got %+v, %s, %s", failure, r.Stdout.Tail(100), r.Stderr.Tail(4096))
	}
}
