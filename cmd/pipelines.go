package cmd

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) checkOptions() configs.Options {
	machine, stages := a.budget()
	o := configs.Options{LookPath: exec.LookPath, CheckFiles: true, Machine: machineOf(machine), Budget: machineOf(stages)}
	o.DataDir, _ = filepath.Abs(a.data)
	o.Tasks = make([]string, 0, len(a.tasks))
	for name := range a.tasks {
		o.Tasks = append(o.Tasks, name)
	}
	slices.Sort(o.Tasks)
	o.Plugins = a.pluginSet().Options()
	return o
}

// pipelineFile finds the definition that a name or path means: a path has a slash or ends in .yaml, a name is looked up
// in the pipelines directory, as name.yaml or name/pipeline.yaml, or by the name that a file gives itself.
func (a *app) pipelineFile(name string) (string, error) {
	if isPath(name) {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			name = filepath.Join(name, "pipeline.yaml")
		}
		if _, err := os.Stat(name); err != nil {
			return "", a.fail(exitNotFound, "E_FILE", "error.definition", lang.Data{"File": name})
		}
		return name, nil
	}
	for _, try := range []string{name + ".yaml", name + ".yml", filepath.Join(name, "pipeline.yaml")} {
		if _, err := os.Stat(filepath.Join(a.pipelines, try)); err == nil {
			return filepath.Join(a.pipelines, try), nil
		}
	}
	loaded, _ := configs.LoadDir(a.pipelines, a.checkOptions())
	var names []string
	for _, p := range loaded {
		if p.Name == name {
			return p.File, nil
		}
		names = append(names, p.Name)
	}
	id := "error.no_pipeline"
	if len(names) == 0 {
		id = "error.no_pipelines"
	}
	return "", a.fail(exitNotFound, "E_REF", id, lang.Data{"Name": name, "Dir": a.pipelines, "Names": strings.Join(names, ", ")})
}

// isPath tells the path of a definition from the name of a pipeline.
func isPath(name string) bool {
	return strings.ContainsRune(name, os.PathSeparator) || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// completePipelines offers the names in the pipelines directory, and files.
func (a *app) completePipelines(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, _ := configs.LoadDir(a.pipelines, configs.Options{})
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.Name
	}
	return names, cobra.ShellCompDirectiveDefault
}

// completeRuns offers the latest runs.
func (a *app) completeRuns(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && (c.Name() != "diff" || len(args) > 1) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	offers := []string{"latest"}
	_ = a.reading(c.Context(), func(s *sqlite.Store) error { // nothing to offer is no mistake
		rows, err := s.Runs(c.Context(), storage.RunFilter{Page: storage.Page{Limit: 20}})
		for i := range rows {
			offers = append(offers, rows[i].ID.String()+"\t"+rows[i].Pipeline+" "+rows[i].State.String())
		}
		return err
	})
	return offers, cobra.ShellCompDirectiveNoFileComp
}
