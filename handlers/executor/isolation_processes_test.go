package executor

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// isolatedPython is isolatedCall of a Python program.
func isolatedPython(tb testing.TB, text string) *Call {
	tb.Helper()
	c, _ := isolatedCall(tb, "-")
	with, err := json.Marshal(map[string]string{"script": text})
	if err != nil {
		tb.Fatal(err)
	}
	c.With = with
	return c
}

func runIsolatedPython(tb testing.TB, c *Call) (*Result, *events.Failure) {
	tb.Helper()
	if _, ok := lookPath("python3", stagePath); !ok {
		tb.Skip("no python3")
	}
	return NewPython(Settings{Owner: owner, Cache: tb.TempDir()}).Execute(context.Background(), c)
}

// TestPythonInIsolation: what ordinary programs need works.
func TestPythonInIsolation(t *testing.T) {
	t.Parallel()
	c := isolatedPython(t, `
import json, multiprocessing, os, pathlib, pwd, socket, subprocess, tempfile, threading
with tempfile.TemporaryDirectory() as d, tempfile.NamedTemporaryFile() as f:
    pathlib.Path(d, "x").write_text("x")
assert subprocess.run(["sh", "-c", "echo hi | cat"], capture_output=True, check=True).stdout == b"hi\n"
t = threading.Thread(target=lambda: open("thread", "w").write("x")); t.start(); t.join()
def square(n): return n * n
if __name__ == "__main__":
    with multiprocessing.Lock(): pass
    with multiprocessing.Pool(2) as pool: assert pool.map(square, range(3)) == [0, 1, 4]
    with multiprocessing.Manager() as m: assert m.list([1])[0] == 1
    a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
    pwd.getpwuid(os.getuid()); os.cpu_count()
    json.dump({"n": 1}, open(os.environ["APOLLO_OUTPUTS"], "w"))
`)
	r, failure := runIsolatedPython(t, c)
	if failure != nil || len(r.Accesses) > 0 || string(r.Values["n"]) != "1" {
		t.Fatalf("%+v, accesses %v\n%s", failure, r.Accesses, r.Stderr.Tail(2000))
	}
}

// TestNetworkNone: in every mode nothing gets out, in whatever way it is tried.
func TestNetworkNone(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	text := `
import errno, os, socket, sys
bad = []
def refused(what, f):
    try: f()
    except OSError as e:
        if e.errno != errno.EACCES: bad.append(f"{what}: {e}")
    else: bad.append(what + " works")
refused("tcp", lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
refused("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)))
refused("ipv6", lambda: socket.socket(socket.AF_INET6))
refused("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
refused("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
refused("mptcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
socket.socketpair()
print(bad)
sys.exit(len(bad))
`
	for _, mode := range []string{"", "off", "observe", "enforce"} {
		c := isolatedPython(t, text)
		c.Isolation = mode
		with, err := json.Marshal(map[string]any{"script": text, "args": []string{strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}})
		if err != nil {
			t.Fatal(err)
		}
		c.With = with
		r, failure := runIsolatedPython(t, c)
		if failure != nil {
			t.Errorf("%q: %+v\n%s%s", mode, failure, r.Stdout.Tail(2000), r.Stderr.Tail(2000))
		}
		named := slices.Contains(r.Accesses, events.Pair{Name: "connect", Value: "tcp"}) && slices.Contains(r.Accesses, events.Pair{Name: "connect", Value: "udp"})
		if observes := mode == "observe" || mode == "enforce"; named != observes {
			t.Errorf("%q: accesses %v", mode, r.Accesses)
		}
		if r.Hermetic != (mode == "enforce") {
			t.Errorf("%q: hermetic %t", mode, r.Hermetic)
		}
		c.Network = "allow"
		if r, failure := runIsolatedPython(t, c); failure == nil {
			t.Errorf("%q, allowed: nothing was tried: %s", mode, r.Stdout.Tail(1000))
		}
	}
}

