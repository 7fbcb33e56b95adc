package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/handlers/web"
)

// steerView is what show says of a run that people have steered.
type steerView struct {
	Run, State, Class, Reason, Plan string

	Resumed     bool
	From        string
	Forked      string `json:"forked_from"`
	CancelledBy string `json:"cancelled_by"`
	Params      map[string]any
	Stages      []struct {
		Stage, State, Reason string
		Item                 *int
		Attempt              int
		Reused               bool
		OpenedBy             string `json:"opened_by"`
		WaitsFor             string `json:"waits_for"`
		Outputs              map[string]outputView
		Answer               *struct {
			Approved   bool
			By, Reason string
		}
	}
}

func (s *site) steered(run string) steerView {
	s.t.Helper()
	return decode[steerView](s.t, s.must("show", run, "-o", "json"))
}

// apart runs a command in a process of its own and gives what it says and its exit code.
func (s *site) apart(args ...string) (text string, code int) {
	s.t.Helper()
	out, err := s.command(nil, args...).CombinedOutput()
	return string(out), exitCode(err)
}

// tenStages is a pipeline of ten stages in a row, each of which writes its name into the trace; the fifth fails until a
// file is there.
func tenStages(trace string) string {
	var b strings.Builder
	b.WriteString("name: ten\nstages:\n")
	for i := 1; i <= 10; i++ {
		fmt.Fprintf(&b, "  s%d:\n    run: |\n      echo s%d >> \"$TRACE\"\n", i, i)
		if i == 5 {
			b.WriteString("      test -e \"$TRACE.mended\"\n")
		}
		fmt.Fprintf(&b, "    env: {TRACE: %q}\n", trace)
		if i > 1 {
			fmt.Fprintf(&b, "    needs: [s%d]\n", i-1)
		}
	}
	return b.String()
}

// TestCase_R11: the definition is edited between the failure and the resume. The run goes on by the plan that it began
// with, with all its stages, and says so; what had completed is not done again.
func TestCase_R11(t *testing.T) {
	t.Parallel()
	for _, through := range []string{"a server", "nobody"} {
		t.Run(through, func(t *testing.T) {
			t.Parallel()
			path := trace(t)
			s := newSite(t, "ten", tenStages(path))
			text, code := s.apart("run", "ten", "-o", "json")
			if code != 10 {
				t.Fatalf("exit %d\n%s", code, text)
			}
			run := s.runs()[0].Run
			before := s.steered(run)
			edited := strings.ReplaceAll(tenStages(path), "s3", "renamed")
			edited = strings.ReplaceAll(strings.ReplaceAll(edited, "  s9:", "  gone:"), "[s9]", "[gone]")
			write(t, filepath.Join(s.pipelines, "ten", "pipeline.yaml"), edited)
			write(t, path+".mended", "")
			if through == "a server" {
				s.serve()
			}
			if text, code = s.apart("resume", "latest", "--reason", "mended"); code != 0 {
				t.Fatalf("exit %d\n%s", code, text)
			}
			if !strings.Contains(text, "goes by the plan that it began with: 10 stages, "+before.Plan) {
				t.Errorf("it is not said which definition was used:\n%s", text)
			}
			if strings.Contains(text, "s4  ● running") {
				t.Errorf("what was before is told again:\n%s", text)
			}
			after := s.steered(run)
			if after.State != "completed" || !after.Resumed || after.Plan != before.Plan || len(after.Stages) != 10 || after.Stages[2].Stage != "s3" {
				t.Errorf("after the resume: %+v", after)
			}
			b, err := os.ReadFile(path)
			if err != nil || string(b) != "s1\ns2\ns3\ns4\ns5\ns5\ns6\ns7\ns8\ns9\ns10\n" {
				t.Errorf("stages ran as %q: %v", b, err)
			}
			if text, code = s.apart("resume", run); code != 6 || !strings.Contains(text, "E_NOT_FAILED") {
				t.Errorf("a second resume: exit %d\n%s", code, text)
			}
			s.healthy()
		})
	}
}

