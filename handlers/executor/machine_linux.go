package executor

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is what this process may use of the machine. A figure of 0 is unknown.
type Machine struct {
	Cores  float64
	Memory int64 // bytes
	Disk   int64 // bytes that are free where the directory lies
}

// ReadMachine says what there is: cores bounded by the affinity of the process, GOMAXPROCS and cpu.max; memory bounded by
// memory.max; the free space of the file system that the directory is on, or will be on. Of control groups, version 2
// counts, with every group above the own one.
func ReadMachine(dir string) Machine {
	m := Machine{Cores: float64(min(runtime.NumCPU(), runtime.GOMAXPROCS(0)))}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram * uint64(info.Unit)) //nolint:gosec // no machine has more than an int64 of bytes
	}
	if own, mount, ok := ownGroup(); ok {
		m.bound(own, mount)
	}
	m.Disk = freeSpace(dir)
	return m
}

// bound lowers the figures to the limits of a control group and all above it.
func (m *Machine) bound(group, mount string) {
	for dir := group; len(dir) >= len(mount); dir = filepath.Dir(dir) {
		if quota, period, ok := strings.Cut(groupValue(dir, "cpu.max"), " "); ok && quota != "max" {
			q, err1 := strconv.ParseFloat(quota, 64)
			p, err2 := strconv.ParseFloat(period, 64)
			if err1 == nil && err2 == nil && q > 0 && p > 0 {
				m.Cores = min(m.Cores, q/p)
			}
		}
		if limit, err := strconv.ParseInt(groupValue(dir, "memory.max"), 10, 64); err == nil && limit > 0 {
			m.Memory = min(m.Memory, limit)
		}
		if dir == mount {
			return
		}
	}
}

// freeSpace looks at the nearest directory that exists; 0 when nothing can be said.
func freeSpace(dir string) int64 {
	for {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil {
			return int64(st.Bavail) * st.Bsize //nolint:gosec // no file system has more than an int64 of bytes
		}
		above := filepath.Dir(dir)
		if above == dir {
			return 0
		}
		dir = above
	}
}

// ownGroup gives the directory of the control group (version 2) that this process is in, and where that file system is
// mounted.
func ownGroup() (dir, mount string, ok bool) {
	group, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", false
	}
	return findGroup(string(group), string(mounts))
}

// findGroup finds the directory in the texts of /proc/self/cgroup and /proc/self/mountinfo.
func findGroup(group, mounts string) (dir, mount string, ok bool) {
	path := ""
	for l := range strings.Lines(group) {
		if p, found := strings.CutPrefix(strings.TrimSuffix(l, "\n"), "0::"); found {
			path = p
		}
	}
	if !filepath.IsAbs(path) || strings.HasPrefix(path, "/..") { // above the root of the name space
		return "", "", false
	}
	for l := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(l, " - ")
		fields := strings.Fields(before)
		if len(fields) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		root, at := fields[3], unescape(fields[4])
		below, err := filepath.Rel(root, path)
		if err == nil && below != ".." && !strings.HasPrefix(below, "../") {
			return filepath.Join(at, below), at, true
		}
	}
	return "", "", false
}

// unescape undoes what the kernel does to white space in the list of mounts.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// groupValue reads a small file of a control group; a file that is not there is empty.
func groupValue(dir, name string) string {
	var buf [4096]byte
	return strings.TrimSpace(string(readProc(filepath.Join(dir, name), buf[:])))
}
