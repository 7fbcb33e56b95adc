package configs

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
	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
)

func FuzzParse(f *testing.F) {
	for _, c := range badFiles {
		if len(c.src) < 1<<10 { // the fuzzer works on small inputs; the bounds on large ones have tests of their own
			f.Add([]byte(c.src))
		}
	}
	seeds, _ := filepath.Glob("examples/*/pipeline.yaml")
	for _, path := range append(seeds, "testdata/language/orders.yaml") {
		src, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, src []byte) {
		p, problems := Parse("p.yaml", src, dir, Options{})
		if (p == nil) != problems.HasErrors() {
			t.Fatalf("pipeline %v with problems %v", p != nil, problems)
		}
		for _, found := range problems {
			if _, known := ExplainCode(found.Code); !known || found.Text() == "" {
				t.Errorf("%+v has no code of the table", found)
			}
		}
		if p != nil {
			if _, err := p.Plan().Encode(); err != nil {
				t.Error(err)
			}
		}
	})
}

// many writes a chain of stages as short as they can be.
func many(stages int) []byte {
	var b strings.Builder
	b.WriteString("name: big\nstages:\n")
	for i := range stages {
		fmt.Fprintf(&b, " s%d: {run: x", i)
		if i%3 == 1 {
			fmt.Fprintf(&b, ",needs: [s%d]", i-1)
		}
		b.WriteString("}\n")
	}
	return []byte(b.String())
}

// TestTenThousandStages counts what grows: the work after the parser is at most proportional to the stages.
func TestTenThousandStages(t *testing.T) {
	t.Parallel()
	src := many(MaxStages)
	if len(src) > MaxFileSize {
		t.Fatalf("%d bytes do not fit into one file", len(src))
	}
	p, problems := Parse("big.yaml", src, "", Options{})
	if p == nil {
		t.Fatal(problems)
	}
	if n := len(p.Plan().Stages); n != MaxStages {
		t.Errorf("%d stages", n)
	}
	_, problems = Parse("big.yaml", append(src, " more: {run: x}\n"...), "", Options{})
	if len(problems) != 1 || problems[0].Code != "E_SIZE" {
		t.Error(problems)
	}
}

func BenchmarkTenThousandStages(b *testing.B) {
	for _, n := range []int{2_500, 5_000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			src := many(n)
			for b.Loop() {
				if p, problems := Parse("big.yaml", src, "", Options{}); p == nil {
					b.Fatal(problems)
				}
			}
		})
	}
}

// TestPortionsChangeNothing compares a file that is parsed in portions with one that is not.
func TestPortionsChangeNothing(t *testing.T) {
	t.Parallel()
	stages := strings.TrimPrefix(string(many(3*portion)), "name: big\nstages:\n")
	whole := strings.ReplaceAll("stages: {\n"+strings.ReplaceAll(stages, "}\n", "},\n")+"}\n", "},\n}", "}}")
	inPortions := "# one\nstages: # two\n # three\n" + stages + "# four\n"
	var plans []*events.Plan
	for _, src := range []string{"name: big\n" + whole, "name: big\n" + inPortions, inPortions + "name: big\n", inPortions + "\nname: big\ndescription: \"\" \n"} {
		p, problems := Parse("big.yaml", []byte(src), "", Options{})
		if p == nil {
			t.Fatal(problems)
		}
		plans = append(plans, p.Plan())
		if diff := cmp.Diff(plans[0], plans[len(plans)-1]); diff != "" {
			t.Error(diff)
		}
	}
}

// TestPortionsKeepPlaces looks for faults in the middle and at the end of a long file.
func TestPortionsKeepPlaces(t *testing.T) {
	t.Parallel()
	src := string(many(3 * portion))
	src = strings.Replace(src, " s150: {run: x", " s150: {runn: x", 1) + " s7: {run: x}\nnme: x\n"
	_, problems := Parse("big.yaml", []byte(src), "", Options{})
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%d:%d %s", p.Line, p.Col, p.Code))
	}
	want := []string{"153:2 E_EXECUTOR", "153:9 E_FIELD", "303:2 E_DUP_STAGE", "304:1 E_FIELD"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("places differ (-want +got):\n%s\n%v", diff, problems)
	}
	broken := strings.Replace(string(many(3*portion)), " s150: {run: x", " s150: {run: [x", 1)
	_, problems = Parse("big.yaml", []byte(broken), "", Options{})
	if len(problems) != 1 || problems[0].Code != "E_YAML_SYNTAX" || problems[0].Line != 153 {
		t.Error(problems)
	}
}

