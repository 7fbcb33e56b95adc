package executor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// containerAttempt is one attempt in its container.
type containerAttempt struct {
	call      *Call
	engine    *containerEngine
	result    *Result
	memory    int64 // the limit, 0 is none
	patience  time.Duration
	named     bool // the container runs as somebody whom the author named
	container container

	streams  [2]capture
	output   io.Closer     // the connection that brings the output
	ended    chan struct{} // closed when it brings no more
	marks    segmentMarks
	segments *os.File
	readers  sync.WaitGroup
}

// lostOutput stands in the log where the engine may have kept some of it.
const lostOutput = "\n[apollo: the connection to the container engine broke off; output may be missing here]\n"

// run is the life of the container, from its making to its removal.
func (x *containerAttempt) run(ctx context.Context, name string, config *containerConfig) (failure *events.Failure) {
	var err error
	if x.segments, err = openSegments(x.call, x.named); err != nil {
		return systemFailure("make the named pipe of the segments", err)
	}
	defer x.segments.Close() //nolint:errcheck // a pipe
	for i, name := range []string{"stdout", "stderr"} {
		x.streams[i] = capture{path: filepath.Join(x.call.LogDir, name), part: logPart, mask: newMasker(x.call.Secrets)}
	}
	// What is begun is not cut short: a container whose making or start nobody awaited could not be ended in order.
	after, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if failure := x.create(after, name, config); failure != nil {
		return failure
	}
	defer func() { failure = x.clear(after, failure) }()
	if cause := stopCause(ctx); cause != nil {
		return cause
	}
	if err := x.follow(after, ""); err != nil {
		return x.startFailure(ctx, "give the output of the container", err)
	}
	x.readers.Go(x.readSegments)
	defer x.finish()
	if err := x.container.post(after, "/start", nil); err != nil {
		failure := x.startFailure(ctx, "start the container", err)
		_ = x.container.remove(after) // else its output would not end; clear tells when it fails
		return failure
	}
	if state, err := x.container.state(after); err == nil && x.call.Started != nil && state.Pid > 0 {
		x.call.Started(state.Pid)
	}
	if x.call.Timeout > 0 {
		timeout := &events.Failure{Class: events.Timeout, Expected: x.call.Timeout.String(),
			Reason: fmt.Sprintf("the stage ran over its time-out of %s and was ended", x.call.Timeout)}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, x.call.Timeout, timeout)
		defer cancel()
	}
	return x.await(ctx)
}

// follow takes in the output from now on, behind a note in the log.
func (x *containerAttempt) follow(ctx context.Context, note string) error {
	body, err := x.container.attach(ctx)
	if err != nil {
		return err
	}
	x.streams[1].write([]byte(note))
	x.output, x.ended = body, make(chan struct{})
	x.readers.Go(func() {
		defer close(x.ended)
		_ = x.receive(body) // an end is an end
	})
	return nil
}

// receive takes the engine's mixture of both streams apart: each piece is told by its stream and length.
func (x *containerAttempt) receive(r io.Reader) error {
	buf := buffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put in
	defer buffers.Put(buf)
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		stream := &x.streams[1]
		if head[0] == 1 {
			stream = &x.streams[0]
		}
		for left := int64(binary.BigEndian.Uint32(head[4:])); left > 0; {
			n, err := r.Read((*buf)[:min(left, int64(len(*buf)))])
			stream.write((*buf)[:n])
			if left -= int64(n); err != nil {
				return err
			}
		}
	}
}

func (x *containerAttempt) readSegments() {
	buf := make([]byte, 4096)
	for {
		n, err := x.segments.Read(buf)
		if err != nil {
			return
		}
		x.marks.receive(buf[:n], time.Now())
	}
}

// drainSegments takes what the reader had not come to.
func (x *containerAttempt) drainSegments(end time.Time) {
	pipe, err := x.segments.SyscallConn()
	if err != nil {
		return
	}
	_ = x.segments.SetReadDeadline(time.Time{}) // else nothing is read
	_ = pipe.Read(func(fd uintptr) bool {
		fifo{fd: int(fd)}.drain(make([]byte, 4096), func(p []byte) { x.marks.receive(p, end) })
		return true
	})
}

// finish takes in the rest of the output, which cannot be much once the container does not run, and closes the logs.
func (x *containerAttempt) finish() {
	end := time.Now()
	select {
	case <-x.ended:
	case <-time.After(x.patience):
	}
	_ = x.output.Close()                            // the reader is done, or is to be
	_ = x.segments.SetReadDeadline(time.Unix(1, 0)) // likewise
	x.readers.Wait()
	x.drainSegments(end)
	x.result.Segments = append(x.result.Segments, x.marks.until(end)...)
	x.result.Stdout, x.result.Stderr = x.streams[0].close(), x.streams[1].close()
}

