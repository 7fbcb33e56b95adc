package architecture_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"
)

// rule is one promise about the tree. Its check returns a problem for every place that breaks it.
type rule struct {
	name  string
	check func(tree) []string
	// breaks are trees that break the rule, one per way of breaking it, each with the problems the check must find there and no others.
	breaks []fixture
}

// fixture is a small tree, file name to content, and the problems a rule finds in it.
type fixture struct {
	name  string
	files map[string]string
	want  []string
}

// rules is every rule, in the order a reader meets them in DESIGN.md.
func rules() []rule {
	return []rule{
		topLevelRule(),
		directionRule(),
		pureEventsRule(),
		librariesRule(),
		environmentRule(),
		functionSizeRule(),
		fileSizeRule(),
		exportedCommentRule(),
		packageCommentRule(),
	}
}

func TestTreeKeepsEveryRule(t *testing.T) {
	t.Parallel()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	actual, err := loadTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(actual.sources) == 0 {
		t.Fatalf("no Go file found under %s: nothing was checked", root)
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, problem := range r.check(actual) {
				t.Error(problem)
			}
		})
	}
}

// TestEveryRuleBites is the self-check: a rule that cannot fail protects nothing.
func TestEveryRuleBites(t *testing.T) {
	t.Parallel()
	for _, r := range rules() {
		if !slices.ContainsFunc(r.breaks, func(f fixture) bool { return len(f.want) > 0 }) {
			t.Errorf("%s: no fixture breaks this rule", r.name)
		}
		for _, f := range r.breaks {
			t.Run(r.name+"/"+f.name, func(t *testing.T) {
				t.Parallel()
				made, err := loadTree(mapFS(f.files))
				if err != nil {
					t.Fatal(err)
				}
				got, want := slices.Sorted(slices.Values(r.check(made))), slices.Sorted(slices.Values(f.want))
				if !slices.Equal(got, want) {
					t.Errorf("problems\n got: %q\nwant: %q", got, want)
				}
			})
		}
	}
}

func mapFS(files map[string]string) fs.FS {
	made := fstest.MapFS{}
	for name, text := range files {
		made[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return made
}

// moduleRoot is the nearest directory at or above the working directory that holds a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}
