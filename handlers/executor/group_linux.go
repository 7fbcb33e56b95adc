package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// groups makes a control group (version 2) for each attempt that asks for cores or memory, below one directory of the
// engine's owner, where the system has handed a part of the tree over. Without one it makes none.
type groups struct {
	dir         string   // empty: the system has handed nothing over
	controllers []string // of cpu, memory and pids
}

// wanted are the controllers that are used, where they are there.
var wanted = []string{"cpu", "memory", "pids"}

// openGroups prepares the owner's directory below the part of the tree that was handed over.
func openGroups(owner string) groups {
	for _, above := range handedOver() {
		if _, err := enable(above); err != nil {
			continue
		}
		dir := ownersGroup(above, owner)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // as the kernel makes them
			continue
		}
		if on, err := enable(dir); err == nil && groupValue(dir, "cgroup.type") == "domain" {
			return groups{dir: dir, controllers: on}
		}
	}
	return groups{}
}

func ownersGroup(above, owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return filepath.Join(above, "apollo-"+hex.EncodeToString(sum[:6]))
}

// handedOver lists where groups may be made: below the own group; below the one that an engine moved itself out of; and
// below the one above where systemd has marked that as delegated (DelegateSubgroup= puts a service one level down).
func handedOver() []string {
	own, mount, ok := ownGroup()
	if !ok {
		return nil
	}
	dirs := []string{own}
	if above := filepath.Dir(own); own != mount {
		if filepath.Base(own) == engineGroup {
			dirs = []string{above}
		} else if delegatedBySystemd(above) {
			dirs = append(dirs, above)
		}
	}
	return dirs
}

