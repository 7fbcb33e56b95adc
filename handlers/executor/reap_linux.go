package executor

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const reapInterval = time.Second // a look costs one small read while there is no orphan

// ReapOrphans collects dead processes that were left to this one, until ctx ends. Attempts collect what is theirs;
// this is for the time between them, and for what was never a stage's: the first process of a container inherits every
// orphan in it. It leaves alone what somebody in this process waits for.
func ReapOrphans(ctx context.Context) {
	for sleep(ctx, reapInterval) == nil {
		if haveOrphans() {
			reapZombies(processTable(), nil)
		}
	}
}

// reapZombies collects dead orphans of stages, and never a process that somebody in the engine waits for: a stage's
// own process is in leaders; any other child of the engine shares its session, unless it leads one. A session leader
// is collected when it was seen in a tree, or carries the number that nothing but a stage's tree has. One that forked
// before it got that number is collected when it has been dead for strayTime.
func reapZombies(table []stat, seen map[int]uint64) {
	self := os.Getpid()
	for _, s := range table {
		if s.parent != self || !s.dead() || s.session == ownSession() {
			continue
		}
		if _, ours := leaders.Load(s.pid); ours {
			continue
		}
		if s.session != s.pid || seen[s.pid] == s.start || fromStage(s.pid) || strays.old(s) {
			_, _ = unix.Wait4(s.pid, nil, unix.WNOHANG, nil)
		}
	}
}

// strayTime is how long a child that the engine started by other means, as the leader of a session, may stay dead
// before its owner waits for it.
const strayTime = 3 * time.Second

// strays remembers when a dead process was first seen.
var strays = strayList{since: make(map[int]stray)}

type strayList struct {
	mu    sync.Mutex
	since map[int]stray
}

type stray struct {
	start uint64
	first time.Time
}

func (l *strayList) old(s stat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.since[s.pid]
	if !ok || known.start != s.start {
		if len(l.since) > 1000 {
			clear(l.since) // collected by their owners long ago, most of them
		}
		l.since[s.pid] = stray{start: s.start, first: time.Now()}
		return false
	}
	if time.Since(known.first) < strayTime {
		return false
	}
	delete(l.since, s.pid)
	return true
}

// fromStage tells a stage's descendant from another child of the engine by the number that first gave it.
func fromStage(pid int) bool {
	return oomScoreOf(pid) == oomScore && oomScoreOf(os.Getpid()) != oomScore
}

func oomScoreOf(pid int) string {
	var buf [16]byte
	return strings.TrimSpace(string(readProc("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", buf[:])))
}
