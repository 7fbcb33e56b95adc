package executor

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// markName is the variable by which processes of an attempt are found: owner/run/stage/attempt, with
// the stage as Call.Label gives it.
const markName = "APOLLO_MARK"

// leaders holds the pids of all stages' own processes that have not been waited for. Nobody else may collect them.
var leaders sync.Map

// stat is one line of /proc/<pid>/stat, as far as it matters here. A pid and its start name one process for ever.
type stat struct {
	pid, parent, group, session int
	state                       byte
	start                       uint64
}

// readStat gives false when there is no such process.
func readStat(pid int) (stat, bool) {
	var buf [1024]byte
	text := readProc("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	end := bytes.LastIndexByte(text, ')') // the name before it may hold anything
	if end < 0 {
		return stat{}, false
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 20 {
		return stat{}, false
	}
	s := stat{pid: pid, state: fields[0][0]}
	s.parent, _ = strconv.Atoi(fields[1])
	s.group, _ = strconv.Atoi(fields[2])
	s.session, _ = strconv.Atoi(fields[3])
	s.start, _ = strconv.ParseUint(fields[19], 10, 64)
	return s, true
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' }

// signal sends to this very process, never to another one that got its number.
func (s stat) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, ok := readStat(s.pid); !ok || now.start != s.start || now.dead() {
		return
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0) // it may end in between
}

// readProc fills buf from a file of /proc, without the cost of an os.File.
func readProc(path string, buf []byte) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || m == 0 {
			break
		}
		n += m
	}
	return buf[:n]
}

// orphansPath lists the children of the engine's first thread. That is where the kernel hangs orphans; children that
// the engine started itself hang on the threads that started them.
var orphansPath = "/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children"

// haveOrphans reports whether any process may have been left behind by a stage. An empty list is a proof that there
// is none; anything else calls for a look at the process table.
func haveOrphans() bool {
	var buf [4096]byte
	fd, err := unix.Open(orphansPath, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // a kernel without these lists: always look
	}
	n, err := unix.Read(fd, buf[:])
	unix.Close(fd)
	if err != nil || n == len(buf) {
		return true
	}
	for word := range strings.FieldsSeq(string(buf[:n])) {
		pid, _ := strconv.Atoi(word)
		if _, ours := leaders.Load(pid); ours {
			continue
		}
		if child, ok := readStat(pid); ok && child.session != ownSession() {
			return true
		}
	}
	return false
}

// ownSession is the engine's. No process of a stage is ever in it.
var ownSession = sync.OnceValue(func() int {
	session, _ := unix.Getsid(0) // cannot fail for oneself
	return session
})

// processTable reads every process of the machine.
func processTable() []stat {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	table := make([]stat, 0, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, ok := readStat(pid); ok {
			table = append(table, s)
		}
	}
	return table
}

// descendants adds to a set of processes everything below them.
func descendants(table []stat, set map[int]bool) {
	for grown := true; grown; {
		grown = false
		for _, s := range table {
			if !set[s.pid] && set[s.parent] {
				set[s.pid], grown = true, true
			}
		}
	}
}

// environOf gives the environment that a process was started with, or nothing when it may not be read.
func environOf(pid int) []byte {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return b
}

// markOf gives the value of APOLLO_MARK in an environment.
func markOf(environment []byte) string {
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(markName+"=")); ok {
			return string(value)
		}
	}
	return ""
}

// tree is the set of processes of one attempt.
type tree struct {
	mark   string
	leader int
	seen   map[int]uint64 // start by pid of every member ever seen below the leader
}

// living finds the members that run, without the leader. It collects zombies on its way.
func (t *tree) living() []stat {
	table := processTable()
	self := os.Getpid()
	engine := map[int]bool{self: true}
	descendants(table, engine)
	members := map[int]bool{t.leader: true}
	for _, s := range table {
		if s.pid != self && engine[s.pid] && t.member(s) {
			members[s.pid] = true
		}
	}
	descendants(table, members)
	var alive []stat
	for _, s := range table {
		switch {
		case !members[s.pid] || s.pid == t.leader:
		case !s.dead():
			alive = append(alive, s)
			t.seen[s.pid] = s.start
		}
	}
	reapZombies(table, t.seen)
	return alive
}

func (t *tree) member(s stat) bool {
	if start, ok := t.seen[s.pid]; ok && start == s.start {
		return true
	}
	return s.session == t.leader || markOf(environOf(s.pid)) == t.mark
}
