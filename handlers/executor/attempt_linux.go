package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// Times of the supervisor, apart from the plan's own.
const (
	linger         = time.Second      // what a stage left behind may go on, so that a pipe's reader can finish
	leftoverGrace  = 2 * time.Second  // at most, between TERM and KILL of leftovers
	killPatience   = 10 * time.Second // after which a process that survives KILL is given up and reported
	zombieInterval = 5 * time.Second  // between looks for zombies while a stage runs
)

// phase is where an attempt stands.
type phase int

const (
	running     phase = iota // the stage's own process runs undisturbed
	asked                    // it was told in words to end; TERM comes next
	lingering                // it has ended; what it left behind gets a moment
	terminating              // TERM was sent
	killing                  // KILL was sent
	over                     // nothing of the attempt runs any more
)

// attempt supervises the processes of one attempt, all of it on one thread.
type attempt struct {
	ctx     context.Context
	call    *Call
	proc    process
	tree    tree
	streams [2]stream
	talk    talk
	spares  *spares
	fifo    fifo
	marks   segmentMarks
	limits  limits
	wake    *waker
	buf     []byte

	isolation *Isolation
	how       confinement
	own       *thread  // that the process is started by, and that is lost afterwards; nil is that of the supervisor
	unlock    func()   // of the supervisor: its thread
	observer  observer // hears what the processes use

	phase     phase
	until     time.Time       // end of the present phase; zero is never
	pause     time.Duration   // between looks at the tree, once the leader has ended
	clean     bool            // proven: no orphan of any stage is left on the machine
	empty     int             // looks at the tree, one after the other, that found nobody
	exited    bool            // the stage's own process is a zombie
	end       time.Time       // when it became one
	looked    time.Time       // when zombies were last looked for
	stopped   *events.Failure // why the attempt was stopped, nil when it ended by itself
	leftovers map[int]bool
	stuck     []string // processes that survived KILL
}

// run is the life of the attempt, from start to the last process.
func (a *attempt) run(p program, env []string, result *Result) *events.Failure {
	if cause := stopCause(a.ctx); cause != nil {
		return cause
	}
	buf := buffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put in
	defer buffers.Put(buf)
	a.buf = *buf
	failure := a.start(p, env)
	defer a.release()
	if failure != nil {
		return failure
	}
	stop := context.AfterFunc(a.ctx, a.wake.wake)
	defer stop()
	if a.call.Started != nil {
		a.call.Started(a.proc.pid)
	}
	a.looked = time.Now()
	if a.call.Timeout > 0 {
		a.until = a.looked.Add(a.call.Timeout)
	}
	stocked := a.observer.fd < 0
	if stocked {
		a.restock()
	}
	for a.phase != over {
		if asked := a.poll(); !stocked && !asked { // while it loads its program the process waits for answers
			a.restock()
			stocked = true
		}
		a.advance(time.Now())
	}
	return a.finish(result)
}

// restock makes ready what the next attempt would wait for.
func (a *attempt) restock() {
	a.spares.refill()
	a.own.replace()
}

// start opens what the attempt needs and starts its process.
func (a *attempt) start(p program, env []string) *events.Failure {
	a.proc.pidfd, a.talk.fd, a.observer.fd = -1, -1, -1
	for i := range a.streams {
		a.streams[i].fd = -1
	}
	var err error
	if a.wake, err = newWaker(); err != nil {
		return systemFailure("make an event descriptor", err)
	}
	a.fifo.drain(a.buf, func([]byte) {}) // nothing of an earlier attempt
	null, err := devNull()
	if err != nil {
		return systemFailure("open "+os.DevNull, err)
	}
	files := []uintptr{uintptr(null)}
	for i, name := range []string{"stdout", "stderr"} {
		s := &a.streams[i]
		var write int
		if s.fd, write, err = pipe(); err != nil {
			return systemFailure("make a pipe", err)
		}
		defer unix.Close(write)
		files = append(files, uintptr(write))
		s.capture = capture{path: filepath.Join(a.call.LogDir, name), part: logPart, mask: newMasker(a.call.Secrets)}
	}
	a.marks.mask = newMasker(a.call.Secrets)
	if p.dialogue != nil {
		read, err := a.begin(p.dialogue)
		if err != nil {
			return systemFailure("make a pipe", err)
		}
		defer unix.Close(read)
		files[0] = uintptr(read)
		files = append(files, p.dialogue.Program.Fd())
	}
	failure := a.launch(p, env, files)
	a.tree.leader = a.proc.pid
	return failure
}

