package cmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
)

// firstPipeline is what init writes.
const firstPipeline = `name: hello
description: Two stages, one file between them
params:
  name: {type: string, default: world, title: Who is greeted}
stages:
  greet:
    run: |
      echo "hello, $APOLLO_PARAM_NAME" > greeting.txt
    outputs: {greeting: {path: greeting.txt}}
  count:
    needs: [greet]
    inputs: {greeting: "${{ stages.greet.outputs.greeting }}"}
    run: |
      wc -c < "$APOLLO_IN_GREETING"
`

func (a *app) initCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "init", Args: a.arguments(0, 0)}, "init")
	c.RunE = func(*cobra.Command, []string) error {
		path := filepath.Join(a.pipelines, "hello.yaml")
		if err := os.MkdirAll(a.pipelines, 0o755); err != nil { //nolint:gosec // definitions are no secrets
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // as above
		if errors.Is(err, os.ErrExist) {
			return a.fail(exitConflict, "E_EXISTS", "error.exists", lang.Data{"File": path})
		}
		if err != nil {
			return err
		}
		if _, err := f.WriteString(firstPipeline); err != nil {
			return errors.Join(err, f.Close())
		}
		if err := f.Close(); err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, a.say.T("init.done", map[string]any{"Path": path}))
		return err
	}
	return c
}
