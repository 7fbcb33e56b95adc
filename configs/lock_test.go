package configs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockFiles(t *testing.T) {
	t.Parallel()
	hash := "--hash=sha256:" + strings.Repeat("a1", 32)
	for name, text := range map[string]string{
		"empty":              "",
		"comments":           "# made by hand\n\n  # indented\n",
		"plain":              "numpy==2.1.0\nPyYAML==6.0.2 # for the config\n",
		"extras":             "requests[socks, use_chardet_on_py3]==2.32.3\n",
		"marker":             "tomli==2.0.1 ; python_version < \"3.11\"\n",
		"epoch and local":    "a==1!2.0+cpu\n",
		"release candidates": "a.b-c_d==1.0rc1.post2.dev3\n",
		"hashes":             "a==1 \\\n    " + hash + " \\\n    " + hash + "\nb==2 " + hash + "\n",
		"Windows":            "a==1\r\nb==2\r\n",
	} {
		if f := findLockFault(text); f.what != "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for name, test := range map[string]struct {
		text string
		line int
		what string
	}{
		"open":           {"a==1\nb\n", 2, "is not pinned to one version: b"},
		"range":          {"a>=1\n", 1, "not pinned"},
		"compatible":     {"a~=1.2\n", 1, "not pinned"},
		"two":            {"a==1,<2\n", 1, "not pinned"},
		"wildcard":       {"a==1.*\n", 1, "not pinned"},
		"arbitrary":      {"a===1\n", 1, "not pinned"},
		"another file":   {"# all\n-r base.txt\n", 2, "is the option -r base.txt"},
		"constraints":    {"-c base.txt\n", 1, "is the option"},
		"editable":       {"-e .\n", 1, "is the option"},
		"index":          {"--index-url https://example.com\n", 1, "is the option"},
		"address":        {"a @ https://example.com/a.whl\n", 1, "is an address"},
		"path":           {"./a.whl\n", 1, "is an address"},
		"after a joined": {"a==1 \\\n " + hash + "\nb\n", 3, "not pinned"},
		"bad hash":       {"a==1 --hash=md5:00\n", 1, "has a hash that can't be read"},
		"hash of one":    {"a==1 " + hash + "\nb==2\n", 2, "where another"},
		"none of first":  {"a==1\nb==2 " + hash + "\n", 2, "where another"},
		"a secret":       {"a==1\nghp_abcdefghijklmnopqrstuvwxyz012345\n", 2, "********"},
	} {
		if f := findLockFault(test.text); f.line != test.line || !strings.Contains(f.what, test.what) || f.expected == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestPythonStagesAreFrozen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"a.py": "print(1)\n", "good.txt": "six==1.16.0\n", "bad.txt": "six==1.16.0\n\nrequests>=2\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, problems := Parse("p.yaml", []byte("name: x\nstages: {a: {python: {script: a.py, requirements: good.txt, args: [1, b c], interpreter: python3.12}}}\n"), dir, Options{})
	if p == nil || len(problems) > 0 {
		t.Fatal(problems)
	}
	var got scriptSettings
	if err := json.Unmarshal(p.Plan().Stages[0].With, &got); err != nil || got.Requirements != "six==1.16.0\n" || got.Script != "print(1)\n" ||
		got.Interpreter != "python3.12" || strings.Join(got.Args, "|") != "1|b c" {
		t.Errorf("%+v, %v", got, err)
	}
	checkParse(t, dir, badFile{name: "open lock", src: "name: x\nstages: {a: {python: {script: a.py, requirements: bad.txt}}}\n", want: []string{"2:51 E_LOCK"},
		says: []string{"line 3 of bad.txt is not pinned to one version: requests>=2", "name==version", "pip freeze"}})
}

func checkParse(t *testing.T, dir string, c badFile) {
	t.Helper()
	p, problems := Parse("p.yaml", []byte(c.src), dir, c.options)
	checkProblems(t, c, p, problems)
}
