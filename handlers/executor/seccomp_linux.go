package executor

import (
	"maps"
	"runtime"
	"slices"
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

// filter is a program, or a part of one that ends in a verdict whichever way it takes.
type filter []unix.SockFilter

func load(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
}

func verdict(v uint32) filter {
	return filter{{Code: unix.BPF_RET | unix.BPF_K, K: v}}
}

func refusal(e unix.Errno) filter { return verdict(unix.SECCOMP_RET_ERRNO | uint32(e)) }

// branch goes on with then when what was loaded compares to the value, and else with otherwise.
func branch(compare uint16, value uint32, then, otherwise filter) filter {
	test := unix.SockFilter{Code: unix.BPF_JMP | compare | unix.BPF_K, K: value, Jf: uint8(len(then))} //nolint:gosec // some dozens
	return slices.Concat(filter{test}, then, otherwise)
}

func equal(value uint32, then, otherwise filter) filter {
	return branch(unix.BPF_JEQ, value, then, otherwise)
}

// after loads a word and goes on.
func after(at uint32, rest filter) filter { return append(filter{load(at)}, rest...) }

var (
	allow = verdict(unix.SECCOMP_RET_ALLOW)
	ask   = verdict(unix.SECCOMP_RET_USER_NOTIF)
)

// newFilter writes the program of a kind. gate is the address of the instruction by which this program, and so the
// process that it makes of itself for a stage, calls the kernel: the stage's first exec is let through there. It happens
// while the scheduler of this program stands still, when nobody could answer.
func newFilter(k filterKind, gate uint64) filter {
	calls := map[uint32]filter{unix.SYS_IO_URING_SETUP: refusal(unix.ENOSYS)} // what goes through a ring passes no filter
	if k.observe {
		for _, c := range trappedCalls {
			if c.use != asks {
				calls[c.nr] = ask
			}
		}
		first := equal(uint32(gate), after(seenFrom+4, equal(uint32(gate>>32), allow, ask)), ask) //nolint:gosec // the two halves
		calls[unix.SYS_EXECVE] = after(seenFrom, first)
	}
	if k.none {
		k.sockets(calls)
	}
	foreign := allow
	if k.none {
		foreign = verdict(unix.SECCOMP_RET_KILL_PROCESS) // its calls have other numbers, among them those that make sockets
	}
	own := search(slices.Sorted(maps.Keys(calls)), calls)
	if foreignCalls > 0 {
		own = branch(unix.BPF_JGE, foreignCalls, foreign, own)
	}
	return after(seenArch, equal(auditArch, after(seenCall, own), foreign))
}

// sockets refuses every socket that could reach the network. Where the supervisor listens it is asked, says no all the
// same, and knows.
func (k filterKind) sockets(calls map[uint32]filter) {
	no, local := refusal(unix.EACCES), allow
	calls[unix.SYS_SOCKETPAIR] = after(seenFirst, equal(unix.AF_UNIX, allow, no))
	if k.sealed {
		mask := filter{load(seenFirst + 8), {Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xf}}
		local = append(mask, equal(unix.SOCK_DGRAM, no, allow)...) // these send anywhere without connecting
		if !k.observe {
			calls[unix.SYS_CONNECT] = no // nobody can see where to
		}
	}
	if k.observe {
		no = ask
	}
	calls[unix.SYS_SOCKET] = after(seenFirst, equal(unix.AF_UNIX, local, no))
}

// search finds a call among the numbers by halves. The kernel goes through the program for every call that there is, when
// it is installed.
func search(numbers []uint32, calls map[uint32]filter) filter {
	if len(numbers) == 1 {
		return equal(numbers[0], calls[numbers[0]], allow)
	}
	middle := len(numbers) / 2
	return branch(unix.BPF_JGE, numbers[middle], search(numbers[middle:], calls), search(numbers[:middle], calls))
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
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // some dozens
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&p)))
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
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(n)))
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
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	if errno != 0 {
		return errno
	}
	return nil
}