// startFailure tells a command that the image does not have from an engine that cannot. Podman finds that out when the
// output is asked for, Docker at the start.
func (x *containerAttempt) startFailure(ctx context.Context, doing string, err error) *events.Failure {
	text := err.Error()
	if _, answered := errors.AsType[*engineError](err); answered && (strings.Contains(text, "exec: ") || strings.Contains(text, "executable")) {
		missing := strings.Contains(text, "not found") || strings.Contains(text, "no such file")
		if missing || strings.Contains(text, "permission denied") {
			failure := &events.Failure{Class: events.ExecFailed, Pointer: "/command", Exit: 126, Actual: text, Expected: "a program of the image",
				Reason: "E_EXEC_NOTFOUND: the image does not have the program that the command names, or cannot run it"}
			if missing {
				failure.Exit = 127
			}
			return failure
		}
	}
	return x.engine.imageFailure(ctx, doing, err)
}

// Bounds of how an engine is waited for that does not answer, as while it restarts.
const (
	firstPause = 100 * time.Millisecond
	longPause  = 5 * time.Second
	maxTries   = 12
)

// await waits for the end of the container, also across an engine that breaks off, and ends it when ctx ends.
func (x *containerAttempt) await(ctx context.Context) *events.Failure {
	tries, pause := 0, firstPause
	for {
		err := x.container.wait(ctx)
		if cause := stopCause(ctx); cause != nil {
			return x.stop(context.WithoutCancel(ctx), cause)
		}
		state, failed := x.container.state(ctx)
		switch {
		case failed == nil && !state.Running:
			return x.outcome(state, nil)
		case refused(failed, http.StatusNotFound) || refused(err, http.StatusNotFound):
			return &events.Failure{Class: events.ExecFailed, Reason: "somebody removed the container while it ran"}
		case failed == nil:
			tries, pause = 0, firstPause
			x.followAgain(ctx)
		default:
			tries++
		}
		if stopCause(ctx) == nil && tries >= maxTries {
			return x.engine.fails("tell how the container is doing", errors.Join(err, failed))
		}
		_ = sleep(ctx, pause) // the next wait sees that ctx ended
		pause = min(2*pause, longPause)
	}
}

// followAgain takes the output up again, where the connection that brought it has broken off.
func (x *containerAttempt) followAgain(ctx context.Context) {
	select {
	case <-x.ended:
		_ = x.output.Close() // it has ended; where it cannot be had again yet, the next look tries
		_ = x.follow(context.WithoutCancel(ctx), lostOutput)
	default:
	}
}

// stop ends the container: TERM, grace, KILL. ctx has no end of its own.
func (x *containerAttempt) stop(ctx context.Context, cause *events.Failure) *events.Failure {
	grace := x.call.Grace
	if grace <= 0 {
		grace = DefaultGrace
	}
	for _, step := range []struct {
		signal string
		wait   time.Duration
	}{{"SIGTERM", grace}, {"SIGKILL", x.patience}} {
		_ = x.container.post(ctx, "/kill", url.Values{"signal": {step.signal}}) // one that has ended hears nothing
		patience, cancel := context.WithTimeout(ctx, step.wait)
		err := x.container.wait(patience)
		cancel()
		if err != nil {
			continue
		}
		if state, err := x.container.state(ctx); err == nil && !state.Running {
			return x.outcome(state, cause)
		}
	}
	_ = x.container.remove(ctx) // the last means; clear tells when it fails
	return cause
}

// clear removes the container. One that cannot be removed is told as a leftover, and as the failure when it runs on.
func (x *containerAttempt) clear(ctx context.Context, failure *events.Failure) *events.Failure {
	err := x.container.remove(ctx)
	if err == nil {
		return failure
	}
	x.result.Leftovers++
	if state, failed := x.container.state(ctx); failure != nil && failure.Class != events.System && (failed != nil || state.Running) {
		return x.engine.fails("end the container "+x.container.id, err)
	}
	return failure
}

// outcome turns how a container ended, and why it was stopped if it was, into the attempt's failure.
func (x *containerAttempt) outcome(state containerState, stopped *events.Failure) *events.Failure {
	code, signal := state.ExitCode, ""
	if code > 128 {
		signal = unix.SignalName(unix.Signal(code - 128))
	}
	switch {
	case stopped != nil:
		if stopped.Exit = code; signal == "SIGTERM" || signal == "SIGKILL" {
			stopped.Exit, stopped.Signal = 0, signal
		}
		return stopped
	case code == 0:
		return nil
	case state.OOMKilled:
		limit := "what the machine could give"
		if x.memory > 0 {
			limit = configs.SizeText(x.memory)
		}
		return &events.Failure{Class: events.ExecFailed, Exit: code, Signal: signal, Expected: "at most " + limit, Actual: "more",
			Reason: fmt.Sprintf("the stage used more memory than %s and was killed; ask for more under resources: memory:", limit)}
	case signal != "":
		reason := fmt.Sprintf("the container ended with code %d: its process was ended by %s, which Apollo did not send, or exited so by itself", code, signal)
		if signal == "SIGKILL" && x.memory > 0 {
			reason += "; the kernel does so at the limit of " + configs.SizeText(x.memory) + ", and not every engine tells"
		}
		return &events.Failure{Class: events.ExecFailed, Exit: code, Reason: reason}
	}
	return &events.Failure{Class: events.ExecFailed, Exit: code, Reason: exitReason(code)}
}
