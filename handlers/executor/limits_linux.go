package executor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// limits hold an attempt to the resources that it asks for. docs/resources.md says to people what is held and what is
// not.
type limits struct {
	group    *group // of the whole tree; nil is none
	memory   int64  // bytes of RLIMIT_DATA for each process, where no group holds the tree; 0 is none
	disk     int64  // bytes of RLIMIT_FSIZE for each file; 0 is none
	declared events.Resources
}

// newLimits decides what holds the call. Without a group memory is held by RLIMIT_DATA: it counts what a process may
// write to privately. RLIMIT_AS would also count what is only reserved, and the runtimes of Go, Java and node reserve
// many times of what they use; RLIMIT_RSS does nothing on Linux.
func newLimits(c *Call, g groups) limits {
	l := limits{group: g.make(c)}
	if c.Resources != nil {
		l.declared = *c.Resources
	}
	l.disk = l.declared.Disk
	if l.group == nil || !l.group.memory {
		l.memory = l.declared.Memory
	}
	return l
}

// ungroup gives up the group and holds memory process by process.
func (l *limits) ungroup() {
	l.group.remove()
	l.group, l.memory = nil, l.declared.Memory
}

// held reports whether a process must be stopped before its first instruction to get its limits.
func (l *limits) held() bool { return l.memory > 0 || l.disk > 0 }

// hold gives the limits to a process that ptrace has stopped at its program's first instruction, and lets it go on. All
// its descendants inherit them.
func (l *limits) hold(pid int) error {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	err := l.set(pid)
	if detached := unix.PtraceDetach(pid); detached != nil && !errors.Is(detached, unix.ESRCH) {
		return errors.Join(err, detached)
	}
	return err
}

// set bounds a process; a bound that is tighter already stays.
func (l *limits) set(pid int) error {
	return errors.Join(setLimit(pid, unix.RLIMIT_DATA, l.memory), setLimit(pid, unix.RLIMIT_FSIZE, l.disk))
}

func setLimit(pid, resource int, most int64) error {
	if most <= 0 {
		return nil
	}
	var now unix.Rlimit
	err := unix.Prlimit(pid, resource, nil, &now)
	if err == nil {
		next := min(uint64(most), now.Max)
		err = unix.Prlimit(pid, resource, &unix.Rlimit{Cur: next, Max: next}, nil)
	}
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended already
	}
	return err
}

// explain says of a failed attempt which of its limits ended it. What the system proves is said as a fact; what is only
// likely is said as that.
func (l *limits) explain(f *events.Failure, c *Call, result *Result) {
	if f == nil || f.Class != events.ExecFailed || f.Exit == 0 && f.Signal == "" {
		return
	}
	switch {
	case l.group.outOfMemory():
		f.Pointer, f.Expected, f.Actual = "/resources/memory", "at most "+configs.SizeText(l.declared.Memory), configs.SizeAbout(l.group.peak())
		f.Reason = fmt.Sprintf("E_MEMORY: the stage used %s and wanted more than its memory of %s; the kernel ended it",
			configs.SizeAbout(l.group.peak()), configs.SizeText(l.declared.Memory))
	case l.disk > 0 && (f.Signal == unix.SignalName(unix.SIGXFSZ) || f.Exit == 128+int(unix.SIGXFSZ)):
		f.Pointer, f.Expected, f.Actual = "/resources/disk", "files of at most "+configs.SizeText(l.disk), "more"
		f.Reason = fmt.Sprintf("E_DISK: the stage wanted to write a file of more than its disk of %s", configs.SizeText(l.disk))
	case l.disk > 0 && fileOfSize(l.disk, filepath.Join(c.Dir, "out"), filepath.Join(c.Dir, "tmp")):
		f.Pointer, f.Expected = "/resources/disk", "files of at most "+configs.SizeText(l.disk)
		f.Reason += fmt.Sprintf("; E_DISK: it may have wanted to write more than its disk of %s, since a file stands at just that", configs.SizeText(l.disk))
	case l.memory > 0 && speaksOfMemory(result):
		f.Pointer, f.Expected = "/resources/memory", "at most "+configs.SizeText(l.memory)+" a process"
		f.Reason += fmt.Sprintf("; E_MEMORY: it may have run out of its memory of %s, as the end of its stderr says", configs.SizeText(l.memory))
	}
}

// maxLooked bounds how many files are looked at to explain a failure.
const maxLooked = 10_000

// fileOfSize looks for a file that stands at exactly the limit, as a writer leaves it whose next byte was refused: a
// program that ignores the signal, as python does, gets an error instead.
func fileOfSize(size int64, dirs ...string) bool {
	found, looked := false, 0
	look := func(_ string, d fs.DirEntry, err error) error { // what cannot be read proves nothing
		looked++
		if err != nil || looked > maxLooked {
			return fs.SkipAll
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() && info.Size() == size {
			found = true
			return fs.SkipAll
		}
		return nil
	}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, look) // look gives no errors
	}
	return found
}

// outOfMemoryTexts are what the C library, shells and the runtimes of common languages say when an allocation fails.
var outOfMemoryTexts = [][]byte{[]byte("Cannot allocate memory"), []byte("cannot allocate memory"), []byte("MemoryError"), []byte("out of memory"),
	[]byte("Out of memory"), []byte("OutOfMemoryError"), []byte("bad_alloc"), []byte("memory exhausted"), []byte("ENOMEM")}

func speaksOfMemory(result *Result) bool {
	tail := result.Stderr.Tail(16 << 10)
	for _, text := range outOfMemoryTexts {
		if bytes.Contains(tail, text) {
			return true
		}
	}
	return false
}

// moved gives how many bytes a process and its descendants that were waited for have read and written through calls. It
// must be asked while the process is a zombie at most.
func moved(pid int) (read, written int64) {
	var buf [512]byte
	return parseMoved(readProc("/proc/"+strconv.Itoa(pid)+"/io", buf[:]))
}

func parseMoved(text []byte) (read, written int64) {
	for l := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(l), []byte(": "))
		n, err := strconv.ParseInt(string(value), 10, 64)
		switch {
		case err != nil:
		case string(name) == "rchar":
			read = n
		case string(name) == "wchar":
			written = n
		}
	}
	return read, written
}
