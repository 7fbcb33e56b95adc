package cmd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// mountProc gives the first process of a new PID namespace a /proc that shows that namespace.
func mountProc() {
	if os.Getenv("APOLLO_TEST_PID1") == "" {
		return
	}
	err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, "")
	}
	if err != nil || os.Getpid() != 1 {
		fmt.Fprintf(os.Stderr, "process %d: mount /proc: %v\n", os.Getpid(), err)
		os.Exit(1)
	}
}

// firstProcess makes a command the first process of a new PID namespace, as a container does.
func firstProcess(c *exec.Cmd) {
	c.Env = append(c.Env, "APOLLO_TEST_PID1=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
	}
}

// serveFirst starts the server as the first process of a PID namespace.
func (s *site) serveFirst() {
	s.t.Helper()
	probe := s.command(nil, "version")
	firstProcess(probe)
	if out, err := probe.CombinedOutput(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) || bytes.Contains(out, []byte("mount /proc")) {
			s.t.Skipf("not permitted to make a PID namespace: %v\n%s", err, out)
		}
		s.t.Fatalf("%v\n%s", err, out)
	}
	s.prepare = firstProcess
	s.serve()
}

// inside reads the status lines of every process of the server's namespace, but for the server itself.
func (s *site) inside() (all []string) {
	s.t.Helper()
	found, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/proc/[0-9]*/stat", s.server.Process.Pid))
	if err != nil || len(found) == 0 {
		s.t.Fatalf("the processes of the namespace cannot be read: %d found, %v", len(found), err)
	}
	for _, path := range found {
		if b, err := os.ReadFile(path); err == nil && !bytes.HasPrefix(b, []byte("1 ")) {
			all = append(all, string(b))
		}
	}
	return all
}

// TestCase_P12: the engine is the first process, so that every orphan becomes its child. Stages leave children that
// outlive them in every way; after many runs nothing of them is there, alive or defunct.
func TestCase_P12(t *testing.T) {
	t.Parallel()
	orphansOf(t, 100)
}

// TestCase_P12_Long is the number of runs of the report.
func TestCase_P12_Long(t *testing.T) {
	t.Parallel()
	if os.Getenv("APOLLO_LONG") == "" {
		t.Skip("TestCase_P12 is its short form")
	}
	orphansOf(t, 500)
}

func orphansOf(t *testing.T, runs int) {
	t.Helper()
	s := newSite(t, "p12", `name: p12
params: {forever: {type: boolean, default: false}}
stages:
  leave:
    run: |
      ( sleep 0.02 & )
      ( setsid sleep 0.02 & )
      ( setsid sh -c 'sleep 0.02 & exit' & )
      sleep 0.02 &
      if [ "$APOLLO_PARAM_FOREVER" = true ]; then ( setsid sleep 1000 & ); fi
      exit 0
`)
	s.serveFirst()
	if out := s.must("run", "p12", "--param", "forever=true", "-o", "json"); decode[runView](t, out).State != "completed" {
		t.Fatal(out)
	}
	for range runs - 1 {
		if s.detach("p12") == "" {
			t.Fatalf("refused:\n%s", s.stderr)
		}
	}
	eventually(t, "every run has ended", func() bool {
		for _, r := range s.runs() {
			if r.EndedAt == "" {
				return false
			}
			if r.State != "completed" {
				t.Fatalf("%s: %s", r.State, r.Reason)
			}
		}
		return true
	})
	// No stage runs any more that could collect anything on its way.
	eventually(t, "no process is left, alive or defunct", func() bool { return len(s.inside()) == 0 })
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.stderr)
	}
	s.healthy()
}

// TestCase_P12_idle: somebody else's orphan becomes a child of the first process while no stage runs, as after
// `docker exec`.
func TestCase_P12_idle(t *testing.T) {
	t.Parallel()
	enter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skip("there is no nsenter to enter a namespace with")
	}
	s := newSite(t, "p12", "name: p12\nstages:\n  only: {run: \"true\"}\n")
	s.serveFirst()
	s.must("run", "p12")
	args := []string{"--target", strconv.Itoa(s.server.Process.Pid), "--pid", "--mount"}
	if os.Geteuid() != 0 {
		args = append(args, "--user", "--preserve-credentials")
	}
	visitor := exec.CommandContext(t.Context(), enter, append(args, "setsid", "--wait", "sh", "-c", "( sleep 0.05 & ) ; ( setsid sleep 0.05 & )")...)
	if out, err := visitor.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "its children have ended and were collected", func() bool { return len(s.inside()) == 0 })
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.stderr)
	}
}
