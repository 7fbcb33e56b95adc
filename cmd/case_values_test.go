package cmd_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// awkward are values in which a shell, a template or a file of settings would see something else.
var awkward = []string{"DgaH$a43", "an$example-user", "xy$", "a b", "123$$6", "$HOME ${HOME} $(id) `id`", " around ", `a\nb\\c`, `"a" 'b'`, "#c", "a=b",
	"-n", "*", "~", "a\nb\n", "${{ params.v }}", "%PATH%", "!!", "数据 🚀"}

// TestCase_K3: dollar signs and spaces arrive as they were given, by every way: as a parameter, as a default, as an
// environment variable, as an input, and in a file. There is no dotenv feature that could expand anything: such a file is
// an input like any other, whole and unchanged.
func TestCase_K3(t *testing.T) {
	t.Parallel()
	for i, value := range awkward {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			quoted, err := json.Marshal(value) // is a double-quoted YAML scalar too
			if err != nil {
				t.Fatal(err)
			}
			// Only as a parameter may the value look like an expression: written here it would be one.
			literal := string(quoted)
			if strings.Contains(value, "${{") {
				literal = `"no expression"`
			}
			s := newSite(t, "k3", `name: k3
params: {v: {type: string}, given: {type: string, default: `+literal+`}}
stages:
  all:
    env: {LITERAL: `+literal+`, PARAM: "${{ params.v }}"}
    inputs: {value: "${{ params.v }}", dotenv: "${{ trigger.file }}"}
    outputs: {all: {path: all}, dotenv: {path: dotenv}}
    run: |
      printf '%s\000' "$LITERAL" "$PARAM" "$APOLLO_PARAM_V" "$APOLLO_PARAM_GIVEN" "$APOLLO_IN_VALUE" > all
      cp "$APOLLO_IN_DOTENV" dotenv
`)
			dotenv := filepath.Join(t.TempDir(), ".env")
			write(t, dotenv, "V="+value+"\n")
			v := decode[runView](t, s.must("run", "k3", "--param", "v="+value, "--input", dotenv, "-o", "json"))
			var text string
			if err := json.Unmarshal([]byte(literal), &text); err != nil {
				t.Fatal(err)
			}
			outputs := v.Stages[0].Outputs
			if got, want := s.output(outputs["all"]), strings.Join([]string{text, value, value, text, value, ""}, "\x00"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if got := s.output(outputs["dotenv"]); got != "V="+value+"\n" {
				t.Errorf("the file became %q", got)
			}
		})
	}
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// TestCase_K5: a payload of any size reaches its stage, by file where a variable would be too long. What the kernel would
// not start is a failed run with the reason, also when its sender was told 202 long before.
func TestCase_K5(t *testing.T) {
	t.Parallel()
	s := newSite(t, "large", `name: large
on: [{webhook: {path: large, verify: {scheme: github, secret: secret://github_hook}}}]
stages:
  sums:
    inputs: {body: "${{ trigger.body }}", padding: "${{ trigger.payload.padding }}"}
    outputs: {sums: {path: sums}}
    run: |
      test -z "${APOLLO_IN_PADDING+set}"
      sha256sum < "$APOLLO_IN_BODY" > sums
      sha256sum < "$APOLLO_IN_PADDING_FILE" >> sums
`)
	write(t, filepath.Join(s.pipelines, "variable.yaml"), `name: variable
on: [{webhook: {path: variable, verify: {scheme: github, secret: secret://github_hook}}}]
stages:
  never: {run: "true", env: {PADDING: "${{ trigger.payload.padding }}"}}
`)
	many := "name: many\non: [{webhook: {path: many, verify: {scheme: github, secret: secret://github_hook}}}]\nstages:\n  never:\n    run: \"true\"\n    env:\n"
	for i := range 50 {
		many += fmt.Sprintf("      P%d: \"${{ trigger.payload.padding }}\"\n", i)
	}
	write(t, filepath.Join(s.pipelines, "many.yaml"), many)
	write(t, filepath.Join(s.pipelines, "param.yaml"), `name: param
params: {v: {type: string}}
stages:
  sum: {outputs: {sum: {path: sum}}, run: "sha256sum < \"$APOLLO_PARAM_V_FILE\" > sum"}
`)
	s.serve()
	push, err := os.ReadFile("../handlers/trigger/testdata/webhooks/github/push.json")
	if err != nil {
		t.Fatal(err)
	}
	body := func(size int) (body, padding []byte) {
		pushes := bytes.Repeat(append(push, ','), size/len(push)/2)
		padding = bytes.Repeat([]byte("x"), size-len(pushes))
		return fmt.Appendf(nil, `{"pushes": [%s null], "padding": "%s"}`, pushes, padding), padding
	}
	started := func(path string, body []byte) runView {
		t.Helper()
		status, answer := s.post(path, fmt.Sprint(path, len(body)), body)
		if status != 202 {
			t.Fatalf("%s of %d bytes: %d %s", path, len(body), status, answer)
		}
		return s.ends(decode[deliveryView](t, answer).Run)
	}
	for _, size := range []int{200_000, 3_000_000} {
		sent, padding := body(size)
		v := started("large", sent)
		want := sum(sent) + "  -\n" + sum(padding) + "  -\n"
		if v.State != "completed" || s.output(v.Stages[0].Outputs["sums"]) != want {
			t.Errorf("%d bytes: %s %s", size, v.State, v.Reason)
		}
	}
	value := strings.Repeat("y z$", 135_000/4)
	v := s.ends(s.detach("param", "--param", "v="+value))
	if v.State != "completed" || s.output(v.Stages[0].Outputs["sum"]) != sum([]byte(value))+"  -\n" {
		t.Errorf("a parameter of %d bytes: %s %s", len(value), v.State, v.Reason)
	}
	for path, c := range map[string]struct {
		size   int
		reason string
	}{"variable": {135_000, "PADDING is too long"}, "many": {60_000, "too long for the kernel"}} {
		v := started(path, padding(c.size))
		if v.State != "failed" || v.Class != "bad_input" || !strings.Contains(v.Stages[0].Reason, c.reason) {
			t.Errorf("%s: %s %s %s", path, v.State, v.Class, v.Stages[0].Reason)
		}
	}
	if code := s.stop(); code != 0 {
		t.Errorf("exit %d\n%s", code, s.stderr)
	}
	s.healthy()
}

