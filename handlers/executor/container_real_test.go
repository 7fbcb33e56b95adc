package executor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
)

// realEngine gives a container engine of this machine and an image on it that has a shell, or skips the test.
func realEngine(t *testing.T) (x *Container, image string) {
	t.Helper()
	host, image := os.Getenv("APOLLO_TEST_CONTAINER_HOST"), os.Getenv("APOLLO_TEST_CONTAINER_IMAGE")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	if image == "" {
		image = "docker.io/library/busybox:1.36"
	}
	x = newContainer(t, host)
	if _, err := x.engine.hello(t.Context()); err != nil {
		t.Skipf("no container engine answers: %v", err)
	}
	if _, failure := x.engine.resolve(t.Context(), image, "missing"); failure != nil {
		t.Skipf("no image to test with: %v", failure)
	}
	return x, image
}

func TestContainerReal(t *testing.T) {
	x, image := realEngine(t)
	own := strconv.Itoa(os.Getuid())
	if about, err := x.engine.hello(t.Context()); err != nil || about.rootless && !about.podman {
		own = "0"
	}
	for name, test := range map[string]struct {
		script  string
		user    string
		memory  int64
		command []any
		want    events.Failure
		stdout  string
	}{
		"everything": {script: `echo load >> "$APOLLO_SEGMENTS"; cat "$APOLLO_IN_DROP" > copy; echo '{"n": 1}' > "$APOLLO_OUTPUTS"; : > "$TMPDIR/x"; id -u; hostname; pwd; ls /sys/class/net; grep ^CapEff /proc/self/status; ` +
			`grep ^NoNewPrivs /proc/self/status; if echo x > "$APOLLO_IN_DROP"; then exit 9; fi`, stdout: own + "\napollo\n/apollo/out\nlo\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n"},
		"another user": {script: `cat "$APOLLO_IN_DROP" > copy; echo '{"n": 1}' > "$APOLLO_OUTPUTS"; echo load >> "$APOLLO_SEGMENTS"; : > "$TMPDIR/x"; id -u`, user: "1234:1234", stdout: "1234\n"},
		"output":       {script: `i=0; while [ $i -lt 3000 ]; do echo 0123456789; i=$((i+1)); done; echo err >&2`, stdout: strings.Repeat("0123456789\n", 3000)},
		"exit":         {script: "exit 7", want: events.Failure{Class: events.ExecFailed, Exit: 7}},
		"memory":       {script: "x=0123456789abcdef; while :; do x=$x$x; done", memory: 32 << 20, want: events.Failure{Class: events.ExecFailed, Exit: 137, Reason: "32Mi"}},
		"not found":    {command: []any{"/opt/none"}, want: events.Failure{Class: events.ExecFailed, Exit: 127, Reason: "E_EXEC_NOTFOUND"}},
		"no program":   {command: []any{"/etc/passwd"}, want: events.Failure{Class: events.ExecFailed, Exit: 126, Reason: "E_EXEC_NOTFOUND"}},
	} {
		t.Run(name, func(t *testing.T) {
			with := map[string]any{"image": image, "command": []any{"/bin/sh", "-ec", test.script}, "pull": "never"}
			if test.user != "" {
				with["user"] = test.user
			}
			if test.command != nil {
				with["command"] = test.command
			}
			c := containerCall(t, with)
			drop := filepath.Join(c.Dir, "in", "drop", "a.csv")
			if err := errors.Join(writeFile(drop, "rows\n"), os.Chmod(drop, 0o444)); err != nil {
				t.Fatal(err)
			}
			c.Inputs = map[string]Input{"drop": {Path: drop}}
			if test.memory > 0 {
				c.Resources = &events.Resources{Memory: test.memory, CPU: 1}
			}
			r, failure := x.Execute(t.Context(), c)
			if failure == nil {
				failure = new(events.Failure)
			}
			if failure.Class != test.want.Class || failure.Exit != test.want.Exit || !strings.Contains(failure.Reason, test.want.Reason) {
				t.Errorf("got %+v\n%s", failure, r.Stderr.Tail(1000))
			}
			if r.Stdout.Path != "" && read(t, r.Stdout.Path) != test.stdout || r.Stdout.Path == "" && test.stdout != "" {
				t.Errorf("stdout %+v %s", r.Stdout, r.Stdout.Tail(1000))
			}
			if test.user != "" || name == "everything" {
				if got := read(t, filepath.Join(c.Dir, "out", "copy")); got != "rows\n" || string(r.Values["n"]) != "1" || len(r.Segments) != 2 {
					t.Errorf("copy %q, %+v", got, r)
				}
			}
			if left, err := x.engine.labelled(t.Context(), "apollo.owner="+owner); err != nil || len(left) > 0 {
				t.Errorf("left %+v, %v", left, err)
			}
		})
	}
}

func TestContainerRealIsStopped(t *testing.T) {
	x, image := realEngine(t)
	for script, want := range map[string]events.Failure{
		"trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done": {Exit: 3},
		"trap '' TERM; echo ready; while :; do sleep 0.1; done":       {Signal: "SIGKILL"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		c := containerCall(t, map[string]any{"image": image, "command": []any{"/bin/sh", "-c", script}})
		c.Grace = 2 * time.Second
		end := startContainer(ctx, t, x, c)
		cancel()
		r, failure := end()
		if failure == nil || failure.Class != events.Aborted || failure.Exit != want.Exit || failure.Signal != want.Signal || string(r.Stdout.Tail(10)) != "ready\n" {
			t.Errorf("got %#v, %+v", failure, r)
		}
	}
	c := containerCall(t, map[string]any{"image": image, "command": []any{"/bin/sh", "-c", "echo ready; sleep 1000"}})
	end := startContainer(t.Context(), t, x, c)
	if removed, err := RemoveContainers(t.Context(), x.engine.host, owner); err != nil || len(removed) != 1 || removed[0].Stage != "fetch" || removed[0].Attempt != 1 {
		t.Errorf("removed %+v, %v", removed, err)
	}
	if _, failure := end(); failure == nil {
		t.Error("a removed container succeeded")
	}
}
