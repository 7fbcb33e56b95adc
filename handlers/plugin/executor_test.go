package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

func read(tb testing.TB, path string) string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func TestTheWholeConversation(t *testing.T) {
	t.Parallel()
	p := load(t, shell(`printf %s "$request" > request.json
cat <<END
{"type":"log","text":"to stdout"}
{"type":"log","stream":"stderr","text":"to stderr"}

{"type":"progress","fraction":0.5,"message":"half"}
{"type":"of a later protocol","text":5,"name":{}}
{"type":"segment","name":"load"}
{"type":"segment","name":"sort\nit"}
{"type":"output","role":"n","value":9007199254740993}
{"type":"output","role":"o","value":{"a": [1]}}
END
echo raw >&2
printf '%s' '`+goodResult+`'`))
	c := newCall(t)
	file := filepath.Join(t.TempDir(), "drop")
	put(t, file, "rows", 0o600)
	c.With = []byte(`{"sql":"select '<1>'"}`)
	c.Inputs = map[string]executor.Input{"drop": {Path: file}, "n": {Value: []byte("9007199254740993")}}
	c.Params = map[string]json.RawMessage{"region": []byte(`"eu"`)}
	c.Outputs = []events.Output{{Role: "n"}, {Role: "rows", Path: "rows.csv", Format: "csv"}}
	c.Attempt, c.Item, c.Value = 1, 3, []byte(`"x"`)
	r, failure := run(t.Context(), p, c)
	if failure != nil {
		t.Fatalf("%+v\n%s", failure, r.Evidence)
	}
	want := `{"protocol":1,"type":"execute","run":"01000000-0000-0000-0000-000000000000","pipeline":"orders","stage":"fetch","attempt":1,` +
		`"key":"01000000-0000-0000-0000-000000000000/fetch","with":{"sql":"select '<1>'"},"inputs":{"drop":{"path":"` + file + `"},"n":{"value":9007199254740993}},` +
		`"params":{"region":"eu"},"outputs":[{"role":"n"},{"role":"rows","path":"rows.csv","format":"csv"}],"dir":"` + c.Dir + `","out":"` + c.Dir + `/out",` +
		`"logical_time":"2026-11-30T06:00:00Z","seed":"9223372036854775809","item":{"number":3,"value":"x"}}`
	if diff := cmp.Diff(want, read(t, filepath.Join(c.Dir, "out", "request.json"))); diff != "" {
		t.Error(diff)
	}
	if got := read(t, r.Stdout.Path); got != "to stdout\nprogress 50 % half\n" {
		t.Errorf("stdout %q", got)
	}
	if got := read(t, r.Stderr.Path); !strings.Contains(got, "to stderr\n") || !strings.Contains(got, "raw\n") {
		t.Errorf("stderr %q", got)
	}
	if got, _ := json.Marshal(r.Values); string(got) != `{"n":9007199254740993,"o":{"a":[1]}}` {
		t.Errorf("values %s", got)
	}
	if len(r.Segments) != 2 || r.Segments[0].Name != "load" || r.Segments[1].Name != "sort it" {
		t.Errorf("segments %+v", r.Segments)
	}
	if diff := cmp.Diff([]events.Pair{{Name: "plugin", Value: p.Pin()}}, r.Pins); diff != "" {
		t.Error(diff)
	}
}

func TestCompiledPlugin(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, dir := read(t, self), newDir(t)
	put(t, filepath.Join(dir, "it", "main"), program, 0o755)
	put(t, filepath.Join(dir, "it", ManifestFile), strings.ReplaceAll(manifest("it", program), "[./main]", "[./main, be-a-plugin]"), 0o644)
	c := newCall(t)
	r, failure := run(t.Context(), Load(dir).Get("it"), c)
	if failure != nil || string(r.Values["seed"]) != "9223372036854775809" || read(t, filepath.Join(c.Dir, "out", "key")) != c.Key {
		t.Errorf("%+v, %s", failure, r.Values)
	}
}

