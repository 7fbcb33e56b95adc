package configs

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
)

// definitions writes files into a directory of their own.
func definitions(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const greet = `name: greet
params: {who: {type: string, minLength: 2}}
outputs: {text: "${{ stages.say.outputs.text }}"}
stages:
  say: {run: echo, outputs: {text: {type: string}}}
`

func runs(stage string) string { return "name: parent\nstages:\n  a: {" + stage + "}\n" }

// TestChildIsFrozen: the plan of the stage holds the other pipeline whole, and does not change with its file.
func TestChildIsFrozen(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"by the file's name": "greet.yaml", "by the name inside": "other.yml", "in a directory": "greet/pipeline.yaml",
		"beside the directory": "../greet/pipeline.yaml"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := definitions(t, map[string]string{"parent/parent.yaml": runs(`pipeline: {name: greet, params: {who: "ada"}}, outputs: {text: {type: string}}`),
				filepath.Join("parent", file): greet})
			p, problems := LoadFile(filepath.Join(dir, "parent", "parent.yaml"), Options{})
			if p == nil {
				t.Fatal(problems)
			}
			var with struct {
				Name   string
				Params map[string]string
				Plan   *events.Plan
			}
			if err := json.Unmarshal(p.Plan().Stages[0].With, &with); err != nil {
				t.Fatal(err)
			}
			child, _ := LoadFile(filepath.Join(dir, "parent", file), Options{})
			if diff := cmp.Diff(child.Plan(), with.Plan); diff != "" || with.Name != "greet" || with.Params["who"] != "ada" {
				t.Errorf("%s %v\n%s", with.Name, with.Params, diff)
			}
		})
	}
}

func TestChildIsChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stage string
		files map[string]string
		want  string
	}{
		"no such pipeline":      {`pipeline: gret`, nil, "3:17 E_REF there is no pipeline gret"},
		"itself":                {`pipeline: parent`, nil, "3:17 E_TRIGGER_LOOP the pipeline starts itself"},
		"a missing parameter":   {`pipeline: greet`, nil, "3:17 E_PARAM the parameter who of the pipeline greet has no value"},
		"an unknown parameter":  {`pipeline: {name: greet, params: {who: "ada", wo: "x"}}`, nil, "3:52 E_PARAM the pipeline greet has no parameter wo"},
		"a wrong parameter":     {`pipeline: {name: greet, params: {who: "a"}}`, nil, "3:45 E_PARAM the parameter who breaks its schema in greet"},
		"an output of nobody":   {`pipeline: {name: greet, params: {who: "ada"}}, outputs: {card: {type: string}}`, nil, "3:24 E_REF the pipeline greet gives no output card"},
		"an error in the child": {`pipeline: bad`, map[string]string{"bad.yaml": "name: bad\nstages:\n  a: {rn: x}\n"}, `3:17 E_EXECUTOR the pipeline bad has an error: bad.yaml:3:`},
		"a circle":              {`pipeline: two`, map[string]string{"two.yaml": "name: two\nstages: {a: {pipeline: parent}}\n"}, "3:17 E_TRIGGER_LOOP the pipeline two has an error: two.yaml:2:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"parent.yaml": runs(c.stage), "greet.yaml": greet}
			maps.Copy(files, c.files)
			_, problems := LoadFile(filepath.Join(definitions(t, files), "parent.yaml"), Options{})
			if len(problems) != 1 {
				t.Fatal(problems)
			}
			p := problems[0]
			if got := strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Col) + " " + p.Code + " " + p.Message; !strings.HasPrefix(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestChildrenAreTenDeep: the eleventh is refused, with the place in the first.
func TestChildrenAreTenDeep(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 12 {
		stage := "{run: echo}"
		if i < 11 {
			stage = "{pipeline: p" + strconv.Itoa(i+1) + "}"
		}
		files["p"+strconv.Itoa(i)+".yaml"] = "name: p" + strconv.Itoa(i) + "\nstages: {a: " + stage + "}\n"
	}
	dir := definitions(t, files)
	if p, problems := LoadFile(filepath.Join(dir, "p1.yaml"), Options{}); p == nil {
		t.Errorf("ten deep: %v", problems)
	}
	_, problems := LoadFile(filepath.Join(dir, "p0.yaml"), Options{})
	if len(problems) != 1 || problems[0].Code != "E_DEPTH" {
		t.Errorf("eleven deep: %v", problems)
	}
}

func TestOutputsOfAPipeline(t *testing.T) {
	t.Parallel()
	p, problems := Parse("p.yaml", []byte(greet), t.TempDir(), Options{})
	if p == nil {
		t.Fatal(problems)
	}
	if diff := cmp.Diff([]events.PlanOutput{{Role: "text", From: "stages.say.outputs.text"}}, p.Plan().Outputs); diff != "" {
		t.Error(diff)
	}
	for text, code := range map[string]string{"plain": "E_EXPR", "${{ stages.say.outputs.txt }}": "E_REF", "${{ stages.sy.outputs.text }}": "E_REF", "${{ item }}": "E_EXPR"} {
		_, problems := Parse("p.yaml", []byte(strings.Replace(greet, "${{ stages.say.outputs.text }}", text, 1)), t.TempDir(), Options{})
		if len(problems) != 1 || problems[0].Code != code {
			t.Errorf("%s: %v", text, problems)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for src, want := range map[string][]string{
		"stages.a.outputs.n > 3 && params.x":  {"params.x", "stages.a.outputs.n"},
		"stages.my-stage.state == \"failed\"": {`stages["my-stage"].state`},
		"all(params.list, # > item.min)":      {"item.min", "params.list"},
		"len(item) + item.x":                  {"item", "item.x"},
		`params["a b"].c[0]`:                  {`params["a b"].c[0]`},
		"let x = params.a; x + 1":             {"params.a"},
		"1 + 1":                               nil,
		"((":                                  nil,
	} {
		got := Paths(src)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", src, diff)
		}
		for _, path := range got {
			if _, err := analyse(path); err != nil {
				t.Errorf("%s cannot be evaluated: %v", path, err)
			}
		}
	}
}

// TestFactsOfTheRun: states of stages and facts of the run are read as outputs are, by those who need them only.
func TestFactsOfTheRun(t *testing.T) {
	t.Parallel()
	const head = "name: p\nstages:\n  my-a: {run: echo}\n  b: {run: echo}\n  c:\n    needs: [my-a]\n    always: true\n    run: echo\n"
	p, problems := Parse("p.yaml", []byte(head+"    when: run.state != \"failed\" && len(run.failed) == 0 && stages.my-a.state == \"completed\"\n"), "", Options{})
	if p == nil {
		t.Fatal(problems)
	}
	for _, s := range p.Plan().Stages {
		if s.Name == "c" && (!s.Facts || len(s.Reads) != 1 || s.Reads[0] != "my-a" || s.WhenItem) {
			t.Errorf("%+v", s)
		}
	}
	for when, code := range map[string]string{`stages.b.state == "failed"`: "E_IMPLICIT_DEP", `stages.c.state == "x"`: "E_IMPLICIT_DEP", `stages.my-a.stat == "x"`: "E_EXPR",
		`run.fails`: "E_EXPR", `stages.d.state == "x"`: "E_REF"} {
		_, problems := Parse("p.yaml", []byte(head+"    when: "+when+"\n"), "", Options{})
		if len(problems) != 1 || problems[0].Code != code {
			t.Errorf("%s: %v", when, problems)
		}
	}
}

func TestScheduleKeys(t *testing.T) {
	t.Parallel()
	p, problems := Parse("p.yaml", []byte(`name: p
priority: -3
deadline: 1h
concurrency: {group: "${{ params.site + \"-group\" }}", max: 2, overflow: cancel_oldest}
params: {site: {type: string, default: x}, list: {type: array, default: []}}
stages:
  a: {run: echo, delay: 3s, foreach: params.list, when: item != 3}
  b: {needs: [a], prefers: [c], approval: {message: "go?", approvers: [ada], form: {n: {type: integer}}, on_timeout: reject}, timeout: 1h}
  c: {run: echo, foreach: params.list, when: len(params.list) > 2}
`), "", Options{})
	if p == nil {
		t.Fatal(problems)
	}
	plan := p.Plan()
	byName := map[string]events.Stage{}
	for _, s := range plan.Stages {
		byName[s.Name] = s
	}
	if plan.Priority != -3 || plan.Concurrency.Group != `${{ params.site + "-group" }}` || byName["a"].Delay.String() != "3s" {
		t.Errorf("%+v", plan)
	}
	if !byName["a"].WhenItem || byName["c"].WhenItem {
		t.Error("whose condition reads the item")
	}
	if diff := cmp.Diff(`{"approvers":["ada"],"form":{"n":{"type":"integer"}},"message":"go?","on_timeout":"reject"}`, string(byName["b"].With)); diff != "" {
		t.Error(diff)
	}
	for text, code := range map[string]string{
		"a: {run: echo, foreach: params.l, always: true}":         "E_VALUE",
		"a: {approval: go, retry: {max: 1}}":                      "E_VALUE",
		"a: {run: echo, env: {X: \"${{ item }}\"}}":               "E_EXPR",
		"a: {run: echo, when: item > 1}":                          "E_EXPR",
		"a: {run: echo, gate: [{check: metrics.speed > 1}]}":      "E_EXPR",
		"a: {approval: {message: x, remind: 1h}}":                 "E_FIELD",
		"a: {run: echo, foreach: params.l, when: run.failed > 1}": "E_EXPR",
	} {
		_, problems := Parse("p.yaml", []byte("name: p\nparams: {l: {type: array, default: []}}\nstages:\n  "+text+"\n"), "", Options{})
		if len(problems) != 1 || problems[0].Code != code {
			t.Errorf("%s: %v", text, problems)
		}
	}
}
