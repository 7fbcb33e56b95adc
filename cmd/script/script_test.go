// Package script_test runs the scripts of cmd/testdata/script: each is a session at the command line.
package script_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/apollo-11/apollo/cmd"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"apollo": apollo})
}

func apollo() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cmd.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "../testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("LANG", "C")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "json": jsonField, "spoil": spoil, "order": order, "lines": lines,
		},
	})
}

// exits CODE PROGRAM ARG...: the program must end with that code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code, err := 0, ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// json FILE PATH VALUE: the value at the dotted path; len counts a list, ? asks only that the field is there.
func jsonField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH VALUE")
	}
	var at any
	if err := json.Unmarshal([]byte(ts.ReadFile(args[0])), &at); err != nil {
		ts.Fatalf("%s is not JSON: %v", args[0], err)
	}
	found := true
	for _, key := range strings.Split(args[1], ".") {
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
	if same := found && (args[2] == "?" || fmt.Sprint(at) == args[2]); same == neg {
		ts.Fatalf("%s is %v (%v, there: %v), wanted %s (not: %v)", args[1], at, reflect.TypeOf(at), found, args[2], neg)
	}
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