// TestCase_K7: what YAML readers take for something else than is written is refused with its line, or arrives as written.
func TestCase_K7(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	refused := func(name, text, code string, line int) {
		t.Helper()
		file := filepath.Join(dir, name+".yaml")
		write(t, file, text)
		out, errs, code1 := (&site{data: dir, pipelines: dir}).apollo("validate", file, "-o", "json")
		var report struct {
			Problems []struct {
				Line int
				Code string
			}
		}
		if err := json.Unmarshal([]byte(out), &report); err != nil || code1 != 3 {
			t.Fatalf("%s: exit %d, %v: %s%s", name, code1, err, out, errs)
		}
		for _, p := range report.Problems {
			if p.Code == code && p.Line == line {
				return
			}
		}
		t.Errorf("%s: no %s in line %d: %s", name, code, line, out)
	}
	surprises := []string{"2020-01-01", "2020-01-01T00:00:00Z", "0510210600", "08", "no", "No", "yes", "on", "off", "y", "n", "1.10", "1e3", "0x1F", "0o17", "1_000", "+5",
		".5", "12:30:45", "~", "null", ".inf", ".nan", "="}
	for i, s := range surprises {
		param := fmt.Sprintf("name: k7\nparams:\n  v:\n    type: string\n    default: %s\nstages: {a: {run: \"true\"}}\n", s)
		env := fmt.Sprintf("name: k7\nstages:\n  a:\n    run: \"true\"\n    env:\n      V: %s\n", s)
		if s == "y" || s == "n" || s == "=" {
			continue // text to every reader in use
		}
		refused(fmt.Sprintf("param-%d", i), param, "E_TYPE", 5)
		refused(fmt.Sprintf("env-%d", i), env, "E_TYPE", 6)
	}
	refused("hour", "name: k7\nparams:\n  hour:\n    type: integer\n    default: 08\nstages: {a: {run: \"true\"}}\n", "E_TYPE", 5)
	refused("flag", "name: k7\nparams:\n  flag:\n    type: boolean\n    default: no\nstages: {a: {run: \"true\"}}\n", "E_TYPE", 5)
	refused("twice", "name: k7\nstages:\n  a: {run: \"true\"}\n  a: {run: \"false\"}\n", "E_DUP_STAGE", 4)
	refused("twice-quoted", "name: k7\nparams:\n  a: {type: string}\n  \"a\": {type: string}\nstages: {a: {run: \"true\"}}\n", "E_YAML_DUP", 4)
	refused("on-twice", "name: k7\non: []\n\"on\": []\nstages: {a: {run: \"true\"}}\n", "E_YAML_DUP", 3)

	text := "name: k7\nparams:\n"
	for i, s := range surprises {
		text += fmt.Sprintf("  p%d: {type: string, default: %q}\n", i, s)
	}
	text += "  on: {type: string, default: key}\n  \"no\": {type: string, default: key}\nstages:\n  on:\n    env: {ON: key, \"NO\": \"no\""
	for i, s := range surprises {
		text += fmt.Sprintf(", E%d: '%s'", i, s)
	}
	text += "}\n    outputs: {all: {path: all}}\n    run: |\n      printf '%s\\n' \"$ON $NO $APOLLO_PARAM_ON $APOLLO_PARAM_NO\""
	for i := range surprises {
		text += fmt.Sprintf(" \"$APOLLO_PARAM_P%d\" \"$E%d\"", i, i)
	}
	s := newSite(t, "k7", text+" > all\n")
	v := decode[runView](t, s.must("run", "k7", "-o", "json"))
	want := "key no key key\n"
	for _, s := range surprises {
		want += s + "\n" + s + "\n"
	}
	if got := s.output(v.Stages[0].Outputs["all"]); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// The same from the command line, where everything is text: it is read by the parameter's type alone.
	v = decode[runView](t, s.must("run", "k7", "--param", "p0=1.10", "--param", "p1=08", "--param", "p2=no", "-o", "json"))
	if got := s.output(v.Stages[0].Outputs["all"]); !strings.HasPrefix(got, "key no key key\n1.10\n2020-01-01\n08\n") {
		t.Errorf("got %q", got)
	}
}

