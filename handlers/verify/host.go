package verify

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// Host is what can be changed on a machine.
type Host struct {
	Hostname string
	CPUs     []int    // that this process may use
	Zones    []string // values of TZ, none of them UTC
	Locales  []string // values of LANG, none of them C.UTF-8
	Landlock bool     // stages can be kept from files
	Filters  bool     // and from the network
	Ordered  bool     // the scratch directory lists files in the order of their making
}

// Look finds out what can be changed here.
func Look(ctx context.Context) *Host {
	isolation := executor.Isolated()
	h := &Host{CPUs: allowedCPUs(), Zones: zones(), Locales: locales(ctx), Landlock: isolation.Landlock > 0, Filters: isolation.Filters}
	h.Hostname, _ = os.Hostname()
	return h
}

func allowedCPUs() (list []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	for n := range len(set) * 64 {
		if set.IsSet(n) {
			list = append(list, n)
		}
	}
	return list
}

// zones gives time zones that lie far from UTC, by name where the machine knows the name.
func zones() (list []string) {
	for _, z := range []struct{ name, rule string }{{"Asia/Kathmandu", "NPT-5:45"}, {"America/St_Johns", "NST3:30"}} {
		if _, err := os.Stat(filepath.Join("/usr/share/zoneinfo", z.name)); err == nil {
			list = append(list, z.name)
		} else {
			list = append(list, z.rule)
		}
	}
	return list
}

// locales gives one installed locale with rules of its own where there is one, and the plain one, with which a character is
// a byte.
func locales(ctx context.Context) []string {
	installed, err := exec.CommandContext(ctx, "locale", "-a").Output()
	if err != nil {
		return []string{"C"}
	}
	names := strings.Fields(string(installed))
	slices.SortStableFunc(names, func(a, b string) int { return preference(b) - preference(a) })
	if len(names) == 0 || preference(names[0]) == 0 {
		return []string{"C"}
	}
	return []string{names[0], "C"}
}

// preference is higher for a locale that differs more from C.UTF-8.
func preference(name string) int {
	base, charset, _ := strings.Cut(name, ".")
	switch {
	case base == "C" || base == "POSIX":
		return 0
	case !strings.EqualFold(strings.ReplaceAll(charset, "-", ""), "utf8"):
		return 1
	case strings.HasPrefix(name, "et_EE"): // sorts z before t
		return 4
	case strings.HasPrefix(name, "en_"):
		return 2
	}
	return 3
}

// Scratch makes a directory for the work of a verification that needs so many bytes: in memory where there is room and
// programs may be run, as a directory there lists files in the order in which they were made; else below fallback.
func Scratch(fallback string, need int64) (dir string, ordered bool, err error) {
	const memory = "/dev/shm"
	sweepScratch(memory)
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) == nil && fs.Type == unix.TMPFS_MAGIC && fs.Flags&unix.ST_NOEXEC == 0 &&
		int64(fs.Bavail)*fs.Bsize/2 >= need { //nolint:gosec // sizes of a file system
		if dir, err = os.MkdirTemp(memory, fmt.Sprintf("%s%d-", scratchPrefix, os.Getpid())); err == nil {
			return dir, true, nil
		}
	}
	if err = os.MkdirAll(fallback, 0o700); err != nil {
		return "", false, err
	}
	dir, err = os.MkdirTemp(fallback, "verify-")
	return dir, unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC, err
}

const scratchPrefix = "apollo-verify-"

// sweepScratch removes the directories of verifications that were killed: their names say which process made them.
func sweepScratch(memory string) {
	found, _ := filepath.Glob(filepath.Join(memory, scratchPrefix+"*")) // the pattern is right
	for _, dir := range found {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), scratchPrefix), "-")
		pid, err := strconv.Atoi(text)
		var st unix.Stat_t
		if err == nil && unix.Kill(pid, 0) == unix.ESRCH && unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Geteuid() {
			_ = os.RemoveAll(dir) // what cannot be removed is tried again by the next one
		}
	}
}

// Room gives how many bytes the executions of a run's stages may need at once, so many stages at a time.
func Room(r *events.Run, jobs int) int64 {
	const least, copies = 64 << 20, 8 // inputs, outputs, and the artifacts of executions that are compared
	var largest int64
	for i := range r.Stages {
		if last := r.Stages[i].Last; last != nil {
			var size int64
			for k := range last.Outputs {
				size += last.Outputs[k].Size
			}
			largest = max(largest, size)
		}
	}
	return least + copies*int64(max(1, jobs))*largest
}

// Remove removes a scratch directory.
func Remove(dir string) error { return removeAll(dir) }
