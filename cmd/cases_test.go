package cmd_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestCase_R1: the engine is killed during attempt 2 of at most 1+3. It goes on at 3, and the log keeps the count.
func TestCase_R1(t *testing.T) {
	t.Parallel()
	s := newSite(t, "r1", `name: r1
stages:
  work:
    run: |
      echo "$APOLLO_ATTEMPT" >> "$TRACE"
      if [ "$APOLLO_ATTEMPT" -eq 2 ]; then sleep 300; fi
      exit 75
    env: {TRACE: "`+trace(t)+`"}
    retry: {max: 3, interval: 10ms}
`)
	s.serve()
	run := s.detach("r1")
	s.stageRuns(run, "work", 2)
	s.kill()
	s.serve()
	v := s.ends(run)
	if v.State != "failed" || v.Stages[0].Attempt != 4 {
		t.Errorf("%s after attempt %d: %s", v.State, v.Stages[0].Attempt, v.Reason)
	}
	log := s.events(run)
	var attempts []int
	lost := 0
	for _, e := range log {
		switch {
		case e.Type == "stage.started":
			attempts = append(attempts, e.Data.Attempt)
		case e.Data.Class == "lost":
			lost++
			if e.Data.Attempt != 2 || !strings.Contains(e.Data.Reason, "engine stopped") {
				t.Errorf("lost: %+v", e.Data)
			}
		}
	}
	if !slices.Equal(attempts, []int{1, 2, 3, 4}) || lost != 1 {
		t.Errorf("attempts %v, %d lost", attempts, lost)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.healthy()
}

// TestCase_R5: engine and stage are killed. After the restart the attempt has ended as lost, with the reason, and the
// stage is running only where a process lives.
func TestCase_R5(t *testing.T) {
	t.Parallel()
	pids := trace(t)
	s := newSite(t, "r5", `name: r5
stages:
  sleep:
    run: |
      echo $$ >> "$PIDS"
      exec sleep 300
    env: {PIDS: "`+pids+`"}
`)
	s.serve()
	run := s.detach("r5")
	s.stageRuns(run, "sleep", 1)
	first := pidOf(t, pids)
	s.kill()
	_ = syscall.Kill(first, syscall.SIGKILL) // unless it ended with its engine
	s.serve()
	s.stageRuns(run, "sleep", 2)
	eventually(t, "a second process", func() bool { return pidOf(t, pids) != first })
	if second := pidOf(t, pids); alive(first) || !alive(second) {
		t.Errorf("first copy alive: %v; second copy alive: %v", alive(first), alive(second))
	}
	lost := slices.DeleteFunc(s.events(run), func(e event) bool { return e.Data.Class != "lost" })
	if len(lost) != 1 || lost[0].Type != "stage.retry_scheduled" || lost[0].Data.Attempt != 1 || !strings.Contains(lost[0].Data.Reason, "engine stopped") {
		t.Errorf("the first attempt ended with %+v", lost)
	}
	s.must("cancel", run)
	if v := s.ends(run); v.State != "cancelled" || alive(pidOf(t, pids)) {
		t.Errorf("%s %s", v.State, v.Reason)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.healthy()
}

// TestCase_R7: a process of the stage outlives the engine. The next engine ends it before it starts the second copy.
func TestCase_R7(t *testing.T) {
	t.Parallel()
	pids := trace(t)
	// The second copy looks whether the first one is still there: never two at once.
	s := newSite(t, "r7", `name: r7
stages:
  sleep:
    run: |
      if [ "$APOLLO_ATTEMPT" -gt 1 ]; then
        # a dead process that nobody reaped has no command line
        if [ -n "$(tr '\0' ' ' 2>/dev/null < "/proc/$(head -n 1 "$PIDS")/cmdline")" ]; then exit 3; fi
        exit 0
      fi
      sleep 300 &
      echo $! >> "$PIDS"
      wait
    env: {PIDS: "`+pids+`"}
    retry: {max: 2, interval: 1ms}
    isolation: off # what is observed may end by itself when nobody answers its calls any more
`)
	s.serve()
	run := s.detach("r7")
	s.stageRuns(run, "sleep", 1)
	pid := pidOf(t, pids)
	s.kill()
	if !alive(pid) {
		t.Fatal("the process ended with its engine: the case cannot be tested")
	}
	s.serve()
	v := s.ends(run)
	if v.State != "completed" || v.Stages[0].Attempt != 2 {
		t.Errorf("%s at attempt %d: %s", v.State, v.Stages[0].Attempt, v.Reason)
	}
	if alive(pid) {
		t.Errorf("process %d is left over", pid)
	}
	log := s.events(run)
	lost := slices.DeleteFunc(slices.Clone(log), func(e event) bool { return e.Data.Class != "lost" })
	if len(lost) != 1 || lost[0].Type != "stage.retry_scheduled" || lost[0].Data.Leftovers != 1 || lost[0].Data.Attempt != 1 ||
		!strings.Contains(lost[0].Data.Reason, "engine stopped") || !strings.Contains(lost[0].Data.Reason, "(1) were ended") {
		t.Errorf("the decision is recorded as %+v", lost)
	}
	if !strings.Contains(s.stderr.String(), "had left behind") {
		t.Errorf("stderr:\n%s", s.stderr)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.healthy()
}

// TestCase_S1: 20 runs at once with a reader in a loop: no lock of the database reaches anybody.
func TestCase_S1(t *testing.T) {
	t.Parallel()
	const runs = 20
	s := newSite(t, "crash", definitionOf(t, "crash"))
	s.serve()
	var started sync.WaitGroup
	var lock sync.Mutex
	var complaints []string
	say := func(args ...string) {
		if out, errs, code := s.apollo(args...); code != 0 {
			lock.Lock()
			complaints = append(complaints, fmt.Sprintf("apollo %v: exit %d %s%s", args, code, out, errs))
			lock.Unlock()
		}
	}
	say("run", "crash", "--detach")
	for range runs - 1 {
		started.Go(func() { say("run", "crash", "--detach") })
	}
	looks := 0
	eventually(t, "all runs have ended", func() bool {
		looks++
		say("runs")
		say("show", "latest")
		say("inbox")
		rows := s.runs()
		return len(rows) == runs && !slices.ContainsFunc(rows, func(r runView) bool { return r.EndedAt == "" })
	})
	started.Wait()
	for _, c := range complaints {
		t.Error(c)
	}
	for _, r := range s.runs() {
		if r.State != "completed" {
			t.Errorf("run %s: %s %s %s", r.Run, r.State, r.Class, r.Reason)
		}
	}
	if strings.Contains(s.stderr.String(), "locked") {
		t.Errorf("stderr:\n%s", s.stderr)
	}
	t.Logf("%d looks", looks)
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.healthy()
}

// TestSecondServerIsRefused: a data directory has one server, and whoever comes second learns which.
func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, "crash", definitionOf(t, "crash"))
	s.serve()
	out, err := s.command(nil, "serve", "--listen", "127.0.0.1:0").CombinedOutput()
	text := string(out)
	pid, address := strconv.Itoa(s.server.Process.Pid), strings.TrimPrefix(s.address, "http://")
	if exitCode(err) != 8 || !strings.Contains(text, pid) || !strings.Contains(text, address) {
		t.Errorf("%v, want exit 8 with process %s and %s:\n%s", err, pid, address, text)
	}
	if run := s.detach("crash"); s.ends(run).State != "completed" {
		t.Error("the first server does not go on")
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// TestMaxRuns: of two runs one waits, and says for what, until the other has ended.
func TestMaxRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, "held", "name: held\nstages:\n  wait: {run: 'while [ ! -e \"$GO\" ]; do sleep 0.05; done', env: {GO: \"${{ params.go }}\"}}\nparams: {go: {type: string}}\n")
	s.args = []string{"--max-runs", "1"}
	s.serve()
	first, second := filepath.Join(t.TempDir(), "go"), filepath.Join(t.TempDir(), "go")
	one := s.detach("held", "--param", "go="+first)
	two := s.detach("held", "--param", "go="+second)
	if out := s.must("show", two); !strings.Contains(out, "1 of at most 1 runs go on") {
		t.Errorf("show: %s", out)
	}
	write(t, second, "")
	write(t, first, "")
	if v := s.ends(one); v.State != "completed" {
		t.Errorf("the first: %+v", v)
	}
	if v := s.ends(two); v.State != "completed" {
		t.Errorf("the second: %+v", v)
	}
	if _, errs, code := s.apollo("serve", "--max-runs", "-1"); code != 2 {
		t.Errorf("a bound below 0: exit %d, %s", code, errs)
	}
	s.healthy()
}
