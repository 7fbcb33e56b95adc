package cmd

import (
	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "completion bash|zsh|fish|powershell", Args: a.arguments(1, 1), ValidArgs: []string{"bash", "zsh", "fish", "powershell"}}, "completion")
	c.RunE = func(_ *cobra.Command, args []string) error {
		root := a.root(nil) // with every command
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.out, true)
		case "zsh":
			return root.GenZshCompletion(a.out)
		case "fish":
			return root.GenFishCompletion(a.out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(a.out)
		}
		return a.choice("SHELL", args[0], "bash, zsh, fish, powershell")
	}
	return c
}
