package executor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

func TestEnvironmentIsExactlyThis(t *testing.T) {
	t.Setenv("LEAKED_FROM_THE_ENGINE", "secret")
	c := newCall(t, "#!/bin/sh\ncat /proc/$$/environ > env")
	c.Env = map[string]string{"MODE": "fast"}
	c.Secrets = map[string]string{"TOKEN": "s3cr3t-token"}
	c.Inputs = map[string]Input{"drop": {Path: "/data/a b.csv"}, "row-count": {Value: json.RawMessage("9007199254740993")}}
	c.Params = map[string]json.RawMessage{"region": json.RawMessage(`"eu"`), "none": json.RawMessage("null")}
	succeed(t, c)
	got := strings.Split(strings.TrimSuffix(read(t, filepath.Join(c.Dir, "out", "env")), "\x00"), "\x00")
	sort.Strings(got)
	run := c.Run.String()
	want := []string{
		"APOLLO_ATTEMPT=1", "APOLLO_IDEMPOTENCY_KEY=" + run + "/fetch", "APOLLO_IN_DROP=/data/a b.csv",
		"APOLLO_IN_ROW_COUNT=9007199254740993", "APOLLO_LOGICAL_TIME=2026-11-30T06:00:00Z",
		"APOLLO_MARK=" + owner + "/" + run + "/fetch/1", "APOLLO_OUTPUTS=" + c.Dir + "/state/outputs.json",
		"APOLLO_PARAM_NONE=", "APOLLO_PARAM_REGION=eu", "APOLLO_RUN_ID=" + run, "APOLLO_SEED=42",
		"APOLLO_SEGMENTS=" + c.Dir + "/segments", "APOLLO_STAGE=fetch", "HOME=" + c.Dir + "/tmp", "LANG=C.UTF-8", "MODE=fast",
		"PATH=" + stagePath, "SOURCE_DATE_EPOCH=1796018400", "TMPDIR=" + c.Dir + "/tmp", "TOKEN=s3cr3t-token", "TZ=UTC",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestValuesArriveLiterally(t *testing.T) {
	for i, value := range append(hostileNames, strings.Repeat("a", 251)+".csv") {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c := newCall(t, "#!/bin/sh\nprintf %s \"$APOLLO_PARAM_V\" > v\nprintf %s \"$APOLLO_IN_DROP\" > d\nset -- \"$APOLLO_IN_DROP\"\necho $# > n")
			raw, _ := json.Marshal(value)
			c.Params = map[string]json.RawMessage{"v": raw}
			c.Inputs = map[string]Input{"drop": {Path: "/in/" + value}}
			succeed(t, c)
			out := filepath.Join(c.Dir, "out")
			got := []string{read(t, filepath.Join(out, "v")), read(t, filepath.Join(out, "d")), read(t, filepath.Join(out, "n"))}
			if diff := cmp.Diff([]string{value, "/in/" + value, "1\n"}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCase_F11(t *testing.T) {
	for i, name := range hostileNames {
		if strings.Contains(name, "/") {
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c := newCall(t, `cp -- "$APOLLO_IN_DROP" copy`)
			file := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
				t.Fatal(err)
			}
			c.Inputs = map[string]Input{"drop": {Path: file}}
			succeed(t, c)
			if got := read(t, filepath.Join(c.Dir, "out", "copy")); got != name {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestLongValuesGoByFile(t *testing.T) {
	c := newCall(t, `test -z "${APOLLO_PARAM_BIG+set}"; cmp "$APOLLO_PARAM_BIG_FILE" "$APOLLO_IN_SAME"; printf %s "$APOLLO_PARAM_FITS" | wc -c >n`)
	big := strings.Repeat("ab\n", 1<<20)
	same := filepath.Join(t.TempDir(), "same")
	if err := os.WriteFile(same, []byte(big), 0o600); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(big)
	fits, _ := json.Marshal(strings.Repeat("x", maxEnvValue))
	c.Params = map[string]json.RawMessage{"big": text, "fits": fits}
	c.Inputs = map[string]Input{"same": {Path: same}}
	succeed(t, c)
	if got := strings.TrimSpace(read(t, filepath.Join(c.Dir, "out", "n"))); got != "65536" {
		t.Errorf("got %s bytes", got)
	}
}

func TestUmaskIsTheStagesOwn(t *testing.T) {
	runtime.LockOSThread() // a umask may be one thread's own
	defer runtime.UnlockOSThread()
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	c := newCall(t, "umask > umask\n: > file; : | cat")
	succeed(t, c)
	info, err := os.Stat(filepath.Join(c.Dir, "out", "file"))
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(c.Dir, "out", "umask")); got != "0022\n" || info.Mode().Perm() != 0o644 {
		t.Errorf("umask %q, file %v", got, info.Mode())
	}
	if now := unix.Umask(0o077); now != 0o077 {
		t.Errorf("the engine's umask became %o", now)
	}
}

func TestStageRefusals(t *testing.T) {
	pad, _ := json.Marshal(strings.Repeat("x", maxEnvValue))
	many := make(map[string]json.RawMessage)
	for i := range 64 {
		many[fmt.Sprintf("p%d", i)] = pad
	}
	for name, test := range map[string]struct {
		script string
		change func(c *Call)
		class  events.Class
		reason string
	}{
		"missing interpreter":       {script: "#!/opt/nowhere/ruby\nputs 1", class: events.ExecFailed, reason: "E_EXEC_NOTFOUND"},
		"missing under env":         {script: "#!/usr/bin/env ruby-of-nowhere\nputs 1", class: events.ExecFailed, reason: "E_EXEC_NOTFOUND"},
		"no interpreter":            {script: "#!\ntrue", class: events.ExecFailed, reason: "names no interpreter"},
		"directory as interpreter":  {script: "#!/etc\ntrue", class: events.ExecFailed, reason: "E_EXEC_NOTFOUND"},
		"empty script":              {script: " \n", class: events.ExecFailed, reason: "empty"},
		"unknown setting":           {change: func(c *Call) { c.With = []byte(`{"script":"true","shel":"sh"}`) }, class: events.ExecFailed, reason: "shel"},
		"NUL in a value":            {script: "true", change: func(c *Call) { c.Params = map[string]json.RawMessage{"v": []byte(`"a\u0000b"`)} }, class: events.BadInput, reason: "NUL"},
		"own variable replaced":     {script: "true", change: func(c *Call) { c.Env = map[string]string{"APOLLO_SEED": "7"} }, class: events.ExecFailed, reason: "E_ENV_NAME"},
		"two names, one variable":   {script: "true", change: func(c *Call) { c.Params = map[string]json.RawMessage{"a-b": []byte("1"), "a_b": []byte("2")} }, class: events.BadInput, reason: "APOLLO_PARAM_A_B"},
		"too much for the kernel":   {script: "true", change: func(c *Call) { c.Params = many }, class: events.BadInput, reason: "too long for the kernel"},
		"a work directory relative": {script: "true", change: func(c *Call) { c.Dir = "work" }, class: events.System, reason: "absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCall(t, test.script)
			if test.change != nil {
				test.change(c)
			}
			_, failure := run(t, c)
			if failure == nil || failure.Class != test.class || !strings.Contains(failure.Reason, test.reason) {
				t.Errorf("got %+v", failure)
			}
		})
	}
}

func TestCase_P9(t *testing.T) {
	for _, script := range []string{"#!/bin/bash\r\necho hi\r\n", "echo one\necho two\r\n"} {
		_, failure := run(t, newCall(t, script))
		if failure == nil || !strings.Contains(failure.Reason, "Windows line endings") {
			t.Errorf("%q: %+v", script, failure)
		}
	}
}

func TestCase_P10(t *testing.T) {
	for _, test := range []struct {
		script, signal string
		exit           int // -1 is any but 0
	}{
		{script: "false | tee log", exit: 1},
		{script: "true | tee log"},
		{script: "false; true", exit: 1},
		{script: "exit -1", exit: -1},
		{script: "exit 7", exit: 7},
		{script: "exit 137", exit: 137},
		{script: "kill -KILL $$", signal: "SIGKILL"},
		{script: "kill -SEGV $$", signal: "SIGSEGV"},
		{script: "no-such-command-at-all", exit: 127},
		{script: "#!/bin/sh\nfalse | cat"}, // a first line is taken at its word
	} {
		t.Run(test.script, func(t *testing.T) {
			t.Parallel()
			_, failure := run(t, newCall(t, test.script))
			if test.exit == 0 && test.signal == "" {
				if failure != nil {
					t.Fatal(failure)
				}
				return
			}
			if failure == nil || failure.Class != events.ExecFailed || failure.Signal != test.signal ||
				failure.Exit != test.exit && !(test.exit == -1 && failure.Exit != 0) {
				t.Errorf("got %+v", failure)
			}
		})
	}
}

func TestInterpreters(t *testing.T) {
	for name, test := range map[string]struct{ script, interpreter, want string }{
		"first line with an argument": {script: "#!/usr/bin/awk -f\nBEGIN { print 1 }", want: "1\n"},
		"first line":                  {script: "#!/bin/bash\necho ${BASH_VERSION:+bash}", want: "bash\n"},
		"env":                         {script: "#!/usr/bin/env bash\necho ${BASH_VERSION:+bash}", want: "bash\n"},
		"env -S":                      {script: "#!/usr/bin/env -S sh -u\necho $-", want: "u\n"},
		"setting":                     {script: "echo ${BASH_VERSION:+bash}", interpreter: "bash", want: "bash\n"},
		"setting with options":        {script: "echo $-", interpreter: "sh -u", want: "u\n"},
		"default is strict bash":      {script: "[[ $- == *e* ]] && [[ -o pipefail ]] && echo yes", want: "yes\n"},
		"long script":                 {script: strings.Repeat("# padding\n", 20_000) + "echo end | cat", want: "end\n"},
		"plain commands":              {script: "echo plain", want: "plain\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCall(t, test.script)
			c.With, _ = json.Marshal(shellSettings{Script: test.script, Interpreter: test.interpreter})
			r := succeed(t, c)
			if got := string(r.Stdout.Tail(100)); got != test.want {
				t.Errorf("got %q, stderr %q", got, r.Stderr.Tail(200))
			}
		})
	}
}

func TestOnlyPlainScriptsGoToSh(t *testing.T) {
	for _, script := range []string{"true", "cp \"$APOLLO_IN_DROP\" orders.csv\n", "python3 clean.py --limit=5", "exit 3", "A=1 env"} {
		if !plain(script) {
			t.Errorf("%q is plain", script)
		}
	}
	for _, script := range []string{"a | b", "[[ a ]]", "echo -e 'a'", "x=(1 2)", "source a", ". a", "echo $RANDOM", "a & b",
		"a > b", "printf '%q' a", "for i in a; do :; done", "x+=1", "test a == b", "a{1,2}", `printf a\b`, "# c\ntime x", "ls *", "exit  -1"} {
		if plain(script) {
			t.Errorf("%q is not plain", script)
		}
	}
}

func TestWorkDirectory(t *testing.T) {
	c := newCall(t, "pwd > where; mktemp >> where; readlink /proc/self/fd/0 >> where; ps -o pgid= -p $$ | tr -d ' ' | grep -qx $$; cat /proc/self/oom_score_adj >> where")
	succeed(t, c)
	lines := strings.Split(read(t, filepath.Join(c.Dir, "out", "where")), "\n")
	if lines[0] != c.Dir+"/out" || filepath.Dir(lines[1]) != c.Dir+"/tmp" || lines[2] != "/dev/null" || lines[3] != "1000" {
		t.Errorf("got %q", lines)
	}
}

func TestOutputs(t *testing.T) {
	for name, test := range map[string]struct{ document, want, pointer string }{
		"numbers as text": {document: `{"n": 9007199254740993, "x": 1.10}`, want: `{"n":9007199254740993,"x":1.10}`},
		"empty":           {document: "\n", want: "null"},
		"duplicate":       {document: `{"a": {"b/c": 1, "b/c": 2}}`, pointer: "/a/b~1c"},
		"deep duplicate":  {document: `{"a": [0, {"x": 1, "x": 1}]}`, pointer: "/a/1/x"},
		"no object":       {document: `[1]`, pointer: "-"},
		"null":            {document: `null`, pointer: "-"},
		"two values":      {document: `{} {}`, pointer: "-"},
		"broken":          {document: `{"a": tru`, pointer: "/a"},
		"not UTF-8":       {document: "{\"a\": \"\xff\"}", pointer: "-"},
		"too deep":        {document: `{"a":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `}`, pointer: "/a" + strings.Repeat("/0", 64)},
		"too large":       {document: `{"a":"` + strings.Repeat("x", maxOutputs) + `"}`, pointer: "-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCall(t, "#!/bin/sh\ncat \"$APOLLO_IN_DOC\" > \"$APOLLO_OUTPUTS\"")
			file := filepath.Join(t.TempDir(), "doc")
			if err := os.WriteFile(file, []byte(test.document), 0o600); err != nil {
				t.Fatal(err)
			}
			c.Inputs = map[string]Input{"doc": {Path: file}}
			r, failure := run(t, c)
			if test.pointer != "" {
				if failure == nil || failure.Class != events.BadOutput || failure.Pointer != strings.TrimPrefix(test.pointer, "-") {
					t.Errorf("got %+v", failure)
				}
				return
			}
			got, _ := json.Marshal(r.Values)
			if failure != nil || !bytes.Equal(got, []byte(test.want)) {
				t.Errorf("got %s, %+v", got, failure)
			}
		})
	}
}

func TestOutputsOfAnotherKind(t *testing.T) {
	for _, script := range []string{`mkfifo "$APOLLO_OUTPUTS"`, `mkdir "$APOLLO_OUTPUTS"`, `ln -s /etc/passwd "$APOLLO_OUTPUTS"`} {
		if _, failure := run(t, newCall(t, script)); failure == nil || failure.Class != events.BadOutput {
			t.Errorf("%s: %+v", script, failure)
		}
	}
}

func TestSegments(t *testing.T) {
	spare := t.TempDir()
	shell := NewShell(Settings{Owner: owner, Spare: spare})
	for range 3 { // the same pipe serves one attempt after the other
		c := newCall(t, `echo load >> "$APOLLO_SEGMENTS"; sleep 0.2; echo "sort it" >> "$APOLLO_SEGMENTS"; printf last > "$APOLLO_SEGMENTS"`)
		r, failure := shell.Execute(t.Context(), c)
		if failure != nil {
			t.Fatal(failure)
		}
		var names []string
		for _, s := range r.Segments {
			names = append(names, s.Name)
		}
		if diff := cmp.Diff([]string{"load", "sort it", "last"}, names); diff != "" {
			t.Fatal(diff)
		}
		if d := r.Segments[0].Duration; d.Seconds() < 0.15 || d.Seconds() > 5 {
			t.Errorf("load took %s", d)
		}
	}
}

func TestNothingIsLeftWhereNothingWasWritten(t *testing.T) {
	shell := NewShell(Settings{Owner: owner, Spare: t.TempDir()})
	c := newCall(t, "true")
	eventually(t, "no orphan of another test", func() bool {
		if _, failure := shell.Execute(t.Context(), c); failure != nil {
			t.Fatal(failure)
		}
		return !haveOrphans()
	})
	if _, failure := shell.Execute(t.Context(), c); failure != nil {
		t.Fatal(failure)
	}
	for _, dir := range []string{c.Dir, c.LogDir} {
		if _, err := os.Lstat(dir); !os.IsNotExist(err) {
			t.Errorf("%s exists: %v", dir, err)
		}
	}
	c.With = json.RawMessage(`{"script":"chmod 777 ."}`)
	if _, failure := shell.Execute(t.Context(), c); failure != nil {
		t.Fatal(failure)
	}
	c.Dir += "2"
	c.With = json.RawMessage(`{"script":"stat -c %a . ../tmp > mode"}`)
	if _, failure := shell.Execute(t.Context(), c); failure != nil {
		t.Fatal(failure)
	}
	if got := read(t, filepath.Join(c.Dir, "out", "mode")); got != "700\n700\n" {
		t.Errorf("a changed directory came back: %q", got)
	}
}
