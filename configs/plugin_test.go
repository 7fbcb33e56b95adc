package configs

import (
	"strings"
	"testing"
	"time"
)

// goodManifest is a manifest of five lines, so that what follows begins in line 6.
var goodManifest = "name: it\nkind: executor\nversion: \"1.0\"\ncommand: [./main]\nsha256: \"" + strings.Repeat("0a", 32) + "\"\n"

func TestManifest(t *testing.T) {
	t.Parallel()
	m, problems := ParseManifest("plugin.yaml", []byte(goodManifest+"protocol: 1\ndescription: 你好\ntimeout: 90s\nwith: {type: object, required: [a]}\n"))
	if m == nil || len(problems) > 0 || m.Name != "it" || m.Kind != PluginExecutor || m.Version != "1.0" || m.File() != "./main" || m.Timeout != 90*time.Second ||
		string(m.With) != `{"required":["a"],"type":"object"}` {
		t.Fatalf("%+v %v", m, problems)
	}
	if m, _ := ParseManifest("plugin.yaml", []byte(goodManifest+"protocol: 1\n")); m == nil || string(m.With) != noSettings {
		t.Errorf("an executor without settings: %+v", m)
	}
}

func TestManifestRefusals(t *testing.T) {
	t.Parallel()
	replaced := func(old, text string) string { return strings.Replace(goodManifest, old, text, 1) + "protocol: 1\n" }
	for _, c := range []badFile{
		{name: "empty", src: "", want: []string{"1:1 E_REQUIRED"}},
		{name: "comment", src: "# nothing\n", want: []string{"1:1 E_REQUIRED"}},
		{name: "list", src: "- a\n", want: []string{"1:1 E_TYPE"}},
		{name: "unknown key", src: goodManifest + "protocol: 1\nenvs: {}\n", want: []string{"7:1 E_FIELD"}, says: []string{`"envs" in a plug-in's manifest`}},
		{name: "near", src: replaced("sha256", "sha265"), want: []string{"1:1 E_REQUIRED", "5:1 E_FIELD"}},
		{name: "twice", src: goodManifest + "protocol: 1\nkind: alert\n", want: []string{"7:1 E_YAML_DUP"}},
		{name: "alias", src: replaced("name: it", "name: &a it"), want: []string{"1:7 E_YAML_ALIAS"}},
		{name: "name", src: replaced("name: it", "name: It"), want: []string{"1:7 E_NAME"}},
		{name: "kind", src: replaced("kind: executor", "kind: trigger"), want: []string{"2:7 E_VALUE"}},
		{name: "version as a number", src: replaced(`"1.0"`, "1.0"), want: []string{"3:10 E_TYPE"}, says: []string{"quote it"}},
		{name: "version", src: replaced(`"1.0"`, `"1 0"`), want: []string{"3:10 E_VALUE"}},
		{name: "no protocol", src: goodManifest, want: []string{"1:1 E_REQUIRED"}, says: []string{"protocol"}},
		{name: "protocol", src: goodManifest + "protocol: 2\n", want: []string{"6:11 E_RANGE"}},
		{name: "short digest", src: replaced("0a0a", ""), want: []string{"5:9 E_VALUE"}},
		{name: "digest in capitals", src: replaced("0a0a", "0A0A"), want: []string{"5:9 E_VALUE"}},
		{name: "parent", src: replaced("./main", "../main"), want: []string{"4:11 E_PATH"}},
		{name: "absolute", src: replaced("./main", "/main"), want: []string{"4:11 E_PATH"}},
		{name: "itself", src: replaced("./main", "./"), want: []string{"4:11 E_PATH"}},
		{name: "no command", src: replaced("[./main]", "[]"), want: []string{"4:10 E_REQUIRED"}},
		{name: "command as text", src: replaced("[./main]", "./main"), want: []string{"4:10 E_TYPE"}},
		{name: "expression", src: replaced("./main]", `./main, "${{ params.x }}"]`), want: []string{"4:19 E_EXPR"}},
		{name: "schema", src: goodManifest + "protocol: 1\nwith: {type: objekt}\n", want: []string{"7:14 E_CONTRACT"}},
		{name: "template of an executor", src: goodManifest + "protocol: 1\ntemplate: a.yaml\n", want: []string{"7:1 E_FIELD"}},
		{name: "settings of an alert", src: replaced("executor", "alert") + "with: {}\n", want: []string{"7:1 E_FIELD"}},
		{name: "command of a template", src: strings.Replace(goodManifest, "executor", "template", 1), want: []string{"1:1 E_REQUIRED", "4:1 E_FIELD"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, problems := ParseManifest("plugin.yaml", []byte(c.src))
			if m != nil {
				t.Fatal("it was taken")
			}
			checkProblems(t, c, nil, problems)
		})
	}
}

