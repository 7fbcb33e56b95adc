package plugin

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// TestMain lets this binary be a plug-in: one that is compiled, and not a script.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "be-a-plugin" {
		bePlugin()
	}
	goleak.VerifyTestMain(m)
}

func bePlugin() {
	line, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	var request executeRequest
	if err == nil {
		err = json.Unmarshal(line, &request)
	}
	if err != nil {
		fmt.Fprintf(os.Stdout, "{\"type\":\"failure\",\"class\":\"bad_input\",\"reason\":%q}\n", err.Error())
		os.Exit(1)
	}
	if err := os.WriteFile(filepath.Join(request.Out, "key"), []byte(request.Key), 0o600); err != nil {
		panic(err)
	}
	seed, _ := json.Marshal(request.Seed)
	fmt.Fprintf(os.Stdout, "{\"type\":\"output\",\"role\":\"seed\",\"value\":%s}\n{\"type\":\"result\",\"ok\":true}\n", seed)
	os.Exit(0)
}

// owner marks the processes of this test binary only.
var owner = fmt.Sprintf("plugin-test-%d", os.Getpid())

const goodResult = `{"type":"result","ok":true}`

// shell gives a plug-in of one script that has read its request into $request.
func shell(script string) string {
	return "#!/bin/sh\nread -r request\n" + script + "\n"
}

// manifest gives a manifest for an executable of the name main.
func manifest(name, program string) string {
	return fmt.Sprintf("name: %s\nkind: executor\nversion: \"1.0\"\ncommand: [./main]\nprotocol: 1\nsha256: %q\nwith: {type: object}\n", name, sum(program))
}

func sum(program string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(program))) }

// put writes a file whose mode no umask changes.
func put(tb testing.TB, path, text string, mode os.FileMode) {
	tb.Helper()
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		tb.Fatal(err)
	}
}

// newDir gives a directory of plug-ins that only its owner can change.
func newDir(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "plugins")
	if err := os.Mkdir(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// install writes a plug-in of one script.
func install(tb testing.TB, dir, name, program string) {
	tb.Helper()
	put(tb, filepath.Join(dir, name, "main"), program, 0o755)
	put(tb, filepath.Join(dir, name, ManifestFile), manifest(name, program), 0o644)
}

// load installs and loads one plug-in.
func load(tb testing.TB, program string) *Plugin {
	tb.Helper()
	dir := newDir(tb)
	install(tb, dir, "it", program)
	p := Load(dir).Get("it")
	if p.Fault != nil {
		tb.Fatal(p.Fault)
	}
	return p
}

var attempts atomic.Int64

// newCall gives a call in a fresh directory.
func newCall(tb testing.TB) *executor.Call {
	tb.Helper()
	root := tb.TempDir()
	return &executor.Call{
		// An attempt's processes are known by run, stage and attempt: no two at once may have the same.
		Run: events.ID{1}, Pipeline: "orders", Stage: "fetch", Attempt: int(100 + attempts.Add(1)), Key: events.ID{1}.String() + "/fetch",
		Dir: filepath.Join(root, "work"), LogDir: filepath.Join(root, "logs"), With: []byte(`{}`),
		LogicalTime: time.Date(2026, 11, 30, 6, 0, 0, 0, time.UTC), Seed: 1<<63 + 1,
		Timeout: time.Minute, Grace: 10 * time.Second,
	}
}

// run executes one plug-in.
func run(ctx context.Context, p *Plugin, c *executor.Call) (*executor.Result, *events.Failure) {
	set := &Set{Plugins: []*Plugin{p}}
	return set.Executors(executor.Settings{Owner: owner})[0].Execute(ctx, c)
}

// alive lists the command lines of living processes that hold a text.
func alive(tb testing.TB, text string) []string {
	tb.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		tb.Fatal(err)
	}
	var list []string
	for _, f := range files {
		b, _ := os.ReadFile(f) // it may have ended
		if command := strings.ReplaceAll(string(b), "\x00", " "); strings.Contains(command, text) {
			list = append(list, command)
		}
	}
	return list
}

// eventually waits for a condition of the outside world that nothing signals.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for tick := time.NewTicker(5 * time.Millisecond); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within 20 s", what)
		}
	}
}
