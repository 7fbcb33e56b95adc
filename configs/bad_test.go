package configs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// head is a good beginning of four lines, so that what follows begins in line 5.
const head = "name: x\nstages:\n  a:\n    run: echo hi\n"

type badFile struct {
	name, src string
	want      []string // "line:col CODE"; exactly these
	says      []string // parts of the first problem's text
	options   Options
}

// badFiles are the bad inputs 1 to 34 of the reliability catalogue, in its order, with variants.
var badFiles = []badFile{
	{name: "01 empty", src: "", want: []string{"1:1 E_PIPE_EMPTY"}},
	{name: "01 blank", src: "\n  \n", want: []string{"1:1 E_PIPE_EMPTY"}},
	{name: "01 comment", src: "# nothing\n", want: []string{"1:1 E_PIPE_EMPTY"}},
	{name: "01 null", src: "~\n", want: []string{"1:1 E_PIPE_EMPTY"}},
	{name: "01 start mark", src: "---\n", want: []string{"1:1 E_PIPE_EMPTY"}},
	{name: "02 tab", src: "name: x\nstages:\n\ta: {run: x}\n", want: []string{"3:1 E_YAML_SYNTAX"}, says: []string{"tab", "spaces"}},
	{name: "02 tab after blanks", src: "name: x\nstages:\n  \ta: {run: x}\n", want: []string{"3:3 E_YAML_SYNTAX"}, says: []string{"tab"}},
	{name: "02 open quote", src: "name: 'x\n", want: []string{"1:7 E_YAML_SYNTAX"}},
	{name: "02 open bracket", src: "name: x\nstages: {a: {run: x}\n", want: []string{"2:9 E_YAML_SYNTAX"}},
	{name: "03 duplicate key", src: "name: x\ndescription: a\nstages: {a: {run: x}}\ndescription: b\n", want: []string{"4:1 E_YAML_DUP"},
		says: []string{"line 2", "line 4"}},
	{name: "03 duplicate deeper", src: head + "    timeout: 5s\n    timeout: 6s\n", want: []string{"6:5 E_YAML_DUP"}, says: []string{"line 5", "line 6"}},
	{name: "04 unknown field", src: head + "    retrys: {max: 3}\n", want: []string{"5:5 E_FIELD"}, says: []string{"did you mean retry?"}},
	{name: "04 unknown top", src: head + "stage: {}\n", want: []string{"5:1 E_FIELD"}, says: []string{"did you mean stages?"}},
	{name: "04 unknown deep", src: head + "    retry: {max: 1, bakoff: 2}\n", want: []string{"5:21 E_FIELD"}, says: []string{"did you mean backoff?"}},
	{name: "04 Chinese key", src: head + "    超时: 5s\n", want: []string{"5:5 E_FIELD"}, says: []string{`"超时"`}},
	{name: "05 two documents", src: head + "---\nname: y\n", want: []string{"5:1 E_YAML_MULTI"}},
	{name: "06 alias bomb", src: "a: &a [x,x]\nb: &b [*a,*a]\nname: x\n", want: []string{"1:4 E_YAML_ALIAS", "2:4 E_YAML_ALIAS", "2:8 E_YAML_ALIAS", "2:11 E_YAML_ALIAS"}},
	{name: "06 merge key", src: head + "  b:\n    <<: {run: x}\n", want: []string{"6:5 E_YAML_ALIAS"}, says: []string{"merge"}},
	{name: "06 tag", src: head + "    env: {A: !!str 1}\n", want: []string{"5:14 E_YAML_ALIAS"}, says: []string{"tag"}},
	{name: "06 glob", src: "name: x\non: [{file: {watch: *.csv}}]\nstages: {a: {run: x}}\n", want: []string{"2:21 E_YAML_ALIAS"}, says: []string{"quoted"}},
	{name: "07 brackets", src: strings.Repeat("[", 20_000), want: []string{"1:65 E_YAML_DEPTH"}},
	{name: "07 dashes", src: strings.Repeat("- ", 20_000), want: []string{"1:129 E_YAML_DEPTH"}},
	{name: "07 maps", src: nestedMaps(70), want: []string{"65:66 E_YAML_DEPTH"}},
	{name: "08 size", src: head + "# " + strings.Repeat("x", 300<<10), want: []string{"0:0 E_SIZE"}, says: []string{"262144"}},
	{name: "09 UTF-16", src: "\xff\xfen\x00a\x00", want: []string{"0:0 E_ENCODING"}, says: []string{"UTF-16", "offset 0"}},
	{name: "09 UTF-16 big", src: "\xfe\xff\x00n\x00a", want: []string{"0:0 E_ENCODING"}, says: []string{"UTF-16", "offset 0"}},
	{name: "09 invalid UTF-8", src: "name: x\n# caf\xe9\n", want: []string{"2:6 E_ENCODING"}, says: []string{"0xe9", "offset 13"}},
	{name: "09 NUL", src: "name: x\x00\n", want: []string{"1:8 E_ENCODING"}, says: []string{"offset 7"}},
	{name: "10 cycle", src: "name: x\nstages:\n  a: {run: x, needs: [b]}\n  b: {run: x, needs: [a]}\n", want: []string{"4:23 E_CYCLE"}, says: []string{"a → b → a"}},
	{name: "10 long cycle", src: "name: x\nstages:\n  a: {run: x, needs: [c]}\n  b: {run: x, needs: [a]}\n  c: {run: x, needs: [b]}\n  d: {run: x}\n",
		want: []string{"4:23 E_CYCLE"}, says: []string{"a → c → b → a"}},
	{name: "10 weak cycle", src: "name: x\nstages:\n  a: {run: x, prefers: [b]}\n  b: {run: x, needs: [a]}\n", want: []string{"4:23 E_CYCLE"}},
	{name: "11 itself", src: head + "    needs: [a]\n", want: []string{"5:13 E_CYCLE"}, says: []string{"a → a"}},
	{name: "12 unknown stage", src: "name: x\nstages:\n  fetch: {run: x}\n  b: {run: x, needs: [fetsh]}\n", want: []string{"4:23 E_REF"}, says: []string{"did you mean fetch?"}},
	{name: "13 implicit", src: "name: x\nstages:\n  a: {run: x, outputs: {o: {path: o}}}\n  b:\n    run: x\n    inputs: {i: \"${{ stages.a.outputs.o }}\"}\n",
		want: []string{"6:22 E_IMPLICIT_DEP"}, says: []string{"add a to needs of b"}},
	{name: "13 weak", src: "name: x\nstages:\n  a: {run: x, outputs: {o: {path: o}}}\n  b: {run: x, prefers: [a], env: {N: \"${{ stages.a.outputs.o.records }}\"}}\n",
		want: []string{"4:43 E_IMPLICIT_DEP"}, says: []string{"weak edge"}},
	{name: "13 in a condition", src: "name: x\nstages:\n  a-b: {run: x, outputs: {o: {path: o}}}\n  b: {run: x, when: stages.a-b.outputs.o.records > 0}\n", want: []string{"4:21 E_IMPLICIT_DEP"}},
	{name: "14 duplicate stage", src: head + "  a:\n    run: x\n", want: []string{"5:3 E_DUP_STAGE"}, says: []string{"line 3", "line 5"}},
	{name: "14 by case", src: head + "  A:\n    run: x\n", want: []string{"5:3 E_NAME", "5:3 E_DUP_STAGE"}},
	{name: "15 names", src: "name: ../x\nstages:\n  a/b: {run: x}\n  \"\": {run: x}\n  " + strings.Repeat("n", 129) + ": {run: x}\n",
		want: []string{"1:7 E_NAME", "3:3 E_NAME", "4:3 E_NAME", "5:3 E_NAME"}},
	{name: "15 Chinese name", src: "name: 订单\nstages: {a: {run: x}}\n", want: []string{"1:7 E_NAME"}},
	{name: "16 days", src: head + "    timeout: 1d\n", want: []string{"5:14 E_DURATION"}, says: []string{"use 24h"}},
	{name: "16 no unit", src: head + "    timeout: 30\n", want: []string{"5:14 E_DURATION"}, says: []string{"30s"}},
	{name: "17 negative", src: head + "    timeout: -5s\n", want: []string{"5:14 E_RANGE"}},
	{name: "17 zero", src: head + "    timeout: 0\n", want: []string{"5:14 E_RANGE"}},
	{name: "17 zero seconds", src: head + "    timeout: 0s\n", want: []string{"5:14 E_RANGE"}},
	{name: "17 negative number", src: head + "    timeout: -5\n", want: []string{"5:14 E_RANGE"}},
	{name: "18 too many", src: head + "    retry: {max: 1e9}\n", want: []string{"5:18 E_RANGE"}},
	{name: "18 negative", src: head + "    retry: {max: -1}\n", want: []string{"5:18 E_RANGE"}},
	{name: "18 half", src: head + "    retry: {max: 2.5}\n", want: []string{"5:18 E_RANGE"}},
	{name: "19 on: yes", src: "on: yes\n" + head, want: []string{"1:5 E_TYPE"}, says: []string{"quote it"}},
	{name: "19 version", src: head + "    env: {VERSION: 1.10}\n", want: []string{"5:20 E_TYPE"}, says: []string{"quote it"}},
	{name: "19 zip", src: head + "    env: {ZIP: 010, FLAG: no, DAY: 2020-01-01, T: 12:30:00}\n",
		want: []string{"5:16 E_TYPE", "5:27 E_TYPE", "5:36 E_TYPE", "5:51 E_TYPE"}, says: []string{"quote it"}},
	{name: "19 text", src: "description: 1.10\n" + head, want: []string{"1:14 E_TYPE"}, says: []string{"quote it"}},
	{name: "19 default", src: head + "params: {zip: {type: string, default: 010}}\n", want: []string{"5:39 E_TYPE"}, says: []string{"quote it"}},
	{name: "20 minute", src: cronFile("61 * * * *"), want: []string{"2:24 E_CRON"}, says: []string{"minute", `"61"`}},
	{name: "20 six fields", src: cronFile("*/30 * * * * *"), want: []string{"2:24 E_CRON"}, says: []string{"6 fields", "seconds"}},
	{name: "20 four fields", src: cronFile("0 0 * *"), want: []string{"2:24 E_CRON"}, says: []string{"4 fields"}},
	{name: "20 nickname", src: cronFile("@evry"), want: []string{"2:24 E_CRON"}},
	{name: "21 never", src: cronFile("0 0 30 2 *"), want: []string{"2:24 E_CRON_NEVER"}},
	{name: "21 never in April", src: cronFile("0 0 31 4,6 *"), want: []string{"2:24 E_CRON_NEVER"}},
	{name: "22 zone", src: "name: x\non: [{cron: {schedule: \"0 0 * * *\", timezone: Mars/Base}}]\nstages: {a: {run: x}}\n", want: []string{"2:47 E_TZ"}},
	{name: "23 template", src: "name: x\nstages:\n  a:\n    run: echo {{params.x}}\n", want: []string{"4:15 E_TEMPLATE_IN_SHELL"}},
	{name: "23 in a block", src: "name: x\nstages:\n  a:\n    run: |\n      set -e\n      echo 中 ${{ params.x }}\n", want: []string{"6:14 E_TEMPLATE_IN_SHELL"}},
	{name: "23 python", src: "name: x\nstages:\n  a: {python: \"print('${{ params.x }}')\"}\n", want: []string{"3:23 E_TEMPLATE_IN_SHELL"}},
	{name: "24 syntax", src: head + "    when: params.x >\n", want: []string{"5:20 E_EXPR"}},
	{name: "24 type", src: "params: {n: {type: integer}}\n" + head + "    when: params.n + \"a\" == 3\n", want: []string{"6:20 E_EXPR"}},
	{name: "24 not a condition", src: "params: {n: {type: integer}}\n" + head + "    when: params.n + 1\n", want: []string{"6:11 E_EXPR"}},
	{name: "24 unknown name", src: head + "    when: parms.n > 1\n", want: []string{"5:11 E_EXPR"}, says: []string{"did you mean params?"}},
	{name: "24 unknown parameter", src: head + "    env: {A: \"${{ params.n }}\"}\n", want: []string{"5:26 E_EXPR"}, says: []string{"unknown field n"}},
	{name: "24 environment", src: head + "    when: $env.params.n > 1\n", want: []string{"5:11 E_EXPR"}},
	{name: "24 mixed", src: head + "    env: {A: \"x-${{ trigger.time }}\"}\n", want: []string{"5:17 E_EXPR"}, says: []string{"alone"}},
	{name: "25 cost", src: head + "    when: 'all(1..10000, all(1..10000, # > 0))'\n", want: []string{"5:12 E_EXPR_COST"}},
	{name: "25 nested lists", src: head + "    when: 'all(trigger.payload, all(#, any(#, # > 0)))'\n", want: []string{"5:12 E_EXPR_COST"}},
	{name: "25 nodes", src: head + "    when: 1" + strings.Repeat("+1", 400) + " > 0\n", want: []string{"5:11 E_EXPR_COST"}},
	{name: "25 comment", src: head + "    when: all([1], # > 0)\n", want: []string{"5:18 E_EXPR"}, says: []string{"comment", "quote"}},
	{name: "26 bounds", src: head + "params: {n: {type: integer, minimum: 5, maximum: 3}}\n", want: []string{"5:38 E_CONTRACT"}, says: []string{"5", "3"}},
	{name: "26 pattern", src: head + "contracts: {c: {schema: {type: object, properties: {a: {pattern: \"(\"}}}}}\n", want: []string{"5:66 E_CONTRACT"}},
	{name: "26 enum", src: head + "contracts: {c: {schema: {enum: []}}}\n", want: []string{"5:32 E_CONTRACT"}},
	{name: "26 type", src: head + "params: {n: {type: integre}}\n", want: []string{"5:20 E_CONTRACT"}},
	{name: "26 reference", src: head + "params: {n: {$ref: \"other.json\"}}\n", want: []string{"5:13 E_CONTRACT"}},
	{name: "27 default", src: head + "params: {n: {type: integer, maximum: 3, default: 4}}\n", want: []string{"5:50 E_DEFAULT"}},
	{name: "27 type of default", src: head + "params: {n: {type: integer, default: many}}\n", want: []string{"5:38 E_DEFAULT"}},
	{name: "28 GitHub token", src: head + "    env: {T: ghp_" + strings.Repeat("a", 36) + "}\n", want: []string{"5:14 E_SECRET_INLINE"}},
	{name: "28 AWS key", src: head + "# AKIA" + strings.Repeat("Z", 16) + "\n", want: []string{"5:3 E_SECRET_INLINE"}},
	{name: "28 PEM", src: "name: x\nstages:\n  a:\n    run: |\n      # -----BEGIN RSA PRIVATE " + "KEY-----\n", want: []string{"5:9 E_SECRET_INLINE"}},
	{name: "28 not a reference", src: head + "    secrets: {T: hunter2}\n", want: []string{"5:18 E_SECRET_REF"}},
	{name: "29 hook", src: "name: x\non: [{webhook: {path: p}}]\nstages: {a: {run: x}}\n", want: []string{"2:16 E_HOOK_VERIFY"}},
	{name: "29 no secret", src: "name: x\non: [{webhook: {path: p, verify: {scheme: github}}}]\nstages: {a: {run: x}}\n", want: []string{"2:34 E_HOOK_VERIFY"}},
	{name: "29 empty secret", src: "name: x\non: [{webhook: {path: p, verify: {scheme: github, secret: \"\"}}}]\nstages: {a: {run: x}}\n", want: []string{"2:34 E_HOOK_VERIFY"}},
	{name: "30 hooks", src: "name: x\non: [{webhook: {path: p, verify: none}}, {webhook: {path: p, verify: none}}]\nstages: {a: {run: x}}\n",
		want: []string{"2:34 E_HOOK_OPEN", "2:59 E_HOOK_DUP", "2:70 E_HOOK_OPEN"}},
	{name: "31 missing", src: watchFile("nowhere/*.csv"), want: []string{"2:21 E_WATCH"}, options: Options{CheckFiles: true}},
	{name: "31 root", src: watchFile("/*.csv"), want: []string{"2:21 E_WATCH"}},
	{name: "31 root itself", src: watchFile("/"), want: []string{"2:21 E_WATCH"}},
	{name: "31 data", src: watchFile("/srv/data/work/*.csv"), want: []string{"2:21 E_WATCH"}, options: Options{DataDir: "/srv/data"}},
	{name: "31 deep wildcards", src: watchFile("/srv/*/in/*.csv"), want: []string{"2:21 E_WATCH"}},
	{name: "32 itself", src: "name: x\non: [{pipeline: {name: x}}]\nstages: {a: {run: x}}\n", want: []string{"2:24 E_TRIGGER_LOOP"}},
	{name: "32 every run", src: "name: x\non: [{event: {type: apollo.run.completed.v1}}]\nstages: {a: {run: x}}\n", want: []string{"2:21 E_TRIGGER_LOOP"}},
	{name: "33 program", src: "name: x\nstages:\n  a:\n    run: |\n      #!/usr/bin/env -S fish\n      echo\n", want: []string{"4:10 E_EXEC_NOTFOUND"}, says: []string{"fish"},
		options: Options{LookPath: func(string) (string, error) { return "", errors.New("no") }}},
	{name: "34 memory", src: head + "    resources: {memory: 64Gi, cpu: 2}\n", want: []string{"5:25 E_RESOURCE"}, says: []string{"64Gi", "8Gi"},
		options: Options{Machine: Machine{Cores: 2, Memory: 8 << 30}}},
	{name: "34 budget", src: head + "    resources: {memory: 12Gi, disk: 7Gi, cpu: 1.5, network: 2Mbps}\n", want: []string{"5:25 E_RESOURCE", "5:47 E_RESOURCE", "5:61 E_RESOURCE"},
		says:    []string{"12Gi of memory, and stages may use 11.2Gi of this machine's 16Gi", "at most 11.2Gi"},
		options: Options{Machine: Machine{Cores: 2, Memory: 16 << 30, Disk: 10 << 30}, Budget: Machine{Cores: 1.4, Memory: 11<<30 + 256<<20, Disk: 7 << 30, Network: 1e6}}},
}

