package configs_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/configs"
)

const head = "template:\n  name: t\n  title: {en: A, zh: 甲}\n  blanks:\n"

// load reads a template whose blanks and pipeline are given as text.
func load(t testing.TB, blanks, pipeline string) (*configs.Template, configs.Problems) {
	t.Helper()
	text := head
	for l := range strings.SplitSeq(strings.TrimSpace(blanks), "\n") {
		text += "    " + l + "\n"
	}
	return configs.LoadTemplate(fstest.MapFS{"template.yaml": {Data: []byte(text + pipeline)}}, "template.yaml", "t/template.yaml")
}

func fill(t testing.TB, tmpl *configs.Template, values map[string]string) (string, configs.Problems) {
	t.Helper()
	given := map[string]json.RawMessage{}
	for name, value := range values {
		given[name] = json.RawMessage(value)
	}
	resolved, problems := tmpl.Values(given)
	if problems.HasErrors() {
		return "", problems
	}
	files, problems := tmpl.Fill("p", resolved)
	if problems.HasErrors() {
		return "", problems
	}
	return string(files[len(files)-1].Content), nil
}

const stages = "stages:\n  a: {run: \"true\"}\n"

func TestTemplateRefusals(t *testing.T) {
	t.Parallel()
	x := "x: {type: string}"
	for name, c := range map[string]struct{ blanks, pipeline, code, at string }{
		"in a script":             {x, "name: <<name>>\nparams: {a: {default: <<x>>}}\nstages:\n  a:\n    run: |\n      echo <<x>>\n", "E_TEMPLATE_IN_SHELL", ":11:12"},
		"as a whole script":       {x, "name: <<name>>\nstages:\n  a: {run: <<x>>}\n", "E_TEMPLATE_IN_SHELL", ":8:12"},
		"the name in a script":    {x, "name: <<name>>\nparams: {a: {default: <<x>>}}\nstages:\n  a: {run: \"echo <<name>>\"}\n", "E_TEMPLATE_IN_SHELL", ""},
		"in python":               {x, "name: <<name>>\nstages:\n  a: {python: \"print('<<x>>')\"}\n", "E_TEMPLATE_IN_SHELL", ""},
		"in a condition":          {x, "name: <<name>>\nstages:\n  a: {run: \"true\", when: <<x>>}\n", "E_TEMPLATE", ":8:26"},
		"in a gate":               {x, "name: <<name>>\nstages:\n  a: {run: \"true\", gate: [{check: <<x>>}]}\n", "E_TEMPLATE", ""},
		"in a key":                {x, "name: <<name>>\nparams: {\"<<x>>\": {type: string}}\n" + stages, "E_TEMPLATE", ""},
		"among other text":        {x, "name: <<name>>\ndescription: about <<x>>\n" + stages, "E_TEMPLATE", ""},
		"inside an expression":    {x, "name: <<name>>\nstages:\n  a: {run: \"true\", env: {A: \"${{ '<<x>>' }}\"}}\n", "E_TEMPLATE", ""},
		"folded":                  {x, "name: <<name>>\ndescription: >-\n  <<x>>\n" + stages, "E_TEMPLATE", ""},
		"instead of a stage":      {x, "name: <<name>>\nstages:\n  a: <<x>>\n", "E_TEMPLATE", ""},
		"instead of all stages":   {x, "name: <<name>>\nstages: <<x>>\n", "E_TEMPLATE", ""},
		"a blank that is none":    {x, "name: <<name>>\ndescription: <<xx>>\nparams: {a: {default: <<x>>}}\n" + stages, "E_REF", ""},
		"a blank without a use":   {x, "name: <<name>>\n" + stages, "E_TEMPLATE", ":5:5"},
		"no open name":            {x, "name: fixed\ndescription: <<x>>\n" + stages, "E_TEMPLATE", ""},
		"a blank called name":     {"name: {type: string}", "name: <<name>>\n" + stages, "E_TEMPLATE", ""},
		"a default of wrong type": {"x: {type: integer, default: many}", "name: <<name>>\ndescription: <<x>>\n" + stages, "E_DEFAULT", ":5:33"},
		"a schema that is none":   {"x: {type: text}", "name: <<name>>\ndescription: <<x>>\n" + stages, "E_CONTRACT", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := load(t, c.blanks, c.pipeline)
			for _, p := range problems {
				if p.Code == c.code && strings.Contains(p.Text(), "t/template.yaml"+c.at) {
					return
				}
			}
			t.Errorf("no %s at %q: %v", c.code, c.at, problems)
		})
	}
	_, problems := configs.LoadTemplate(fstest.MapFS{"template.yaml": {Data: []byte(head + "    x: {type: string}\nname: <<name>>\ndescription: <<x>>\n" + stages)},
		"clean.sh": {Data: []byte("echo <<x>>\n")}}, "template.yaml", "t")
	if len(problems) != 1 || problems[0].Code != "E_TEMPLATE_IN_SHELL" {
		t.Errorf("a blank in a file beside: %v", problems)
	}
	if _, problems := load(t, x, "name: <<name>>\ndescription: <<x>>\nstages:\n  a: {run: \"cat <<eof>>log\\neof\\n\"}\n"); problems.HasErrors() {
		t.Errorf("a here document is no blank: %v", problems)
	}
}

