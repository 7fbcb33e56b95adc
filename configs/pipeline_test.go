package configs

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write golden files anew")

// golden compares with a file, or writes it under -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

func indented(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

func TestFreezesTheWholeLanguage(t *testing.T) {
	t.Parallel()
	p, problems := LoadFile("testdata/language/orders.yaml", Options{})
	if p == nil {
		t.Fatalf("refused:\n%v", problems)
	}
	plan, params, problems := p.Freeze(map[string]json.RawMessage{"region": json.RawMessage(`"us"`)})
	if plan == nil {
		t.Fatal(problems)
	}
	golden(t, "testdata/language/orders.plan.json", indented(t, plan))
	if diff := cmp.Diff(map[string]json.RawMessage{"region": json.RawMessage(`"us"`), "regions": json.RawMessage(`["eu","us"]`)}, params); diff != "" {
		t.Errorf("parameters differ (-want +got):\n%s", diff)
	}
}

func TestPlanIsTheSameForEachRun(t *testing.T) {
	t.Parallel()
	var plans [][]byte
	for _, region := range []string{`"eu"`, `"us"`} {
		p, problems := LoadFile(filepath.Join("testdata", "language", "orders.yaml"), Options{})
		if p == nil {
			t.Fatal(problems)
		}
		plan, _, problems := p.Freeze(map[string]json.RawMessage{"region": json.RawMessage(region)})
		if plan == nil {
			t.Fatal(problems)
		}
		b, err := plan.Encode()
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, b)
	}
	if !bytes.Equal(plans[0], plans[1]) {
		t.Errorf("plans differ:\n%s\n%s", plans[0], plans[1])
	}
}
