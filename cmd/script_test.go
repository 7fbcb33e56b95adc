package cmd_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/apollo-11/apollo/handlers/executor"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestScripts drives the program as a user does: testdata/script has one file a subject.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Vars = append(e.Vars, "LANG=C.UTF-8", "PATH="+os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0") // else each process sleeps a second under -race
			e.Defer(func() { assertReplaysSame(t, e.WorkDir) })
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "isolation" {
				return false, fmt.Errorf("no condition %q", name)
			}
			can := executor.Isolated()
			return can.Level == executor.LevelSeccomp && can.Observed || os.Getenv("CI") == "true", nil // there the kernel can
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "field": field, "await": await, "address": address, "masked": masked,
			"json": jsonField, "same": same, "spoil": spoil, "order": order, "lines": lines,
		},
	})
}

// exits runs a program and wants this exit code: exits 3 apollo validate.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG]...")
	}
	code := "0"
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := err.(*exec.ExitError) //nolint:errorlint // Exec gives it as it is
		if !ok {
			ts.Fatalf("%v", err)
		}
		code = regexp.MustCompile(`\d+`).FindString(exit.Error())
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, want %s", code, args[0])
	}
}

// field takes one string field of the JSON that was printed last and sets a variable: field RUN run.
func field(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: field VARIABLE NAME")
	}
	m := regexp.MustCompile(`"` + regexp.QuoteMeta(args[1]) + `": ?"([^"]*)"`).FindStringSubmatch(ts.ReadFile("stdout"))
	if m == nil {
		ts.Fatalf("no field %q in the output", args[1])
	}
	ts.Setenv(args[0], m[1])
}

// await runs a program again and again until its standard output matches: await 'completed' apollo runs.
func await(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: await PATTERN PROGRAM [ARG]...")
	}
	pattern := regexp.MustCompile(args[0])
	for range 300 {
		if ts.Exec(args[1], args[2:]...) == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		_ = ts.Exec("sleep", "0.05") // another process moves on meanwhile; there is no signal from it
	}
	ts.Fatalf("%q never came", args[0])
}

// address waits for the server of a data directory and sets a variable to where it listens: address ADDR data.
func address(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: address VARIABLE DATA")
	}
	lock := filepath.Join(ts.MkAbs(args[1]), "apollo.lock")
	for range 300 {
		b, _ := os.ReadFile(lock)
		if lines := strings.Split(string(b), "\n"); len(lines) > 1 && lines[1] != "" {
			ts.Setenv(args[0], lines[1])
			return
		}
		_ = ts.Exec("sleep", "0.02")
	}
	ts.Fatalf("no server holds %s", args[1])
}

// masked writes what was printed last to a file, with what differs from run to run replaced, to be compared with cmp.
func masked(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: masked stdout|stderr FILE")
	}
	text := ts.ReadFile(args[0])
	for _, m := range []struct{ pattern, with string }{
		{`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`, "ID"},
		{`sha256:[0-9a-f]{64}`, "DIGEST"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`"(duration_ms|ms)": \d+(\.\d+)?`, `"$1": 0`},
		{`\b\d+(\.\d+)?(µs|ms|s)\b`, "TOOK"},
		{`,\n *"(cpu_ms|max_rss)": \d+`, ""}, // not there when it is nothing
		{`\d+ seconds? ago`, "AGO"},
		{`"pid": ?\d+`, `"pid": 0`},
	} {
		text = regexp.MustCompile(m.pattern).ReplaceAllString(text, m.with)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}

// json FILE PATH VALUE: the value at the dotted path; len counts a list, ? asks only that the field is there.
func jsonField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH VALUE")
	}
	at, found := jsonAt(ts, args[0], args[1])
	if same := found && (args[2] == "?" || fmt.Sprint(at) == args[2]); same == neg {
		ts.Fatalf("%s is %v (%v, there: %v), wanted %s (not: %v)", args[1], at, reflect.TypeOf(at), found, args[2], neg)
	}
}

// same FILE OTHER PATH: both have the same JSON at the dotted path.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: same FILE OTHER PATH")
	}
	a, first := jsonAt(ts, args[0], args[2])
	b, second := jsonAt(ts, args[1], args[2])
	if !first || !second || reflect.DeepEqual(a, b) == neg {
		ts.Fatalf("%s is %v (there: %v) and %v (there: %v)", args[2], a, first, b, second)
	}
}

func jsonAt(ts *testscript.TestScript, file, path string) (at any, found bool) {
	if err := json.Unmarshal([]byte(ts.ReadFile(file)), &at); err != nil {
		ts.Fatalf("%s is not JSON: %v", file, err)
	}
	found = true
	for key := range strings.SplitSeq(path, ".") {
		switch v := at.(type) {
		case map[string]any:
			at, found = v[key]
		case []any:
			if key == "len" {
				at = len(v)
				continue
			}
			i, err := strconv.Atoi(key)
			if found = err == nil && i < len(v); found {
				at = v[i]
			}
		default:
			found = false
		}
		if !found {
			break
		}
	}
	return at, found
}

// spoil FILE OFFSET: turns one byte over; a negative offset counts from the end.
func spoil(ts *testscript.TestScript, _ bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	i, err := strconv.Atoi(args[1])
	ts.Check(err)
	if i < 0 {
		i += len(b)
	}
	b[i] ^= 0x20
	path := ts.MkAbs(args[0])
	info, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.Chmod(path, 0o600))
	ts.Check(os.WriteFile(path, b, 0o600))
	ts.Check(os.Chmod(path, info.Mode()))
}

// order FILE TEXT...: the texts stand in the file one after the other.
func order(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	for _, want := range args[1:] {
		_, after, ok := strings.Cut(text, want)
		if !ok {
			ts.Fatalf("%q is not there, or too early, in\n%s", want, ts.ReadFile(args[0]))
		}
		text = after
	}
}

// lines FILE: each line is a JSON object; with a number, there are so many.
func lines(ts *testscript.TestScript, _ bool, args []string) {
	n := 0
	for l := range strings.Lines(ts.ReadFile(args[0])) {
		var o map[string]any
		if err := json.Unmarshal([]byte(l), &o); err != nil {
			ts.Fatalf("line %d: %v: %s", n+1, err, l)
		}
		n++
	}
	if want := args[1]; want != strconv.Itoa(n) && !(want == "many" && n > 1) {
		ts.Fatalf("%d lines, want %s", n, want)
	}
}