// A rerun has a run's plan, input and parameters, and takes over what completed before the stage that it begins with.
func TestRerun(t *testing.T) {
	t.Parallel()
	path := trace(t)
	definition := `name: again
params:
  who: {type: string, default: Ada}
  n: {type: integer, default: 1}
stages:
  first:
    run: |
      echo first >> "$TRACE"
      date +%N > stamp
    env: {TRACE: "` + path + `"}
    outputs: {stamp: {path: stamp}}
  second:
    needs: [first]
    inputs: {stamp: "${{ stages.first.outputs.stamp }}"}
    run: |
      echo "second $APOLLO_PARAM_WHO $APOLLO_PARAM_N" >> "$TRACE"
      cp "$APOLLO_IN_STAMP" copy
    env: {TRACE: "` + path + `"}
    outputs: {copy: {path: copy}}
  side: {run: "true"}
`
	s := newSite(t, "again", definition)
	if text, code := s.apart("run", "again", "--param", "who=Bob"); code != 0 {
		t.Fatalf("exit %d\n%s", code, text)
	}
	first := s.steered("latest")
	write(t, filepath.Join(s.pipelines, "again", "pipeline.yaml"), strings.ReplaceAll(definition, "second", "other"))
	text, code := s.apart("rerun", first.Run, "--from", "second", "--param", "n=7", "-o", "json")
	if code != 0 {
		t.Fatalf("exit %d\n%s", code, text)
	}
	again := s.steered("latest")
	if again.Run == first.Run || again.Forked != first.Run || again.From != "second" || again.Plan != first.Plan || again.Params["who"] != "Bob" || again.Params["n"] != 7.0 {
		t.Errorf("the rerun is %+v", again)
	}
	a, b := &again.Stages[0], &again.Stages[1]
	if !a.Reused || b.Reused || a.Outputs["stamp"].Digest != first.Stages[0].Outputs["stamp"].Digest || b.Outputs["copy"].Digest != a.Outputs["stamp"].Digest {
		t.Errorf("stages: %+v", again.Stages)
	}
	if b, err := os.ReadFile(path); string(b) != "first\nsecond Bob 1\nsecond Bob 7\n" {
		t.Errorf("stages ran as %q: %v", b, err)
	}
	if text = s.must("show", again.Run); !strings.Contains(text, "rerun of "+first.Run+" from the stage second") || !strings.Contains(text, "taken over") {
		t.Errorf("show says:\n%s", text)
	}
	s.serve()
	if text, code = s.apart("rerun", again.Run, "--from", "second"); code != 0 || s.steered("latest").Forked != again.Run || s.steered("latest").Params["n"] != 7.0 {
		t.Errorf("a rerun of a rerun: exit %d\n%s", code, text)
	}
	for want, args := range map[string][]string{"5 E_REF": {"--from", "third"}, "2 E_PARAM": {"--param", "n=x"}, "2 E_PARAM nope": {"--param", "nope=1"}, "2 E_USAGE": {"--param", "n"}} {
		text, code := s.apart(append([]string{"rerun", first.Run}, args...)...)
		exit, says, _ := strings.Cut(want, " ")
		if strconv.Itoa(code) != exit || !strings.Contains(text, strings.Fields(says)[0]) {
			t.Errorf("%v: exit %d, want %s\n%s", args, code, want, text)
		}
	}
	s.healthy()
}

// A run that goes on is not run anew: what it has done so far would be taken over, and no more.
func TestRerunOfARunThatGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ask", "name: ask\nstages: {ask: {approval: Go on?}}\n")
	s.serve()
	run := s.detach("ask")
	if text, code := s.apart("rerun", run, "--detach"); code != 6 || !strings.Contains(text, "E_NOT_ENDED") {
		t.Errorf("exit %d\n%s", code, text)
	}
	if text, code := s.apart("cancel", run); code != 0 {
		t.Errorf("exit %d\n%s", code, text)
	}
}

// A gate that has rejected a stage is opened: its outputs are as it made them, nothing is done again, and the log says
// who did it.
func TestGateOpen(t *testing.T) {
	t.Parallel()
	path := trace(t)
	s := newSite(t, "gate", `name: gate
stages:
  load:
    run: |
      echo load >> "$TRACE"
      echo '{"rows": 3}' > "$APOLLO_OUTPUTS"
    env: {TRACE: "`+path+`"}
    outputs: {rows: {type: integer}}
    gate: [{check: outputs.rows >= 10, message: too few rows}]
  each:
    foreach: "[1, 2]"
    run: echo "{\"n\":$N}" > "$APOLLO_OUTPUTS"
    env: {N: "${{ item }}"}
    outputs: {n: {type: integer}}
    gate: [{check: outputs.n < 2}]
  after: {needs: [load], run: "true"}
  last: {needs: [each], run: "true"}
`)
	if text, code := s.apart("run", "gate"); code != 13 {
		t.Fatalf("exit %d\n%s", code, text)
	}
	run := s.runs()[0].Run
	checks := s.must("show", run, "--checks")
	for _, want := range []string{"load  ✖ failed", "gate       outputs.rows >= 10  ✖ does not hold", "outputs.rows = 3", "each#1  ✔ completed", "✔ holds"} {
		if !strings.Contains(checks, want) {
			t.Errorf("%q is not among the checks:\n%s", want, checks)
		}
	}
	for _, stage := range []string{"after", "each#1"} {
		if text, code := s.apart("gate", "open", run, stage); code != 6 || !strings.Contains(text, "E_NO_GATE") {
			t.Errorf("%s: exit %d\n%s", stage, code, text)
		}
	}
	if text, code := s.apart("gate", "open", run, "nothing"); code != 5 || !strings.Contains(text, "E_REF") {
		t.Errorf("exit %d\n%s", code, text)
	}
	if text, code := s.apart("gate", "open", run, "each#2"); code != 13 {
		t.Errorf("load's own gate is still shut: exit %d\n%s", code, text)
	}
	if v := s.steered(run); v.Stages[1].State != "completed" || v.Stages[0].Attempt != 2 {
		t.Errorf("after one gate: %+v", v.Stages)
	}
	s.serve()
	if text, code := s.apart("gate", "open", run, "load", "--reason", "it was a holiday"); code != 0 || !strings.Contains(text, "gate opened by "+web.UserName(os.Geteuid())) {
		t.Errorf("exit %d\n%s", code, text)
	}
	v := s.steered(run)
	if load := &v.Stages[0]; v.State != "completed" || load.OpenedBy != web.UserName(os.Geteuid()) || string(load.Outputs["rows"].Value) != "3" {
		t.Errorf("after both: %+v", v)
	}
	if b, err := os.ReadFile(path); string(b) != "load\nload\n" { // once more for the resume that left its gate shut
		t.Errorf("load ran as %q: %v", b, err)
	}
	s.healthy()
}

