package executor

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// ErrStopping is the cause with which an engine that is stopped interrupts attempts: the next engine takes them up again.
var ErrStopping = errors.New("the engine was stopped")

// stopCause says why a context ended, as a failure; nil while it goes on.
func stopCause(ctx context.Context) *events.Failure {
	if ctx.Err() == nil {
		return nil
	}
	cause := context.Cause(ctx)
	var failure *events.Failure
	switch {
	case errors.As(cause, &failure):
		own := *failure
		return &own
	case errors.Is(cause, context.DeadlineExceeded):
		return &events.Failure{Class: events.Timeout, Reason: "the deadline passed and the stage was ended"}
	case errors.Is(cause, context.Canceled):
		return &events.Failure{Class: events.Aborted, Reason: "the stage was cancelled"}
	}
	return &events.Failure{Class: events.Aborted, Reason: fmt.Sprintf("the stage was cancelled: %v", cause)}
}

// outcome turns how a process ended, and why it was stopped if it was, into the attempt's failure.
func outcome(status unix.WaitStatus, stopped *events.Failure) *events.Failure {
	failure := stopped
	if failure == nil {
		failure = &events.Failure{Class: events.ExecFailed}
	}
	switch {
	case status.Signaled():
		failure.Signal = unix.SignalName(status.Signal())
		if stopped == nil {
			failure.Reason = signalReason(status)
		}
	case status.ExitStatus() != 0:
		failure.Exit = status.ExitStatus()
		if stopped == nil {
			failure.Reason = exitReason(failure.Exit)
		}
	case stopped == nil:
		return nil
	}
	return failure
}

func signalReason(status unix.WaitStatus) string {
	name := unix.SignalName(status.Signal())
	if status.Signal() == unix.SIGKILL {
		return "the stage was killed by SIGKILL, which Apollo did not send; the kernel does so when memory runs out"
	}
	return fmt.Sprintf("the stage was ended by signal %s, which Apollo did not send", name)
}

// exitReason adds what shells mean by their special codes.
func exitReason(code int) string {
	switch {
	case code == 126:
		return "the stage exited with code 126: a command was found but could not be run"
	case code == 127:
		return "the stage exited with code 127: a command was not found"
	case code > 128 && unix.SignalName(unix.Signal(code-128)) != "":
		return fmt.Sprintf("the stage exited with code %d by itself; shells do so when a command ended by %s",
			code, unix.SignalName(unix.Signal(code-128)))
	}
	return fmt.Sprintf("the stage exited with code %d", code)
}
