package cmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/cmd"
	"github.com/apollo-11/apollo/handlers/executor"
)

// greet is a stage in Go.
func greet(_ context.Context, c *executor.TaskCall) error {
	var name string
	if err := c.Param("name", &name); err != nil {
		return err
	}
	return c.SetOutput("greeting", "hello, "+name)
}

// A main function of one's own adds tasks: Go functions that a pipeline uses as stages, `task: greet`.
func Example() { //nolint:testableexamples // testdata/script/misc.txtar runs it as a program
	cmd.Main(cmd.Task("greet", greet))
}

func ExampleRun() {
	var out bytes.Buffer
	none := func(string) string { return "" }
	code := cmd.Run(context.Background(), []string{"explain", "E_REF", "-o", "json"}, strings.NewReader(""), &out, os.Stderr, none)
	fmt.Println(code, json.Valid(out.Bytes()))
	// Output: 0 true
}

func TestOwnTask(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	replaysAtEnd(t, dir)
	file := filepath.Join(dir, "greet.yaml")
	const text = `name: greet
params:
  name: {type: string, default: world}
stages:
  only: {task: greet, outputs: {greeting: {type: string}}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(opts ...cmd.Option) (string, string, int) {
		var out, errs bytes.Buffer
		code := cmd.Run(t.Context(), []string{"run", file, "--param", "name=Ada", "--data", filepath.Join(dir, "data"), "-o", "json"},
			strings.NewReader(""), &out, &errs, func(string) string { return "" }, opts...)
		return out.String(), errs.String(), code
	}
	out, errs, code := run(cmd.Task("greet", greet))
	var got struct {
		State  string
		Stages []struct {
			Outputs map[string]struct{ Value string }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	if value := got.Stages[0].Outputs["greeting"].Value; got.State != "completed" || value != "hello, Ada" {
		t.Errorf("%s, %q", got.State, value)
	}
	if _, errs, code := run(); code != 3 || !strings.Contains(errs, "greet") {
		t.Errorf("an apollo without the task: exit %d, %s", code, errs)
	}
}