// Whatever text a blank is filled with, it comes out as that text, as one value, and nothing beside it changes.
func TestTemplateValuesStayValues(t *testing.T) {
	t.Parallel()
	tmpl, problems := load(t, "x: {type: string}\ny: {}", `# kept
name: <<name>>   # kept too
description: "<<x>>"
params:
  a: {type: string, default: <<x>>, title: after}
  b: {default: <<y>>}
contracts:
  c: {schema: {enum: ['<<x>>', other, <<x>>]}}
stages:
  s: {run: "true", env: {LONG: <<x>>, NEXT: next}}
`)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	hostile := []string{"\"", "'", "\n", "\t", ":", " #", "$(rm -rf /)", "`id`", "<<y>>", "<<x>>", "{{", "}", "- a\n- b", "a: b", "---", "...", "&a", "*a", "!t", "%", "@", "|", ">", "\\",
		"\u2028", "\u0085", "\ufeff", "\u00a0", "\x00", "\x1b", "\x7f", "世界", "👋", "null", "~", "yes", "0x10", "1e3", "2024-01-01", "true", " ", "", "${", "\r\n"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(hostile), rapid.String()), 0, 4).Draw(t, "x"), "")
		x, _ := json.Marshal(text)
		y, _ := json.Marshal(rapid.OneOf(rapid.Just(any([]any{text, 1.5, nil, map[string]any{"k " + text: true}})), rapid.Just(any(12345)), rapid.Just(any(text))).Draw(t, "y"))
		resolved, problems := tmpl.Values(map[string]json.RawMessage{"x": x, "y": y})
		if strings.Contains(text, "${{") {
			if !problems.HasErrors() {
				t.Fatalf("an expression passed: %q", text)
			}
			return
		}
		if problems.HasErrors() {
			t.Fatal(problems)
		}
		files, problems := tmpl.Fill("p", resolved)
		if problems.HasErrors() {
			t.Fatalf("%q: %v", text, problems)
		}
		p, problems := configs.Parse("p.yaml", files[0].Content, t.Name(), configs.Options{})
		if problems.HasErrors() {
			t.Fatalf("%s\n%v", files[0].Content, problems)
		}
		plan := p.Plan()
		if plan.Description != text || plan.Stages[0].Env["LONG"] != text || plan.Stages[0].Env["NEXT"] != "next" || p.Name != "p" {
			t.Fatalf("%q became %q, %v", text, plan.Description, plan.Stages[0].Env)
		}
		if want := `{"default":` + string(resolved["y"]) + `}`; !same(t, string(plan.Params["b"]), want) {
			t.Fatalf("%s, want %s", plan.Params["b"], want)
		}
		if want := `{"enum":[` + string(resolved["x"]) + `,"other",` + string(resolved["x"]) + `]}`; !same(t, string(plan.Contracts["c"].Schema), want) {
			t.Fatalf("%s, want %s", plan.Contracts["c"].Schema, want)
		}
		if !bytes.HasPrefix(files[0].Content, []byte("# kept\nname: p   # kept too\n")) {
			t.Fatalf("comments: %s", files[0].Content)
		}
	})
}

func same(t *rapid.T, a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		t.Fatalf("no JSON: %s, %s", a, b)
	}
	one, _ := json.Marshal(x)
	other, _ := json.Marshal(y)
	return bytes.Equal(one, other)
}

