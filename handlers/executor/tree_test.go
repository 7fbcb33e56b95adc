package executor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// forever is a process that ends only when it is ended.
const forever = "sleep 1000"

// trees are the ways in which a stage can leave processes where a simple kill does not reach them. Each ends with
// `ready` in its log, once everything runs.
var trees = map[string]string{
	"one process":            `echo ready; exec ` + forever,
	"background child":       forever + ` & echo ready; wait`,
	"two children":           forever + ` & ` + forever + ` & echo ready; wait`,
	"double fork":            `( ( ` + forever + ` & ) & ); echo ready; ` + forever,
	"setsid":                 `setsid ` + forever + ` & echo ready; ` + forever,
	"setsid, double fork":    `( setsid sh -c '` + forever + ` & ` + forever + `' & ); echo ready; ` + forever,
	"setsid, no environment": `setsid env -i ` + forever + ` & while ! grep -qs ^sleep /proc/$!/comm; do sleep 0.01; done; echo ready; ` + forever,
	"own group, job control": `set -m; ` + forever + ` & echo ready; wait`,
	"ignores TERM":           `trap '' TERM; ` + forever + ` & echo ready; while :; do ` + forever + `; done`,
	"stopped":                forever + ` & while ! grep -qs ^sleep /proc/$!/comm; do sleep 0.01; done; kill -STOP $!; echo ready; kill -STOP $$; ` + forever,
	"output held open":       `( exec ` + forever + ` ) & echo ready; exec >/dev/null 2>&1; wait`,
	"forks as it dies":       `trap '` + forever + ` & ` + forever + ` & exit 0' TERM; echo ready; while :; do sleep 0.01; done`,
}

// startStage runs a stage in the background and returns when it has logged `ready`.
func startStage(ctx context.Context, t *testing.T, c *Call) (end func() (*Result, *events.Failure)) {
	t.Helper()
	var r *Result
	var failure *events.Failure
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, failure = NewShell(Settings{Owner: owner}).Execute(ctx, c)
	}()
	log := filepath.Join(c.LogDir, "stdout")
	eventually(t, "ready", func() bool {
		b, _ := os.ReadFile(log)
		return strings.Contains(string(b), "ready\n")
	})
	return func() (*Result, *events.Failure) { <-done; return r, failure }
}

// unique makes the processes of one attempt recognisable by their command lines, which no stage can shake off.
func unique(c *Call, script string) *Call {
	id := fmt.Sprintf("%d%03d", os.Getpid(), serial.Add(1)) // two test binaries may run at once
	c.Stage = "stage-" + id
	script = strings.ReplaceAll(script, forever, forever+"."+id)
	c.With, _ = json.Marshal(shellSettings{Script: script})
	return c
}

var serial atomic.Int64

// alive lists the processes of an attempt made by unique.
func alive(c *Call) []string {
	var list []string
	for _, s := range processTable() {
		command := commandLine(s.pid)
		if !s.dead() && strings.HasSuffix(command, forever+"."+strings.TrimPrefix(c.Stage, "stage-")) {
			list = append(list, command)
		}
	}
	return list
}

// nothingLives fails when a process of the attempt lives, by its mark or by its command line.
func nothingLives(t *testing.T, c *Call) {
	t.Helper()
	if list := append(marked(c), alive(c)...); len(list) > 0 {
		t.Errorf("survivors: %q", list)
	}
}

func TestCase_P1(t *testing.T) {
	for name, script := range trees {
		for _, how := range []string{"cancel", "time-out"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				c := unique(newCall(t, ""), script)
				c.Grace = 300 * time.Millisecond
				want := events.Aborted
				if how == "time-out" {
					want, c.Timeout = events.Timeout, 3*time.Second // ready by then, also on a busy machine
				}
				end := startStage(ctx, t, c)
				if how == "cancel" {
					if name != "forks as it dies" {
						eventually(t, "a process", func() bool { return len(alive(c)) > 0 })
					}
					cancel(errors.New("li cancelled it"))
				}
				r, failure := end()
				if failure == nil || failure.Class != want {
					t.Errorf("got %+v", failure)
				}
				if r.Stdout.Bytes != int64(len("ready\n")) || r.Leftovers != 0 {
					t.Errorf("partial result %+v", r)
				}
				nothingLives(t, c)
			})
		}
	}
}

func TestCase_P3(t *testing.T) {
	for name, script := range map[string]string{
		"background":         `sleep 1000 & echo done; exit 0`,
		"own session":        `setsid sleep 1000 & echo done; exit 0`,
		"ignores TERM":       `( trap '' TERM; sleep 1000 ) & echo done; exit 0`,
		"closed descriptors": `setsid sleep 1000 <&- >&- 2>&- & echo done; exit 0`,
	} {
		for _, timeout := range []time.Duration{0, 5 * time.Second} {
			t.Run(fmt.Sprint(name, timeout), func(t *testing.T) {
				t.Parallel()
				c := unique(newCall(t, ""), script)
				c.Timeout = timeout
				begin := time.Now()
				r := succeed(t, c)
				if took := time.Since(begin); took > 2*time.Minute { // the child alone would take more than a quarter of an hour
					t.Errorf("took %s", took)
				}
				if string(r.Stdout.Tail(10)) != "done\n" || r.Leftovers == 0 {
					t.Errorf("got %+v", r)
				}
				nothingLives(t, c)
			})
		}
	}
}

