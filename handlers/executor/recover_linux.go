package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Orphan is a process that a dead engine left behind.
type Orphan struct {
	PID     int
	Run     string // as marked; empty for a process that was found as a child of a marked one
	Stage   string
	Attempt int
	Command string // what it was started as, without its arguments: a secret may stand there
}

// KillOrphans ends every process that an earlier engine of the same owner started and left behind, with everything
// below it, and returns when they are gone. It is for the start of an engine, before it starts any stage: whatever
// bears the owner's mark then has lost its supervisor. Processes of other owners, this one and those above it are left
// alone. Control groups that the dead engine left go too. It fails when ctx ends first.
func KillOrphans(ctx context.Context, owner string) ([]Orphan, error) {
	var killed []Orphan
	known := make(map[int]uint64)
	for unsure := 0; ; {
		found, sure := ownedProcesses(owner, known)
		for _, s := range found {
			if known[s.pid] != s.start {
				known[s.pid] = s.start
				killed = append(killed, describe(s.pid))
			}
			s.signal(unix.SIGKILL)
		}
		if len(found) == 0 {
			if unsure++; sure || unsure > unsureLooks {
				return killed, removeGroups(ctx, owner)
			}
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return killed, fmt.Errorf("wait for %d processes of a dead engine to end: %w", len(found), err)
		}
	}
}

// unsureLooks bounds how often a process without an environment is looked at again: one that begins a program has none
// for a moment, others never have.
const unsureLooks = 3

// ownedProcesses finds the living processes with the owner's mark, those known from before, and all below them. It is not
// sure while a process may be about to show its environment.
func ownedProcesses(owner string, known map[int]uint64) (found []stat, sure bool) {
	sure = true
	table := processTable()
	above := ancestors(table)
	owned := make(map[int]bool)
	for _, s := range table {
		if above[s.pid] || s.dead() {
			continue
		}
		environment, err := os.ReadFile("/proc/" + strconv.Itoa(s.pid) + "/environ")
		if known[s.pid] == s.start || strings.HasPrefix(markOf(environment), owner+"/") {
			owned[s.pid] = true
		}
		sure = sure && (len(environment) > 0 || err != nil || s.kernel())
	}
	descendants(table, owned)
	for _, s := range table {
		if owned[s.pid] && !above[s.pid] && !s.dead() {
			found = append(found, s)
		}
	}
	return found, sure
}

// kernel reports whether this is a thread of the kernel, which has no environment.
func (s stat) kernel() bool { return s.pid == 2 || s.parent == 2 }

// ancestors is this process and everything above it: an engine may itself be part of a stage.
func ancestors(table []stat) map[int]bool {
	parent := make(map[int]int, len(table))
	for _, s := range table {
		parent[s.pid] = s.parent
	}
	above := make(map[int]bool)
	for pid := os.Getpid(); pid != 0 && !above[pid]; pid = parent[pid] {
		above[pid] = true
	}
	return above
}

func describe(pid int) Orphan {
	o := Orphan{PID: pid}
	command, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	o.Command, _, _ = strings.Cut(string(command), "\x00")
	if parts := strings.Split(markOf(environOf(pid)), "/"); len(parts) >= 4 {
		parts = parts[len(parts)-3:]
		o.Run, o.Stage = parts[0], parts[1]
		o.Attempt, _ = strconv.Atoi(parts[2])
	}
	return o
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errors.Join(ctx.Err(), context.Cause(ctx))
	case <-timer.C:
		return nil
	}
}
