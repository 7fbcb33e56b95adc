package replay

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// executing are the packages that could carry out a stage, start a process or reach another machine: whoever replays a run
// must not be able to do any of that by mistake.
func executing(list []string) (found []string) {
	const own = "github.com/apollo-11/apollo/"
	for _, p := range list {
		switch {
		case p == "os/exec", p == "net/http", p == "plugin", strings.HasPrefix(p, "net/http/"),
			strings.HasPrefix(p, own+"handlers/"), p == own+"router", p == own+"cmd":
			found = append(found, p)
		}
	}
	return found
}

func closure(t *testing.T, pkg string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", pkg, err)
	}
	return strings.Fields(string(out))
}

// TestNothingHereCanExecute looks at everything that this package, the files it reads and the store are built of.
func TestNothingHereCanExecute(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"github.com/apollo-11/apollo/cmd/replay", "github.com/apollo-11/apollo/storage/bundle", "github.com/apollo-11/apollo/storage/sqlite"} {
		list := closure(t, pkg)
		if found := executing(list); len(found) > 0 {
			t.Errorf("%s is built of %v", pkg, found)
		}
		if !slices.Contains(list, "github.com/apollo-11/apollo/events") {
			t.Errorf("%s: the list is no list of what it is built of: %v", pkg, list)
		}
	}
	// The test itself: what does execute is found.
	bites := executing(closure(t, "github.com/apollo-11/apollo/cmd"))
	for _, want := range []string{"os/exec", "net/http", "github.com/apollo-11/apollo/router", "github.com/apollo-11/apollo/handlers/executor"} {
		if !slices.Contains(bites, want) {
			t.Errorf("the check does not see %s", want)
		}
	}
}
