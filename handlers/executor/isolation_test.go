package executor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
)

// isolatedCall is a call of a script that is confined; what it may not reach lies in dir.
func isolatedCall(tb testing.TB, script string) (c *Call, dir string) {
	tb.Helper()
	if Isolated().Level != LevelSeccomp || !Isolated().Observed {
		if os.Getenv("CI") == "true" { // there the kernel can: the probe is wrong
			tb.Fatalf("probed: %+v", Isolated())
		}
		tb.Skipf("this kernel has no more than %+v", Isolated())
	}
	c = newCall(tb, script)
	c.Isolation, c.Network = "enforce", "none"
	c.Stage = fmt.Sprintf("isolated-%d", serial.Add(1)) // no two attempts at once have the same mark
	dir = tb.TempDir()
	c.Env = map[string]string{"OUTSIDE": dir}
	if err := os.WriteFile(filepath.Join(dir, "data.csv"), []byte("secret\n"), 0o644); err != nil {
		tb.Fatal(err)
	}
	return c, dir
}

// TestUndeclaredAccessIsRefusedAndNamed: the stage hides each refusal, and fails all the same.
func TestUndeclaredAccessIsRefusedAndNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		want   events.Pair // with $OUTSIDE
		mend   string
	}{
		"read":             {`cat "$OUTSIDE/data.csv" || true`, events.Pair{Name: "read", Value: "$OUTSIDE/data.csv"}, "inputs: {data: {file: $OUTSIDE/data.csv}}"},
		"read by a link":   {`ln -s "$OUTSIDE/data.csv" here; cat here || true`, events.Pair{Name: "read", Value: "$OUTSIDE/data.csv"}, "inputs: {"},
		"relative":         {`cat ../../../../../../../../../../../..$OUTSIDE/data.csv || true`, events.Pair{Name: "read", Value: "$OUTSIDE/data.csv"}, "inputs: {"},
		"list":             {`ls "$OUTSIDE" || true`, events.Pair{Name: "list", Value: "$OUTSIDE"}, "inputs: {"},
		"append":           {`echo more >> "$OUTSIDE/data.csv" || true`, events.Pair{Name: "write", Value: "$OUTSIDE/data.csv"}, "outputs: {data: {path: data.csv}}"},
		"create":           {`echo more > "$OUTSIDE/new.txt" || true`, events.Pair{Name: "write", Value: "$OUTSIDE/new.txt"}, "outputs: {new: {path: new.txt}}"},
		"make a directory": {`mkdir "$OUTSIDE/new" || true`, events.Pair{Name: "write", Value: "$OUTSIDE/new"}, "outputs: {"},
		"remove":           {`rm -f "$OUTSIDE/data.csv" || true`, events.Pair{Name: "write", Value: "$OUTSIDE/data.csv"}, "outputs: {"},
		"rename":           {`mv "$OUTSIDE/data.csv" here || true`, events.Pair{Name: "write", Value: "$OUTSIDE/data.csv"}, "outputs: {"},
		"system file":      {`echo more >> /etc/passwd || true`, events.Pair{Name: "write", Value: "/etc/passwd"}, "outputs: {"},
		"execute":          {`"$OUTSIDE/tool" || true`, events.Pair{Name: "execute", Value: "$OUTSIDE/tool"}, "isolation: {mode: enforce, readable: [$OUTSIDE]}"},
		"first line": {`printf '#!%s/tool\n' "$OUTSIDE" > s; chmod +x s; (./s) || true`, events.Pair{Name: "execute", Value: "$OUTSIDE/tool"},
			"isolation: {mode: enforce, readable: [$OUTSIDE]}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, dir := isolatedCall(t, test.script)
			copyFile(t, "/bin/true", filepath.Join(dir, "tool"))
			r, failure := run(t, c)
			if failure == nil || failure.Class != events.UndeclaredAccess {
				t.Fatalf("failure %+v, accesses %v\n%s", failure, r.Accesses, r.Stderr.Tail(1000))
			}
			want := events.Pair{Name: test.want.Name, Value: strings.ReplaceAll(test.want.Value, "$OUTSIDE", dir)}
			if !slices.Contains(r.Accesses, want) {
				t.Errorf("accesses %v, want %v", r.Accesses, want)
			}
			if mend := strings.ReplaceAll(test.mend, "$OUTSIDE", dir); !strings.Contains(failure.Reason, mend) || !strings.HasPrefix(failure.Reason, "undeclared_access: "+want.Value) {
				t.Errorf("reason %q, want %q in it", failure.Reason, mend)
			}
			if !strings.Contains(r.Evidence, want.Name+" "+want.Value) {
				t.Errorf("evidence %q", r.Evidence)
			}
			if got := read(t, filepath.Join(dir, "data.csv")); got != "secret\n" {
				t.Errorf("the file holds %q", got)
			}
			if names, _ := os.ReadDir(dir); len(names) != 2 {
				t.Errorf("the directory holds %v", names)
			}
		})
	}
}

func copyFile(tb testing.TB, from, to string) {
	tb.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		tb.Fatal(err)
	}
}

