package cmd

import (
	"github.com/spf13/cobra"
)

func (a *app) gateCommand() *cobra.Command {
	root := a.describe(&cobra.Command{Use: "gate", Args: a.arguments(0, 0), RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}, "gate")
	open := a.describe(&cobra.Command{Use: "open RUN STAGE[#ITEM]", Args: a.arguments(2, 2), ValidArgsFunction: a.completeRuns}, "gate.open")
	w := a.watchFlags(open)
	reason := open.Flags().String("reason", "", "flag.reason")
	open.RunE = func(c *cobra.Command, args []string) error {
		if err := a.checkWatch(w); err != nil {
			return err
		}
		at, err := a.place(args[1])
		if err != nil {
			return err
		}
		return a.resume(c.Context(), args[0], by(*reason), w, at)
	}
	root.AddCommand(open)
	return root
}
