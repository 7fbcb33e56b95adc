package executor

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// Dialogue is a program that is spoken with: it reads requests from its standard input and answers on its standard
// output. It is supervised like a script: its own session, a time-out, TERM, grace, KILL of the whole tree. What it writes
// to standard error is the log. Its environment is that of every stage, without inputs, parameters and secrets.
type Dialogue struct {
	Program *os.File // what is executed: this very file, whatever its name may mean by now
	Args    []string // what people know the program by, then its arguments
	Request []byte   // written to standard input, which stays open until Answer says over, or the end
	// Cancel is written when the attempt is stopped from outside. TERM comes after half of the grace, KILL at its end.
	Cancel []byte
	// Answer takes what the program writes, as it comes. It is called on the supervisor's thread and must not wait. Once
	// it says over, standard input is closed and the program has its grace to end. A failure ends the program.
	Answer func(p []byte, notes Notes) (over bool, failure *events.Failure)
}

// Notes is where an answer goes that is no result. The zero Notes drop it.
type Notes struct{ a *attempt }

// Log adds a line to the log of stdout or stderr, secrets masked.
func (n Notes) Log(stderr bool, text string) {
	if n.a == nil {
		return
	}
	s := &n.a.streams[0]
	if stderr {
		s = &n.a.streams[1]
	}
	s.capture.write([]byte(text + "\n"))
}

// Segment begins a part of the attempt's time.
func (n Notes) Segment(name string) {
	if n.a == nil {
		return
	}
	n.a.marks.add(name[:min(len(name), maxSegmentName)], time.Now())
}

// Supervisor runs programs that are spoken with.
type Supervisor struct{ supervisor *supervisor }

// NewSupervisor makes one.
func NewSupervisor(s Settings) *Supervisor { return &Supervisor{supervisor: newSupervisor(s)} }

// Converse runs the program as an attempt of the call and returns when nothing of it is left. ended says that it ended by
// itself, be it by a signal: then the failure, if there is one, is about its exit status. Values are not filled in.
func (s *Supervisor) Converse(ctx context.Context, c *Call, d *Dialogue) (result *Result, failure *events.Failure, ended bool) {
	own := *c
	own.Inputs, own.Params, own.Secrets = nil, nil, nil
	env, failure := newEnviron(&own, s.supervisor.mark(c))
	if failure != nil {
		return new(Result), failure, false
	}
	delete(env.values, "APOLLO_OUTPUTS")
	// Descriptor 3 is the program itself: a script's interpreter opens it by this name after the exec.
	p := program{path: "/proc/self/fd/3", args: d.Args, dialogue: d}
	return s.supervisor.carryOut(ctx, c, p, env)
}

// talk is the engine's side of a dialogue. Without one its fd is -1 and nothing happens.
type talk struct {
	d        *Dialogue
	fd       int    // the end of standard input to write to; -1 when it is closed
	rest     []byte // not yet written
	last     bool   // nothing comes after rest
	over     bool   // the program has given its last answer
	patience time.Time
	broken   *events.Failure // the program's answer cannot be understood
}

// begin opens standard input and gives the end that the program reads from.
func (a *attempt) begin(d *Dialogue) (read int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	if err := unix.SetNonblock(ends[1], true); err != nil {
		return -1, errors.Join(err, unix.Close(ends[0]), unix.Close(ends[1]))
	}
	a.talk = talk{d: d, fd: ends[1], rest: slices.Clone(d.Request)}
	a.streams[0].hear = a.hear
	return ends[0], nil
}

func (a *attempt) hear(p []byte) {
	if a.talk.broken != nil {
		return
	}
	over, failure := a.talk.d.Answer(p, Notes{a})
	if failure != nil {
		a.talk.broken = failure
	}
	if over && !a.talk.over {
		a.talk.over = true
		a.talk.close()
	}
}

// waits gives the descriptor that poll must wait for, -1 when nothing is to be written.
func (t *talk) waits() int32 {
	if len(t.rest) == 0 {
		return -1
	}
	return int32(t.fd) //nolint:gosec // a descriptor is an int32 to the kernel
}

// send writes as much as the pipe takes. A program that has closed its standard input wants to hear nothing more.
func (t *talk) send() {
	n, err := unix.Write(t.fd, t.rest)
	switch {
	case n > 0:
		t.rest = t.rest[n:]
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
		t.close()
	}
	if t.last && len(t.rest) == 0 {
		t.close()
	}
}

// ask tells the program in words to end; false when it does not listen.
func (t *talk) ask() bool {
	if t.d == nil || t.fd < 0 || t.over || t.broken != nil {
		return false
	}
	t.rest, t.last = append(t.rest, t.d.Cancel...), true
	t.send()
	return true
}

func (t *talk) close() {
	if t.fd >= 0 {
		unix.Close(t.fd)
	}
	t.fd, t.rest = -1, nil
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
