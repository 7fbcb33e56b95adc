package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// version is what this build says of itself.
func version() (module, commit string) {
	module, commit = "devel", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			module = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	return module, commit
}

func (a *app) versionCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "version", Args: a.arguments(0, 0)}, "version")
	c.RunE = func(*cobra.Command, []string) error {
		module, commit := version()
		if a.output != "text" {
			return writeJSON(a.out, map[string]any{"version": module, "commit": commit, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				"schema": sqlite.Version, "plan": events.PlanSchema}, a.output == "json")
		}
		_, err := fmt.Fprintf(a.out, "apollo %s %s %s/%s %s\n", module, commit, runtime.GOOS, runtime.GOARCH, runtime.Version())
		return err
	}
	return c
}
