package cmd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/configs"
)

func (a *app) checkOptions() configs.Options {
	o := configs.Options{LookPath: exec.LookPath, CheckFiles: true, Machine: configs.Machine{Cores: float64(runtime.NumCPU())}}
	o.DataDir, _ = filepath.Abs(a.data)
	o.Tasks = make([]string, 0, len(a.tasks))
	for name := range a.tasks {
		o.Tasks = append(o.Tasks, name)
	}
	slices.Sort(o.Tasks)
	return o
}

// pipelineFile finds the definition that a name or path means: a path has a slash or ends in .yaml, a name is looked up
// in the pipelines directory, as name.yaml or name/pipeline.yaml, or by the name that a file gives itself.
func (a *app) pipelineFile(name string) (string, error) {
	if strings.ContainsRune(name, os.PathSeparator) || strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			name = filepath.Join(name, "pipeline.yaml")
		}
		path, err := filepath.Abs(name)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err != nil {
			return "", &exitError{exitNotFound, "E_FILE", fmt.Errorf("the definition %s can't be read: %w", name, err)}
		}
		return path, nil
	}
	dir, err := filepath.Abs(a.pipelines)
	if err != nil {
		return "", err
	}
	for _, try := range []string{name + ".yaml", name + ".yml", filepath.Join(name, "pipeline.yaml")} {
		if _, err := os.Stat(filepath.Join(dir, try)); err == nil {
			return filepath.Join(dir, try), nil
		}
	}
	loaded, _ := configs.LoadDir(dir, a.checkOptions())
	var names []string
	for _, p := range loaded {
		if p.Name == name {
			return filepath.Abs(p.File)
		}
		names = append(names, p.Name)
	}
	there := "there are none yet; apollo init makes one"
	if len(names) > 0 {
		there = "there are: " + strings.Join(names, ", ")
	}
	return "", &exitError{exitNotFound, "E_REF", fmt.Errorf("no pipeline %q in %s; %s", name, a.pipelines, there)}
}
