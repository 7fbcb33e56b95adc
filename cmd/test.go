package cmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

func (a *app) testCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "test [PIPELINE|FILE|DIR...]"}, "test")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.completePipelines(nil, nil, "")
	}
	c.RunE = func(c *cobra.Command, args []string) error { return a.test(c.Context(), args) }
	return c
}

// testCase is one test on its way.
type testCase struct {
	file string
	plan *events.Plan
	test *configs.Test
}

type testJSON struct {
	File        string       `json:"file"`
	Pipeline    string       `json:"pipeline"`
	Test        string       `json:"test"`
	Verdict     string       `json:"verdict"` // passed, failed
	State       string       `json:"state"`   // of the run; empty when there was none
	Duration    int64        `json:"duration_ms"`
	Differences []difference `json:"differences"`
	Logs        []testLog    `json:"logs,omitempty"` // of the stages that failed or differ
}

type testLog struct {
	Stage  string `json:"stage"`
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// test runs the tests of pipelines. Nothing runs when a definition or a test is wrong in itself.
func (a *app) test(ctx context.Context, args []string) error {
	cases, problems, err := a.testCases(args)
	if err != nil {
		return err
	}
	if problems.HasErrors() {
		return a.refuse(problems, exitInvalid)
	}
	if len(cases) == 0 {
		return a.fail(exitNotFound, "E_NOT_FOUND", "error.no_tests", lang.Data{"Where": orText(strings.Join(args, ", "), a.pipelines)})
	}
	results := make([]testJSON, len(cases))
	var running sync.WaitGroup
	slots := make(chan struct{}, runtime.NumCPU())
	for i, c := range cases {
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = a.runTest(ctx, c)
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return silent(exitInterrupted)
	}
	return a.testReport(results)
}

// testCases finds the tests, in the order of the arguments, the files and the tests in them.
func (a *app) testCases(args []string) (cases []testCase, problems configs.Problems, err error) {
	pipelines, problems, err := a.testedPipelines(args)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range pipelines {
		files, err := configs.TestFiles(p.File)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			f, found := configs.LoadTests(file, p.Plan())
			problems = append(problems, found...)
			if f == nil {
				continue
			}
			for i := range f.Tests {
				cases = append(cases, testCase{file, p.Plan(), &f.Tests[i]})
			}
		}
	}
	return cases, problems, nil
}

// testedPipelines reads the definitions that the arguments mean: a name, a file, or a folder of one or of several.
func (a *app) testedPipelines(args []string) (all []*configs.Pipeline, problems configs.Problems, err error) {
	o := a.checkOptions()
	o.CheckFiles = false // no trigger watches anything in a test
	if len(args) == 0 {
		args = []string{a.pipelines}
	}
	seen := map[string]bool{}
	for _, arg := range args {
		info, err := os.Stat(arg)
		_, single := os.Stat(filepath.Join(arg, "pipeline.yaml"))
		var loaded []*configs.Pipeline
		var found configs.Problems
		if err == nil && info.IsDir() && single != nil {
			loaded, found = configs.LoadDir(arg, o)
		} else {
			if err == nil && info.IsDir() {
				arg = filepath.Join(arg, "pipeline.yaml")
			}
			file, missing := a.pipelineFile(arg)
			if missing != nil {
				return nil, nil, missing
			}
			var p *configs.Pipeline
			if p, found = configs.LoadFile(file, o); p != nil {
				loaded = []*configs.Pipeline{p}
			}
		}
		problems = append(problems, found...)
		for _, p := range loaded {
			if !seen[p.File] {
				seen[p.File] = true
				all = append(all, p)
			}
		}
	}
	return all, problems, nil
}

// testReport prints the table, and below it what is wrong.
func (a *app) testReport(results []testJSON) error {
	failed := 0
	for _, r := range results {
		if r.Verdict != "passed" {
			failed++
		}
	}
	err := list(a, results, a.heads("test", "pipeline", "verdict", "duration"), func(r testJSON) []string {
		mark := a.paint(good, "✔ "+a.say.T("test.passed"))
		if r.Verdict != "passed" {
			mark = a.paint(bad, "✖ "+a.say.T("test.failed"))
		}
		return []string{r.Test, r.Pipeline, mark, short(time.Duration(r.Duration) * time.Millisecond)}
	})
	if err != nil {
		return err
	}
	if a.output == "text" {
		for _, r := range results {
			a.testFailure(r)
		}
		fmt.Fprintln(a.out, a.say.T("test.sum", lang.Data{"Passed": len(results) - failed, "Failed": failed}))
	}
	if failed > 0 {
		return silent(exitFailed)
	}
	return nil
}

// testFailure shows what a test found that it did not expect, and what the stages had to say.
func (a *app) testFailure(r testJSON) {
	if r.Verdict == "passed" {
		return
	}
	fmt.Fprintf(a.out, "\n%s  %s\n", a.paint(bold, line(r.Test)), a.paint(dim, r.File))
	for _, d := range r.Differences {
		fmt.Fprintf(a.out, "  %s\n", line(d.At))
		for _, part := range []struct{ sign, style, text string }{{"-", good, d.Expected}, {"+", bad, d.Actual}} {
			for l := range strings.SplitSeq(strings.TrimSuffix(clean(part.text), "\n"), "\n") {
				fmt.Fprintf(a.out, "    %s\n", a.paint(part.style, part.sign+" "+l))
			}
		}
	}
	for _, l := range r.Logs {
		fmt.Fprintf(a.out, "  %s\n", a.say.T("test.log", lang.Data{"Stage": l.Stage, "Stream": l.Stream}))
		for text := range strings.SplitSeq(clean(l.Text), "\n") {
			fmt.Fprintf(a.out, "    %s\n", a.paint(dim, text))
		}
	}
}
