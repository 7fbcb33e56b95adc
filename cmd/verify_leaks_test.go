package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// leak is a tiny stage whose result depends on one thing that nobody declared. The script writes the output.
type leak struct {
	name, needs, inputs, script string
	verdict, factor             string
}

const (
	fromData  = "inputs: {data: \"${{ stages.data.outputs.out }}\"}"
	fromParts = "inputs: {parts: \"${{ stages.part.outputs.out }}\"}"
)

// leaks are those that verify has to catch: with the factor when there is one.
func leaks() []leak {
	depends := func(name, factor, script string) leak {
		return leak{name: name, script: script, verdict: "depends_on", factor: factor}
	}
	chance := func(name, script string) leak { return leak{name: name, script: script, verdict: "nondeterministic"} }
	reading := func(l leak, needs, inputs string) leak {
		l.needs, l.inputs = needs, inputs
		return l
	}
	return []leak{
		depends("second", "time", "date +%s > out"),
		depends("nanosecond", "time", "date +%s.%N > out"),
		depends("day", "time", "date +%F > out"),
		depends("zone", "timezone", "date -d @0 +%H%z > out"),
		depends("lang", "locale", "python3 -c 'import locale; print(locale.setlocale(locale.LC_ALL, \"\"))' > out"),
		depends("mode", "umask", "touch \"$TMPDIR/f\"; stat -c %a \"$TMPDIR/f\" > out"),
		depends("home", "home", "basename \"$HOME\" > out"),
		depends("variables", "env", "env | cut -d= -f1 | grep -v -e LD_PRELOAD -e FAKE | sort > out"),
		depends("host", "hostname", "uname -n > out"),
		depends("processors", "cpus", "nproc > out"),
		depends("float-sum", "cpus", "python3 -c 'import os; n = len(os.sched_getaffinity(0)); v = [1e16, 1.0, -1e16, 1.0] * 50; print(repr(sum(sum(v[k::n]) for k in range(n))))' > out"),
		depends("path", "path", "pwd > out"),
		depends("run-id", "run", "echo \"$APOLLO_RUN_ID\" > out"),
		depends("key", "run", "echo \"$APOLLO_IDEMPOTENCY_KEY\" > out"),
		depends("network", "network", "python3 -c 'import socket; socket.socket(); print(1)' > out"),
		depends("undeclared", "undeclared", "cat \"$APOLLO_PARAM_NOTES\" > out"),
		depends("together", "timezone+locale", "if [ \"$TZ\" != UTC ] && [ \"$LANG\" != C.UTF-8 ]; then echo 1; else echo 0; fi > out"),
		depends("either", "timezone,locale", "echo \"$TZ $LANG\" > out"),
		reading(depends("stamp", "mtime", "stat -c %Y \"$APOLLO_IN_DATA\" > out"), "data", fromData),
		reading(depends("newest", "mtime", "ls -t \"$APOLLO_IN_PARTS\" > out"), "part", fromParts),
		reading(depends("listing", "order", "ls -U \"$APOLLO_IN_PARTS\" > out"), "part", fromParts),
		reading(depends("tree-listing", "order", "ls -U \"$APOLLO_IN_TREE\" > out"), "tree", "inputs: {tree: \"${{ stages.tree.outputs.out }}\"}"),
		reading(depends("upstream-order", "order", "ls -U \"$(dirname \"$APOLLO_IN_A\")/..\" > out"), "data, second",
			"inputs: {a: \"${{ stages.data.outputs.out }}\", b: \"${{ stages.second.outputs.out }}\"}"),
		chance("pid", "echo $$ > out"),
		chance("random", "head -c 8 /dev/urandom | od -An -tx1 > out"),
		chance("race", "for w in a b; do (for i in $(seq 60000); do echo $w; done >> out) & done; wait"),
		chance("uptime", "cut -d' ' -f1 /proc/uptime > out"),
		chance("temporary-name", "basename \"$(mktemp)\" > out"),
		chance("hash-order", "python3 -c 'print({chr(c) * 3 for c in range(65, 90)})' > out"),
		chance("address", "python3 -c 'print(id(object()))' > out"),
		chance("archive", "echo a > a; tar cf out a; rm a"),
		reading(leak{name: "pure-cat", script: "cat \"$APOLLO_IN_DATA\" > out"}, "data", fromData),
		reading(leak{name: "pure-sort", script: "sort \"$APOLLO_IN_DATA\" > out"}, "data", fromData),
		reading(leak{name: "pure-awk", script: "awk '{n += length($0)} END {print n}' \"$APOLLO_IN_DATA\" > out"}, "data", fromData),
		{name: "pure-json", script: "python3 -c 'import json; print(json.dumps({\"b\": 1, \"a\": [1, 2]}, sort_keys=True))' > out"},
		reading(leak{name: "pure-sha256", script: "sha256sum < \"$APOLLO_IN_DATA\" > out"}, "data", fromData),
		{name: "pure-pinned", script: "echo \"$SOURCE_DATE_EPOCH $APOLLO_SEED\" > out"},
	}
}

func (l *leak) yaml() string {
	text := "  " + l.name + ":\n"
	if l.needs != "" {
		text += "    needs: [" + l.needs + "]\n    " + l.inputs + "\n"
	}
	return text + "    run: |\n      " + l.script + "\n    outputs: {out: {path: out}}\n"
}

