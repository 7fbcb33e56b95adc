package executor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Rights to a tree, as Landlock counts them.
const (
	rightsRead  = syscall.AccessFSExecute | syscall.AccessFSReadFile | syscall.AccessFSReadDir
	rightsOther = syscall.AccessFSMakeChar | syscall.AccessFSMakeBlock // device nodes, which no stage makes
	rightsFile  = syscall.AccessFSExecute | syscall.AccessFSReadFile | syscall.AccessFSWriteFile | syscall.AccessFSTruncate |
		syscall.AccessFSIoctlDev | syscall.AccessFSResolveUnix // all that a file can have, which is no directory
)

// rightsKnown are the rights that the kernel of an ABI can hold.
func rightsKnown(abi int) uint64 {
	switch {
	case abi <= 0:
		return 0
	case abi < 2:
		return syscall.AccessFSRefer - 1
	case abi < 3:
		return syscall.AccessFSTruncate - 1
	case abi < 5:
		return syscall.AccessFSIoctlDev - 1
	case abi < 9:
		return syscall.AccessFSResolveUnix - 1
	}
	return syscall.AccessFSResolveUnix<<1 - 1
}

// The first ABI that can keep an attempt from abstract sockets and signals of others.
const abiScopes = 6

// grant is what an attempt may use: a file, or a directory and everything below it.
type grant struct {
	path   string // without symbolic links
	fd     int    // open on it
	writes bool
	device bool
	file   bool
	lent   bool // the descriptor is somebody else's
}

// openGrant follows symbolic links. A tree that is not there is none.
func openGrant(path string, writes bool) (grant, bool) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return grant{fd: -1}, false
	}
	t := grant{fd: fd, writes: writes}
	var st unix.Stat_t
	if t.path = pathOf(fd); t.path == "" || unix.Fstat(fd, &st) != nil {
		unix.Close(fd)
		return grant{fd: -1}, false
	}
	t.file, t.device = st.Mode&unix.S_IFMT != unix.S_IFDIR, st.Mode&unix.S_IFMT == unix.S_IFCHR
	return t, true
}

// pathOf gives where a descriptor's file is; empty when it is nowhere in the tree, as a pipe is.
func pathOf(fd int) string {
	var name [48]byte
	var buf [4096]byte
	n, err := unix.Readlink(string(appendFD(name[:0], "/proc/self/fd/", fd)), buf[:])
	if err != nil || n == 0 || buf[0] != '/' || strings.HasPrefix(string(buf[:n]), "/memfd:") {
		return ""
	}
	return string(buf[:n])
}

// holds reports whether a path without symbolic links is the tree's or below.
func (t *grant) holds(path string) bool {
	rest, ok := strings.CutPrefix(path, t.path)
	return ok && (rest == "" || rest[0] == '/' || t.path == "/")
}

// rights are those of the tree among those that the kernel knows.
func (t *grant) rights(known uint64) uint64 {
	rights := uint64(rightsRead)
	if t.writes {
		rights = ^uint64(rightsOther)
	}
	if t.file {
		rights &= rightsFile
	}
	if !t.device && t.file {
		rights &^= syscall.AccessFSIoctlDev
	}
	return rights & known
}

// systemPaths are what every attempt may read: programs, libraries, the settings of the machine, what the kernel says of
// itself. The last ones are those to which links of /etc lead.
var systemPaths = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc",
	"/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm", "/nix/store", "/gnu/store",
	"/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/etc/mtab"}

// devicePaths are what every attempt may read and write, as no trace of it stays.
var devicePaths = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts", "/dev/shm"}

// systemGrants are opened once, and stay open.
var systemGrants = sync.OnceValue(func() []grant {
	var list []grant
	add := func(path string, writes bool) {
		if t, ok := openGrant(path, writes); ok {
			for i := range list {
				if list[i].path == t.path || !writes && !list[i].writes && list[i].holds(t.path) {
					unix.Close(t.fd)
					return
				}
			}
			list = append(list, t)
		}
	}
	for _, path := range systemPaths {
		add(path, false)
	}
	for _, path := range devicePaths {
		add(path, true)
	}
	return list
})

