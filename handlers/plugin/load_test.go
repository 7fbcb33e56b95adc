package plugin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/handlers/executor"
)

func TestBrokenOnesAreNamedAndTheOthersLoaded(t *testing.T) {
	t.Parallel()
	program := shell("echo '" + goodResult + "'")
	good := manifest("it", program)
	for name, test := range map[string]struct {
		code, text string
		change     func(t *testing.T, dir string) // of the plug-in, which is good before
	}{
		"wrong hash": {"E_PLUGIN_HASH", sum(program + "\n"), func(t *testing.T, dir string) {
			t.Helper()
			put(t, filepath.Join(dir, "main"), program+"\n", 0o755)
		}},
		"no manifest": {"E_PLUGIN_MANIFEST", "no such file", func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Remove(filepath.Join(dir, ManifestFile)); err != nil {
				t.Fatal(err)
			}
		}},
		"unknown key":         {"E_PLUGIN_MANIFEST", "plugin.yaml:8:1: E_FIELD", manifestIs(good + "env: [HOME]\n")},
		"no hash":             {"E_PLUGIN_MANIFEST", "E_REQUIRED: a plug-in's manifest has no sha256", manifestIs(strings.ReplaceAll(good, "sha256", "description"))},
		"another protocol":    {"E_PLUGIN_MANIFEST", "protocol is 2", manifestIs(strings.ReplaceAll(good, "protocol: 1", "protocol: 2"))},
		"leaves its place":    {"E_PLUGIN_MANIFEST", "E_PATH", manifestIs(strings.ReplaceAll(good, "./main", "../main"))},
		"absolute":            {"E_PLUGIN_MANIFEST", "E_PATH", manifestIs(strings.ReplaceAll(good, "./main", "/bin/true"))},
		"empty":               {"E_PLUGIN_MANIFEST", "the file is empty", manifestIs("")},
		"another name":        {"E_PLUGIN_NAME", "other", manifestIs(strings.ReplaceAll(good, "name: it", "name: other"))},
		"world-writable":      {"E_PLUGIN_MODE", "0757", mode("main", 0o757)},
		"group-writable":      {"E_PLUGIN_MODE", "0775", mode("main", 0o775)},
		"writable manifest":   {"E_PLUGIN_MODE", "0666", mode(ManifestFile, 0o666)},
		"writable directory":  {"E_PLUGIN_MODE", "0777", mode(".", 0o777)},
		"not executable":      {"E_PLUGIN_MODE", "not executable", mode("main", 0o644)},
		"missing executable":  {"E_PLUGIN_FILE", "no such file", replace(func(string) error { return nil })},
		"a directory":         {"E_PLUGIN_FILE", "no regular file", replace(func(p string) error { return os.Mkdir(p, 0o700) })},
		"a named pipe":        {"E_PLUGIN_FILE", "no regular file", replace(func(p string) error { return unix.Mkfifo(p, 0o700) })},
		"a link that escapes": {"E_PLUGIN_FILE", "escapes", replace(func(p string) error { return os.Symlink("/bin/true", p) })},
		"somebody else's": {"E_PLUGIN_MODE", "belongs to user 12345", func(t *testing.T, dir string) {
			t.Helper()
			if os.Geteuid() != 0 {
				t.Skip("only root can give a file away")
			}
			if err := os.Chown(filepath.Join(dir, "main"), 12345, 0); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			install(t, dir, "before", program)
			install(t, dir, "it", program)
			install(t, dir, "later", program)
			test.change(t, filepath.Join(dir, "it"))
			s := Load(dir)
			broken := s.Get("it")
			if broken == nil || broken.Fault == nil || broken.Fault.Code != test.code || !strings.Contains(broken.Fault.Error(), test.text) {
				t.Fatalf("got %+v, want %s with %q", broken, test.code, test.text)
			}
			var names []string
			for _, x := range s.Executors(executor.Settings{Owner: owner}) {
				names = append(names, x.Spec().Name)
			}
			if !slices.Equal(names, []string{"before", "later"}) {
				t.Errorf("loaded %v", names)
			}
			_, problems := configs.Parse("p.yaml", []byte("name: x\nstages: {a: {it: {}}, b: {before: {}}}\n"), "", configs.Options{Plugins: s.Options()})
			if len(problems) != 1 || problems[0].Code != "E_PLUGIN_SKIPPED" || problems[0].Line != 2 || problems[0].Col != 14 || !strings.Contains(problems[0].Message, test.code) {
				t.Errorf("a pipeline that uses it: %v", problems)
			}
		})
	}
}

func manifestIs(text string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { t.Helper(); put(t, filepath.Join(dir, ManifestFile), text, 0o644) }
}

func mode(name string, mode os.FileMode) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// replace puts something else in the executable's place.
func replace(with func(path string) error) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		path := filepath.Join(dir, "main")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := with(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamesThatAreTaken(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	taken := []string{"shell", "run", "http", "pipeline", "needs", "timeout"}
	for _, name := range taken {
		install(t, dir, name, shell(""))
	}
	for _, name := range taken {
		if p := Load(dir).Get(name); p.Fault == nil || p.Fault.Code != "E_PLUGIN_NAME" || !strings.Contains(p.Fault.Reason, name) {
			t.Errorf("%s: %v", name, p.Fault)
		}
	}
}

func TestTheDirectoryItself(t *testing.T) {
	t.Parallel()
	if s := Load(filepath.Join(t.TempDir(), "missing")); s.Fault == nil || s.Fault.Code != "E_PLUGIN_DIR" || s.Plugins != nil {
		t.Errorf("missing: %+v", s)
	}
	dir := newDir(t)
	install(t, dir, "it", shell(""))
	put(t, filepath.Join(dir, "README"), "not a plug-in", 0o644)
	put(t, filepath.Join(dir, ".git", "config"), "", 0o644)
	if s := Load(dir); len(s.Plugins) != 1 || s.Plugins[0].Fault != nil {
		t.Errorf("files and hidden directories: %+v", s.Plugins)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if p := Load(dir).Get("it"); p.Fault == nil || p.Fault.Code != "E_PLUGIN_MODE" {
		t.Errorf("anybody can put a plug-in there: %v", p.Fault)
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	text := "name: x\n"
	put(t, filepath.Join(dir, "tidy", "tidy.yaml"), text, 0o644)
	put(t, filepath.Join(dir, "tidy", ManifestFile),
		"name: tidy\nkind: template\nversion: v2\ndescription: Tidies.\ntemplate: tidy.yaml\nsha256: \""+sum(text)+"\"\n", 0o644)
	install(t, dir, "it", shell(""))
	s := Load(dir)
	want := []Template{{Name: "tidy", Description: "Tidies.", File: filepath.Join(dir, "tidy", "tidy.yaml")}}
	if got := s.Templates(); !slices.Equal(got, want) {
		t.Fatalf("got %+v, %v", got, s.Get("tidy").Fault)
	}
	if list := s.Options(); len(list) != 1 || list[0].Name != "it" || list[0].Pin != "it@1.0 sha256:"+sum(shell("")) {
		t.Errorf("for definitions: %+v", list)
	}
	put(t, filepath.Join(dir, "tidy", "tidy.yaml"), text+"#\n", 0o644)
	if list := Load(dir).Templates(); list != nil {
		t.Errorf("a changed template is offered: %v", list)
	}
}