// TestWhoeverNeedsTheNetworkIsTold: a stage that fails without it.
func TestWhoeverNeedsTheNetworkIsTold(t *testing.T) {
	t.Parallel()
	c := isolatedPython(t, "import socket\nsocket.create_connection((\"127.0.0.1\", 9))\n")
	_, failure := runIsolatedPython(t, c)
	if failure == nil || failure.Class != events.UndeclaredAccess || failure.Pointer != "/network" || !strings.Contains(failure.Reason, "network: allow") || failure.Exit != 1 {
		t.Errorf("%+v", failure)
	}
}

// TestLocalSocketsOfOthersAreOutOfReach, by a name in the file system and by an abstract one; its own are not.
func TestLocalSocketsOfOthersAreOutOfReach(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // an address of a socket takes only a short name
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "docker.sock")
	for _, address := range []string{name, "@" + name} {
		l, err := net.Listen("unix", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		text := "import socket, sys\n" + `
s = socket.socket(socket.AF_UNIX); s.bind("own"); s.listen(); socket.socket(socket.AF_UNIX).connect("own")
try: socket.socket(socket.AF_UNIX).connect(` + strconv.Quote(strings.Replace(address, "@", "\x00", 1)) + `)
except PermissionError: pass
else: sys.exit("connected")
try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
except PermissionError: pass
else: sys.exit("a datagram socket")
`
		text = strings.ReplaceAll(text, `\x00`, `\0`)
		c := isolatedPython(t, text)
		r, failure := runIsolatedPython(t, c)
		if address[0] == '@' {
			if failure != nil {
				t.Errorf("%+v\n%s", failure, r.Stderr.Tail(1000))
			}
			continue
		}
		if failure == nil || failure.Exit != 0 || failure.Class != events.UndeclaredAccess || !slices.Contains(r.Accesses, events.Pair{Name: "connect", Value: name}) {
			t.Errorf("%+v, accesses %v\n%s", failure, r.Accesses, r.Stderr.Tail(1000))
		}
		c.Dir += "2"
		c.Isolation, c.Network = "observe", "" // the same works, and is known
		r, failure = runIsolatedPython(t, c)
		if failure == nil || failure.Class != events.ExecFailed || !slices.Contains(r.Accesses, events.Pair{Name: "connect", Value: name}) {
			t.Errorf("%+v, accesses %v\n%s", failure, r.Accesses, r.Stderr.Tail(1000))
		}
	}
}

// TestRingsAreBlocked: what goes through io_uring passes no filter.
func TestRingsAreBlocked(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"off", "observe", "enforce"} {
		c := isolatedPython(t, "import ctypes, sys\nc = ctypes.CDLL(None, use_errno=True)\nr = c.syscall(425, 1, ctypes.create_string_buffer(120))\nsys.exit(0 if r == -1 and ctypes.get_errno() == 38 else 1)\n")
		c.Isolation = mode
		if r, failure := runIsolatedPython(t, c); failure != nil {
			t.Errorf("%s: %+v %s", mode, failure, r.Stderr.Tail(1000))
		}
	}
}

// TestInputsCannotBeChanged, not even by root, to whom modes mean nothing.
func TestInputsCannotBeChanged(t *testing.T) {
	t.Parallel()
	c, _ := isolatedCall(t, `chmod u+w "$APOLLO_IN_DROP" || true
(echo more >> "$APOLLO_IN_DROP") 2>/dev/null && exit 3
rm -f "$APOLLO_IN_DROP" 2>/dev/null && exit 4
(echo x > "$(dirname "$APOLLO_IN_DROP")/new") 2>/dev/null && exit 5
exit 0`)
	in := filepath.Join(c.Dir, "in", "drop", "drop.txt")
	if err := writeFile(in, "hello"); err != nil {
		t.Fatal(err)
	}
	c.Inputs = map[string]Input{"drop": {Path: in}}
	r, failure := run(t, c)
	if failure == nil || failure.Class != events.UndeclaredAccess || failure.Exit != 0 {
		t.Errorf("%+v %s", failure, r.Stderr.Tail(1000))
	}
	if got := read(t, in); got != "hello" {
		t.Errorf("the input holds %q", got)
	}
}

