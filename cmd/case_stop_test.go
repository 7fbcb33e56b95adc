package cmd_test

import (
	"bufio"
	"io"
	"net"
	"slices"
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
			s := newSite(t, "p1", treePipeline("p1", pids, c.timeout))
			s.serve()
			run := s.detach("p1")
			tree := treeOf(t, pids)
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

// held is a pipeline whose first stage ends once a file appears, and its server, while that stage runs.
func held(t *testing.T, args ...string) (s *site, run, gate string) {
	t.Helper()
	gate = trace(t)
	s = newSite(t, "held", `name: held
on: [{webhook: {path: held, verify: {scheme: github, secret: secret://github_hook}}}]
stages:
  slow:
    run: |
      echo $$ >> "$GATE.pid"
      while [ ! -e "$GATE" ]; do sleep 0.02; done
      echo done > done.txt
    env: {GATE: "`+gate+`"}
    grace: 100ms
    outputs: {done: {path: done.txt}}
  after:
    needs: [slow]
    inputs: {done: "${{ stages.slow.outputs.done }}"}
    run: cat "$APOLLO_IN_DONE"
`)
	s.args = args
	s.serve()
	run = s.detach("held")
	s.stageRuns(run, "slow", 1)
	pidOf(t, gate+".pid")
	return s, run, gate
}

// drains sends SIGTERM and waits until the server takes it.
func (s *site) drains() {
	s.t.Helper()
	if err := s.server.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "it drains", func() bool { return strings.Contains(s.stderr.String(), "draining") })
}

// goesOn starts the next server, on which the run has to complete.
func (s *site) goesOn(run string, attempt int) {
	s.t.Helper()
	s.serve()
	if v := s.ends(run); v.State != "completed" || v.Stages[0].Attempt != attempt || v.Stages[1].Attempt != 1 {
		s.t.Errorf("after the restart: %+v", v)
	}
	if code := s.stop(); code != 0 {
		s.t.Errorf("exit %d", code)
	}
	s.healthy()
}

// TestCase_P14: SIGTERM lets the running stage end and starts no other one. Nothing is acknowledged meanwhile; a sender
// that holds its connection open, or its post back, does not keep the server. The next server goes on.
func TestCase_P14(t *testing.T) {
	t.Parallel()
	s, run, gate := held(t)
	address := strings.TrimPrefix(s.address, "http://")
	dial := func(text string) net.Conn {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_, err = io.WriteString(c, text)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	idle, half := dial("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), dial("POST /hooks/held HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
	defer idle.Close()
	defer half.Close()
	if line, err := bufio.NewReader(idle).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("healthz: %q, %v", line, err)
	}
	s.drains()
	eventually(t, "the port is closed", func() bool {
		status, _ := s.post("held", "while draining", []byte("{}"))
		if status/100 == 2 {
			t.Fatal("a delivery was acknowledged after SIGTERM")
		}
		return status == 0
	})
	if again := s.detach("held"); again != "" {
		t.Errorf("run %s was started while the server drained", again)
	}
	if s.dead() {
		t.Fatal("the running stage was not waited for")
	}
	write(t, gate, "")
	<-s.ended
	if code := s.server.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.stderr)
	}
	if v := s.show(run); v.Stages[0].State != "completed" || v.Stages[1].State != "pending" {
		t.Errorf("after the stop: %+v", v)
	}
	if rows := s.runs(); len(rows) != 1 {
		t.Errorf("runs: %+v", rows)
	}
	s.goesOn(run, 1)
}

// TestCase_P14_limit: a stage that does not end in time, or for which nobody wants to wait, is interrupted with all of
// its processes, and that is recorded.
func TestCase_P14_limit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
	}{{"limit", []string{"--drain", "200ms"}}, {"second signal", nil}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, run, gate := held(t, c.args...)
			pid := pidOf(t, gate+".pid")
			s.drains()
			eventually(t, "the server has ended", func() bool {
				if c.args == nil && !s.dead() {
					_ = s.server.Process.Signal(syscall.SIGTERM)
				}
				return s.dead()
			})
			if code := s.server.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit %d\n%s", code, s.stderr)
			}
			if alive(pid) {
				t.Errorf("the stage's process %d outlived the server", pid)
			}
			log := s.events(run)
			if last := log[len(log)-1]; last.Type != "stage.retry_scheduled" || last.Data.Class != "lost" || last.Data.Attempt != 1 ||
				!strings.Contains(last.Data.Reason, "engine was stopped") {
				t.Errorf("the log ends with %+v", last)
			}
			if v := s.show(run); v.Stages[0].State != "pending" || v.Stages[1].State != "pending" {
				t.Errorf("after the stop: %+v", v)
			}
			write(t, gate, "")
			s.args = nil
			s.goesOn(run, 2)
		})
	}
}