func delegatedBySystemd(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		var value [8]byte
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// engineGroup is where an engine goes that is alone in its group: a group with processes can hand nothing on.
const engineGroup = "apollo-engine"

var (
	errNoControllers = errors.New("the group has neither the memory nor the cpu controller")
	errNotAlone      = errors.New("other processes are in the group")
)

// enable hands the controllers on to the groups below.
func enable(dir string) (on []string, err error) {
	there := strings.Fields(groupValue(dir, "cgroup.controllers"))
	for _, name := range wanted {
		if slices.Contains(there, name) {
			on = append(on, name)
		}
	}
	if !slices.Contains(on, "memory") && !slices.Contains(on, "cpu") {
		return nil, errNoControllers
	}
	already := strings.Fields(groupValue(dir, "cgroup.subtree_control"))
	if !slices.ContainsFunc(on, func(name string) bool { return !slices.Contains(already, name) }) {
		return on, unix.Access(dir, unix.W_OK)
	}
	// Only the root of the whole tree may hold processes and hand on. The cpu controller alone would be taken all the
	// same, and no group below could then be used.
	procs := groupValue(dir, "cgroup.procs")
	if groupValue(dir, "cgroup.type") != "" && procs != "" {
		if procs != strconv.Itoa(os.Getpid()) {
			return nil, errNotAlone
		}
		if err := moveDown(dir); err != nil {
			return nil, err
		}
	}
	return on, setGroup(dir, "cgroup.subtree_control", "+"+strings.Join(on, " +"))
}

func moveDown(dir string) error {
	below := filepath.Join(dir, engineGroup)
	if err := os.Mkdir(below, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // as the kernel makes them
		return err
	}
	return setGroup(below, "cgroup.procs", strconv.Itoa(os.Getpid()))
}

func setGroup(dir, name, value string) error {
	fd, err := unix.Open(filepath.Join(dir, name), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// group is the control group of one attempt. A nil group is none, and everything that is asked of it is nothing.
type group struct {
	dir    string
	fd     int
	memory bool // has a limit of memory
}

const (
	cpuPeriod = 100_000 // microseconds
	maxTasks  = 8192    // processes and threads of an attempt
)

// make makes the group of a call with its limits; nil when the call asks for nothing that a group can hold it to, or
// when there can be no group.
func (g groups) make(c *Call) *group {
	r := c.Resources
	if g.dir == "" || r == nil {
		return nil
	}
	values := map[string]string{}
	if r.Memory > 0 && slices.Contains(g.controllers, "memory") {
		values["memory.max"], values["memory.swap.max"], values["memory.oom.group"] = strconv.FormatInt(r.Memory, 10), "0", "1"
	}
	if r.CPU > 0 && slices.Contains(g.controllers, "cpu") {
		values["cpu.max"] = fmt.Sprintf("%d %d", max(1000, int64(r.CPU*cpuPeriod)), cpuPeriod)
	}
	if len(values) == 0 {
		return nil
	}
	if slices.Contains(g.controllers, "pids") {
		values["pids.max"] = strconv.Itoa(maxTasks)
	}
	made := &group{dir: filepath.Join(g.dir, attemptName(c)), fd: -1, memory: values["memory.max"] != ""}
	if err := made.open(values); err != nil {
		made.remove()
		return nil
	}
	return made
}

func (g *group) open(values map[string]string) (err error) {
	if err = unix.Mkdir(g.dir, 0o755); err != nil {
		return err
	}
	for name, value := range values {
		// A system without swap has no memory.swap.max, an old one no memory.oom.group.
		if err = setGroup(g.dir, name, value); err != nil && (name == "memory.max" || name == "cpu.max" || !errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	g.fd, err = unix.Open(g.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

// attemptName names an attempt among all those of an owner.
func attemptName(c *Call) string {
	return fmt.Sprintf("%s-%s-%d", c.Run, c.Label(), c.Attempt)
}

// kill ends everything in the group at one blow, also what has left the attempt's tree.
func (g *group) kill() {
	if g != nil {
		_ = setGroup(g.dir, "cgroup.kill", "1") // Linux 5.14; the tree is ended one by one besides
	}
}

// peak is the most memory that the group held at once, in bytes; 0 when the system does not say.
func (g *group) peak() int64 {
	if g == nil {
		return 0
	}
	n, _ := strconv.ParseInt(groupValue(g.dir, "memory.peak"), 10, 64) // Linux 5.19
	return n
}

// outOfMemory reports whether the kernel ended processes of the group for its limit of memory.
func (g *group) outOfMemory() bool {
	return g != nil && g.memory && killedForMemory(groupValue(g.dir, "memory.events"))
}

// killedForMemory reads memory.events.
func killedForMemory(text string) bool {
	for l := range strings.Lines(text) {
		if name, count, ok := strings.Cut(strings.TrimSpace(l), " "); ok && name == "oom_kill" {
			return count != "0"
		}
	}
	return false
}

// groupPatience is how long the removal of a group waits for what was killed in it; what then remains is removed when the
// next engine starts.
const groupPatience = time.Second

// remove ends what is left in the group and takes it away.
func (g *group) remove() {
	if g == nil {
		return
	}
	if g.fd >= 0 {
		unix.Close(g.fd)
		g.fd = -1
	}
	if unix.Rmdir(g.dir) == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), groupPatience)
	defer cancel()
	_ = removeGroup(ctx, g.dir)
}

// removeGroup kills what is in a group until it can be removed.
func removeGroup(ctx context.Context, dir string) error {
	for {
		_ = setGroup(dir, "cgroup.kill", "1")
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EROFS) {
			return nil // it was never ours
		}
		if sleep(ctx, time.Millisecond) != nil {
			return fmt.Errorf("remove control group %s: %w", dir, err)
		}
	}
}

// removeGroups takes away what a dead engine of the owner left below any part of the tree that it may have been given,
// with everything that still runs in there.
func removeGroups(ctx context.Context, owner string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*groupPatience)
	defer cancel()
	var errs []error
	for _, above := range handedOver() {
		errs = append(errs, removeLeftGroups(ctx, ownersGroup(above, owner)))
	}
	return errors.Join(errs...)
}

func removeLeftGroups(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, removeGroup(ctx, filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