// The engine is killed in the middle of a stage with children. A cancel alone takes its place: it ends all of them and
// starts nothing of the run again.
func TestCancelOfADeadEngine(t *testing.T) {
	t.Parallel()
	pids := trace(t)
	s := newSite(t, "dead", treePipeline("dead", pids, "5m"))
	s.serve()
	run := s.detach("dead")
	tree := treeOf(t, pids)
	s.kill()
	if !slices.ContainsFunc(tree, alive) {
		t.Fatal("the tree ended with its engine: the case cannot be tested")
	}
	if text, code := s.apart("cancel", run, "--reason", "its engine is dead"); code != 0 {
		t.Fatalf("exit %d\n%s", code, text)
	}
	for _, pid := range tree {
		if alive(pid) {
			t.Errorf("process %d is left over", pid)
		}
	}
	v := s.steered(run)
	if v.State != "cancelled" || v.Reason != "its engine is dead" || v.CancelledBy != web.UserName(os.Geteuid()) || v.Stages[0].State != "cancelled" || v.Stages[0].Attempt != 1 {
		t.Errorf("%+v", v)
	}
	if b, err := os.ReadFile(pids); err != nil || len(strings.Fields(string(b))) != 3 {
		t.Errorf("the stage was started again: %q, %v", b, err)
	}
	if text, code := s.apart("cancel", run); code != 6 || !strings.Contains(text, "E_RUN_ENDED") {
		t.Errorf("a second cancel: exit %d\n%s", code, text)
	}
	s.healthy()
}

// What waits for a person while nobody has the engine is answered all the same, and the run goes on as far as it can.
func TestAnswerWithoutAServer(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ask", `name: ask
stages:
  one: {approval: First?}
  work: {needs: [one], run: "true"}
  two: {needs: [work], approval: Second?}
  end: {needs: [two], run: "true"}
`)
	s.serve()
	run := s.detach("ask")
	s.waits(run, "one")
	if code := s.stop(); code != 0 {
		t.Fatalf("exit %d\n%s", code, s.stderr)
	}
	text, code := s.apart("approve", run, "one")
	if v := s.steered(run); code != 0 || v.Stages[1].State != "completed" || v.Stages[2].WaitsFor != "approval" || !strings.Contains(text, "waits for a person now") {
		t.Errorf("exit %d: %+v\n%s", code, v.Stages, text)
	}
	if text, code = s.apart("reject", run, "two", "--reason", "not today"); code != 0 {
		t.Errorf("exit %d\n%s", code, text)
	}
	if v := s.steered(run); v.State != "failed" || v.Class != "gate_rejected" || !strings.Contains(v.Reason, "not today") || v.Stages[3].State != "skipped" {
		t.Errorf("%+v", v)
	}
	s.healthy()
}

// waits returns once a stage is waiting for a person.
func (s *site) waits(run, stage string) {
	s.t.Helper()
	eventually(s.t, stage+" waits for a person", func() bool {
		return slices.ContainsFunc(s.asked(), func(w web.Approval) bool { return w.Run == run && w.Label() == stage })
	})
}

func (s *site) asked() []web.Approval {
	s.t.Helper()
	return decode[[]web.Approval](s.t, s.must("approvals", "-o", "json"))
}
