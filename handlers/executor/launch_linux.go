package executor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// program is what an attempt runs.
type program struct {
	path     string    // absolute
	args     []string  // with the name at 0
	file     string    // that it reads its script from, made by write; empty is none
	text     string    // of that file
	trees    []string  // directories that it needs besides those of the machine, to read
	dialogue *Dialogue // nil: nobody speaks with it, and what it writes is its log
}

// write makes the file that the program reads.
func (p program) write() error {
	if p.file == "" {
		return nil
	}
	return writeFile(p.file, p.text)
}

func (p program) files() map[string]string {
	if p.file == "" {
		return nil
	}
	return map[string]string{p.file: p.text}
}

// process is a stage's own process, the leader of its session and process group.
type process struct {
	pid   int
	pidfd int
}

// withUmask runs f with a umask of the calling thread's own, and then gives the thread the engine's umask back. The
// thread must be locked. What f starts inherits the umask; no other thread of the engine ever sees it, since the
// runtime makes no threads from a locked one.
func withUmask(mask int, f func() error) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the umask: %w", err)
	}
	defer unix.Umask(unix.Umask(mask))
	return f()
}

// becomeSubreaper makes orphans among the stages' processes children of the engine, once and for all.
var becomeSubreaper = sync.OnceValue(func() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
})

// devNull is the standard input of every stage that nobody speaks with.
var devNull = sync.OnceValues(func() (int, error) {
	return unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

// start runs the program in its own session and within its limits. The thread must be locked until the process has ended,
// since the kernel ends the process with the thread that started it, not with the engine.
func (p program) start(dir string, env []string, files []uintptr, l *limits, umask int) (process, *events.Failure) {
	pid, pidfd := 0, -1
	sys := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd, Ptrace: l.held()}
	if l.group != nil {
		sys.UseCgroupFD, sys.CgroupFD = true, l.group.fd
	}
	err := withUmask(umask, func() (err error) {
		pid, err = syscall.ForkExec(p.path, p.args, &syscall.ProcAttr{
			Dir: dir, Env: env, Files: files,
			Sys: sys,
		})
		return err
	})
	if err != nil {
		return process{pidfd: -1}, p.startFailure(err)
	}
	leaders.Store(pid, struct{}{})
	started := process{pid: pid, pidfd: pidfd}
	if pidfd < 0 {
		started.discard()
		return process{pidfd: -1}, systemFailure("follow a process", errors.New("the kernel has no pidfd, Linux 5.4 is required"))
	}
	if l.held() {
		if err := l.hold(pid); err != nil {
			started.discard()
			return process{pidfd: -1}, systemFailure("limit a process", err)
		}
	}
	return started, nil
}

// discard ends a process that cannot be supervised.
func (p process) discard() {
	_ = unix.Kill(p.pid, unix.SIGKILL)
	_, _ = unix.Wait4(p.pid, nil, 0, nil)
	leaders.Delete(p.pid)
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
}

// name is what people know the program by.
func (p program) name() string {
	if p.dialogue != nil {
		return p.args[0]
	}
	return p.path
}

// startFailure tells what the pipeline's author can change from what the machine lacks.
func (p program) startFailure(err error) *events.Failure {
	switch {
	case errors.Is(err, unix.E2BIG):
		return &events.Failure{Class: events.BadInput, Expected: "less than the kernel's limit",
			Reason: "the variables of the stage are together too long for the kernel; hand large values over as files"}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENOEXEC):
		return &events.Failure{Class: events.ExecFailed, Actual: err.Error(),
			Reason: fmt.Sprintf("E_EXEC_NOTFOUND: %s cannot be started: %v", p.name(), err)}
	}
	return systemFailure("start "+p.name(), err)
}

// oomScore makes the kernel end stages before the engine when memory runs out, and marks their descendants.
const oomScore = "1000"

// first puts a process first in line when memory runs out. Anybody may raise this number, so it needs no privilege.
func first(pid int) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	_, _ = unix.Write(fd, []byte(oomScore))
	unix.Close(fd)
}

// pipe makes the pipe of one stream: the end to read from never blocks, the end for the stage is an ordinary one.
func pipe() (read, write int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	if err := unix.SetNonblock(ends[0], true); err != nil {
		unix.Close(ends[0])
		unix.Close(ends[1])
		return -1, -1, err
	}
	return ends[0], ends[1], nil
}

// waker turns the end of a context into something that poll can wait for.
type waker struct {
	mu sync.Mutex
	fd int
}

func newWaker() (*waker, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return &waker{fd: fd}, err
}

func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		_, _ = unix.Write(w.fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (w *waker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	unix.Close(w.fd)
	w.fd = -1
}