// TestDeclaredAccessWorks: what ordinary scripts do.
func TestDeclaredAccessWorks(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"pipes":        `seq 100 | sort -n | tail -1 | tee last; test "$(cat last)" = 100`,
		"background":   `(sleep 0.01; echo a > a) & (echo b > b) & wait; cat a b`,
		"subshell":     `x=$(cat /etc/passwd | wc -l); test "$x" -gt 0; f() { echo hi; }; f > f`,
		"temporary":    `f=$(mktemp); d=$(mktemp -d); echo x > "$f"; cp "$f" "$d"; rm -r "$f" "$d"; test -z "$(ls -A "$TMPDIR")"`,
		"home":         `echo x > ~/.profile; mkdir -p "$HOME/.cache/y"`,
		"devices":      `echo x > /dev/null; head -c 4 /dev/urandom > r; head -c 4 /dev/zero > z; echo out > /dev/stdout; echo err > /dev/stderr; cat < /dev/fd/0`,
		"here":         "cat <<END > h\ntext\nEND\ntest \"$(cat h)\" = text",
		"substitution": `diff <(echo a) <(echo a)`,
		"outputs":      `echo '{"n": 1}' > "$APOLLO_OUTPUTS.new"; mv "$APOLLO_OUTPUTS.new" "$APOLLO_OUTPUTS"`,
		"segments":     `echo load >> "$APOLLO_SEGMENTS"`,
		"input":        `test "$(cat "$APOLLO_IN_DROP")" = hello`,
		"long value":   `test "$(wc -c < "$APOLLO_PARAM_LONG_FILE")" = 70000`,
		"own program":  `cp /bin/true t; ./t; printf '#!/bin/sh\nexit 0\n' > s; chmod +x s; ./s`,
		"rename":       `echo x > a; mv a "$TMPDIR/b"; mv "$TMPDIR/b" c; ln c d; ln -s d e; cat e; mkfifo f`,
		"absent":       `test ! -e /nowhere/x; cat /tmp/apollo-absent-file || true; rm -f /tmp/apollo-absent-file`,
		"users":        `id > /dev/null; ls -l / > /dev/null 2>&1 || true`,
		"readable":     `cat "$OUTSIDE/data.csv"; ls "$OUTSIDE"`,
		"git":          `command -v git > /dev/null || exit 0; git init -q r; cd r; git config user.email a@b; git config user.name n; echo x > f; git add f; git commit -qm m; git log > l`,
		"perl":         `perl -e 'print "hi\n"'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, dir := isolatedCall(t, script)
			c.Params = map[string]json.RawMessage{"long": json.RawMessage(`"` + strings.Repeat("x", 70000) + `"`)}
			in := filepath.Join(c.Dir, "in", "drop", "drop.txt")
			if err := writeFile(in, "hello"); err != nil {
				t.Fatal(err)
			}
			c.Inputs = map[string]Input{"drop": {Path: in}}
			switch name {
			case "readable":
				c.Readable = []string{dir}
			case "users":
				c.Readable = []string{"/"}
			}
			r := succeed(t, c)
			if len(r.Accesses) > 0 || r.Isolation != LevelSeccomp || !r.Hermetic {
				t.Errorf("accesses %v, isolation %s, hermetic %t", r.Accesses, r.Isolation, r.Hermetic)
			}
			if name == "outputs" && string(r.Values["n"]) != "1" {
				t.Errorf("values %v", r.Values)
			}
			if name == "segments" && len(r.Segments) != 1 {
				t.Errorf("segments %v", r.Segments)
			}
		})
	}
}

// TestObservedAccessIsRecorded: nothing fails, and everything is known.
func TestObservedAccessIsRecorded(t *testing.T) {
	t.Parallel()
	c, dir := isolatedCall(t, `cat "$OUTSIDE/data.csv" > copy; ls "$OUTSIDE"; echo x > "$OUTSIDE/new"; cat copy /etc/passwd "$OUTSIDE/absent" || true`)
	c.Isolation, c.Network = "observe", ""
	r := succeed(t, c)
	want := []events.Pair{{Name: "list", Value: dir}, {Name: "read", Value: dir + "/data.csv"}, {Name: "write", Value: dir + "/new"}}
	if diff := cmp.Diff(want, r.Accesses); diff != "" {
		t.Error(diff)
	}
	if r.Isolation != LevelEnv || r.Hermetic {
		t.Errorf("isolation %s, hermetic %t", r.Isolation, r.Hermetic)
	}
	if diff := cmp.Diff([]string{"inputs: {" + RoleOf(dir) + ": {file: " + dir + "}}"}, Declare(r.Accesses)); diff != "" {
		t.Error(diff)
	}
}

// BenchmarkIsolation takes every mode and a bare process in turn.
func BenchmarkIsolation(b *testing.B) {
	root := b.TempDir()
	modes := []string{"bare", "off", "none", "observe", "enforce"}
	shell := NewShell(Settings{Owner: owner, Spare: filepath.Join(root, "spare")})
	took := map[string][]time.Duration{}
	for i := 0; b.Loop(); i++ {
		for _, mode := range modes {
			begin := time.Now()
			if mode == "bare" {
				bareExec(b)
			} else {
				c := newCall(b, "true")
				c.Isolation, c.Network = mode, ""
				switch mode {
				case "none":
					c.Isolation, c.Network = "off", "none"
				case "enforce":
					c.Network = "none"
				}
				begin = time.Now()
				shellStage(b, shell, c, root+mode, i)
			}
			took[mode] = append(took[mode], time.Since(begin))
		}
	}
	middle := func(mode string) float64 {
		slices.Sort(took[mode])
		return float64(took[mode][len(took[mode])/2].Microseconds())
	}
	for _, mode := range modes[1:] {
		b.ReportMetric(middle(mode)/middle("bare"), mode+"/bare")
	}
	b.ReportMetric(middle("bare"), "us/bare")
}