func TestPythonPlugin(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip("there is no /usr/bin/python3")
	}
	p := load(t, `#!/usr/bin/env python3
import json, sys
request = json.loads(sys.stdin.readline())
print(json.dumps({"type": "output", "role": "upper", "value": request["with"]["text"].upper()}))
print(json.dumps({"type": "result", "ok": True}))
`)
	c := newCall(t)
	c.With = []byte(`{"text":"straße"}`)
	r, failure := run(t.Context(), p, c)
	if failure != nil || string(r.Values["upper"]) != `"STRASSE"` {
		t.Errorf("%+v, %s\n%s", failure, r.Values, r.Stderr.Tail(1000))
	}
}

func TestProtocolBroken(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ script, text, pointer, evidence string }{
		"garbage":            {`echo '{"type":"log","text":"a"}'; echo 'Traceback: oh'; exec sleep 1000`, "no JSON object", "line 2", "Traceback: oh"},
		"a list":             {`echo '[1]'`, "no JSON object", "line 1", "[1]"},
		"null":               {`echo null`, "no JSON object", "line 1", "null"},
		"no type":            {`echo '{"ok":true}'`, "no JSON object", "line 1", `{"ok":true}`},
		"not UTF-8":          {`printf '{"type":"log","text":"\377"}\n'`, "no JSON object", "line 1", "{"},
		"endless line":       {`exec yes | tr -d '\n'`, "too long", "line 1", "yyyyyyyy"},
		"wrong field":        {`echo '{"type":"log","text":5}'`, "wrong type", "line 1", "5"},
		"wrong stream":       {`echo '{"type":"log","stream":"x","text":"a"}'`, "no stream", "line 1", `"x"`},
		"no fraction":        {`echo '{"type":"progress","fraction":50}'`, "no fraction", "line 1", "50"},
		"no segment":         {`echo '{"type":"segment"}'`, "no segment", "line 1", "segment"},
		"no role":            {`echo '{"type":"output","value":1}'`, "sets no output", "line 1", "output"},
		"no value":           {`echo '{"type":"output","role":"a"}'`, "sets no output", "line 1", "output"},
		"output twice":       {`echo '{"type":"output","role":"a","value":1}'; echo '{"type":"output","role":"a","value":2}'`, "again", "line 2", "2"},
		"key twice":          {`echo '{"type":"output","role":"a","value":{"x":1,"x":2}}'`, "strict JSON", "line 1", "x"},
		"large values":       {`printf '{"type":"output","role":"a","value":"%070000d"}\n' 0`, "too large", "line 1", "output"},
		"not ok":             {`echo '{"type":"result","ok":false}'`, "without ok", "line 1", "false"},
		"two results":        {`echo '` + goodResult + `'; echo '` + goodResult + `'`, "after the result", "line 2", "result"},
		"output after":       {`echo '` + goodResult + `'; echo '{"type":"output","role":"a","value":1}'`, "after the result", "line 2", "output"},
		"failure after":      {`echo '` + goodResult + `'; echo '{"type":"failure","class":"bad_input","reason":"x"}'`, "after the result", "line 2", "failure"},
		"unknown class":      {`echo '{"type":"failure","class":"oops","reason":"x"}'`, "no class", "line 1", "oops"},
		"class of engine":    {`echo '{"type":"failure","class":"cancelled","reason":"x"}'`, "no class", "line 1", "cancelled"},
		"no reason":          {`echo '{"type":"failure","class":"bad_input","reason":" "}'`, "no reason", "line 1", "bad_input"},
		"no result":          {`echo '{"type":"log","text":"a"}'`, "ended without a result", "", ""},
		"nothing":            {``, "ended without a result", "", ""},
		"last line cut off":  {`printf '{"type":"result","ok"'`, "no JSON object", "line 1", `"ok"`},
		"goes on for ever":   {`echo nonsense; while :; do echo more; done`, "no JSON object", "line 1", "nonsense"},
		"ignores its result": {`echo '` + goodResult + `'; exec sleep 1000`, "did not end within 100ms", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCall(t)
			if name == "ignores its result" {
				c.Grace = 100 * time.Millisecond
			}
			r, failure := run(t.Context(), load(t, shell(test.script)), c)
			if failure == nil || !strings.HasPrefix(failure.Reason, "E_PLUGIN_PROTOCOL: ") || !strings.Contains(failure.Reason, test.text) {
				t.Fatalf("got %+v", failure)
			}
			if want := events.BadOutput; failure.Class != want && name != "ignores its result" {
				t.Errorf("class %s", failure.Class)
			}
			if failure.Pointer != test.pointer || !strings.Contains(r.Evidence, test.evidence) || len(r.Evidence) > maxEvidence+16 || failure.Expected == "" {
				t.Errorf("pointer %q, expected %q, evidence %.80q", failure.Pointer, failure.Expected, r.Evidence)
			}
			if r.Values != nil {
				t.Errorf("values of a failed attempt: %s", r.Values)
			}
		})
	}
}