// writeYAML writes a plan as a person would, in the order of its stages.
func writeYAML(p *events.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %q\nstages:\n", p.Pipeline)
	for _, s := range p.Stages {
		var with scriptSettings
		_ = json.Unmarshal(s.With, &with)
		fmt.Fprintf(&b, "  %q:\n    run: %q\n", s.Name, with.Script)
		if len(s.Needs) > 0 {
			fmt.Fprintf(&b, "    needs: [\"%s\"]\n", strings.Join(s.Needs, `", "`))
		}
		if s.Timeout > 0 {
			fmt.Fprintf(&b, "    timeout: %s\n", DurationText(s.Timeout))
		}
		if s.MayFail {
			b.WriteString("    may_fail: true\n")
		}
		for i, in := range s.Inputs {
			if i == 0 {
				b.WriteString("    inputs:\n")
			}
			fmt.Fprintf(&b, "      %q: \"${{ %s }}\"\n", in.Role, in.From)
		}
		for i, o := range s.Outputs {
			if i == 0 {
				b.WriteString("    outputs:\n")
			}
			fmt.Fprintf(&b, "      %q: {path: %q, optional: %v}\n", o.Role, o.Path, o.Optional)
		}
		if s.Resources != nil {
			fmt.Fprintf(&b, "    resources: {memory: %s, network: %s}\n", SizeText(s.Resources.Memory), RateText(s.Resources.Network))
		}
	}
	return b.String()
}

func randomPlan(t *rapid.T) *events.Plan {
	name := rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,12}[a-z]`)
	p := &events.Plan{Schema: 1, Pipeline: name.Draw(t, "pipeline")}
	names := rapid.SliceOfNDistinct(name, 1, 8, rapid.ID[string]).Draw(t, "stages")
	for i, n := range names {
		with, _ := json.Marshal(scriptSettings{Script: rapid.StringMatching(`[a-z][ -#%-z中文é]{0,20}[a-z]`).Draw(t, "script")})
		s := events.Stage{Name: n, Executor: "shell", With: with, Isolation: "observe",
			MayFail: rapid.Bool().Draw(t, "may fail")}
		s.Timeout = time.Duration(rapid.Int64Range(1, 1<<60).Draw(t, "timeout"))
		if rapid.Bool().Draw(t, "resources") {
			s.Resources = &events.Resources{Memory: rapid.Int64Range(1, 1<<50).Draw(t, "memory"), Network: rapid.Int64Range(1, 1<<40).Draw(t, "network")}
		}
		for _, o := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,5}`), 0, 3, rapid.ID[string]).Draw(t, "outputs") {
			s.Outputs = append(s.Outputs, events.Output{Role: o, Path: o + "/数据.bin", Optional: rapid.Bool().Draw(t, "optional")})
		}
		slices.SortFunc(s.Outputs, func(a, b events.Output) int { return strings.Compare(a.Role, b.Role) })
		for _, earlier := range p.Stages[:i] {
			if !rapid.Bool().Draw(t, "need") {
				continue
			}
			s.Needs = append(s.Needs, earlier.Name)
			for _, o := range earlier.Outputs {
				in := events.Input{Role: fmt.Sprintf("r%d", len(s.Inputs)), From: "stages." + earlier.Name + ".outputs." + o.Role, Expr: true}
				s.Inputs = append(s.Inputs, in)
				if !slices.Contains(s.Reads, earlier.Name) {
					s.Reads = append(s.Reads, earlier.Name)
				}
			}
		}
		slices.SortFunc(s.Inputs, func(a, b events.Input) int { return strings.Compare(a.Role, b.Role) })
		slices.Sort(s.Reads)
		p.Stages = append(p.Stages, s)
	}
	return p
}

// TestPlanSurvivesYAML writes random plans as YAML; reading gives the same plan.
func TestPlanSurvivesYAML(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := randomPlan(t)
		src := writeYAML(want)
		p, problems := Parse("p.yaml", []byte(src), "", Options{})
		if p == nil {
			t.Fatalf("%v\n%s", problems, src)
		}
		if diff := cmp.Diff(want, p.Plan()); diff != "" {
			t.Fatalf("the plan differs (-want +got):\n%s\n%s", diff, src)
		}
	})
}

// TestOrderIsTopologicalWithTiesByDeclaration compares with the plain definition of that order.
func TestOrderIsTopologicalWithTiesByDeclaration(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "stages")
		rank := rapid.Permutation(numbers(n)).Draw(t, "rank") // a stage may need those of lower rank only
		needs := make([][]int, n)
		var b strings.Builder
		b.WriteString("name: x\nstages:\n")
		for i := range n {
			fmt.Fprintf(&b, "  s%d: {run: x, needs: [", i)
			for j := range n {
				if rank[j] < rank[i] && rapid.Bool().Draw(t, "need") {
					if len(needs[i]) > 0 {
						b.WriteString(", ")
					}
					fmt.Fprintf(&b, "s%d", j)
					needs[i] = append(needs[i], j)
				}
			}
			b.WriteString("]}\n")
		}
		p, problems := Parse("p.yaml", []byte(b.String()), "", Options{})
		if p == nil {
			t.Fatal(problems)
		}
		var got []string
		for _, s := range p.Plan().Stages {
			got = append(got, s.Name)
		}
		if want := plainOrder(n, needs); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v for\n%s", got, want, b.String())
		}
	})
}

func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// plainOrder takes, again and again, the first declared stage whose needs are all taken.
func plainOrder(n int, needs [][]int) []string {
	var out []string
	taken := make([]bool, n)
	for len(out) < n {
		for i := range n {
			if !taken[i] && !slices.ContainsFunc(needs[i], func(j int) bool { return !taken[j] }) {
				taken[i] = true
				out = append(out, fmt.Sprintf("s%d", i))
				break
			}
		}
	}
	return out
}
