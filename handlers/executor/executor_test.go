package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apollo-11/apollo/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner marks the processes of this test binary only.
var owner = "test-" + filepath.Base(os.Args[0]) + "-" + time.Now().Format("150405.000000000")

// newCall gives a call of a shell stage in a fresh directory, none of which exists yet.
func newCall(tb testing.TB, script string) *Call {
	tb.Helper()
	root := tb.TempDir()
	with, err := json.Marshal(shellSettings{Script: script})
	if err != nil {
		tb.Fatal(err)
	}
	return &Call{
		Run: events.ID{1}, Pipeline: "orders", Stage: "fetch", Attempt: 1, Key: events.ID{1}.String() + "/fetch",
		Dir: filepath.Join(root, "work"), LogDir: filepath.Join(root, "logs"), With: with,
		LogicalTime: time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC), Seed: 42,
		Timeout: time.Minute, Grace: time.Second,
	}
}

// run executes a shell stage.
func run(tb testing.TB, c *Call) (*Result, *events.Failure) {
	tb.Helper()
	return NewShell(Settings{Owner: owner}).Execute(context.Background(), c)
}

// succeed executes a shell stage that must succeed.
func succeed(tb testing.TB, c *Call) *Result {
	tb.Helper()
	r, failure := run(tb, c)
	if failure != nil {
		tb.Fatalf("failure %+v\nstderr: %s", failure, r.Stderr.Tail(4096))
	}
	return r
}

func read(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// eventually waits for a condition of the outside world that nothing signals.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within 20 s", what)
		}
		if err := sleep(context.Background(), 2*time.Millisecond); err != nil {
			tb.Fatal(err)
		}
	}
}

// marked lists the living processes of an attempt, found by nothing but the mark.
func marked(c *Call) []string {
	var list []string
	for _, s := range processTable() {
		if mark := markOf(environOf(s.pid)); strings.HasPrefix(mark, owner+"/") && strings.Contains(mark, "/"+c.Stage+"/") && !s.dead() {
			list = append(list, commandLine(s.pid))
		}
	}
	return list
}

// commandLine gives a process's words, joined with spaces.
func commandLine(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}
