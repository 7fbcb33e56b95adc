package executor

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterKind says what a seccomp filter is for.
type filterKind struct {
	none    bool // no socket but between processes of the machine
	sealed  bool // and of those only what can be confined to the attempt
	observe bool // the supervisor hears of every use of a path
}

// The layout of what a filter sees, as the kernel has it.
const (
	seenCall  = 0
	seenArch  = 4
	seenFrom  = 8 // instruction pointer, two words
	seenFirst = 16
)

// newFilter writes the program of a kind. gate is the address of the instruction by which this program, and so the
// process that it makes of itself for a stage, calls the kernel: the stage's first exec is let through there. It happens
// while the scheduler of this program stands still, when nobody could answer.
func newFilter(k filterKind, gate uint64) filter {
	calls := map[uint32]string{unix.SYS_IO_URING_SETUP: "absent"} // what goes through a ring passes no filter
	if k.observe {
		for _, c := range trappedCalls {
			if c.use != asks {
				calls[c.nr] = "ask"
			}
		}
		calls[unix.SYS_EXECVE] = "exec"
	}
	foreign := "allow"
	if k.none {
		foreign = "kill" // its calls have other numbers, among them those that make sockets
		calls[unix.SYS_SOCKETPAIR], calls[unix.SYS_SOCKET] = "pair", "socket"
		if k.sealed && !k.observe {
			calls[unix.SYS_CONNECT] = "refuse" // nobody can see where to
		}
	}
	a := assembly{marks: map[string]int{}}
	a.load(seenArch)
	a.jump(unix.BPF_JEQ, auditArch, "own", foreign)
	a.mark("own")
	a.load(seenCall)
	if foreignCalls > 0 {
		a.jump(unix.BPF_JGE, foreignCalls, foreign, "numbers")
	}
	a.mark("numbers")
	a.search(spansOf(calls))
	if k.none {
		a.sockets(k)
	}
	if k.observe {
		a.mark("exec")
		a.load(seenFrom)
		a.jump(unix.BPF_JEQ, uint32(gate), "exec, upper half", "ask") //nolint:gosec // the lower half
		a.mark("exec, upper half")
		a.load(seenFrom + 4)
		a.jump(unix.BPF_JEQ, uint32(gate>>32), "allow", "ask")
	}
	a.verdict("ask", unix.SECCOMP_RET_USER_NOTIF)
	a.verdict("refuse", unix.SECCOMP_RET_ERRNO|uint32(unix.EACCES))
	a.verdict("absent", unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS))
	a.verdict("kill", unix.SECCOMP_RET_KILL_PROCESS)
	a.verdict("allow", unix.SECCOMP_RET_ALLOW)
	return a.link()
}

// sockets refuses every socket that could reach the network. Where the supervisor listens it is asked, says no all the
// same, and knows.
func (a *assembly) sockets(k filterKind) {
	no, local := "refuse", "allow"
	if k.observe {
		no = "ask"
	}
	if k.sealed {
		local = "local"
	}
	a.mark("pair")
	a.load(seenFirst)
	a.jump(unix.BPF_JEQ, unix.AF_UNIX, "allow", "refuse")
	a.mark("socket")
	a.load(seenFirst)
	a.jump(unix.BPF_JEQ, unix.AF_UNIX, local, no)
	if k.sealed {
		a.mark("local")
		a.load(seenFirst + 8)
		a.add(unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf}, "", "")
		a.jump(unix.BPF_JEQ, unix.SOCK_DGRAM, "refuse", "allow") // these send anywhere without connecting
	}
}

// filters are written once for each kind.
var filters = newFilterCache()

// install puts the filter on the calling thread and all that it starts, and gives the descriptor at which the supervisor
// is asked, -1 when the filter asks nothing.
func (i *Isolation) install(k filterKind) (listener int, err error) {
	program := filters.of(k, i.gate)
	flags := uintptr(0)
	if k.observe {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | i.patient
	}
	listener, err = setFilter(program, flags)
	if err != nil || !k.observe {
		return -1, err
	}
	return listener, nil
}

func setFilter(program filter, flags uintptr) (int, error) {
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}                                              //nolint:gosec // some dozens
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&p))) //nolint:gosec // the call has no other form
	runtime.KeepAlive(program)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// notification is what the kernel tells of a call: struct seccomp_notif.
type notification struct {
	id    uint64
	pid   uint32 // of the thread
	flags uint32
	nr    int32
	arch  uint32
	from  uint64
	args  [6]uint64
}

// reply is struct seccomp_notif_resp.
type reply struct {
	id    uint64
	val   int64
	err   int32
	flags uint32
}

func (n *notification) receive(fd int) error {
	*n = notification{} // the kernel insists
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(n))) //nolint:gosec // as above
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		return nil
	}
}

// answer lets the call go on, or refuses it. An error says that nobody waits for the answer any more.
func (n *notification) answer(fd int, refused unix.Errno) error {
	r := reply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if refused != 0 {
		r.err, r.flags = -int32(refused), 0 //nolint:gosec // a small number
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r))) //nolint:gosec // as above
	if errno != 0 {
		return errno
	}
	return nil
}
