package executor

import (
	"errors"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// The levels of isolation, the weakest first: an environment and directories of its own; Landlock, which keeps an attempt
// from files; seccomp besides, which keeps it from the network; a container.
const (
	LevelEnv       = "env"
	LevelLandlock  = "landlock"
	LevelSeccomp   = "landlock+seccomp"
	LevelContainer = "container"
)

// rank orders levels; an empty one is the weakest.
func rank(level string) int { return max(0, slices.Index(configs.Levels(), level)) }

// Isolation is what this machine can do to keep attempts from what they did not declare.
type Isolation struct {
	Level    string // highest level that a process reaches
	Landlock int    // ABI of the kernel; 0 is none
	Filters  bool   // seccomp works, and with it network: none
	Observed bool   // the paths that an attempt uses can be learnt

	gate       uint64  // address of the instruction by which this program calls the kernel
	patient    uintptr // flag: a call that is being answered is not interrupted by signals
	privileged bool    // filters need no promise not to gain privileges
}

// Isolated probes the machine, once in the life of the process: the kernel is made to refuse something, as its word that
// it could is not enough.
func Isolated() Isolation { return probed() }

var probed = sync.OnceValue(func() Isolation {
	i := Isolation{Level: LevelEnv}
	newThread(func() {
		if i.Filters = auditArch != 0 && i.tryFilter(); i.Filters {
			i.tryListener()
		}
	}).end()
	abi := landlockABI()
	newThread(func() {
		if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == nil && restricts(abi) {
			i.Landlock = abi
		}
	}).end()
	switch {
	case i.Landlock > 0 && i.Filters:
		i.Level = LevelSeccomp
	case i.Landlock > 0:
		i.Level = LevelLandlock
	}
	return i
})

// tryFilter puts the filter of network: none on the calling thread and looks whether it refuses a socket.
func (i *Isolation) tryFilter() bool {
	none := filterKind{none: true}
	i.privileged = true
	_, err := i.install(none)
	if errors.Is(err, unix.EACCES) {
		i.privileged = false
		if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != nil {
			return false
		}
		_, err = i.install(none)
	}
	if err != nil {
		return false
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EACCES)
}

// tryListener lets the calling thread call the kernel for an exec of nothing, and answers it from here. That tells from
// where this program calls.
func (i *Isolation) tryListener() {
	a := assembly{marks: map[string]int{}}
	a.load(seenCall)
	a.search(spansOf(map[uint32]string{unix.SYS_EXECVE: "ask"}))
	a.verdict("ask", unix.SECCOMP_RET_USER_NOTIF)
	a.verdict("allow", unix.SECCOMP_RET_ALLOW)
	probe := a.link()
	i.patient = unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	fd, err := setFilter(probe, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|i.patient)
	if errors.Is(err, unix.EINVAL) { // Linux before 5.19
		i.patient = 0
		fd, err = setFilter(probe, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	}
	if err != nil {
		return
	}
	defer unix.Close(fd)
	heard := make(chan uint64, 1)
	go func() {
		var n notification
		if n.receive(fd) == nil && n.answer(fd, unix.EPERM) == nil {
			heard <- n.from
		}
		close(heard)
	}()
	_, _, errno := syscall.Syscall(syscall.SYS_EXECVE, 0, 0, 0)
	from, ok := <-heard
	if ok && errno == unix.EPERM && from != 0 {
		i.Observed, i.gate = true, from
	}
}

// filterCache keeps written filters.
type filterCache struct {
	mu   sync.Mutex
	kept map[filterKind]filter
	gate uint64
}

func newFilterCache() *filterCache { return &filterCache{kept: map[filterKind]filter{}} }

func (c *filterCache) of(k filterKind, gate uint64) filter {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gate != gate {
		clear(c.kept)
		c.gate = gate
	}
	if c.kept[k] == nil {
		c.kept[k] = newFilter(k, gate)
	}
	return c.kept[k]
}

// confinement is how one attempt is held, decided before it starts.
type confinement struct {
	enforce bool // undeclared access is refused
	observe bool // and learnt
	none    bool // there is no network
	level   string
}

// confine decides what the call needs and what the machine can. It never gives less than what was asked for.
func (i *Isolation) confine(c *Call) (confinement, *events.Failure) {
	how := confinement{enforce: c.Isolation == "enforce", none: c.Network == "none", level: LevelEnv}
	how.observe = i.Observed && (how.enforce || c.Isolation == "observe")
	needs := c.Require
	if how.enforce {
		if i.Landlock > 0 {
			how.level = LevelLandlock
			if i.Filters {
				how.level = LevelSeccomp
			}
		}
		least := LevelLandlock
		if how.none {
			least = LevelSeccomp
		}
		if rank(needs) < rank(least) {
			needs = least
		}
	}
	if how.none && !i.Filters {
		return how, unreachable(LevelSeccomp, how.level, "network: none needs seccomp filters, which this kernel does not have or allow; write network: allow, or run the stage with container:")
	}
	if rank(how.level) >= rank(needs) {
		return how, nil
	}
	return how, unreachable(needs, how.level, i.lack(c, needs))
}

// lack says what keeps a call from its level, and what to write instead.
func (i *Isolation) lack(c *Call, needs string) string {
	switch {
	case needs == LevelContainer:
		return "the stage requires a container, and is none; write container: instead, or require: landlock+seccomp"
	case i.Landlock == 0:
		return "the stage needs Landlock, which this kernel does not have or allow (Linux 5.13 or later, with landlock among its security modules); write isolation: observe, or run the stage with container:"
	case !i.Filters && needs == LevelSeccomp:
		return "the stage needs seccomp filters, which this kernel does not have or allow; write isolation: {mode: enforce, require: landlock} and network: allow, or run the stage with container:"
	}
	mode := c.Isolation
	if mode == "" {
		mode = "off"
	}
	return "the stage requires " + needs + ", and isolation: " + mode + " refuses nothing; write isolation: {mode: enforce, require: " + needs + "}"
}

func unreachable(needs, reached, why string) *events.Failure {
	return &events.Failure{Class: events.System, Pointer: "/isolation", Expected: "isolation of the level " + needs, Actual: reached,
		Reason: "E_ISOLATION: " + why}
}

// hermetic reports whether nothing can be reached that was not declared.
func (how *confinement) hermetic() bool {
	return how.enforce && how.none && rank(how.level) >= rank(LevelSeccomp)
}

func (how *confinement) filter() filterKind {
	return filterKind{none: how.none, sealed: how.none && how.enforce, observe: how.observe}
}

// apart reports whether the attempt takes a thread of its own.
func (how *confinement) apart() bool { return how.enforce || how.filter() != filterKind{} }