type verification struct {
	Verdict  string
	Stages   []verifiedStage
	Diverges *string `json:"first_diverging"`
}

type verifiedStage struct {
	Stage, Verdict, Factor, Output, Isolation, Reason, Diff string
	Item                                                    *int
	NotPerturbed                                            []string `json:"not_perturbed"`
}

// TestVerifyCatchesEveryLeak executes stages that leak in one known way each, and pure ones, and holds the verdicts against
// what is known. It installs nothing: what this machine cannot change is told, and fails the test only in CI, which has
// everything.
func TestVerifyCatchesEveryLeak(t *testing.T) {
	t.Parallel()
	notes := filepath.Join(t.TempDir(), "notes")
	write(t, notes, "undeclared\n")
	var definition strings.Builder
	fmt.Fprintf(&definition, "name: leaks\nparams:\n  notes: {type: string, default: %s}\n  parts: {type: array, items: {type: string}, default: [x, y, z, w]}\nstages:\n", notes)
	definition.WriteString("  data: {run: 'printf \"c\\nb\\na\\n\" > out', outputs: {out: {path: out}}}\n")
	definition.WriteString("  part: {foreach: params.parts, run: 'echo \"$APOLLO_ITEM\" > out', outputs: {out: {path: out}}}\n")
	definition.WriteString("  tree: {run: 'mkdir -p tree/below; touch tree/a tree/b tree/below/c', outputs: {out: {path: tree/}}}\n")
	for _, l := range leaks() {
		definition.WriteString(l.yaml())
	}
	s := newSite(t, "leaks", definition.String())
	s.must("run", "leaks")
	out, errs, code := s.apollo("verify", "latest", "-o", "json")
	if code != 14 {
		t.Fatalf("exit %d, wanted 14\n%s%s", code, out, errs)
	}
	got := decode[verification](t, out)
	if got.Verdict != "differs" || got.Diverges == nil || *got.Diverges != "second" {
		t.Errorf("verdict %q, first diverging %v", got.Verdict, got.Diverges)
	}
	of := map[string]verifiedStage{}
	for _, v := range got.Stages {
		of[v.Stage] = v
	}
	for _, l := range leaks() {
		checkLeak(t, &l, of[l.name])
	}
	for _, pure := range []string{"data", "part", "tree"} {
		if of[pure].Verdict != "reproduced" {
			t.Errorf("%s: %+v", pure, of[pure])
		}
	}
	s.healthy()
	factor := "time"
	if slices.Contains(of["second"].NotPerturbed, factor) {
		factor = ""
	}
	checkProofs(t, s, factor)
}

func checkLeak(t *testing.T, l *leak, got verifiedStage) {
	t.Helper()
	want := l.verdict
	if want == "" {
		want = "reproduced"
	}
	for factor := range strings.FieldsFuncSeq(l.factor, func(r rune) bool { return r == '+' || r == ',' }) {
		if !slices.Contains(got.NotPerturbed, factor) {
			continue
		}
		if os.Getenv("CI") == "true" && os.Getuid() == 0 {
			t.Errorf("%s: this machine cannot change %s; install libfaketime for time, and give it two processors for cpus", l.name, factor)
		}
		t.Logf("%s: %s cannot be changed here: %s", l.name, factor, got.Verdict)
		return
	}
	if got.Verdict != want || got.Factor != l.factor {
		t.Errorf("%s: %s %s, wanted %s %s: %s\n%s", l.name, got.Verdict, got.Factor, want, l.factor, got.Reason, got.Diff)
	}
	if want != "reproduced" && got.Output != "out" && l.factor != "undeclared" && l.factor != "network" {
		t.Errorf("%s: the output that differs is %q", l.name, got.Output)
	}
}

// checkProofs sees that the verdicts are in the log, the first with its factor, with their evidence among the artifacts.
func checkProofs(t *testing.T, s *site, factor string) {
	t.Helper()
	type proof struct {
		Verdict, Factor, Isolation, Last string
		Reproduced, Machines             int
	}
	shown := decode[struct {
		Findings []struct{ Stage string }
		Verified *proof
		Stages   []struct {
			Stage    string
			Findings int
			Verified *proof
		}
	}](t, s.must("show", "latest", "-o", "json"))
	if shown.Verified == nil || shown.Verified.Verdict != "differs" || shown.Verified.Factor != factor || len(shown.Findings) < 10 {
		t.Errorf("the run is shown with %+v and %d findings", shown.Verified, len(shown.Findings))
	}
	for _, st := range shown.Stages {
		switch st.Stage {
		case "pure-cat":
			if p := st.Verified; p == nil || p.Verdict != "reproduced" || p.Reproduced != 1 || p.Machines != 1 || p.Isolation == "" || p.Last == "" || st.Findings > 0 {
				t.Errorf("pure-cat is shown with %+v and %d findings", p, st.Findings)
			}
		case "random":
			if p := st.Verified; p == nil || p.Verdict != "nondeterministic" || p.Reproduced > 0 || st.Findings != 1 {
				t.Errorf("random is shown with %+v and %d findings", p, st.Findings)
			}
		case "zone":
			if p := st.Verified; p == nil || p.Factor != "timezone" || st.Findings > 0 {
				t.Errorf("zone is shown with %+v and %d findings", p, st.Findings)
			}
		}
	}
}
