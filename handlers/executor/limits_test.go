package executor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// ungrouped executes a shell stage where no control group can hold it.
func ungrouped(t *testing.T, c *Call) (*Result, *events.Failure) {
	t.Helper()
	shell := NewShell(Settings{Owner: owner})
	shell.supervisor.groups = func() groups { return groups{} }
	return shell.Execute(context.Background(), c)
}

func TestLimitsHoldFromTheFirstInstruction(t *testing.T) {
	c := newCall(t, `ulimit -d; ulimit -f; ulimit -Hd; sh -c 'ulimit -d; ulimit -f'`)
	c.Resources = &events.Resources{Memory: 256 << 20, Disk: 1 << 20, CPU: 1}
	r, failure := ungrouped(t, c)
	if failure != nil {
		t.Fatal(failure)
	}
	sh := strings.Fields(string(r.Stdout.Tail(200)))
	if len(sh) != 5 || sh[0] != "262144" || sh[2] != "262144" || sh[3] != "262144" || sh[1] == "unlimited" || sh[4] == "unlimited" {
		t.Errorf("limits %q", sh)
	}
}

func TestWithoutResourcesNothingIsLimited(t *testing.T) {
	want := string(succeed(t, newCall(t, `ulimit -Sa`)).Stdout.Tail(4096))
	c := newCall(t, `ulimit -Sa`)
	c.Resources = &events.Resources{Network: 1e6}
	r, failure := ungrouped(t, c)
	if got := string(r.Stdout.Tail(4096)); failure != nil || got != want || !strings.Contains(got, "unlimited") {
		t.Errorf("got %s, want %s (%v)", got, want, failure)
	}
}

func TestALimitOfTheEngineStays(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 40, Max: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &old) }() // only root can; it is large enough for all that follows
	c := newCall(t, "#!/bin/bash\nulimit -Hf")
	c.Resources = &events.Resources{Disk: 1 << 50}
	if r, failure := ungrouped(t, c); failure != nil || string(r.Stdout.Tail(100)) != "1073741824\n" {
		t.Errorf("%v, blocks of 1 KiB: %s", failure, r.Stdout.Tail(100))
	}
}

func TestRunningOverALimitIsNamed(t *testing.T) {
	for name, test := range map[string]struct {
		script         string
		ask            events.Resources
		reason, signal string
		exit           int
		pointer        string
	}{
		"memory": {script: "#!/usr/bin/env python3\nx = bytearray(300 << 20)", ask: events.Resources{Memory: 128 << 20},
			reason: "the stage exited with code 1; E_MEMORY: it may have run out of its memory of 128Mi", exit: 1, pointer: "/resources/memory"},
		"a child's memory": {script: "python3 -c 'x = bytearray(300 << 20)'; echo not reached", ask: events.Resources{Memory: 128 << 20},
			reason: "it may have run out of its memory of 128Mi", exit: 1, pointer: "/resources/memory"},
		"disk": {script: "exec head -c 2097152 /dev/zero >big", ask: events.Resources{Disk: 1 << 20},
			reason: "E_DISK: the stage wanted to write a file of more than its disk of 1Mi", signal: "SIGXFSZ", pointer: "/resources/disk"},
		"a child's disk": {script: "head -c 2097152 /dev/zero >big; echo not reached", ask: events.Resources{Disk: 1 << 20},
			reason: "E_DISK: the stage wanted to write a file of more than its disk of 1Mi", exit: 153, pointer: "/resources/disk"},
		"disk, signal ignored": {script: "#!/usr/bin/env python3\nopen('big', 'wb').write(b'x' * 2097152)", ask: events.Resources{Disk: 1 << 20},
			reason: "the stage exited with code 1; E_DISK: it may have wanted to write more than its disk of 1Mi", exit: 1, pointer: "/resources/disk"},
		"neither": {script: "head -c 1048575 /dev/zero >big; echo bad row >&2; exit 3", ask: events.Resources{Memory: 512 << 20, Disk: 1 << 20},
			reason: "the stage exited with code 3", exit: 3},
		"memory is free": {script: "echo MemoryError >&2; exit 3", ask: events.Resources{Disk: 1 << 20}, reason: "the stage exited with code 3", exit: 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCall(t, test.script)
			c.Resources = &test.ask
			r, f := ungrouped(t, c)
			if f == nil {
				t.Fatal("the stage succeeded")
			}
			if f.Class != events.ExecFailed || !strings.HasPrefix(f.Reason, test.reason) && !strings.Contains(f.Reason, "; E_MEMORY: "+test.reason) ||
				f.Exit != test.exit || f.Signal != test.signal || f.Pointer != test.pointer {
				t.Errorf("got %+v\n%s", f, r.Stderr.Tail(2000))
			}
			if test.pointer == "" && f.Reason != test.reason {
				t.Errorf("a limit is blamed: %s", f.Reason)
			}
		})
	}
}

func TestWithinItsLimitsAStageSucceeds(t *testing.T) {
	c := newCall(t, "#!/usr/bin/env python3\nopen('big', 'wb').write(bytearray(16 << 20))")
	c.Resources = &events.Resources{Memory: 512 << 20, Disk: 16 << 20, CPU: 0.5, Network: 1e6}
	if r, failure := ungrouped(t, c); failure != nil {
		t.Fatalf("%v\n%s", failure, r.Stderr.Tail(2000))
	}
	if info, err := os.Stat(filepath.Join(c.Dir, "out", "big")); err != nil || info.Size() != 16<<20 {
		t.Errorf("%v, %v", info, err)
	}
}

// A stage that was stopped is not said to have been ended by a limit.
func TestAStoppedStageIsNotOverALimit(t *testing.T) {
	c := newCall(t, "echo MemoryError >&2; head -c 1048576 /dev/zero >full; echo ready; exec sleep 1000")
	c.Resources = &events.Resources{Memory: 512 << 20, Disk: 1 << 20}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end := startStage(ctx, t, c)
	cancel()
	if _, f := end(); f == nil || f.Class != events.Aborted || f.Pointer != "" || strings.Contains(f.Reason, "E_") {
		t.Errorf("got %+v", f)
	}
}

func TestReadAndWrittenAreCounted(t *testing.T) {
	c := newCall(t, "head -c 3000000 /dev/zero >a; cat a a >b; sh -c 'exec cat b' >c")
	r := succeed(t, c)
	const wrote, read = 3e6 + 6e6 + 6e6, 3e6 + 6e6 + 6e6
	if slack := int64(1e6); r.Usage.Written < wrote || r.Usage.Written > wrote+slack || r.Usage.Read < read || r.Usage.Read > read+slack {
		t.Errorf("read %d, written %d", r.Usage.Read, r.Usage.Written)
	}
}

func TestParseMoved(t *testing.T) {
	read, written := parseMoved([]byte("rchar: 4292\nwchar: 17\nsyscr: 13\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 0\n"))
	if read != 4292 || written != 17 {
		t.Errorf("%d, %d", read, written)
	}
	if read, written := parseMoved(nil); read != 0 || written != 0 {
		t.Errorf("nothing is %d, %d", read, written)
	}
}
