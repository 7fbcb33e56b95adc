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
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// handedOverGroups gives groups with the controllers, where the system has handed some over to the tests.
func handedOverGroups(t *testing.T) groups {
	t.Helper()
	name := owner + "-" + t.Name()
	g := openGroups(name)
	if g.dir == "" {
		t.Skip("no control group (version 2) with the memory or cpu controller was handed over to this process")
	}
	t.Cleanup(func() {
		if err := removeGroups(context.Background(), name); err != nil {
			t.Error(err)
		}
		if err := os.Remove(g.dir); err != nil {
			t.Error(err)
		}
	})
	return g
}

func needController(t *testing.T, g groups, name string) {
	t.Helper()
	if !slices.Contains(g.controllers, name) {
		t.Skipf("the controller %s was not handed over, only %v", name, g.controllers)
	}
}

func grouped(ctx context.Context, g groups, c *Call) (*Result, *events.Failure) {
	shell := NewShell(Settings{Owner: owner})
	shell.supervisor.groups = func() groups { return g }
	return shell.Execute(ctx, c)
}

func TestAGroupHoldsTheWholeTreesMemory(t *testing.T) {
	g := handedOverGroups(t)
	needController(t, g, "memory")
	const eat = `python3 -c 'x = bytearray(24 << 20); import sys; sys.stdin.read()'`
	c := newCall(t, "( sleep 1000 | "+eat+" ) & ( sleep 1000 | "+eat+" ) & ( sleep 1000 | "+eat+" ) & wait")
	c.Resources = &events.Resources{Memory: 64 << 20}
	r, f := grouped(t.Context(), g, c)
	if f == nil || f.Class != events.ExecFailed || f.Pointer != "/resources/memory" ||
		!strings.HasPrefix(f.Reason, "E_MEMORY: the stage used ") || !strings.Contains(f.Reason, "more than its memory of 64Mi; the kernel ended it") {
		t.Errorf("got %+v\n%s", f, r.Stderr.Tail(2000))
	}
	if peak := r.Usage.MaxRSS; peak < 48<<20 || peak > 64<<20 {
		t.Errorf("the peak is %d", peak)
	}
	empty(t, g)
}

func TestAGroupMeasuresThePeakOfASmallStage(t *testing.T) {
	g := handedOverGroups(t)
	needController(t, g, "memory")
	c := newCall(t, "#!/usr/bin/env python3\nx = b'x' * (20 << 20)")
	c.Resources = &events.Resources{Memory: 256 << 20}
	r, failure := grouped(t.Context(), g, c)
	if failure != nil || r.Usage.MaxRSS < 20<<20 || r.Usage.MaxRSS > 100<<20 {
		t.Errorf("the peak is %d (%v)", r.Usage.MaxRSS, failure)
	}
	empty(t, g)
}

func TestAGroupIsBoundAsAsked(t *testing.T) {
	g := handedOverGroups(t)
	c := newCall(t, `d=$1; for f in memory.max memory.swap.max memory.oom.group cpu.max pids.max; do echo "$f $(cat "$APOLLO_PARAM_D/$f" 2>/dev/null)"; done; ulimit -d`)
	c.Resources = &events.Resources{CPU: 0.5, Memory: 100 << 20}
	c.Params = map[string]json.RawMessage{"d": json.RawMessage(fmt.Sprintf("%q", filepath.Join(g.dir, attemptName(c))))}
	r, failure := grouped(t.Context(), g, c)
	got := string(r.Stdout.Tail(2000))
	if failure != nil {
		t.Fatal(failure)
	}
	for controller, line := range map[string]string{"memory": "memory.max 104857600\n", "cpu": "cpu.max 50000 100000\n", "pids": "pids.max 8192\n"} {
		if slices.Contains(g.controllers, controller) && !strings.Contains(got, line) {
			t.Errorf("no %q in\n%s", line, got)
		}
	}
	if slices.Contains(g.controllers, "memory") && !strings.HasSuffix(got, "unlimited\n") {
		t.Errorf("two limits of memory:\n%s", got)
	}
	empty(t, g)
}