func TestHowItEnds(t *testing.T) {
	t.Parallel()
	said := `{"type":"failure","class":"gate_rejected","reason":"3 of\n5 rows","pointer":"/rows","expected":"5","actual":"3"}`
	for name, test := range map[string]struct {
		script string
		want   *events.Failure
	}{
		"failure":              {`printf '%s\n' '` + said + `'`, &events.Failure{Class: events.GateRejected, Reason: "3 of 5 rows", Pointer: "/rows", Expected: "5", Actual: "3"}},
		"failure and exit":     {`printf '%s\n' '` + said + `'; exit 75`, &events.Failure{Class: events.GateRejected, Reason: "3 of 5 rows", Pointer: "/rows", Expected: "5", Actual: "3", Exit: 75}},
		"exit":                 {`exit 3`, &events.Failure{Class: events.ExecFailed, Reason: "the stage exited with code 3", Exit: 3}},
		"exit within a line":   {`printf '{"type":"lo'; exit 3`, &events.Failure{Class: events.ExecFailed, Reason: "the stage exited with code 3", Exit: 3}},
		"exit after a success": {`echo '` + goodResult + `'; exit 3`, &events.Failure{Class: events.ExecFailed, Reason: "the stage exited with code 3, after it had reported success", Exit: 3}},
		"signal": {`kill -SEGV $$`, &events.Failure{Class: events.ExecFailed, Signal: "SIGSEGV",
			Reason: "the stage was ended by signal SIGSEGV, which Apollo did not send"}},
		"reads to the end": {`cat > rest; test ! -s rest`, nil}, // standard input ends once the result is there
		"never reads":      {`exec <&-`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := test.script
			if test.want == nil {
				script = "echo '" + goodResult + "'\n" + script
			}
			_, failure := run(t.Context(), load(t, shell(script)), newCall(t))
			if diff := cmp.Diff(test.want, failure); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLargeRequest(t *testing.T) {
	t.Parallel()
	c := newCall(t)
	c.With, _ = json.Marshal(map[string]string{"text": strings.Repeat("x", 300_000)})
	if _, failure := run(t.Context(), load(t, shell(`test ${#request} -gt 300000 && echo '`+goodResult+`'`)), c); failure != nil {
		t.Errorf("%+v", failure)
	}
	if _, failure := run(t.Context(), load(t, "#!/bin/sh\necho '"+goodResult+"'\n"), c); failure != nil {
		t.Errorf("a plug-in that reads nothing: %+v", failure)
	}
}

func TestNobodyReadsALargeRequest(t *testing.T) {
	t.Parallel()
	c := newCall(t)
	c.With, _ = json.Marshal(map[string]string{"text": strings.Repeat("x", 300_000)})
	c.Timeout = 100 * time.Millisecond
	if _, failure := run(t.Context(), load(t, "#!/bin/sh\nexec sleep 1000\n"), c); failure == nil || failure.Class != events.Timeout {
		t.Errorf("got %+v", failure)
	}
}

// Two items of one stage at once do not end each other's processes.
func TestItemsAtOnce(t *testing.T) {
	t.Parallel()
	dir, base := t.TempDir(), newCall(t)
	p := load(t, shell("set -- '"+dir+"'\n"+onlyOneWaits))
	overlap(t, dir, func(first bool) error {
		c := *base
		c.Item, c.Value = 1, []byte(`"first"`)
		if !first {
			c.Item, c.Value = 2, []byte(`"waits"`)
		}
		c.Dir, c.LogDir = filepath.Join(base.Dir, fmt.Sprint(c.Item)), filepath.Join(base.LogDir, fmt.Sprint(c.Item))
		if _, failure := run(t.Context(), p, &c); failure != nil {
			return failure
		}
		return nil
	})
}

// A supervisor numbers what it keeps ready; two of them in one directory would lend the same thing twice.
func TestWhatIsKeptReadyIsItsOwn(t *testing.T) {
	t.Parallel()
	spare := t.TempDir()
	set := &Set{Plugins: []*Plugin{load(t, shell("echo '"+goodResult+"'"))}}
	if _, failure := set.Executors(executor.Settings{Owner: owner, Spare: spare})[0].Execute(t.Context(), newCall(t)); failure != nil {
		t.Fatal(failure)
	}
	if all, _ := filepath.Glob(filepath.Join(spare, "*")); len(all) != 1 || filepath.Base(all[0]) != "plugins" {
		t.Errorf("it keeps %v", all)
	}
}

func TestInterpreterIsMissing(t *testing.T) {
	t.Parallel()
	var before, after unix.Stat_t
	if err := unix.Fstat(0, &before); err != nil {
		t.Skip("this process has no standard input")
	}
	_, failure := run(t.Context(), load(t, "#!/no/such/interpreter\n"), newCall(t))
	if err := unix.Fstat(0, &after); err != nil || before.Dev != after.Dev || before.Ino != after.Ino {
		t.Errorf("the engine's own standard input was closed: %v", err)
	}
	if failure == nil || failure.Class != events.ExecFailed || !strings.HasPrefix(failure.Reason, "E_EXEC_NOTFOUND: ./main ") {
		t.Errorf("got %+v", failure)
	}
}

func TestStoppedWithItsWholeTree(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"hangs":         `sleep 1000.ID & setsid sleep 1000.ID & (setsid sh -c 'trap "" TERM; while :; do sleep 1000.ID; done' &); echo '{"type":"log","text":"ready"}'; wait`,
		"ignores TERM":  `trap '' TERM; sleep 1000.ID & echo '{"type":"log","text":"ready"}'; while :; do sleep 1000.ID; done`,
		"floods stdout": `sleep 1000.ID & while :; do echo '{"type":"log","text":"ready"}'; done`,
	} {
		for _, how := range []string{"cancel", "time-out"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				c := newCall(t)
				id := fmt.Sprintf("%d%d", os.Getpid(), c.Attempt)
				p := load(t, shell(strings.ReplaceAll(script, "ID", id)))
				c.Grace = 200 * time.Millisecond
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if how == "time-out" {
					c.Timeout = time.Second
				}
				var failure *events.Failure
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, failure = run(ctx, p, c)
				}()
				want := events.Timeout
				if how == "cancel" {
					want = events.Aborted
					eventually(t, "ready", func() bool {
						b, _ := os.ReadFile(filepath.Join(c.LogDir, "stdout"))
						return strings.HasPrefix(string(b), "ready\n")
					})
					cancel(errors.New("li cancelled it"))
				}
				if <-done; failure == nil || failure.Class != want {
					t.Errorf("got %+v", failure)
				}
				if left := alive(t, "sleep 1000."+id); left != nil {
					t.Errorf("still alive: %q", left)
				}
			})
		}
	}
}