// release gives back what start opened.
func (a *attempt) release() {
	for i := range a.streams {
		a.streams[i].close()
	}
	a.talk.close()
	if a.wake != nil {
		a.wake.close()
	}
	for _, fd := range []int{a.proc.pidfd, a.observer.fd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// poll waits until something happens or is due, and takes in what the stage wrote. asked says that a call was answered.
func (a *attempt) poll() (asked bool) {
	fds := [...]unix.PollFd{
		{Fd: int32(a.streams[0].fd), Events: unix.POLLIN}, //nolint:gosec // a descriptor is an int32 to the kernel
		{Fd: int32(a.streams[1].fd), Events: unix.POLLIN}, //nolint:gosec // a descriptor is an int32 to the kernel
		{Fd: int32(a.fifo.fd), Events: unix.POLLIN},       //nolint:gosec // a descriptor is an int32 to the kernel
		{Fd: int32(a.proc.pidfd), Events: unix.POLLIN},    //nolint:gosec // a descriptor is an int32 to the kernel
		{Fd: int32(a.wake.fd), Events: unix.POLLIN},       //nolint:gosec // a descriptor is an int32 to the kernel
		{Fd: a.talk.waits(), Events: unix.POLLOUT},
		{Fd: int32(a.observer.fd), Events: unix.POLLIN}, //nolint:gosec // a descriptor is an int32 to the kernel
	}
	if a.exited {
		fds[3].Fd = -1
	}
	if a.phase != running {
		fds[4].Fd = -1 // stays readable, and has nothing new to say
	}
	ready, err := unix.Poll(fds[:], a.timeout(time.Now()))
	if err != nil || ready == 0 {
		return false
	}
	if asked = fds[6].Revents&unix.POLLIN != 0; asked {
		a.observer.serve(a.buf)
	}
	for i := range a.streams {
		if fds[i].Revents != 0 {
			a.streams[i].receive(a.buf)
		}
	}
	now := time.Now()
	if fds[2].Revents != 0 {
		if n, _ := unix.Read(a.fifo.fd, a.buf); n > 0 {
			a.marks.receive(a.buf[:n], now)
		}
	}
	if fds[3].Revents != 0 {
		a.exited, a.end = true, now
	}
	if fds[5].Revents != 0 {
		a.talk.send()
	}
	return asked
}

// timeout is how long poll may sleep, in milliseconds.
func (a *attempt) timeout(now time.Time) int {
	wait := zombieInterval
	if a.exited {
		a.pause = min(max(2*a.pause, time.Millisecond), 50*time.Millisecond)
		wait = a.pause
	}
	if !a.until.IsZero() {
		wait = min(wait, a.until.Sub(now))
	}
	return int(max(0, wait+time.Millisecond-1) / time.Millisecond)
}

// advance moves the attempt on to its next phase, when it is time for that.
func (a *attempt) advance(now time.Time) {
	if a.phase == running {
		a.leaveRunning(now)
	}
	if a.exited && a.phase != running && a.settled(now) {
		a.phase = over
		return
	}
	due := !a.until.IsZero() && !now.Before(a.until)
	switch {
	case a.phase == asked && due:
		a.enter(terminating, unix.SIGTERM, now.Add(a.grace()-a.grace()/2))
	case a.phase == lingering && due:
		a.enter(terminating, unix.SIGTERM, now.Add(min(a.grace(), leftoverGrace)))
	case a.phase == terminating && due:
		a.enter(killing, unix.SIGKILL, now.Add(killPatience))
	case a.phase == killing && due:
		a.giveUp()
	case a.phase == killing:
		a.signal(unix.SIGKILL)
	}
}

func (a *attempt) leaveRunning(now time.Time) {
	switch cause := stopCause(a.ctx); {
	case a.exited:
		a.phase, a.until = lingering, now.Add(linger)
	case cause != nil:
		a.stopped = cause
	case a.talk.broken != nil:
		a.stopped = a.talk.broken
	case a.talk.over && a.talk.patience.IsZero():
		a.talk.patience = now.Add(a.grace())
		a.until = sooner(a.until, a.talk.patience)
	case a.talk.over && !now.Before(a.talk.patience):
		a.stopped = &events.Failure{Class: events.ExecFailed, Expected: "an end within " + a.grace().String(),
			Reason: fmt.Sprintf("E_PLUGIN_PROTOCOL: the program gave its last answer and did not end within %s", a.grace())}
	case !a.until.IsZero() && !now.Before(a.until):
		a.stopped = &events.Failure{Class: events.Timeout, Expected: a.call.Timeout.String(),
			Reason: fmt.Sprintf("the stage ran over its time-out of %s and was ended", a.call.Timeout)}
	case now.Sub(a.looked) >= zombieInterval:
		if a.looked = now; haveOrphans() {
			reapZombies(processTable(), a.tree.seen)
		}
	}
	switch {
	case a.stopped == nil:
	case a.talk.ask():
		a.phase, a.until, a.pause = asked, now.Add(a.grace()/2), 0
	default:
		a.enter(terminating, unix.SIGTERM, now.Add(a.grace()))
	}
}

func (a *attempt) enter(next phase, sig unix.Signal, until time.Time) {
	a.phase, a.until, a.pause = next, until, 0
	a.signal(sig)
}

func (a *attempt) grace() time.Duration {
	if a.call.Grace > 0 {
		return a.call.Grace
	}
	return DefaultGrace
}

// settled reports whether nothing of the attempt runs and its output is complete. A pipe that is still open though no
// process of the attempt is left is in the hands of somebody unknown, and is waited for until the phase ends.
func (a *attempt) settled(now time.Time) bool {
	if a.clean = !haveOrphans(); !a.clean {
		if len(a.tree.living()) > 0 {
			a.empty = 0
			return false
		}
		a.clean = !haveOrphans()
		if a.empty++; a.empty < 2 && !a.clean {
			return false // look once more: a zombie may have lost its parent while the table was read
		}
	}
	open := a.streams[0].fd >= 0 || a.streams[1].fd >= 0
	return !open || !now.Before(a.until)
}

// signal reaches the whole tree: the stage's process group at one blow, and one by one what has left it.
func (a *attempt) signal(sig unix.Signal) {
	members := a.tree.living()
	if sig == unix.SIGKILL {
		a.limits.group.kill()
	}
	_ = unix.Kill(-a.proc.pid, sig) // the leader is not waited for yet, so the number is still its own
	for _, m := range members {
		if a.exited && a.stopped == nil {
			a.note(m.pid)
		}
		if m.group != a.proc.pid {
			m.signal(sig)
		}
	}
	if sig == unix.SIGTERM { // a stopped process hears TERM only when it goes on
		_ = unix.Kill(-a.proc.pid, unix.SIGCONT)
		for _, m := range members {
			m.signal(unix.SIGCONT)
		}
	}
}

func (a *attempt) note(pid int) {
	if a.leftovers == nil {
		a.leftovers = make(map[int]bool)
	}
	a.leftovers[pid] = true
}

// giveUp ends the wait for processes that the kernel does not let die, such as those that hang on a dead disk.
func (a *attempt) giveUp() {
	for _, m := range a.tree.living() {
		a.stuck = append(a.stuck, fmt.Sprint(m.pid))
	}
	if !a.exited {
		a.stuck = append(a.stuck, fmt.Sprint(a.proc.pid))
	}
	a.phase = over
}

// finish collects the process and everything that it wrote.
func (a *attempt) finish(result *Result) *events.Failure {
	if !a.exited {
		a.end = time.Now()
	}
	a.fifo.drain(a.buf, func(p []byte) { a.marks.receive(p, a.end) })
	result.Segments = a.marks.until(a.end)
	result.Stdout = a.streams[0].capture.close()
	result.Stderr = a.streams[1].capture.close()
	result.Leftovers = len(a.leftovers)
	var status unix.WaitStatus
	var unknown error
	if a.exited {
		status, result.Usage, unknown = a.proc.wait()
	}
	if peak := a.limits.group.peak(); peak > 0 {
		result.Usage.MaxRSS = peak
	}
	if len(a.stuck) > 0 {
		return &events.Failure{Class: events.System, Actual: "pid " + strings.Join(a.stuck, ", "),
			Reason: "processes of the stage survived KILL; the kernel holds them"}
	}
	if unknown != nil && a.stopped == nil { // never a success that nobody has seen
		return &events.Failure{Class: events.Lost, Expected: "an exit status", Actual: unknown.Error(),
			Reason: "how the stage's process ended is not known: something else has collected its exit status"}
	}
	failure := outcome(status, a.stopped)
	a.limits.explain(failure, a.call, result)
	return a.observer.explain(failure, a.stopped != nil, result)
}

// wait collects the leader, which is a zombie by now.
func (p process) wait() (status unix.WaitStatus, usage Usage, err error) {
	var ru, own unix.Rusage
	read, written := moved(p.pid)
	for {
		if _, err = unix.Wait4(p.pid, &status, 0, &ru); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	leaders.Delete(p.pid)
	usage = Usage{User: time.Duration(ru.Utime.Nano()), System: time.Duration(ru.Stime.Nano()), Read: read, Written: written}
	if unix.Getrusage(unix.RUSAGE_SELF, &own) == nil && ru.Maxrss > own.Maxrss {
		usage.MaxRSS = ru.Maxrss << 10
	}
	return status, usage, err
}