// TestNothingOfTheEngineIsConfined: many attempts at once, and afterwards every thread of the engine is free.
func TestNothingOfTheEngineIsConfined(t *testing.T) {
	t.Parallel()
	c, dir := isolatedCall(t, `cat "$OUTSIDE/data.csv" && exit 9; echo x > "$OUTSIDE/new" && exit 9; exit 0`)
	shell := NewShell(Settings{Owner: owner, Spare: t.TempDir()})
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := range 25 {
				own := *c
				own.Attempt = 1 + w*25 + i
				own.Dir = filepath.Join(c.Dir, strconv.Itoa(own.Attempt))
				r, failure := shell.Execute(context.Background(), &own)
				if failure == nil || failure.Class != events.UndeclaredAccess || failure.Exit != 0 || len(r.Accesses) != 2 {
					t.Errorf("%+v %v", failure, r.Accesses)
				}
				if _, err := os.ReadFile(filepath.Join(dir, "data.csv")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	eventually(t, "no thread of the engine is confined", func() bool {
		tasks, err := filepath.Glob("/proc/self/task/*/status")
		if err != nil || len(tasks) == 0 {
			t.Fatal(err)
		}
		for _, task := range tasks {
			status, err := os.ReadFile(task)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue
			}
			if strings.Contains(string(status), "Seccomp:\t2") && !strings.Contains(task, strconv.Itoa(os.Getpid())+"/status") {
				return false // other tests of this package have such threads too, as long as they run
			}
			if strings.Contains(task, "/"+strconv.Itoa(os.Getpid())+"/") && !strings.Contains(string(status), "Seccomp:\t0") {
				t.Fatalf("the first thread is confined:\n%s", status)
			}
		}
		return true
	})
}

// TestEndsOfIsolatedStages: a time-out, a cancellation, a descendant that hides, all while calls are being answered.
func TestEndsOfIsolatedStages(t *testing.T) {
	t.Parallel()
	busy := `(setsid sh -c 'trap "" TERM; while :; do cat /etc/passwd > x; done' &) ; while :; do cat /etc/passwd /dev/null > /dev/null; done`
	for _, mode := range []string{"observe", "enforce"} {
		c, _ := isolatedCall(t, busy)
		c.Isolation, c.Timeout, c.Grace = mode, 200*time.Millisecond, 100*time.Millisecond
		if _, failure := run(t, c); failure == nil || failure.Class != events.Timeout {
			t.Errorf("%s: %+v", mode, failure)
		}
		if left := marked(c); len(left) > 0 {
			t.Errorf("%s: %v", mode, left)
		}
		c, _ = isolatedCall(t, busy)
		c.Isolation, c.Grace = mode, 100*time.Millisecond
		ctx, cancel := context.WithCancel(context.Background())
		c.Started = func(int) { cancel() }
		if _, failure := NewShell(Settings{Owner: owner}).Execute(ctx, c); failure == nil || failure.Class != events.Aborted {
			t.Errorf("%s: %+v", mode, failure)
		}
		cancel()
	}
}

// TestLimitsAndIsolation: both hold, from the first instruction.
func TestLimitsAndIsolation(t *testing.T) {
	t.Parallel()
	c, _ := isolatedCall(t, `ulimit -f > limit; cat "$OUTSIDE/data.csv" || true; cat limit`)
	c.Resources = &events.Resources{Memory: 1 << 30, Disk: 1 << 20}
	r, failure := run(t, c)
	if failure == nil || failure.Class != events.UndeclaredAccess {
		t.Errorf("%+v %s", failure, r.Stderr.Tail(1000))
	}
	if got := strings.TrimSpace(string(r.Stdout.Tail(100))); got != "1024" && got != "2048" {
		t.Errorf("limit %q", got)
	}
}

// TestNewPrivilegesAreGivenUp, so that no program of another user's rights helps a stage out.
func TestNewPrivilegesAreGivenUp(t *testing.T) {
	t.Parallel()
	c, _ := isolatedCall(t, `grep NoNewPrivs /proc/self/status`)
	if r := succeed(t, c); !strings.Contains(string(r.Stdout.Tail(100)), "1") {
		t.Errorf("%s", r.Stdout.Tail(100))
	}
}
