package configs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestGoodForms(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"quoted surprises":       "name: x\nstages: {a: {run: x, env: {A: \"yes\", B: '010', C: \"1.10\", D: '2020-01-01', E: 8080, F: true, G: \"${{ trigger.time }}\"}}}",
		"Chinese text":           "name: x\ndescription: 每天清洗订单\nstages: {a: {run: \"echo 你好\"}}",
		"on: is a key":           "name: x\non: []\nstages: {a: {run: x}}",
		"numeric stage name":     "name: x\nstages: {1st: {run: x}, 2: {run: x, needs: [1st]}}",
		"start and end marks":    "---\nname: x\nstages: {a: {run: x}}\n...\n",
		"docker format":          "name: x\nstages: {a: {run: \"docker ps --format '{{.Names}}'\"}}",
		"shell parameters":       "name: x\nstages: {a: {run: 'echo ${PARAMS:-x} ${#a} $((1+1)) ${a[1]}'}}",
		"folded script":          "name: x\nstages:\n  a:\n    run: >\n      echo a\n      b\n",
		"zero settle":            "name: x\non: [{file: {watch: in/a.csv, settle: 0s}}]\nstages: {a: {run: x}}",
		"task by name":           "name: x\nstages: {a: {task: copy}, b: {task: {name: copy, with: {n: 1.5, list: [1, \"${{ params }}\"]}}}}",
		"values by schema":       "name: x\nstages: {a: {run: x, outputs: {n: {type: integer, minimum: 0}, o: {schema: {type: object}}, any: {}}}}",
		"approval":               "name: x\nstages: {a: {approval: 发布吗?}}",
		"plugin":                 "name: x\nstages: {a: {duckdb: {sql: select 1}}}",
		"reads through others":   "name: x\nstages: {a: {run: x, outputs: {o: {path: o}}}, b: {run: x, needs: [a]}, c: {run: x, needs: [b], inputs: {i: \"${{ stages.a.outputs.o }}\"}}}",
		"list of a foreach":      "name: x\nstages: {a: {run: x, foreach: \"[1, 2]\", env: {I: \"${{ item }}\"}, outputs: {o: {path: o}}}, b: {run: x, needs: [a], when: 'len(stages.a.outputs.o) == 2'}}",
		"event with a condition": "name: x\non: [{event: {type: apollo.run.failed.v1, if: 'event.source == \"/pipelines/y\"'}}]\nstages: {a: {run: x}}",
		"headers are free":       "name: x\nstages: {a: {http: {method: POST, url: \"https://example.com\", headers: {X-Api-Version: 2}, body: {a: 1}, expect: [200, 404]}}}",
		"cron words":             "name: x\non: [{cron: {schedule: '*/5 0-6,22 L,15W JAN-MAR MON-FRI,5L,1#2'}}]\nstages: {a: {run: x}}",
	} {
		if p, problems := Parse("p.yaml", []byte(src), "/srv/pipelines", Options{Plugins: []Plugin{{Name: "duckdb"}}}); p == nil || len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestFurtherRefusals(t *testing.T) {
	t.Parallel()
	stage := func(keys string) string { return head + "    " + keys + "\n" }
	for _, c := range []badFile{
		{name: "no name", src: "stages: {a: {run: x}}\n", want: []string{"1:1 E_REQUIRED"}},
		{name: "no stages", src: "name: x\nstages: {}\n", want: []string{"2:9 E_REQUIRED"}},
		{name: "no executor", src: "name: x\nstages: {a: {needs: []}}\n", want: []string{"2:10 E_EXECUTOR"}},
		{name: "two executors", src: stage("task: copy"), want: []string{"5:5 E_EXECUTOR"}},
		{name: "a list", src: "- a\n", want: []string{"1:1 E_TYPE"}},
		{name: "a word", src: "hello\n", want: []string{"1:1 E_TYPE"}},
		{name: "unknown task", src: "name: x\nstages: {a: {task: copie}}\n", want: []string{"2:20 E_REF"}, says: []string{"did you mean copy?"}, options: Options{Tasks: []string{"copy"}}},
		{name: "variable", src: stage("env: {LD_PRELOAD: x, PATH: x, PYTHONPATH: x, APOLLO_X: x, 1A: x}"),
			want: []string{"5:11 E_ENV_NAME", "5:26 E_ENV_NAME", "5:35 E_ENV_NAME", "5:50 E_ENV_NAME", "5:63 E_ENV_NAME"}},
		{name: "secret variable", src: stage("secrets: {BASH_ENV: secret://x}"), want: []string{"5:15 E_ENV_NAME"}},
		{name: "both", src: stage("env: {A: x}\n    secrets: {A: secret://x}"), want: []string{"6:15 E_ENV_NAME"}},
		{name: "roles that clash", src: stage("inputs: {a-b: x, a_b: y}"), want: []string{"5:22 E_NAME"}, says: []string{"APOLLO_IN_A_B"}},
		{name: "output path", src: stage("outputs: {a: {path: ../x}, b: {path: /x}, c: {path: a//b}, d: {path: \"*.csv\"}}"),
			want: []string{"5:25 E_PATH", "5:42 E_PATH", "5:57 E_PATH", "5:74 E_PATH"}},
		{name: "contract without a format", src: stage("outputs: {a: {path: x.bin, contract: c}}\ncontracts: {c: {schema: {}}}"), want: []string{"5:42 E_CONTRACT"}},
		{name: "unknown contract", src: stage("outputs: {a: {path: x.csv, contract: oder}}\ncontracts: {order: {schema: {}}}"), want: []string{"5:42 E_REF"}, says: []string{"did you mean order?"}},
		{name: "unknown output", src: "name: x\nstages:\n  a: {run: x, outputs: {orders: {path: o}}}\n  b: {run: x, needs: [a], inputs: {i: \"${{ stages.a.outputs.oders }}\"}}\n",
			want: []string{"4:44 E_REF"}, says: []string{"did you mean orders?"}},
		{name: "role with a dash", src: "name: x\nstages:\n  a: {run: x, outputs: {my-role: {path: o}}}\n  b: {run: x, needs: [a], inputs: {i: \"${{ stages.a.outputs.my-role }}\"}}\n",
			want: []string{"4:44 E_REF"}, says: []string{`stages.a.outputs["my-role"]`}},
		{name: "whole file as text", src: "name: x\nstages:\n  a: {run: x, outputs: {o: {path: o}}}\n  b: {run: x, needs: [a], env: {I: \"${{ stages.a.outputs.o }}\"}}\n", want: []string{"4:41 E_EXPR"}},
		{name: "field of a file", src: "name: x\nstages:\n  a: {run: x, outputs: {o: {path: o}}}\n  b: {run: x, needs: [a], when: stages.a.outputs.o.recrods > 1}\n", want: []string{"4:52 E_EXPR"}},
		{name: "all stages", src: stage("when: len(stages) > 1"), want: []string{"5:15 E_EXPR"}},
		{name: "retry class", src: stage("retry: {max: 1, on: [timeuot, \"exit:0\", cancelled]}"), want: []string{"5:26 E_VALUE", "5:35 E_VALUE", "5:45 E_VALUE"}, says: []string{"timeout"}},
		{name: "scheme", src: "name: x\non: [{webhook: {path: p, verify: {scheme: githab, secret: secret://s}}}]\nstages: {a: {run: x}}\n", want: []string{"2:43 E_VALUE"}, says: []string{"github"}},
		{name: "hook secret", src: "name: x\non: [{webhook: {path: p, verify: {scheme: github, secret: hunter2}}}]\nstages: {a: {run: x}}\n", want: []string{"2:59 E_SECRET_REF"}},
		{name: "expression in a name", src: "name: x\ndescription: \"${{ params.x }}\"\nstages: {a: {run: x}}\n", want: []string{"2:14 E_EXPR"}},
		{name: "missing script", src: "name: x\nstages: {a: {shell: {script: no.sh}}}\n", want: []string{"2:30 E_FILE"}},
		{name: "event type", src: "name: x\non: [{event: {type: apollo.alert.rised.v1}}]\nstages: {a: {run: x}}\n", want: []string{"2:21 E_REF"}, says: []string{"apollo.alert.raised.v1"}},
		{name: "size", src: stage("resources: {memory: 256MB, network: 2Mbit}"), want: []string{"5:25 E_SIZE_UNIT", "5:41 E_SIZE_UNIT"}},
		{name: "needs twice", src: head + "  b: {run: x, needs: [a, a]}\n", want: []string{"5:26 E_VALUE"}},
		{name: "flow script", src: "name: x\nstages: {a: {run: {echo: x}}}\n", want: []string{"2:19 E_TYPE"}},
		{name: "reconcile", src: stage("reconcile: [{from: inputs.a, to: outputs.b, expect: to.records > 0}]"), want: []string{"5:24 E_REF", "5:38 E_REF"}},
		{name: "expression in braces", src: "name: x\nstages: {a: {run: x, env: {G: ${{ trigger.time }}}}}\n", want: []string{"2:32 E_YAML_SYNTAX"}, says: []string{"quote it"}},
		{name: "two triggers in one", src: "name: x\non: [{file: {watch: a/b}, pipeline: {name: y}}]\nstages: {a: {run: x}}\n", want: []string{"2:6 E_ONE"}},
		{name: "many at once", src: "nme: x\nstages:\n  a: {rnu: x, timeout: 1d}\n  b: {run: x, needs: [c], retry: {max: -1}}\n",
			want: []string{"1:1 E_FIELD", "1:1 E_REQUIRED", "3:3 E_EXECUTOR", "3:7 E_FIELD", "3:24 E_DURATION", "4:23 E_REF", "4:40 E_RANGE"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, problems := Parse("p.yaml", []byte(c.src), "/srv/pipelines", c.options)
			checkProblems(t, c, p, problems)
		})
	}
}

func TestDurationsSizesRates(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"1d": "use 24h", "1.5 days": "use 36h", "2w": "use 336h", "90": "add the unit, as 90s", "5min": "use 5m", "x": "use h, m, s or ms, as 90s or 1h30m"} {
		if _, hint, err := parseDuration(text); err == nil || hint != want {
			t.Errorf("%s: %q, %v", text, hint, err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<52).Draw(t, "n")
		if got, err := parseSize(SizeText(n)); err != nil || got != n {
			t.Fatalf("size %d: %s, %d, %v", n, SizeText(n), got, err)
		}
		if got, err := parseRate(RateText(n)); err != nil || got != n {
			t.Fatalf("rate %d: %s, %d, %v", n, RateText(n), got, err)
		}
		d := time.Duration(rapid.Int64Min(0).Draw(t, "d"))
		if got, _, err := parseDuration(DurationText(d)); err != nil || got != d {
			t.Fatalf("duration %v: %s, %v, %v", d, DurationText(d), got, err)
		}
	})
	for text, want := range map[string]int64{"512": 512, "1Ki": 1024, "256Mi": 256 << 20, "1.5Gi": 3 << 29, "10M": 10_000_000} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{"60 * * * *": "minute", "* 24 * * *": "hour", "0 0 0 * *": "day of month", "0 0 1 13 *": "month", "0 0 * * 8": "day of week",
		"0 0 * *": "4 fields", "*/30 * * * * *": "6 fields", "*/0 * * * *": "step", "5-1 * * * *": "backwards", "a * * * *": `"a"`, "@reboot": "not known", "@every 5m": "not known",
		", * * * *": "minute", "1,,2 * * * *": "minute", "+1 * * * *": "minute", "0 0 32W * *": "day of month", "0 0 * * 1#6": "day of week"} {
		if _, err := ParseSchedule(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
	for text, possible := range map[string]bool{"30 2 * * *": true, "0 0 29 2 *": true, "0 0 30 2 *": false, "0 0 31 4,6,9,11 *": false, "0 0 31 4 1": true, "0 0 31 4 *": false,
		"0 0 L 2 *": true, "0 0 30 2 */2": false, "0 0 * * 7": true, "@daily": true, "0 0 15W * *": true, "0 0 30W 2 *": false, "0 0 31 2 5L": true} {
		s, err := ParseSchedule(text)
		if err != nil || s.Possible() != possible {
			t.Errorf("%s: possible %v, %v", text, s.Possible(), err)
		}
	}
	if s, _ := ParseSchedule("*/15 1-3,22 1 JAN 7,MON"); s.Minutes != 1|1<<15|1<<30|1<<45 || s.Hours != 0b1110|1<<22 || s.Months != 2 || s.Weekdays != 3 || !s.AnyMinute || s.AnyHour {
		t.Errorf("%+v", s)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{"retrys": "retry", "tiemout": "timeout", "neds": "needs", "xyz": "", "": "", "超时": ""} {
		if got := nearest(word, stageLanguage.names()); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestParameters(t *testing.T) {
	t.Parallel()
	src := "name: x\nparams:\n  n: {type: integer, minimum: 1}\n  s: {type: string, default: eu}\n  big: {default: 1152921506151679042}\nstages: {a: {run: x}}\n"
	p, problems := Parse("p.yaml", []byte(src), "", Options{})
	if p == nil {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		given map[string]string
		want  string // the resolved parameters, or the message
	}{
		{map[string]string{"n": "3"}, "big=1152921506151679042 n=3 s=\"eu\""},
		{map[string]string{"n": " 3 ", "s": "\"010\""}, "big=1152921506151679042 n=3 s=\"010\""},
		{nil, "the parameter n has no value"},
		{map[string]string{"n": "0"}, "breaks its schema"},
		{map[string]string{"n": "\"3\""}, "breaks its schema"},
		{map[string]string{"n": "3", "regoin": "1"}, "no parameter regoin"},
		{map[string]string{"n": "3}"}, "not JSON"},
	} {
		given := map[string]json.RawMessage{}
		for k, v := range c.given {
			given[k] = json.RawMessage(v)
		}
		_, resolved, problems := p.Freeze(given)
		var got []string
		for _, k := range slices.Sorted(maps.Keys(resolved)) {
			got = append(got, k+"="+string(resolved[k]))
		}
		if text := strings.Join(got, " ") + fmt.Sprint(problems); !strings.Contains(text, c.want) {
			t.Errorf("%v: %s, want %s", c.given, text, c.want)
		}
	}
	for text, want := range map[string]string{"n 3": "3", "s 3": `"3"`, "s eu": `"eu"`, "n x": `"x"`, "big [1]": "[1]", "nope 1": "1"} {
		name, value, _ := strings.Cut(text, " ")
		if got := string(ParamFromText(p.Plan(), name, value)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestLoadDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hook := "on: [{webhook: {path: p, verify: {scheme: github, secret: secret://s}}}]\n"
	stages := "stages: {a: {run: x}}\n"
	for name, src := range map[string]string{
		"1.yaml": "name: one\n" + hook + stages,
		"2.yml":  "name: two\n" + hook + stages,
		"3.yaml": "name: one\n" + stages,
		"4.yaml": "name: four\non: [{pipeline: {name: five}}]\n" + stages,
		"5.yaml": "name: five\non: [{pipeline: {name: six, outcome: failed}}]\n" + stages,
		"6.yaml": "name: six\nstages: {a: {pipeline: seven}}\n",
		"7.yaml": "name: seven\non: [{pipeline: {name: four}}]\nstages: {a: {pipeline: {name: four}}}\n",
		"8.yaml": "name: eight\non: [{pipeline: {name: five}}]\n" + stages,
		"9.yaml": "nam: nine\n" + stages,
		"x.txt":  "not read",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipelines, problems := LoadDir(dir, Options{})
	var good, got []string
	for _, p := range pipelines {
		good = append(good, p.Name)
	}
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%s:%d:%d %s", filepath.Base(p.File), p.Line, p.Col, p.Code))
	}
	want := []string{"2.yml:2:23 E_HOOK_DUP", "3.yaml:1:7 E_DUP_PIPELINE", "7.yaml:3:31 E_TRIGGER_LOOP", "9.yaml:1:1 E_FIELD", "9.yaml:1:1 E_REQUIRED"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s\n%v", diff, problems)
	}
	if diff := cmp.Diff([]string{"one", "four", "five", "six", "eight"}, good); diff != "" {
		t.Errorf("pipelines (-want +got):\n%s", diff)
	}
}

func TestLoadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(big, 8<<30); err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]string{filepath.Join(dir, "none.yaml"): "E_FILE", dir: "E_FILE", big: "E_SIZE"} {
		if p, problems := LoadFile(path, Options{}); p != nil || len(problems) != 1 || problems[0].Code != code {
			t.Errorf("%s: %v", path, problems)
		}
	}
}

func TestNotYet(t *testing.T) {
	t.Parallel()
	p, problems := LoadFile("testdata/language/orders.yaml", Options{})
	if p == nil {
		t.Fatal(problems)
	}
	var got []string
	for _, found := range NotYet(p.Plan()) {
		got = append(got, strings.TrimSuffix(found.Message, " can't be run by this version yet"))
	}
	want := []string{"the trigger cron", "the trigger pipeline", "the trigger event"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	examples, _ := filepath.Glob("examples/*/pipeline.yaml")
	if len(examples) < 8 {
		t.Errorf("%d examples", len(examples))
	}
	for _, path := range examples {
		p, problems := LoadFile(path, Options{CheckFiles: true, Tasks: []string{}})
		if p == nil || len(problems) > 0 {
			t.Errorf("%s: %v", path, problems)
		} else if not := NotYet(p.Plan()); len(not) > 0 {
			t.Errorf("%s: %v", path, not)
		}
	}
}

func TestCodesAreSortedAndExplained(t *testing.T) {
	t.Parallel()
	for i, c := range Codes() {
		if i > 0 && Codes()[i-1].Name >= c.Name || c.English == "" || c.Chinese == "" {
			t.Errorf("%+v", c)
		}
		if got, ok := ExplainCode(c.Name); !ok || got != c {
			t.Errorf("%s is not found", c.Name)
		}
	}
	if _, ok := ExplainCode("E_NOPE"); ok {
		t.Error("an unknown code is explained")
	}
}

func TestProblemText(t *testing.T) {
	t.Parallel()
	_, problems := Parse("订单.yaml", []byte("name: x\ndescription: 中文\nstages: {a: {run: x, env: {名: 中}, timeout: 1d}}\n"), "", Options{})
	golden(t, "testdata/problem.txt", []byte(problems.Error()+"\n"))
	golden(t, "testdata/problem.json", indented(t, problems))
}
