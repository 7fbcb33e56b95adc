package cmd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// program is one call of the real program in a directory of its own.
type program struct {
	*exec.Cmd
	out, errs bytes.Buffer
}

func start(t *testing.T, dir string, args ...string) *program {
	t.Helper()
	replaysAtEnd(t, dir)
	p := &program{Cmd: exec.CommandContext(t.Context(), "apollo", args...)} // testscript.Main has put it into the path
	p.Dir, p.Stdout, p.Stderr = dir, &p.out, &p.errs
	p.Env = append(os.Environ(), "LANG=C", "APOLLO_DATA=")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// exit waits for the end and gives the exit code; -1 after a signal.
func (p *program) exit() int {
	_ = p.Wait() // the code tells
	return p.ProcessState.ExitCode()
}

func apolloIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	p := start(t, dir, args...)
	if code := p.exit(); code != 0 {
		t.Fatalf("apollo %s: exit %d\n%s%s", strings.Join(args, " "), code, p.out.String(), p.errs.String())
	}
	return p.out.String()
}

// gated is a pipeline whose stage ends once a file appears.
const gated = `name: gated
params: {gate: {type: string}}
stages:
  wait: {run: "touch \"$APOLLO_PARAM_GATE.seen\"; until test -e \"$APOLLO_PARAM_GATE\"; do sleep 0.02; done"}
  after: {needs: [wait], run: "true"}
`

// appears waits until another process has made a file.
func appears(t *testing.T, path string) {
	t.Helper()
	eventually(t, path+" appears", func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// states gives state and attempts of every run, by the value of its parameter gate.
func states(t *testing.T, dir string) map[string]string {
	t.Helper()
	var rows []struct{ Run string }
	if err := json.Unmarshal([]byte(apolloIn(t, dir, "runs", "-o", "json")), &rows); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, row := range rows {
		var run struct {
			State  string
			Params struct{ Gate string }
			Stages []struct{ Attempt int }
		}
		if err := json.Unmarshal([]byte(apolloIn(t, dir, "show", row.Run, "-o", "json")), &run); err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(run.Params.Gate)] = fmt.Sprint(run.State, " ", run.Stages[0].Attempt)
	}
	return all
}

// Two runs share an engine. The one whose process has it ends first, and lets the other's stage end; the other's process
// takes the data directory over and goes on.
func TestRunTakesOverWhenTheHolderEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "gated.yaml"), gated)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	first := start(t, dir, "run", "gated.yaml", "--param", "gate="+a)
	appears(t, a+".seen")
	second := start(t, dir, "run", "gated.yaml", "--param", "gate="+b)
	appears(t, b+".seen")
	write(t, a, "")
	write(t, b, "")
	if one, two := first.exit(), second.exit(); one != 0 || two != 0 {
		t.Fatalf("exit codes %d and %d\n%s\n%s", one, two, first.errs.String(), second.errs.String())
	}
	if got := states(t, dir); got["a"] != "completed 1" || got["b"] != "completed 1" {
		t.Errorf("runs ended as %v", got)
	}
}

// The process that has the engine is killed. Whoever waits takes over, finishes both runs, and no start is lost.
func TestRunTakesOverWhenTheHolderIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "gated.yaml"), gated)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	first := start(t, dir, "run", "gated.yaml", "--param", "gate="+a)
	appears(t, a+".seen")
	second := start(t, dir, "run", "gated.yaml", "--param", "gate="+b)
	appears(t, b+".seen")
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.exit()
	write(t, a, "")
	write(t, b, "")
	if code := second.exit(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, second.errs.String())
	}
	apolloIn(t, dir, "cancel", "--help") // any command: the directory is free again
	if got := states(t, dir); got["b"] != "completed 2" {
		t.Errorf("runs ended as %v", got)
	}
	apolloIn(t, dir, "run", "gated.yaml", "--param", "gate="+a) // goes on with what the killed one had begun
	if got := states(t, dir); got["a"] != "completed 1" && got["a"] != "completed 2" {
		t.Errorf("runs ended as %v", got)
	}
	apolloIn(t, dir, "replay", "--all")
	apolloIn(t, dir, "store", "fsck")
}

// An interrupt cancels the run, its processes end, and the exit code says so.
func TestInterruptCancelsTheRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "gated.yaml"), gated)
	gate := filepath.Join(dir, "never")
	p := start(t, dir, "run", "gated.yaml", "--param", "gate="+gate)
	appears(t, gate+".seen")
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.exit(); code != 130 {
		t.Fatalf("exit code %d\n%s%s", code, p.out.String(), p.errs.String())
	}
	if got := states(t, dir); got["never"] != "cancelled 1" {
		t.Errorf("runs ended as %v", got)
	}
}

// Many runs at once on one data directory without a server, each a process of its own, while commands read it in a loop:
// one after the other has the engine, and no lock of the database reaches anybody.
func TestRunsAtOnceShareTheDirectory(t *testing.T) {
	t.Parallel()
	const runs = 20
	dir := t.TempDir()
	write(t, filepath.Join(dir, "pipelines", "three.yaml"), `name: three
stages:
  a: {run: "true"}
  b: {needs: [a], run: "true"}
  c: {needs: [b], run: "true"}
`)
	apolloIn(t, dir, "run", "three")
	all := make([]*program, runs)
	for i := range all {
		all[i] = start(t, dir, "run", "three", "-o", "json")
	}
	done := make(chan struct{})
	var reading sync.WaitGroup
	for _, command := range [][]string{{"runs"}, {"show", "latest"}, {"inbox"}} {
		reading.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				p := start(t, dir, command...)
				if code := p.exit(); code != 0 {
					t.Errorf("apollo %v: exit %d: %s", command, code, p.errs.String())
					return
				}
			}
		})
	}
	for i, p := range all {
		if code := p.exit(); code != 0 || !strings.Contains(p.out.String(), `"state": "completed"`) {
			t.Errorf("run %d: exit %d\n%s%s", i, code, p.out.String(), p.errs.String())
		}
	}
	close(done)
	reading.Wait()
	if n := strings.Count(apolloIn(t, dir, "runs", "-o", "jsonl", "--state", "completed"), "\n"); n != runs+1 {
		t.Errorf("%d runs completed, want %d", n, runs+1)
	}
	apolloIn(t, dir, "replay", "--all")
	apolloIn(t, dir, "store", "fsck")
}
