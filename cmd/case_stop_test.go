package cmd_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestCase_P1: a cancel or a time-out ends the whole tree, and the run has ended only once it is gone.
func TestCase_P1(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, timeout, state, class string }{
		{"cancel", "5m", "cancelled", "cancelled"},
		{"timeout", "3s", "failed", "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pids := trace(t)
			s := newSite(t, "p1", `name: p1
stages:
  tree:
    run: |
      trap '' TERM
      setsid sleep 301 &
      echo $! >> "$PIDS"
      (trap '' TERM; sleep 302) &
      echo $! >> "$PIDS"
      echo $$ >> "$PIDS"
      wait
      while :; do sleep 303; done
    env: {PIDS: "`+pids+`"}
    timeout: `+c.timeout+`
    grace: 300ms
  never:
    needs: [tree]
    run: echo never
`)
			s.serve()
			run := s.detach("p1")
			var tree []int
			eventually(t, "three processes", func() bool {
				b, _ := os.ReadFile(pids)
				tree = nil
				for f := range strings.FieldsSeq(string(b)) {
					pid, _ := strconv.Atoi(f)
					tree = append(tree, pid)
				}
				return len(tree) == 3 && strings.HasSuffix(string(b), "\n")
			})
			if c.name == "cancel" {
				s.must("cancel", run)
			}
			eventually(t, "the run is "+c.state, func() bool {
				if s.show(run).State != c.state {
					return false
				}
				if slices.ContainsFunc(tree, alive) {
					t.Fatalf("the run is %s while its processes live", c.state)
				}
				return true
			})
			log := s.events(run)
			if last := log[len(log)-1]; last.Type != "run."+c.state || count(log, "stage."+c.state, "tree") != 1 {
				t.Errorf("the log ends with %+v", last)
			}
			if v := s.show(run); v.Stages[0].Class != c.class || v.Stages[1].State == "running" || v.Stages[1].State == "completed" {
				t.Errorf("%+v", v)
			}
			if code := s.stop(); code != 0 {
				t.Errorf("exit %d", code)
			}
			s.healthy()
		})
	}
}

// TestGracefulStop: SIGTERM lets the running stage end, starts no other one, and the next server goes on.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	gate := trace(t)
	s := newSite(t, "drain", `name: drain
stages:
  slow:
    run: |
      echo $$ > "$GATE.pid"
      while [ ! -e "$GATE" ]; do sleep 0.02; done
      echo done > done.txt
    env: {GATE: "`+gate+`"}
    outputs: {done: {path: done.txt}}
  after:
    needs: [slow]
    inputs: {done: "${{ stages.slow.outputs.done }}"}
    run: cat "$APOLLO_IN_DONE"
`)
	s.serve()
	run := s.detach("drain")
	s.stageRuns(run, "slow", 1)
	pidOf(t, gate+".pid")
	if err := s.server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it drains", func() bool { return strings.Contains(s.stderr.String(), "draining") })
	if s.dead() {
		t.Fatal("the running stage was not waited for")
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	if code := s.server.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.stderr)
	}
	if v := s.show(run); v.Stages[0].State != "completed" || v.Stages[1].State != "pending" {
		t.Errorf("after the stop: %+v", v)
	}
	s.serve()
	if v := s.ends(run); v.State != "completed" || v.Stages[0].Attempt != 1 {
		t.Errorf("after the restart: %+v", v)
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
	s.healthy()
}
