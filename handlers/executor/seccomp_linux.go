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

// filter is a program under construction. A jump that leads nowhere yet is found again by its mark.
type filter []unix.SockFilter

func (f *filter) load(at uint32) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at})
}

func (f *filter) and(mask uint32) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask})
}

func (f *filter) give(verdict uint32) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict})
}

// unless skips the next n instructions when what was loaded is the value.
func (f *filter) unless(value uint32, n uint8) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jt: n})
}

// when goes on with the next n instructions only when what was loaded is the value.
func (f *filter) when(value uint32, n uint8) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: n})
}

// below goes on with the next n instructions only when what was loaded is the value or more.
func (f *filter) below(value uint32, n uint8) {
	*f = append(*f, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: value, Jf: n})
}

func refusal(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }

// newFilter writes the program of a kind. gate is the address of the instruction by which this program, and so the
// process that it makes of itself for a stage, calls the kernel: the stage's first exec is let through there. It happens
// while the supervisor's scheduler stands still, when nobody could answer.
func newFilter(k filterKind, gate uint64) []unix.SockFilter {
	var f filter
	foreign := uint32(unix.SECCOMP_RET_ALLOW)
	if k.none {
		foreign = unix.SECCOMP_RET_KILL_PROCESS // its calls have other numbers, among them those that make sockets
	}
	f.load(seenArch)
	f.unless(auditArch, 1)
	f.give(foreign)
	f.load(seenCall)
	if foreignCalls > 0 {
		f.below(foreignCalls, 1)
		f.give(foreign)
	}
	if k.none || k.sealed || k.observe {
		f.when(unix.SYS_IO_URING_SETUP, 1)
		f.give(refusal(unix.ENOSYS)) // as on a kernel without it: what goes through a ring passes no filter
	}
	if k.none {
		f.sockets(k)
	}
	if k.sealed && !k.observe {
		f.when(unix.SYS_CONNECT, 1) // nobody can see where to
		f.give(refusal(unix.EACCES))
	}
	if k.observe {
		f.when(unix.SYS_EXECVE, 6)
		f.load(seenFrom)
		f.when(uint32(gate), 3) //nolint:gosec // the lower half
		f.load(seenFrom + 4)
		f.when(uint32(gate>>32), 1) //nolint:gosec // the upper half
		f.give(unix.SECCOMP_RET_ALLOW)
		f.give(unix.SECCOMP_RET_USER_NOTIF)
		for _, c := range trappedCalls {
			if c.nr != unix.SYS_EXECVE && c.use != asks {
				f.when(c.nr, 1)
				f.give(unix.SECCOMP_RET_USER_NOTIF)
			}
		}
	}
	f.give(unix.SECCOMP_RET_ALLOW)
	return f
}

// sockets refuses every socket that could reach the network. Where the supervisor listens it is asked, says no all the
// same, and knows.
func (f *filter) sockets(k filterKind) {
	verdict := refusal(unix.EACCES)
	if k.observe {
		verdict = unix.SECCOMP_RET_USER_NOTIF
	}
	f.when(unix.SYS_SOCKETPAIR, 3)
	f.load(seenFirst)
	f.unless(unix.AF_UNIX, 1)
	f.give(refusal(unix.EACCES))
	f.load(seenCall)
	if !k.sealed {
		f.when(unix.SYS_SOCKET, 4)
		f.load(seenFirst)
		f.unless(unix.AF_UNIX, 1)
		f.give(verdict)
		f.give(unix.SECCOMP_RET_ALLOW)
		return
	}
	f.when(unix.SYS_SOCKET, 8)
	f.load(seenFirst)
	f.unless(unix.AF_UNIX, 1)
	f.give(verdict)
	f.load(seenFirst + 8)
	f.and(0xf)
	f.unless(unix.SOCK_DGRAM, 1) // sends anywhere without connecting
	f.give(unix.SECCOMP_RET_ALLOW)
	f.give(refusal(unix.EACCES))
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
	fd, err := setFilter(program, flags)
	if err != nil || !k.observe {
		return -1, err
	}
	if i.handsOver {
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP) // faster, where it is known
	}
	return fd, nil
}

func setFilter(program []unix.SockFilter, flags uintptr) (int, error) {
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