func TestCancelIsSaidBeforeTERM(t *testing.T) {
	t.Parallel()
	p := load(t, shell(`trap 'echo TERM >> heard; exit 9' TERM
echo '{"type":"log","text":"ready"}'
while read -r line; do echo "$line" >> heard; done
echo end >> heard`))
	c := newCall(t)
	c.Grace = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var failure *events.Failure
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, failure = run(ctx, p, c)
	}()
	eventually(t, "ready", func() bool { _, err := os.Stat(filepath.Join(c.LogDir, "stdout")); return err == nil })
	cancel()
	if <-done; failure == nil || failure.Class != events.Aborted {
		t.Errorf("got %+v", failure)
	}
	if got := read(t, filepath.Join(c.Dir, "out", "heard")); got != `{"type":"cancel"}`+"\nend\n" {
		t.Errorf("it heard %q", got)
	}
}

func TestSecretsGoThroughStandardInputOnly(t *testing.T) {
	t.Parallel()
	secret := "correct-\"horse\"-battery"
	c := newCall(t)
	c.Secrets = map[string]string{"TOKEN": secret}
	c.Env = map[string]string{"MODE": "fast"}
	c.Params = map[string]json.RawMessage{"region": []byte(`"eu"`)}
	p := load(t, shell(`tr '\0' '\n' < /proc/self/environ > environ
tr '\0' ' ' < /proc/$$/cmdline > cmdline
printf %s "$request" > request.json
text=$(printf %s "$request" | sed 's/.*"TOKEN":"\(.*\)"}}$/\1/')
echo "{\"type\":\"log\",\"text\":\"it is $text\"}"
echo 'it is correct-"horse"-battery' >&2
echo "{\"type\":\"failure\",\"class\":\"system\",\"reason\":\"refused $text\",\"actual\":\"$text\"}"`))
	r, failure := run(t.Context(), p, c)
	if failure == nil || failure.Reason != "refused ***" || failure.Actual != "***" {
		t.Fatalf("got %+v\n%s", failure, r.Evidence)
	}
	var request struct{ Secrets map[string]string }
	if err := json.Unmarshal([]byte(read(t, filepath.Join(c.Dir, "out", "request.json"))), &request); err != nil || !maps.Equal(request.Secrets, c.Secrets) {
		t.Errorf("the request has %v, %v", request.Secrets, err)
	}
	for _, path := range []string{filepath.Join(c.Dir, "out", "environ"), filepath.Join(c.Dir, "out", "cmdline"), r.Stdout.Path, r.Stderr.Path} {
		if text := read(t, path); strings.Contains(text, "horse") || text == "" {
			t.Errorf("%s: %q", path, text)
		}
	}
	var names []string
	for line := range strings.Lines(read(t, filepath.Join(c.Dir, "out", "environ"))) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"APOLLO_ATTEMPT", "APOLLO_IDEMPOTENCY_KEY", "APOLLO_LOGICAL_TIME", "APOLLO_MARK", "APOLLO_RUN_ID", "APOLLO_SEED", "APOLLO_SEGMENTS",
		"APOLLO_STAGE", "HOME", "LANG", "MODE", "PATH", "SOURCE_DATE_EPOCH", "TMPDIR", "TZ"}
	if diff := cmp.Diff(want, slices.DeleteFunc(names, func(n string) bool { return n == "_" || n == "PWD" || n == "OLDPWD" || n == "SHLVL" })); diff != "" {
		t.Error(diff)
	}
}