// attemptGrants are what the attempt itself may use: its work directory to read, three directories in it to write, the pipe
// of its segments, and what it declares.
func attemptGrants(c *Call, p *program, segments fifo) []grant {
	list := make([]grant, 0, 8)
	add := func(path string) {
		if systemReads.has([]byte(path)) {
			return
		}
		t, ok := openGrant(path, false)
		switch {
		case !ok:
		case allows(systemGrants(), t.path, false):
			unix.Close(t.fd)
			systemReads.add(path)
		default:
			list = append(list, t)
		}
	}
	if work, ok := openGrant(c.Dir, false); ok {
		list = append(list, work)
		for _, name := range writableDirs {
			if fd, err := unix.Open(filepath.Join(c.Dir, name), unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err == nil {
				list = append(list, grant{path: work.path + "/" + name, fd: fd, writes: true})
			}
		}
	}
	list = append(list, grant{path: segments.real, fd: segments.fd, writes: true, file: true, lent: true})
	for _, in := range c.Inputs {
		if in.Path != "" && !strings.HasPrefix(in.Path, c.Dir+"/") {
			add(in.Path)
		}
	}
	if p.dialogue == nil {
		add(p.path)
	}
	for _, paths := range [][]string{p.trees, c.Readable} {
		for _, path := range paths {
			add(path)
		}
	}
	return list
}

func closeGrants(list []grant) {
	for i := range list {
		if !list[i].lent {
			unix.Close(list[i].fd)
		}
	}
}

// newRuleset makes the kernel's object that allows what is in the trees, and nothing else. none also keeps the attempt
// from the abstract sockets of others.
func newRuleset(abi int, none bool, lists ...[]grant) (fd int, err error) {
	known := rightsKnown(abi)
	attr := syscall.RulesetAttr{HandledAccessFS: known}
	if abi >= abiScopes {
		attr.Scoped = syscall.ScopeSignal
		if none {
			attr.Scoped |= syscall.ScopeAbstractUnixSocket
		}
	}
	if !none {
		attr.HandledAccessFS &^= syscall.AccessFSResolveUnix
		known = attr.HandledAccessFS
	}
	if fd, err = syscall.LandlockCreateRuleset(&attr, 0); err != nil {
		return -1, fmt.Errorf("make a Landlock ruleset: %w", err)
	}
	for _, list := range lists {
		for i := range list {
			t := &list[i]
			err := syscall.LandlockAddPathBeneathRule(fd, &syscall.PathBeneathAttr{AllowedAccess: t.rights(known), ParentFd: t.fd}, 0)
			if err != nil && !errors.Is(err, unix.EBADFD) { // a file of no file system, which is never refused
				unix.Close(fd)
				return -1, fmt.Errorf("allow %s: %w", t.path, err)
			}
		}
	}
	return fd, nil
}

// restrict holds the calling thread, and all that it starts, to the ruleset, for ever.
func restrict(ruleset int) error {
	if err := syscall.LandlockRestrictSelf(ruleset, 0); err != nil {
		return fmt.Errorf("apply Landlock: %w", err)
	}
	return nil
}

// landlockABI asks the kernel; 0 is none.
func landlockABI() int {
	abi, err := syscall.LandlockGetABIVersion()
	if err != nil || abi < 0 {
		return 0
	}
	return abi
}

// restricts tries Landlock on the calling thread, which is lost by that: a kernel may know the calls and refuse them.
func restricts(abi int) bool {
	if abi == 0 {
		return false
	}
	fd, err := newRuleset(abi, true)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if restrict(fd) != nil {
		return false
	}
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(root)
	}
	return errors.Is(err, os.ErrPermission)
}
