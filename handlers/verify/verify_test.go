package verify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apollo-11/apollo/events"
)

func TestSkipNamesItsReason(t *testing.T) {
	t.Parallel()
	no, yes := false, true
	for name, c := range map[string]struct {
		stage   events.Stage
		state   events.State
		network bool
		want    string
	}{
		"shell":                {stage: events.Stage{Executor: "shell"}},
		"failed":               {stage: events.Stage{Executor: "shell"}, state: events.Failed, want: "it failed"},
		"approval":             {stage: events.Stage{Executor: "approval"}, want: "a person"},
		"pipeline":             {stage: events.Stage{Executor: "pipeline"}, want: "another run 42"},
		"loose":                {stage: events.Stage{Executor: "shell", Same: &no}, want: "deterministic: false"},
		"network":              {stage: events.Stage{Executor: "python", Network: "allow"}, want: "--network"},
		"network too":          {stage: events.Stage{Executor: "python", Network: "allow"}, network: true},
		"network is not said":  {stage: events.Stage{Executor: "python"}},
		"get":                  {stage: events.Stage{Executor: "http", With: json.RawMessage(`{"url":"http://x"}`)}, want: "--network"},
		"get too":              {stage: events.Stage{Executor: "http", With: json.RawMessage(`{"method":"get"}`)}, network: true},
		"post":                 {stage: events.Stage{Executor: "http", With: json.RawMessage(`{"method":"POST"}`)}, network: true, want: "may change something"},
		"method of expression": {stage: events.Stage{Executor: "http", With: json.RawMessage(`{"method":"${{ params.m }}"}`)}, network: true, want: "may change something"},
		"plug-in":              {stage: events.Stage{Executor: "resize"}, want: "the plug-in resize"},
		"plug-in that says so": {stage: events.Stage{Executor: "resize", Same: &yes}},
	} {
		if c.state == events.None {
			c.state = events.Completed
		}
		target := &target{stage: &c.stage, stand: &events.Stand{State: c.state, Last: &events.Data{Pins: []events.Pair{{Name: "run", Value: "42"}}}}}
		if got := target.skip(&Options{Network: c.network}); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, wanted %q", name, got, c.want)
		}
	}
}

func TestChangeNamesTheField(t *testing.T) {
	t.Parallel()
	document := func(d events.Definition) []byte {
		b, err := events.EncodeDocument(d)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	base := events.Definition{Schema: 1, Platform: "linux/amd64", Env: map[string]string{"TZ": "UTC"},
		Toolchain: []events.Pair{{Name: "interpreter_digest", Value: "sha256:a"}}}
	other, elsewhere, zone, none := base, base, base, base
	other.Toolchain = []events.Pair{{Name: "interpreter_digest", Value: "sha256:b"}}
	elsewhere.Platform = "linux/arm64"
	zone.Env = map[string]string{"TZ": "CET"}
	none.Toolchain = nil
	for want, now := range map[string]events.Definition{
		"": base,
		"interpreter_digest was sha256:a and is sha256:b now":  other,
		`platform was "linux/amd64" and is "linux/arm64" now`:  elsewhere,
		`env.TZ was "UTC" and is "CET" now`:                    zone,
		"interpreter_digest was sha256:a and is not there now": none,
	} {
		if got := definitionChange(document(base), document(now)); got != want {
			t.Errorf("%q, wanted %q", got, want)
		}
	}
}

// What a directory in memory lists is turned round, and nothing else of it changes.
func TestReverse(t *testing.T) {
	t.Parallel()
	scratch, ordered, err := Scratch(t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Remove(scratch) })
	root, err := os.OpenRoot(scratch)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, name := range []string{"tree", "tree/below"} {
		if err := root.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tree/x", "tree/y", "tree/below/a", "tree/below/b", "tree/below/c"} {
		if err := root.WriteFile(name, []byte(name), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tree/below", "tree"} {
		if err := root.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
		if err := root.Chmod(name, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	listing := func(name string) (names []string) {
		f, err := os.Open(filepath.Join(scratch, name)) // Readdirnames gives them as the system does
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if names, err = f.Readdirnames(-1); err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := map[string][]string{"tree": listing("tree"), "tree/below": listing("tree/below")}
	if err := reverse(root, "tree"); err != nil {
		t.Fatal(err)
	}
	for name, was := range before {
		is := listing(name)
		if ordered && slices.Equal(was, is) {
			t.Errorf("%s lists %q as before", name, is)
		}
		slices.Sort(was)
		slices.Sort(is)
		info, err := root.Stat(name)
		if err != nil || !slices.Equal(was, is) || info.Mode().Perm() != 0o500 || !info.ModTime().Equal(at) {
			t.Errorf("%s holds %q, was %q; %v, %v, %v", name, is, was, info.Mode(), info.ModTime(), err)
		}
	}
	if b, err := root.ReadFile("tree/below/b"); err != nil || string(b) != "tree/below/b" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestFactorsAreNamedOnce(t *testing.T) {
	t.Parallel()
	names := Factors()
	slices.Sort(names)
	if len(slices.Compact(names)) != len(factors()) {
		t.Errorf("two factors have one name: %q", names)
	}
	if got, err := chooseFactors([]string{"mtime", "time"}); err != nil || len(got) != 2 || got[0].name != "time" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := chooseFactors([]string{"moon"}); err == nil {
		t.Error("an unknown factor was taken")
	}
}