func nestedMaps(depth int) string {
	var b strings.Builder
	for i := range depth {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func cronFile(schedule string) string {
	return "name: x\non: [{cron: {schedule: \"" + schedule + "\"}}]\nstages: {a: {run: x}}\n"
}

func watchFile(path string) string {
	return "name: x\non: [{file: {watch: " + path + "}}]\nstages: {a: {run: x}}\n"
}

func TestBadPipelineFiles(t *testing.T) {
	t.Parallel()
	for _, c := range badFiles {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, problems := Parse("p.yaml", []byte(c.src), t.TempDir(), c.options)
			checkProblems(t, c, p, problems)
		})
	}
}

func checkProblems(t *testing.T, c badFile, p *Pipeline, problems Problems) {
	t.Helper()
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%d:%d %s", p.Line, p.Col, p.Code))
		if _, known := ExplainCode(p.Code); !known {
			t.Errorf("%s is not in the table of codes", p.Code)
		}
	}
	if p != nil || strings.Join(got, "\n") != strings.Join(c.want, "\n") {
		t.Fatalf("pipeline %v, got %q, want %q\n%v", p != nil, got, c.want, problems)
	}
	for _, part := range c.says {
		if text := problems[0].Text(); !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func TestByteOrderMarkIsAccepted(t *testing.T) {
	t.Parallel()
	if p, problems := Parse("p.yaml", []byte("\ufeff"+head), "", Options{}); p == nil {
		t.Fatal(problems)
	}
	_, problems := Parse("p.yaml", []byte("\ufeffnaem: x\nstages: {a: {run: x}}\n"), "", Options{})
	if len(problems) != 2 || problems[0].Code != "E_FIELD" && problems[1].Code != "E_FIELD" || problems[0].Col != 1 {
		t.Error(problems)
	}
}

func TestSecretsAreNeverRepeated(t *testing.T) {
	t.Parallel()
	token := "ghp_" + strings.Repeat("a1", 18)
	src := head + "    env: {T: " + token + ", A: \"" + token + "${{ x }}\", ghp: {" + token + ": 1}}\n    " + token + ": 1\n    timeout: " + token + "\n"
	_, problems := Parse("p.yaml", []byte(src), "", Options{})
	if text := problems.Error(); len(problems) < 4 || strings.Contains(text, token[:8]) {
		t.Errorf("the token is repeated:\n%s", text)
	}
}

// TestEverySecretHasASign sees that the quick look before the pattern overlooks none of its branches.
func TestEverySecretHasASign(t *testing.T) {
	t.Parallel()
	tail := strings.Repeat("A1", 20)
	for _, prefix := range []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "AKIA", "ASIA", "xoxb-", "xoxp-", "sk_live_", "rk_live_", "AIza", "whsec_"} {
		if text := "a " + prefix + tail + " b"; masked(text) != "a ******** b" {
			t.Errorf("%s is not masked: %s", prefix, masked(text))
		}
	}
	for _, kind := range []string{"", "RSA ", "OPENSSH "} {
		if text := "-----BEGIN " + kind + "PRIVATE KEY-----"; masked(text) != "********" {
			t.Errorf("%s is not masked", text)
		}
	}
}

func TestWindowsLineEndings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.sh"), []byte("#!/bin/bash\necho\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	crlf := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	for _, c := range []badFile{
		{name: "inline", src: crlf("name: x\nstages:\n  a:\n    run: |\n      #!/bin/bash\n      echo\n"), want: []string{"5:18 E_CRLF"}, says: []string{"Windows line endings", "line 5"}},
		{name: "escaped", src: "name: x\nstages:\n  a:\n    run: \"#!/bin/bash\\r\\n\"\n", want: []string{"4:10 E_CRLF"}, says: []string{"Windows line endings"}},
		{name: "file", src: "name: x\nstages:\n  a:\n    shell: {script: go.sh}\n", want: []string{"4:21 E_CRLF"}, says: []string{"Windows line endings", "go.sh, line 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, problems := Parse("p.yaml", []byte(c.src), dir, Options{})
			checkProblems(t, c, p, problems)
		})
	}
	if p, problems := Parse("p.yaml", []byte(crlf("name: x\nstages:\n  a: {run: echo}\n")), dir, Options{}); p == nil {
		t.Errorf("a file with Windows line endings and a script of one line is refused: %v", problems)
	}
}
