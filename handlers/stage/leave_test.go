package stage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage/artifacts"
)

func pinsOf(t *testing.T, o Outcome) (p events.Pins) {
	t.Helper()
	want(t, json.Unmarshal(o.Data.Pinned, &p), nil)
	return p
}

func infoOf(b *bench, content string) artifacts.Info {
	return artifacts.Info{Digest: b.put(content), Size: int64(len(content))}
}

func TestWhatIsLeftInOut(t *testing.T) {
	t.Parallel()
	outputs := []events.Output{{Role: "clean", Path: "a/clean.csv"}, {Role: "parts", Path: "parts/"}, {Role: "n"}}
	body := files(map[string]string{"a/clean.csv": "x", "a/scratch": "", "a/deep/one": "", "a/deep/two": "", "parts/x": "x", "parts/deep/y": "", "core": "", "Über Log.txt": ""})
	both := func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
		r, f := body(ctx, c)
		r.Values = map[string]json.RawMessage{"n": json.RawMessage("1")}
		r.Accesses = []events.Pair{{Name: "read", Value: "/etc/passwd"}}
		return r, f
	}
	b := newBench(t)
	o := b.run(attempt(&events.Stage{Outputs: outputs, Isolation: "observe"}), both)
	want(t, o.Failure, (*events.Failure)(nil))
	want(t, o.Data.Accesses, []events.Pair{{Name: "leave", Value: "out/a/deep/"}, {Name: "leave", Value: "out/a/scratch"},
		{Name: "leave", Value: "out/core"}, {Name: "leave", Value: "out/Über Log.txt"}, {Name: "read", Value: "/etc/passwd"}})
	b = newBench(t)
	o = b.run(attempt(&events.Stage{Outputs: outputs, Isolation: "off"}), both)
	want(t, []any{o.Failure, len(o.Data.Accesses)}, []any{(*events.Failure)(nil), 1})
	b = newBench(t)
	o = b.run(attempt(&events.Stage{Outputs: outputs, Isolation: "enforce"}), both)
	want(t, o.Failure, &events.Failure{Class: events.BadOutput, Pointer: "/outputs", Expected: "declared outputs only", Actual: "out/a/deep/, out/a/scratch, out/core",
		Reason: "the stage left out/a/deep/, which is no declared output; add outputs: {deep: {path: a/deep/}}, or write scratch files to $TMPDIR"})
	want(t, len(o.Data.Outputs), 0)
	many := map[string]string{}
	for i := range 70 {
		many[fmt.Sprintf("f%02d", i)] = ""
	}
	b = newBench(t)
	o = b.run(attempt(&events.Stage{Isolation: "observe"}), files(many))
	want(t, len(o.Data.Accesses), maxLeft+1)
	want(t, o.Data.Accesses[maxLeft], events.Pair{Name: "leave", Value: "out/... and 20 more"})
	b = newBench(t)
	o = b.run(attempt(&events.Stage{Isolation: "enforce"}), files(map[string]string{".Ünï": ""}))
	want(t, strings.Contains(o.Failure.Reason, "{file_n: {path: .Ünï}}"), true)
	want(t, newBench(t).run(attempt(&events.Stage{Isolation: "enforce"}), nothing).Failure, (*events.Failure)(nil))
}

// TestOutputsAreTakenAfterTheTree: a child that goes on writing after the stage's own process has ended writes into nothing
// that is kept: it is gone before the outputs are looked at.
func TestOutputsAreTakenAfterTheTree(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"in the group": `(while :; do echo late >> log; echo late >> parts/log; done) & while [ ! -s log ]; do :; done`,
		"in a session": `setsid sh -c 'while :; do echo late >> log; echo late >> parts/log; done' >/dev/null 2>&1 & while [ ! -s log ]; do :; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			for _, ex := range executor.Builtin(executor.Settings{Owner: "after-the-tree"}) {
				b.Executors[ex.Spec().Name] = ex
			}
			with, err := json.Marshal(map[string]string{"script": "mkdir parts; " + script})
			want(t, err, nil)
			a := attempt(&events.Stage{Name: strings.ReplaceAll(name, " ", "-"), Executor: "shell", With: with,
				Outputs: []events.Output{{Role: "log", Path: "log"}, {Role: "parts", Path: "parts/"}}})
			o := b.Run(t.Context(), a)
			if o.Failure != nil {
				t.Fatal(o.Failure)
			}
			if o.Data.Leftovers == 0 {
				t.Error("nothing was left over: the test proves nothing")
			}
			for _, r := range o.Data.Outputs[:1] {
				if content := b.get(r.Digest); int64(len(content)) != r.Size {
					t.Errorf("%s has %d bytes, recorded are %d", r.Role, len(content), r.Size)
				}
			}
			m, err := b.store.Manifest(t.Context(), o.Data.Outputs[1].Digest)
			want(t, err, nil)
			want(t, int64(len(b.get(m.Entries[0].Digest))), m.Entries[0].Size)
			open, _ := filepath.Glob("/proc/[0-9]*/fd/*")
			for _, fd := range open {
				if to, _ := os.Readlink(fd); strings.HasPrefix(to, b.WorkDir) || strings.HasPrefix(to, filepath.Join(filepath.Dir(b.WorkDir), "artifacts", "sha256")+"/") && strings.Count(to, "/sha256/") == 1 && len(filepath.Base(to)) == 62 {
					t.Errorf("%s still has %s open", fd, to)
				}
			}
		})
	}
}
