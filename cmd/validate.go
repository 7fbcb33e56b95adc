package cmd

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
)

func (a *app) validateCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "validate [FILE...]"}, "validate")
	c.RunE = func(_ *cobra.Command, args []string) error { return a.validate(args) }
	return c
}

func (a *app) validate(files []string) error {
	var problems configs.Problems
	count := len(files)
	a.tellSkipped()
	if _, err := os.Stat(a.pipelines); len(files) == 0 && err != nil {
		return a.fail(exitNotFound, "E_FILE", "error.none_to_validate", lang.Data{"Dir": a.pipelines})
	}
	if len(files) == 0 {
		loaded, found := configs.LoadDir(a.pipelines, a.checkOptions())
		problems, count = found, len(loaded)
		if count == 0 && len(found) == 0 {
			return a.fail(exitNotFound, "E_FILE", "error.none_to_validate", lang.Data{"Dir": a.pipelines})
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
		_, err := fmt.Fprintln(a.err, a.say.T("validate.bad", lang.Data{"N": len(problems)}))
		return err
	}
	_, err := fmt.Fprintln(a.out, a.paint(good, "✔ ")+a.say.T("validate.ok", lang.Data{"N": count}))
	return err
}