func TestSecretsInEvidenceAreMasked(t *testing.T) {
	t.Parallel()
	c := newCall(t)
	c.Secrets = map[string]string{"TOKEN": "correct-\"horse\"", "KEY": "line one\nline two"}
	r, failure := run(t.Context(), load(t, shell(`printf '%s\n' 'correct-"horse" {"x":"correct-\"horse\"","y":"line one\nline two"'`)), c)
	if failure == nil || r.Evidence != `*** {"x":"***","y":"***"` {
		t.Errorf("evidence %q, %+v", r.Evidence, failure)
	}
}

func TestSwappedAfterLoad(t *testing.T) {
	t.Parallel()
	program := shell("echo '" + goodResult + "'")
	for name, swap := range map[string]func(path string){
		"another file":   func(path string) { put(t, path+".new", program+"# evil\n", 0o755); _ = os.Rename(path+".new", path) },
		"the same file":  func(path string) { put(t, path, program+"# evil\n", 0o755) },
		"a link outside": func(path string) { _ = os.Remove(path); _ = os.Symlink("/bin/true", path) },
		"made writable":  func(path string) { _ = os.Chmod(path, 0o777) },
	} {
		p := load(t, program)
		if _, failure := run(t.Context(), p, newCall(t)); failure != nil {
			t.Fatal(failure)
		}
		swap(filepath.Join(p.Dir, "main"))
		r, failure := run(t.Context(), p, newCall(t))
		if failure == nil || failure.Class != events.System || !strings.HasPrefix(failure.Reason, "E_PLUGIN_") || !strings.Contains(failure.Reason, "was changed since it was loaded") {
			t.Errorf("%s: %+v", name, failure)
		}
		if len(r.Pins) != 1 || r.Pins[0].Value != p.Pin() {
			t.Errorf("%s: pins %v", name, r.Pins)
		}
	}
}

