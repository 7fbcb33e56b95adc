package cmd

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
)

// tree gives the files below a directory with their content, and its folders.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			all[rel] = "folder"
			return nil
		}
		b, err := os.ReadFile(path)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func sameTree(a, b map[string]string) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Whatever fails, nothing half done is left: what was there is as it was.
func TestInstallIsAllOrNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there  map[string]string // before; "folder" makes one
		force  bool
		exists bool
		want   map[string]string // afterwards; nil: as before
	}{
		"into nothing":                  {nil, false, false, map[string]string{"new": "folder", "new/a": "1", "new/sub": "folder", "new/sub/b": "2"}},
		"the last is there":             {map[string]string{"new": "folder", "new/sub": "folder", "new/sub/b": "old"}, false, true, nil},
		"forced":                        {map[string]string{"new": "folder", "new/a": "old", "new/mine": "kept"}, true, false, map[string]string{"new": "folder", "new/a": "1", "new/mine": "kept", "new/sub": "folder", "new/sub/b": "2"}},
		"forced onto a folder":          {map[string]string{"new": "folder", "new/a": "old", "new/sub": "folder", "new/sub/b": "folder", "new/sub/b/c": "kept"}, true, false, nil},
		"a file where a folder must be": {map[string]string{"new": "folder", "new/a": "old", "new/sub": "a file"}, true, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for path, content := range c.there {
				var err error
				if path = filepath.Join(dir, path); content == "folder" {
					err = os.MkdirAll(path, 0o700)
				} else {
					err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			before := treeOf(t, dir)
			files := []newFile{{filepath.Join(dir, "new/a"), []byte("1")}, {filepath.Join(dir, "new/sub/b"), []byte("2")}}
			if c.want == nil { // what can be written comes first, and must go again
				files = append([]newFile{{filepath.Join(dir, "more/folders/c"), []byte("3")}}, files...)
			}
			err := install(files, c.force)
			want := c.want
			if want == nil {
				want = before
			}
			if got := treeOf(t, dir); !sameTree(got, want) || (err == nil) != (c.want != nil) {
				t.Errorf("%v\n%v, want\n%v", err, got, want)
			}
			if _, exists := errors.AsType[*existsError](err); exists != c.exists {
				t.Errorf("%v", err)
			}
		})
	}
}

// A file that appears between the look and the writing is not replaced.
func TestInstallRaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := &installing{}
	f := newFile{filepath.Join(dir, "a"), []byte("ours")}
	if err := w.prepare(f); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.path, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, exists := errors.AsType[*existsError](w.commit(w.parts[0], f.path, false)); !exists {
		t.Error("no error")
	}
	if b, err := os.ReadFile(f.path); err != nil || string(b) != "theirs" {
		t.Errorf("%s, %v", b, err)
	}
}

func TestAskForBlanks(t *testing.T) {
	t.Parallel()
	text := "template:\n  name: t\n  title: T\n  blanks:\n    a: {type: string, title: The A}\n    n: {type: integer, minimum: 2}\n    l: {type: array}\n    d: {type: string, default: x}\n" +
		"name: <<name>>\nparams: {a: {default: <<a>>}, n: {default: <<n>>}, l: {default: <<l>>}, d: {default: <<d>>}}\nstages: {s: {run: \"true\"}}\n"
	tmpl, problems := configs.LoadTemplate(fstest.MapFS{configs.TemplateFile: {Data: []byte(text)}}, configs.TemplateFile, "t")
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	for name, c := range map[string]struct{ typed, want string }{
		"both":                {"some text\n5\n", `{"a":"some text","n":5}`},
		"a wrong answer":      {"x\nmany\n1\n2\n", `{"a":"x","n":2}`},
		"wrong too often":     {"x\n1\n1\n1\n2\n", `{"a":"x"}`},
		"the end of the file": {"x", `{"a":"x"}`},
		"nothing":             {"", `{}`},
	} {
		var asked bytes.Buffer
		a := &app{err: &asked, out: &asked, say: lang.New("en"), color: "never", output: "text"}
		given := map[string]json.RawMessage{}
		a.ask(bufio.NewReader(strings.NewReader(c.typed)), namedTemplate{Template: tmpl}, given)
		if got, err := json.Marshal(given); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, want %s; asked %q", name, got, c.want, asked.String())
		}
		if !strings.HasPrefix(asked.String(), "The A (a): ") || strings.Contains(asked.String(), "(l)") || strings.Contains(asked.String(), "(d)") {
			t.Errorf("%s: asked %q", name, asked.String())
		}
	}
}

// Templates of plug-ins are listed with the others; one that is broken is named.
func TestPluginTemplates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"good": "template:\n  name: good\n  title: Good\nname: <<name>>\nstages: {s: {run: \"true\"}}\n", "broken": "name: x\n"} {
		own := filepath.Join(dir, "plugins", name)
		manifest := fmt.Sprintf("name: %s\nkind: template\nversion: \"1\"\ndescription: One\ntemplate: it.yaml\nsha256: %x\n", name, sha256.Sum256([]byte(text)))
		if err := errors.Join(os.MkdirAll(own, 0o700), os.WriteFile(filepath.Join(own, "it.yaml"), []byte(text), 0o600),
			os.WriteFile(filepath.Join(own, "plugin.yaml"), []byte(manifest), 0o600), os.WriteFile(filepath.Join(own, "secret.bin"), []byte("never copied"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	var out, errs bytes.Buffer
	code := Run(t.Context(), []string{"template", "list", "--pipelines", dir, "--plugins", filepath.Join(dir, "plugins")}, strings.NewReader(""), &out, &errs, func(string) string { return "" })
	if code != 0 || !strings.Contains(out.String(), "good") || !strings.Contains(out.String(), "plug-in") || !strings.Contains(errs.String(), "broken/it.yaml") {
		t.Errorf("exit %d\n%s\n%s", code, out.String(), errs.String())
	}
	pipelines := filepath.Join(dir, "pipelines")
	code = Run(t.Context(), []string{"template", "use", "good", "--pipelines", pipelines, "--plugins", filepath.Join(dir, "plugins")}, strings.NewReader(""), &out, &errs, func(string) string { return "" })
	if got := treeOf(t, pipelines); code != 0 || len(got) != 1 || !strings.HasPrefix(got["good.yaml"], "name: good\n") {
		t.Errorf("exit %d, %v\n%s", code, got, errs.String())
	}
}
