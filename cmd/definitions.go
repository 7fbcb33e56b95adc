package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

func (a *app) quietLogger() zerolog.Logger { return zerolog.New(a.err).Level(zerolog.ErrorLevel) }

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
	c := a.describe(&cobra.Command{Use: "init", Args: cobra.NoArgs}, "init")
	c.RunE = func(*cobra.Command, []string) error {
		path := filepath.Join(a.pipelines, "hello.yaml")
		if err := os.MkdirAll(a.pipelines, 0o755); err != nil { //nolint:gosec // definitions are no secrets
			return err
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // as above
		if errors.Is(err, os.ErrExist) {
			return &exitError{exitConflict, "E_EXISTS", fmt.Errorf("%s is there already and is left as it is", path)}
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

func (a *app) validateCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "validate [FILE...]"}, "validate")
	c.RunE = func(_ *cobra.Command, args []string) error { return a.validate(args) }
	return c
}

func (a *app) validate(files []string) error {
	var problems configs.Problems
	count := len(files)
	if len(files) == 0 {
		loaded, found := configs.LoadDir(a.pipelines, a.checkOptions())
		problems, count = found, len(loaded)
		if _, err := os.Stat(a.pipelines); errors.Is(err, os.ErrNotExist) || count == 0 && len(found) == 0 {
			return &exitError{exitNotFound, "E_FILE", fmt.Errorf("there are no pipelines in %s; apollo init makes one", a.pipelines)}
		}
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.IsDir() {
			f = filepath.Join(f, "pipeline.yaml")
		}
		_, found := configs.LoadFile(f, a.checkOptions())
		problems = append(problems, found...)
	}
	if a.output != "text" {
		if problems == nil {
			problems = configs.Problems{}
		}
		if err := writeJSON(a.out, map[string]any{"problems": problems}, a.output == "json"); err != nil {
			return err
		}
	} else if err := a.printProblems(problems, count); err != nil {
		return err
	}
	if problems.HasErrors() {
		return silent(exitInvalid)
	}
	return nil
}

func (a *app) printProblems(problems configs.Problems, count int) error {
	for _, p := range problems {
		text := clean(p.Text())
		if code, ok := configs.ExplainCode(p.Code); ok && a.say.Tag() == lang.Chinese {
			text += "\n  " + code.Chinese
		}
		if _, err := fmt.Fprintln(a.err, text); err != nil {
			return err
		}
	}
	if problems.HasErrors() {
		_, err := fmt.Fprintln(a.err, a.say.T("validate.bad", map[string]any{"N": len(problems)}))
		return err
	}
	_, err := fmt.Fprintln(a.out, a.paint(good, "✔ ")+a.say.T("validate.ok", map[string]any{"N": count}))
	return err
}

func (a *app) schemaCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "schema", Args: cobra.NoArgs}, "schema")
	c.RunE = func(*cobra.Command, []string) error {
		b, err := configs.Schema()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, string(b))
		return err
	}
	return c
}

func (a *app) explainCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "explain [CODE]", Args: cobra.MaximumNArgs(1)}, "explain")
	c.RunE = func(_ *cobra.Command, args []string) error {
		codes := configs.Codes()
		if len(args) == 1 {
			code, ok := configs.ExplainCode(args[0])
			if !ok {
				return &exitError{exitNotFound, "E_REF", fmt.Errorf("no code %q; apollo explain lists them", args[0])}
			}
			codes = []configs.Code{code}
		}
		return list(a, codes, a.heads("code", "what"), func(c configs.Code) []string {
			if a.say.Tag() == lang.Chinese {
				return []string{c.Name, c.Chinese}
			}
			return []string{c.Name, c.English}
		})
	}
	return c
}

func checkArtifacts(ctx context.Context, data string, report func(storage.Problem)) error {
	dir := filepath.Join(data, "artifacts")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s, err := artifacts.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(s.Check(ctx, report), s.Close())
}
