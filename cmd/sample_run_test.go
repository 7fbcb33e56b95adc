package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a run of a sample seals is the sample, and the run says so.
func TestRunOfASample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const copying = "    run: cp \"$APOLLO_IN_ROWS\" rows\n    outputs: {rows: {path: rows}}\n"
	byFile := put("file.yaml", "name: file\nstages:\n  take:\n    inputs: {rows: {from: \"${{ trigger.file }}\", format: csv}}\n"+copying)
	byBody := put("body.yaml", "name: body\nstages:\n  take:\n    inputs: {rows: \"${{ trigger.body }}\"}\n"+copying)
	rows := put("rows.dat", "id,x\n1,\"a\nb\"\n2,c\n3,d\n")
	put("many/b.csv", "b")
	put("many/a.csv", "a")
	put("many/.hidden", "h")
	put("many/c.csv", "c")
	many, err := filepath.Abs(filepath.Join(dir, "many"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ pipeline, input, want string }{
		"a file, by the input's format": {byFile, rows, "id,x\n1,\"a\nb\"\n2,c\n"},
		"a body, by the file's name":    {byBody, put("rows.ndjson", "1\n2\n3\n"), "1\n2\n"},
		"neither":                       {byBody, put("rows.bin", "1\n2\n3\n"), "1\n2\n3\n"},
		"a directory":                   {byBody, many, fmt.Sprintf(`["%s/a.csv","%s/b.csv"]`, many, many)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := emptySite(t)
			s.must("run", c.pipeline, "--input", c.input, "--sample", "2")
			got := s.show("latest")
			if text := s.output(got.Stages[0].Outputs["rows"]); text != c.want || got.Sample != 2 {
				t.Errorf("%q, sample %d; want %q, sample 2", text, got.Sample, c.want)
			}
			if out := s.must("show", "latest"); !strings.Contains(out, "sample of 2") {
				t.Errorf("show: %s", out)
			}
			if out := s.must("runs"); !strings.Contains(out, "sample of 2") {
				t.Errorf("runs: %s", out)
			}
			if listed := s.runs(); listed[0].Sample != 2 {
				t.Errorf("runs: %+v", listed)
			}
			s.must("replay", "latest")
		})
	}
	if _, _, code := emptySite(t).apollo("run", byFile, "--input", rows, "--sample", "0"); code != 2 {
		t.Errorf("--sample 0: exit %d", code)
	}
	if _, _, code := emptySite(t).apollo("run", byBody, "--input", put("bad.json", "[1, x"), "--sample", "2"); code != 2 {
		t.Errorf("an array that is none: exit %d", code)
	}
}