func TestTemplateOptionalBlanks(t *testing.T) {
	t.Parallel()
	const blanks = "x: {type: [string, \"null\"], default: null}\ny: {type: [string, \"null\"], default: null}"
	tmpl, problems := load(t, blanks, `# Above all.
name: <<name>>
# When it runs.
# Every night.
on:
- cron: {schedule: <<x>>, timezone: <<y>>}

# The parameters.
params:
  a: {title: first, description: <<x>>}
  b: {description: <<y>>, title: second}
  c: {description: <<x>>, title: third, default: <<y>>, type: [string, "null"]}
  # Only with y.
  d:
    description: <<y>>
    # the end of d
  e: {type: string, title: last}   # e stays
stages:
  a:
    run: "true"
    env:
      ONE: 'one'
      TWO: <<x>>
    secrets:
      THREE: <<y>>
`)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	for name, c := range map[string]struct {
		values map[string]string
		want   string
	}{
		"none": {nil, `# Above all.
name: p

# The parameters.
params:
  a: {title: first}
  b: {title: second}
  c: {title: third, type: [string, "null"]}
  e: {type: string, title: last}   # e stays
stages:
  a:
    run: "true"
    env:
      ONE: 'one'
`},
		"one": {map[string]string{"x": `"0 2 * * *"`}, `# Above all.
name: p
# When it runs.
# Every night.
on:
- cron: {schedule: "0 2 * * *"}

# The parameters.
params:
  a: {title: first, description: "0 2 * * *"}
  b: {title: second}
  c: {description: "0 2 * * *", title: third, type: [string, "null"]}
  e: {type: string, title: last}   # e stays
stages:
  a:
    run: "true"
    env:
      ONE: 'one'
      TWO: "0 2 * * *"
`},
	} {
		got, problems := fill(t, tmpl, c.values)
		if problems.HasErrors() || got != c.want {
			t.Errorf("%s: %v\n%s", name, problems, got)
		}
	}
	// What can't be taken out of its line is a problem, never a broken file.
	tmpl, problems = load(t, blanks, "name: <<name>>\ndescription: <<y>>\nstages:\n  a:\n    run: \"true\"\n    gate:\n    - message: <<x>>\n      check: \"true\"\n")
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	if got, problems := fill(t, tmpl, nil); len(problems) != 1 || problems[0].Code != "E_TEMPLATE" {
		t.Errorf("%v\n%s", problems, got)
	}
	tmpl, problems = load(t, blanks, "name: <<name>>\ndescription: <<y>>\nparams:\n  a: {\ndescription: <<x>>}\n  b: {title: b}\n"+stages)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	if got, problems := fill(t, tmpl, nil); len(problems) != 1 || problems[0].Code != "E_TEMPLATE" {
		t.Errorf("%v\n%s", problems, got)
	}
}

func TestTemplateValues(t *testing.T) {
	t.Parallel()
	tmpl, problems := load(t, "x: {type: string, title: {en: The X, zh: 丙}}\nn: {type: integer, minimum: 2, default: 3}\nmaybe: {type: [string, \"null\"], default: null}",
		"name: <<name>>\ndescription: <<x>>\nparams: {n: {default: <<n>>, title: <<maybe>>}}\n"+stages)
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	if b := tmpl.Blanks[0]; b.Title.Chinese != "丙" || !b.Required || tmpl.Blanks[1].Required || string(tmpl.Blanks[2].Default) != "null" {
		t.Errorf("%+v", tmpl.Blanks)
	}
	_, problems = fill(t, tmpl, map[string]string{"n": "1", "nn": "1", "maybe": `"${{ params.n }}"`})
	var codes []string
	for _, p := range problems {
		codes = append(codes, p.Code+" "+p.Message)
	}
	all := strings.Join(codes, "\n")
	for _, want := range []string{"no blank nn", "blank x has no value", "blank n breaks its schema", "blank maybe breaks its schema: it holds ${{"} {
		if !strings.Contains(all, want) || len(codes) != 4 {
			t.Errorf("no %q among %d: %s", want, len(codes), all)
		}
	}
	for text, want := range map[string]string{"7": `"7"`, "null": "null", "a b": `"a b"`} {
		if got := string(tmpl.FromText("maybe", text)); got != want {
			t.Errorf("maybe=%s is %s, want %s", text, got, want)
		}
	}
	if got := string(tmpl.FromText("n", "7")); got != "7" {
		t.Errorf("n=7 is %s", got)
	}
}

// Every template of this build can be read, and says in both languages what it wants.
func TestBuiltinTemplates(t *testing.T) {
	t.Parallel()
	folders, err := fs.Glob(configs.BuiltinTemplates(), "*/template.yaml")
	if err != nil || len(folders) < 6 {
		t.Fatal(folders, err)
	}
	for _, file := range folders {
		name := strings.TrimSuffix(file, "/template.yaml")
		sub, err := fs.Sub(configs.BuiltinTemplates(), name)
		if err != nil {
			t.Fatal(err)
		}
		tmpl, problems := configs.LoadTemplate(sub, "template.yaml", file)
		if problems.HasErrors() {
			t.Fatal(problems)
		}
		if tmpl.Name != name {
			t.Errorf("%s calls itself %s", name, tmpl.Name)
		}
		for _, text := range append([]configs.Localized{tmpl.Title, tmpl.Description}, titles(tmpl)...) {
			if text.English == "" || text.Chinese == "" || text.English == text.Chinese {
				t.Errorf("%s: %+v", name, text)
			}
		}
	}
}

func titles(t *configs.Template) (all []configs.Localized) {
	for _, b := range t.Blanks {
		all = append(all, b.Title)
	}
	return all
}