func TestPluginSettings(t *testing.T) {
	t.Parallel()
	options := Options{Plugins: []Plugin{
		{Name: "duck", Pin: "duck@1.0 sha256:00", Timeout: 5 * time.Minute, With: []byte(`{"type":"object","required":["sql"],"additionalProperties":false,"properties":{
"sql":{"type":"string","minLength":1},"rows":{"type":"integer","minimum":1},"mode":{"enum":["a","b"]},"list":{"type":"array","items":{"type":"integer"},"uniqueItems":true},
"either":{"anyOf":[{"type":"integer"},{"type":"object","properties":{"n":{"type":"integer"}}}]}}}`)},
		{Name: "sick", Skipped: "E_PLUGIN_HASH: it was changed"},
		{Name: "text", With: []byte(`{"type":"string"}`)},
	}}
	stage := func(body string) string {
		return "name: x\nparams: {n: {type: integer, default: 1}}\nstages:\n  a: {" + body + "}\n"
	}
	for _, good := range []string{
		"duck: {sql: select 1, rows: 3, mode: a, list: [1, 2], either: {n: 1}}",
		`duck: {sql: "${{ params.n }}", rows: "${{ params.n }}", mode: "${{ params.n }}", list: ["${{ params.n }}", "${{ params.n }}"], either: {n: "${{ params.n }}"}}`,
		`duck: {sql: x, list: "${{ params.n }}", either: "${{ params.n }}"}`,
		"text: select 1",
	} {
		p, problems := Parse("p.yaml", []byte(stage(good)), "", options)
		if p == nil || len(problems) > 0 {
			t.Errorf("%s: %v", good, problems)
			continue
		}
		if s := p.Plan().Stages[0]; s.Executor == "duck" && (s.Pin != "duck@1.0 sha256:00" || s.Timeout != 5*time.Minute || !strings.Contains(string(s.With), `"sql"`)) {
			t.Errorf("%s: %+v", good, s)
		}
		if problems := NotYet(p.Plan()); len(problems) > 0 {
			t.Errorf("%s: %v", good, problems)
		}
	}
	p, _ := Parse("p.yaml", []byte(stage("duck: {sql: x}, timeout: 1s")), "", options)
	if p == nil || p.Plan().Stages[0].Timeout != time.Second {
		t.Error("the stage's own time-out does not go before the manifest's")
	}
	for _, c := range []badFile{
		{name: "type", src: stage("duck: {sql: x, rows: many}"), want: []string{"4:28 E_PLUGIN_WITH"}, says: []string{"duck", "integer"}},
		{name: "two", src: stage(`duck: {sql: "", rows: 0}`), want: []string{"4:19 E_PLUGIN_WITH", "4:29 E_PLUGIN_WITH"}},
		{name: "missing", src: stage("duck: {rows: 1}"), want: []string{"4:13 E_PLUGIN_WITH"}, says: []string{"sql"}},
		{name: "extra", src: stage("duck: {sql: x, speed: 1}"), want: []string{"4:22 E_PLUGIN_WITH"}, says: []string{"speed"}},
		{name: "beside an expression", src: stage(`duck: {sql: "${{ params.n }}", mode: c}`), want: []string{"4:44 E_PLUGIN_WITH"}},
		{name: "in a list", src: stage(`duck: {sql: x, list: ["${{ params.n }}", b]}`), want: []string{"4:48 E_PLUGIN_WITH"}},
		{name: "neither", src: stage("duck: {sql: x, either: yes it is}"), want: []string{"4:30 E_PLUGIN_WITH"}},
		{name: "nothing", src: stage("duck: "), want: []string{"4:12 E_PLUGIN_WITH"}},
		{name: "bad expression", src: stage(`duck: {sql: "${{ params.m }}"}`), want: []string{"4:31 E_EXPR"}},
		{name: "skipped", src: stage("sick: {}"), want: []string{"4:7 E_PLUGIN_SKIPPED"}, says: []string{"E_PLUGIN_HASH: it was changed"}},
		{name: "near", src: stage("duk: {}, run: x"), want: []string{"4:7 E_FIELD"}, says: []string{"did you mean duck?"}},
		{name: "and another", src: stage("duck: {sql: x}, run: x"), want: []string{"4:23 E_EXECUTOR"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, problems := Parse("p.yaml", []byte(c.src), "", options)
			checkProblems(t, c, p, problems)
		})
	}
}
