package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// block gives the first block of a language in docs/plugins.md that holds a text.
func block(tb testing.TB, language, text string) string {
	tb.Helper()
	doc := read(tb, filepath.Join("..", "..", "docs", "plugins.md"))
	for _, m := range regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```\n").FindAllStringSubmatch(doc, -1) {
		if strings.Contains(m[1], text) {
			return m[1]
		}
	}
	tb.Fatalf("no block of %s with %q", language, text)
	return ""
}

// What the documentation shows works.
func TestDocumentedPlugin(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("/usr/bin/python3"); err != nil {
		t.Skip("there is no /usr/bin/python3")
	}
	program, dir := block(t, "python", "readline"), newDir(t)
	put(t, filepath.Join(dir, "greet", "greet.py"), program, 0o755)
	put(t, filepath.Join(dir, "greet", ManifestFile), regexp.MustCompile(`<64.*>`).ReplaceAllString(block(t, "yaml", "kind: executor"), sum(program)), 0o644)
	s := Load(dir)
	p := s.Get("greet")
	if p.Fault != nil {
		t.Fatal(p.Fault)
	}
	definition, problems := configs.Parse("p.yaml", []byte("name: x\n"+block(t, "yaml", "stages:")), "", configs.Options{Plugins: s.Options()})
	if definition == nil {
		t.Fatal(problems)
	}
	c := newCall(t)
	c.With = definition.Plan().Stages[0].With
	if r, failure := run(t.Context(), p, c); failure != nil || string(r.Values["text"]) != `"Hello, Ada"` {
		t.Errorf("%+v, %s", failure, r.Values)
	}
	c.With = []byte(`{"name":" "}`)
	if _, failure := run(t.Context(), p, c); failure == nil || failure.Class != events.BadInput || failure.Pointer != "/with/name" {
		t.Errorf("%+v", failure)
	}
}

func TestDocumentedChannel(t *testing.T) {
	t.Parallel()
	to := filepath.Join(t.TempDir(), "alerts")
	program := strings.ReplaceAll(block(t, "sh", "request"), "/var/log/apollo-alerts.jsonl", to)
	script := strings.TrimPrefix(program, "#!/bin/sh\nset -eu\nread -r request\n")
	if err := loadAlert(t, script, "").Channel(settings).Alert(t.Context(), Alert{ID: "a1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(to); err != nil || !strings.HasPrefix(read(t, to), `{"protocol":1,"type":"alert","alert":{"id":"a1"`) {
		t.Errorf("%v", err)
	}
}

func TestDocumentedAnswersAreAllThereAre(t *testing.T) {
	t.Parallel()
	doc := read(t, filepath.Join("..", "..", "docs", "plugins.md"))
	for name := range messages {
		if !strings.Contains(doc, `| `+"`"+`{"type":"`+name+`"`) {
			t.Errorf("%s is not documented", name)
		}
	}
	for _, class := range classes() {
		if !regexp.MustCompile("one of `[a-z_ ]*\\b" + class + "\\b").MatchString(doc) {
			t.Errorf("the class %s is not documented", class)
		}
	}
}