// empty wants no group to be left.
func empty(t *testing.T, g groups) {
	t.Helper()
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// bareGroup makes a group without any controller, which a test may do wherever it may write to the file system of groups.
func bareGroup(t *testing.T) *group {
	t.Helper()
	own, _, ok := ownGroup()
	if !ok {
		t.Skip("this machine has no control groups of version 2")
	}
	g := &group{dir: filepath.Join(own, "apollo-test-"+fmt.Sprintf("%d-%d", os.Getpid(), serial.Add(1))), fd: -1}
	if err := g.open(nil); err != nil {
		t.Skipf("no control group can be made: %v", err)
	}
	t.Cleanup(g.remove)
	return g
}

// The one escape from a tree, wiping the environment and losing the session and the parent, is none from a group.
func TestNothingEscapesFromAGroup(t *testing.T) {
	g := bareGroup(t)
	c := unique(newCall(t, ""), `cat /proc/self/cgroup
( setsid env -i sh -c ': >ready; exec `+forever+`' </dev/null >/dev/null 2>&1 & )
while [ ! -e ready ]; do :; done`)
	a := &attempt{limits: limits{group: g}}
	if r, failure := a.test(t, c); failure != nil || !strings.Contains(string(r.Stdout.Tail(4096)), "/"+filepath.Base(g.dir)+"\n") {
		t.Errorf("%v: the stage ran in %s", failure, r.Stdout.Tail(4096))
	}
	g.remove()
	nothingLives(t, c)
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("the group is left: %v", err)
	}
}

// test runs a shell stage as an attempt that the test has prepared.
func (a *attempt) test(t *testing.T, c *Call) (*Result, *events.Failure) {
	t.Helper()
	var settings shellSettings
	if failure := decodeSettings(c.With, &settings); failure != nil {
		t.Fatal(failure)
	}
	p, failure := interpret(c, settings)
	if failure != nil {
		t.Fatal(failure)
	}
	s := NewShell(Settings{Owner: owner}).supervisor
	env, failure := newEnviron(c, s.mark(c))
	if failure != nil {
		t.Fatal(failure)
	}
	r, failure, _ := s.attend(t.Context(), c, p, env, a.limits)
	return r, failure
}

func TestAGroupIsKilledWhole(t *testing.T) {
	g := bareGroup(t)
	child := exec.Command("sleep", "1000")
	child.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: g.fd}
	if err := child.Start(); err != nil {
		t.Skipf("no process can be started in a group: %v", err)
	}
	g.kill()
	if err := child.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("got %v", err)
	}
}

func TestLeftGroupsAreRemovedWithWhatIsInThem(t *testing.T) {
	g := bareGroup(t)
	left := filepath.Join(g.dir, "run-stage-1")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.Open(left)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	child := exec.Command("sleep", "1000")
	child.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := child.Start(); err != nil {
		t.Skipf("no process can be started in a group: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := removeLeftGroups(ctx, g.dir); err != nil {
		t.Error(err)
	}
	if err := child.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the group is left: %v", err)
	}
	if err := removeLeftGroups(ctx, filepath.Join(g.dir, "nowhere")); err != nil {
		t.Errorf("no engine died: %v", err)
	}
}

func TestGroupsOfADeadEngineAreRemoved(t *testing.T) {
	g := handedOverGroups(t)
	left := filepath.Join(g.dir, "run-stage-1")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := KillOrphans(t.Context(), owner+"-"+t.Name()); err != nil {
		t.Error(err)
	}
	empty(t, g)
}

func TestKilledForMemory(t *testing.T) {
	for text, want := range map[string]bool{
		"low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 1\n": true,
		"low 0\nhigh 0\nmax 12\noom 3\noom_kill 0\n":                   false,
		"": false,
	} {
		if got := killedForMemory(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestNoGroupIsNothing(t *testing.T) {
	var g *group
	g.kill()
	g.remove()
	if g.peak() != 0 || g.outOfMemory() {
		t.Error("no group used memory")
	}
	if made := (groups{}).make(&Call{Resources: &events.Resources{CPU: 1, Memory: 1 << 30}}); made != nil {
		t.Errorf("made %+v", made)
	}
	if strings.Contains(attemptName(&Call{Stage: "a", Item: 3, Attempt: 2}), "/") {
		t.Error("a group's name has a slash")
	}
}

// A sandbox may let groups be made and refuse to start a process in one: the stage runs all the same, held the other way.
func TestAGroupThatCannotBeEnteredIsGivenUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "group")
	fd, err := unix.Open(t.TempDir(), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := &attempt{limits: limits{group: &group{dir: dir, fd: fd, memory: true}, declared: events.Resources{Memory: 256 << 20}}}
	if r, failure := a.test(t, newCall(t, "ulimit -d")); failure != nil || string(r.Stdout.Tail(100)) != "262144\n" {
		t.Errorf("%v, the limit is %s", failure, r.Stdout.Tail(100))
	}
}