func TestLeftoversMayFinish(t *testing.T) {
	c := newCall(t, "#!/bin/bash\nexec > >(sleep 0.2; cat)\necho late")
	if r := succeed(t, c); string(r.Stdout.Tail(10)) != "late\n" || r.Leftovers != 0 {
		t.Errorf("got %+v", r)
	}
}

func TestNoZombies(t *testing.T) {
	c := newCall(t, "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10; do ( ( sleep 0.05 & ) & ( setsid sleep 0.05 & ) & ); done")
	succeed(t, c)
	eventually(t, "no zombie", func() bool {
		succeed(t, newCall(t, "true")) // each end of an attempt has a look
		for _, s := range processTable() {
			if s.parent == os.Getpid() && s.dead() {
				return false
			}
		}
		return true
	})
}

func TestTheEnginesOtherChildrenAreNotCollected(t *testing.T) {
	other := exec.Command("sh", "-c", "exit 3")
	other.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a zombie", func() bool { s, _ := readStat(other.Process.Pid); return s.dead() })
	reapZombies(processTable(), nil)
	succeed(t, newCall(t, "( sleep 0.1 & )"))
	var exit *exec.ExitError
	if err := other.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("got %v", err)
	}
}

func TestParallelAttemptsKeepApart(t *testing.T) {
	c := unique(newCall(t, ""), trees["setsid"])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end := startStage(ctx, t, c)
	if r := succeed(t, newCall(t, `( setsid sleep 1000 & ); exit 0`)); r.Leftovers != 1 {
		t.Errorf("got %+v", r)
	}
	if len(alive(c)) != 2 {
		t.Errorf("the bystander lost processes: %q", alive(c))
	}
	cancel()
	if _, failure := end(); failure == nil || failure.Class != events.Aborted {
		t.Errorf("got %+v", failure)
	}
	nothingLives(t, c)
}

func TestCancelledWithAFailure(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&events.Failure{Class: events.Lost, Reason: "the lease ran out"})
	_, failure := NewShell(Settings{Owner: owner}).Execute(ctx, newCall(t, "true"))
	if failure == nil || failure.Class != events.Lost {
		t.Errorf("got %+v", failure)
	}
}

// TestStageDiesWithTheEngine starts this binary as an engine of its own, kills it, and lets KillOrphans clear up.
func TestStageDiesWithTheEngine(t *testing.T) {
	if dir := os.Getenv("EXECUTOR_TEST_ENGINE"); dir != "" {
		engine(t, dir)
		return
	}
	for script, isolation := range map[string]string{trees["setsid"]: "enforce", trees["background child"]: "observe", trees["setsid, double fork"]: ""} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestStageDiesWithTheEngine$", "-test.v")
		cmd.Env = append(os.Environ(), "EXECUTOR_TEST_ENGINE="+t.TempDir(), "EXECUTOR_TEST_SCRIPT="+script, "EXECUTOR_TEST_ISOLATION="+isolation)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		leader := 0
		for lines := bufio.NewScanner(out); leader == 0 && lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "leader "); ok {
				leader, _ = strconv.Atoi(text)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		eventually(t, "the leader's end", func() bool { s, ok := readStat(leader); return !ok || s.dead() })
		killed, err := KillOrphans(t.Context(), fmt.Sprintf("engine-%d", cmd.Process.Pid))
		if isolation != "" && err == nil && len(killed) == 0 {
			continue // what was still loading its program has ended by itself: nobody answers its calls any more
		}
		if err != nil || len(killed) == 0 || killed[0].Stage != "fetch" || killed[0].Attempt != 1 {
			t.Errorf("killed %+v, %v", killed, err)
		}
		for _, o := range killed {
			if s, ok := readStat(o.PID); ok && !s.dead() {
				t.Errorf("%+v lives", o)
			}
		}
	}
	if killed, err := KillOrphans(t.Context(), "nobody"); err != nil || len(killed) != 0 {
		t.Errorf("killed %+v, %v", killed, err)
	}
}

// engine runs one stage and tells its leader's pid, once its children run.
func engine(t *testing.T, dir string) {
	t.Helper()
	c := newCall(t, os.Getenv("EXECUTOR_TEST_SCRIPT"))
	c.Dir, c.LogDir = filepath.Join(dir, "work"), filepath.Join(dir, "logs")
	c.Isolation = os.Getenv("EXECUTOR_TEST_ISOLATION")
	started := make(chan int, 1)
	c.Started = func(pid int) { started <- pid }
	go func() {
		_, _ = NewShell(Settings{Owner: fmt.Sprintf("engine-%d", os.Getpid())}).Execute(t.Context(), c)
	}()
	eventually(t, "ready", func() bool {
		b, _ := os.ReadFile(filepath.Join(c.LogDir, "stdout"))
		return strings.Contains(string(b), "ready\n")
	})
	fmt.Fprintf(os.Stdout, "leader %d\n", <-started)
	select {}
}
