package executor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor/enginetest"
)

// startContainer runs a container in the background and returns when it has logged `ready`.
func startContainer(ctx context.Context, t *testing.T, x *Container, c *Call) (end func() (*Result, *events.Failure)) {
	t.Helper()
	var r *Result
	var failure *events.Failure
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, failure = x.Execute(ctx, c)
	}()
	eventually(t, "ready", func() bool {
		select {
		case <-done:
			t.Fatalf("it ended: %+v", failure)
		default:
		}
		b, _ := os.ReadFile(filepath.Join(c.LogDir, "stdout"))
		return strings.Contains(string(b), "ready\n")
	})
	return func() (*Result, *events.Failure) { <-done; return r, failure }
}

func TestContainerIsStopped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script  string
		engine  func(*enginetest.Engine)
		timeout bool
		signals []string
		signal  string
		exit    int
		class   events.Class
	}{
		"cancelled":      {script: "echo ready; exec sleep 1000", signals: []string{"SIGTERM"}, signal: "SIGTERM", class: events.Aborted},
		"time-out":       {script: "echo ready; exec sleep 1000", timeout: true, signals: []string{"SIGTERM"}, signal: "SIGTERM", class: events.Timeout},
		"clears up":      {script: "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", signals: []string{"SIGTERM"}, exit: 3, class: events.Aborted},
		"ignores TERM":   {script: "trap '' TERM; echo ready; while :; do sleep 0.01; done", signals: []string{"SIGTERM", "SIGKILL"}, signal: "SIGKILL", class: events.Aborted},
		"engine is deaf": {script: "echo ready; exec sleep 1000", engine: func(e *enginetest.Engine) { e.DeafToKill = true }, signals: []string{"SIGTERM", "SIGKILL"}, class: events.Aborted},
		"engine refuses": {script: "echo ready; exec sleep 1000", engine: func(e *enginetest.Engine) { e.Refuse = map[string]int{"POST kill": 500} }, class: events.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := enginetest.New(t)
			if test.engine != nil {
				test.engine(e)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			x, c := newContainer(t, e.Host), containerCall(t, shellIn(test.script))
			x.patience = 300 * time.Millisecond
			c.Grace = 300 * time.Millisecond
			if test.timeout {
				c.Timeout = time.Second
			}
			end := startContainer(ctx, t, x, c)
			if !test.timeout {
				cancel(errors.New("li cancelled it"))
			}
			r, failure := end()
			if failure == nil || failure.Class != test.class || failure.Signal != test.signal || failure.Exit != test.exit {
				t.Errorf("got %+v", failure)
			}
			if !slices.Equal(e.Signals, test.signals) || len(e.Containers()) > 0 || string(r.Stdout.Tail(10)) != "ready\n" || r.Leftovers != 0 {
				t.Errorf("signals %q, left %q, %+v", e.Signals, e.Containers(), r)
			}
		})
	}
}

// Cancelled while the engine makes or starts the container, an attempt ends it as ever and leaves nothing behind.
func TestContainerIsStoppedAtItsBeginning(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"create", "start"} {
		e := enginetest.New(t)
		answer := make(chan struct{})
		e.Hold = map[string]chan struct{}{"POST " + verb: answer}
		ctx, cancel := context.WithCancel(t.Context())
		x, c := newContainer(t, e.Host), containerCall(t, shellIn("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"))
		c.Grace = time.Minute
		done := make(chan *events.Failure, 1)
		go func() {
			_, failure := x.Execute(ctx, c)
			done <- failure
		}()
		eventually(t, verb, func() bool {
			b, _ := os.ReadFile(filepath.Join(c.LogDir, "stdout"))
			return len(b) > 0 || verb == "create" && configOf(e, c) != nil
		})
		cancel()
		close(answer)
		if failure := <-done; failure == nil || failure.Class != events.Aborted || verb == "start" && failure.Exit != 3 {
			t.Errorf("%s: got %#v", verb, failure)
		}
		if _, err := os.Stat(filepath.Join(c.LogDir, "stdout")); verb == "create" && err == nil {
			t.Error("it was started after it had been cancelled")
		}
		if left := e.Containers(); len(left) > 0 {
			t.Errorf("%s: left %q", verb, left)
		}
	}
}

// A container that cannot be removed is told: as the failure when it runs on, as a leftover in any case.
func TestContainerCannotBeRemoved(t *testing.T) {
	t.Parallel()
	e := enginetest.New(t)
	e.DeafToKill = true
	x := newContainer(t, e.Host)
	x.patience = 100 * time.Millisecond
	c := containerCall(t, shellIn("echo ready; exec sleep 1000"))
	c.Grace = 100 * time.Millisecond
	e.Refuse = map[string]int{"DELETE": 500}
	ctx, cancel := context.WithCancel(t.Context())
	end := startContainer(ctx, t, x, c)
	cancel()
	r, failure := end()
	if failure == nil || failure.Class != events.System || !strings.Contains(failure.Reason, "E_CONTAINER_ENGINE") || r.Leftovers != 1 {
		t.Errorf("got %+v, %+v", failure, r)
	}
	c = containerCall(t, shellIn("true"))
	c.Attempt = 2
	if r, failure := x.Execute(t.Context(), c); failure != nil || r.Leftovers != 1 {
		t.Errorf("got %+v, %+v", failure, r)
	}
	e.Lock()
	e.Refuse, e.NoFilters = nil, true
	e.Unlock()
	other := NewContainer(Settings{Owner: "somebody", ContainerHost: e.Host})
	t.Cleanup(other.engine.http.CloseIdleConnections)
	other.patience = 100 * time.Millisecond
	stay, stayed := context.WithCancel(t.Context())
	c = containerCall(t, shellIn("echo ready; exec sleep 1000"))
	c.Attempt = 3
	end = startContainer(stay, t, other, c)
	// The next engine of the same owner removes them, and nobody else's.
	removed, err := RemoveContainers(t.Context(), e.Host, owner)
	slices.SortFunc(removed, func(a, b Orphan) int { return a.Attempt - b.Attempt })
	if err != nil || len(removed) != 2 || removed[0].Stage != "fetch" || removed[0].Run != c.Run.String() || removed[1].Attempt != 2 || len(e.Containers()) != 1 {
		t.Errorf("removed %+v, %v, left %q", removed, err, e.Containers())
	}
	stayed()
	if _, failure := end(); failure == nil || failure.Class != events.Aborted {
		t.Errorf("got %+v", failure)
	}
}