// TestCase_P9: a script with Windows line endings never becomes a run: the definition is refused in plain words, inline, in
// a file beside it, and escaped.
func TestCase_P9(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ definition, script string }{
		"inline":       {"name: p9\nstages:\n  a:\n    run: |\r\n      #!/bin/bash\r\n      echo hi\r\n", ""},
		"whole file":   {"name: p9\r\nstages:\r\n  a:\r\n    run: |\r\n      echo hi\r\n", ""},
		"escaped":      {"name: p9\nstages:\n  a:\n    run: \"#!/bin/bash\\r\\necho hi\\r\\n\"\n", ""},
		"shell script": {"name: p9\nstages:\n  a:\n    shell: {script: go.sh}\n", "#!/bin/bash\r\necho hi\r\n"},
		"one line":     {"name: p9\nstages:\n  a:\n    shell: {script: go.sh}\n", "#!/bin/bash\necho hi\necho ho\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, "p9", c.definition)
			if c.script != "" {
				write(t, filepath.Join(s.pipelines, "p9", "go.sh"), c.script)
			}
			for _, command := range []string{"validate", "run"} {
				out, errs, code := s.apollo(command, filepath.Join(s.pipelines, "p9", "pipeline.yaml"))
				if said := out + errs; code != 3 || !strings.Contains(said, "E_CRLF") || !strings.Contains(said, "Windows line endings") {
					t.Errorf("%s: exit %d: %s", command, code, said)
				}
			}
			if _, err := os.Stat(filepath.Join(s.data, "apollo.db")); err == nil {
				t.Error("something was started")
			}
		})
	}
}

// TestCase_P10: how a stage ended is told in its event: a pipe fails with the command in it that fails, and a signal is not
// an exit code.
func TestCase_P10(t *testing.T) {
	t.Parallel()
	s := emptySite(t)
	for i, c := range []struct {
		script, signal, reason string
		exit                   int
	}{
		{"false | tee log", "", "code 1", 1},
		{"echo a | (cat; exit 4) | cat", "", "code 4", 4},
		{"exit -1", "", "code 255", 255},
		{"exit 137", "", "code 137 by itself", 137},
		{"kill -KILL $$", "SIGKILL", "SIGKILL", 0},
		{"sh -c 'kill -KILL $$'; exit 0", "", "code 137 by itself", 137}, // the shell's own word for its command's signal
	} {
		file := filepath.Join(s.pipelines, fmt.Sprintf("p%d.yaml", i))
		quoted, _ := json.Marshal(c.script)
		write(t, file, fmt.Sprintf("name: p%d\nstages: {a: {run: %s}}\n", i, quoted))
		out, errs, code := s.apollo("run", file, "-o", "json")
		if code != 10 {
			t.Fatalf("%s: exit %d: %s%s", c.script, code, out, errs)
		}
		for _, e := range s.events(decode[runView](t, out).Run) {
			if e.Type == "stage.failed" && (e.Data.Class != "exec_failed" || e.Data.Exit != c.exit || e.Data.Signal != c.signal || !strings.Contains(e.Data.Reason, c.reason)) {
				t.Errorf("%s: %+v", c.script, e.Data)
			}
		}
	}
}
