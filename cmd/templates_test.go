package cmd_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/apollo-11/apollo/configs"
)

// templateExample is a template's example.yaml (or example-<more>.yaml): an expectation, and what the template is filled with.
type templateExample struct {
	Expect expectation `yaml:",inline"`

	Needs  []string            // programs; without one of them the example is skipped
	Serve  string              // folder: a local server answers /name with name.json of it, /name?p=2 with name-2.json, and takes posts
	Blanks map[string]any      // {file: PATH} is a path beside the definition, {server: /PATH} an address of the server, [{user: me}] whoever runs the test
	Also   map[string]any      // further blanks, with which the template is only filled and checked
	Left   map[string][]string // what folders hold afterwards; names may have wildcards
	Posted []struct {
		Path  string
		Holds []string
	}
}

// TestTemplates fills every template as a user would, and runs what comes out against its example.yaml.
func TestTemplates(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("../configs/templates/*/template.yaml")
	if err != nil || len(found) < 6 {
		t.Fatalf("%d templates found, %v", len(found), err)
	}
	for _, path := range found {
		examples, err := filepath.Glob(filepath.Join(filepath.Dir(path), "example*.yaml"))
		if err != nil || len(examples) == 0 {
			t.Fatalf("%s has no example, %v", path, err)
		}
		for _, example := range examples {
			t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(example), func(t *testing.T) {
				t.Parallel()
				runTemplateExample(t, example)
			})
		}
	}
}

func runTemplateExample(t *testing.T, example string) {
	t.Helper()
	source := filepath.Dir(example)
	name := filepath.Base(source)
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	var want templateExample
	if err := yaml.UnmarshalWithOptions(text, &want, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, program := range want.Needs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" { // there it is installed
				t.Fatal(err)
			}
			t.Skipf("%s is not here", program)
		}
	}
	site := emptySite(t)
	dir := filepath.Join(site.pipelines, "filled")
	if err := os.CopyFS(filepath.Join(dir, "example"), os.DirFS(filepath.Join(source, "example"))); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	server := newTemplateServer(t, filepath.Join(dir, want.Serve))
	args := []string{"template", "use", name, "-o", "json", "--name"}
	set := setBlanks(t, want.Blanks, dir, server.URL)
	definition := filepath.Join(dir, "pipeline.yaml")
	site.must(append(append(slices.Clone(args), "filled", "--out", definition), set...)...)
	full := filepath.Join(t.TempDir(), "full", "pipeline.yaml")
	site.must(append(append(append(slices.Clone(args), "full", "--out", full), set...), setBlanks(t, want.Also, dir, server.URL)...)...)
	site.must("validate", definition)
	if files, _ := configs.TestFiles(definition); len(files) > 0 {
		site.must("test", definition)
	}
	p, _ := configs.LoadFile(definition, configs.Options{})
	if missing := configs.NotYet(p.Plan()); len(missing) > 0 {
		t.Fatalf("what a template is filled to cannot be run: %v", missing)
	}
	site.compare(site.show(site.carryOut(dir, &want.Expect)), &want.Expect)
	want.compareOutside(t, dir, server)
}

// setBlanks makes the flags of blanks.
func setBlanks(t *testing.T, blanks map[string]any, dir, server string) []string {
	t.Helper()
	var flags []string
	for name, value := range blanks {
		if place, ok := value.(map[string]any); ok && len(place) == 1 {
			if path, ok := place["file"].(string); ok {
				value = filepath.Join(dir, path)
			}
			if path, ok := place["server"].(string); ok {
				value = server + path
			}
		}
		if list, ok := value.([]any); ok && len(list) == 1 && reflect.DeepEqual(list[0], map[string]any{"user": "me"}) {
			me, err := user.Current()
			if err != nil {
				t.Fatal(err)
			}
			value = []string{me.Username}
		}
		text, ok := value.(string)
		if !ok {
			raw, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
		}
		flags = append(flags, "--set", name+"="+text)
	}
	return flags
}

// compareOutside looks at what a run has left outside of its store.
func (want *templateExample) compareOutside(t *testing.T, dir string, server *templateServer) {
	t.Helper()
	for folder, patterns := range want.Left {
		entries, err := os.ReadDir(filepath.Join(dir, folder))
		if err != nil || len(entries) != len(patterns) {
			t.Errorf("%s holds %v, %v; want %v", folder, entries, err, patterns)
			continue
		}
		for i, e := range entries {
			if ok, err := filepath.Match(patterns[i], e.Name()); !ok || err != nil {
				t.Errorf("%s holds %s, want %s", folder, e.Name(), patterns[i])
			}
		}
	}
	server.lock.Lock()
	defer server.lock.Unlock()
	if len(server.posts) != len(want.Posted) {
		t.Fatalf("%d posts, want %d: %v", len(server.posts), len(want.Posted), server.posts)
	}
	for i, p := range want.Posted {
		for _, part := range append([]string{p.Path + "\n"}, p.Holds...) {
			if !strings.Contains(server.posts[i], part) {
				t.Errorf("post %d is %q, without %q", i, server.posts[i], part)
			}
		}
	}
}

// templateServer stands for what a template reaches over the network.
type templateServer struct {
	*httptest.Server
	lock  sync.Mutex
	posts []string // path, a line break, body
}

func newTemplateServer(t *testing.T, dir string) *templateServer {
	t.Helper()
	s := &templateServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			s.lock.Lock()
			defer s.lock.Unlock()
			s.posts = append(s.posts, r.URL.Path+"\n"+string(body))
			return
		}
		name := filepath.Base(r.URL.Path)
		if page := r.URL.Query().Get("p"); page != "" {
			name += "-" + filepath.Base(page)
		}
		answer, err := os.ReadFile(filepath.Join(dir, name+".json"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	t.Cleanup(s.Close)
	return s
}