// What runs can be changed by nobody, the plug-in itself included: what was checked is what the interpreter reads.
func TestWhatRunsIsSealed(t *testing.T) {
	t.Parallel()
	p := load(t, shell(`if echo evil >> /proc/$$/fd/3; then exit 1; fi
echo '{"type":"log","text":"'"$0"'"}'
rm "`+"$(sed 's/.*\"script\":\"\\([^\"]*\\)\".*/\\1/' <<END\n$request\nEND\n)"+`"
echo '`+goodResult+`'`))
	c := newCall(t)
	c.With = fmt.Appendf(nil, `{"script":%q}`, filepath.Join(p.Dir, "main"))
	if r, failure := run(t.Context(), p, c); failure != nil {
		t.Errorf("%+v\n%s", failure, r.Stderr.Tail(1000))
	}
	if _, err := os.Stat(filepath.Join(p.Dir, "main")); !os.IsNotExist(err) {
		t.Error("the file was still there: nothing was shown")
	}
}

func TestAnotherVersionThanTheRunBeganWith(t *testing.T) {
	t.Parallel()
	p, c := load(t, shell("echo '"+goodResult+"'")), newCall(t)
	if c.Pin = p.Pin(); c.Pin == "" {
		t.Fatal("no pin")
	}
	if _, failure := run(t.Context(), p, c); failure != nil {
		t.Errorf("the same version: %+v", failure)
	}
	c.Pin = "it@0.9 sha256:00"
	_, failure := run(t.Context(), p, c)
	if failure == nil || failure.Class != events.System || !strings.HasPrefix(failure.Reason, "E_PLUGIN_CHANGED: ") || failure.Expected != c.Pin || failure.Actual != p.Pin() {
		t.Errorf("got %+v", failure)
	}
}

func TestSettingsAreCheckedBeforeTheStart(t *testing.T) {
	t.Parallel()
	p, c := load(t, shell("touch started")), newCall(t)
	p.With = []byte(`{"type":"object","properties":{"rows":{"type":"integer"}},"additionalProperties":false}`)
	c.With = []byte(`{"rows":"three"}`)
	_, failure := run(t.Context(), p, c)
	if failure == nil || failure.Class != events.BadInput || failure.Pointer != "/with/rows" || !strings.HasPrefix(failure.Reason, "E_PLUGIN_WITH: ") {
		t.Errorf("got %+v", failure)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "out", "started")); err == nil {
		t.Error("it was started")
	}
}

// TestByHand asks the plug-in by hand what an attempt asks it.
func TestByHand(t *testing.T) {
	t.Parallel()
	p := load(t, shell(`printf %s "$request" > request.json; printf '%s' '`+goodResult+`'`))
	c := newCall(t)
	c.With, c.Secrets, c.Params = []byte(`{"sql":"select '<1>'"}`), map[string]string{"TOKEN": "it's a secret"}, map[string]json.RawMessage{"region": []byte(`"eu"`)}
	if _, failure := run(t.Context(), p, c); failure != nil {
		t.Fatalf("%+v", failure)
	}
	want := read(t, filepath.Join(c.Dir, "out", "request.json"))
	m, failure := (&Executor{plugin: p}).ByHand(t.Context(), c)
	if failure != nil {
		t.Fatalf("%+v", failure)
	}
	command := exec.CommandContext(t.Context(), m.Args[0], m.Args[1:]...)
	command.Dir, command.Env, command.Stdin = t.TempDir(), m.Env, strings.NewReader(m.Input)
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), goodResult) {
		t.Fatalf("%v: %s", err, out)
	}
	if got := read(t, filepath.Join(command.Dir, "request.json")); got != want {
		t.Errorf("asked by hand: %s, by an attempt: %s", got, want)
	}
	if env := strings.Join(m.Env, " "); strings.Contains(env, "TOKEN") || strings.Contains(env, "APOLLO_OUTPUTS") || strings.Contains(env, "REGION") {
		t.Errorf("the environment has more than an attempt's: %s", env)
	}
}
