package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/events"
)

func (a *app) cancelCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "cancel RUN", Args: a.arguments(1, 1), ValidArgsFunction: a.completeRuns}, "cancel")
	reason := c.Flags().String("reason", "", "flag.reason")
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := a.runNamed(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.cancel(c.Context(), id, orText(*reason, a.say.T("cancel.reason")))
	}
	return c
}

// cancel asks for the end of a run and waits for it: its processes are gone then. Where the engine that ran it has died,
// the one that takes its place begins with the cancel: nothing of the run is started again.
func (a *app) cancel(ctx context.Context, id events.ID, reason string) error {
	wish := by(reason)
	ours := false // the run was unfinished when the engine of this process took it over
	first := func(n *node) {
		row, err := n.store.Run(ctx, id)
		ours = err == nil && !row.State.Terminal()
		n.engine.CancelFirst(id, wish.Actor, wish.Reason)
	}
	return a.steer(ctx, func(s session) error {
		err := s.CancelRun(ctx, id, wish)
		if err != nil && a.exitOfError(err) != exitConflict {
			return err
		}
		v, bad := openView(ctx, s.reader(), id, a.logsDir())
		if bad == nil {
			bad = v.untilEnd(ctx, s, a.newProgress())
		}
		if bad != nil {
			return bad
		}
		if err != nil && (!ours || v.run.State != events.Cancelled) {
			return a.refusal(err, id, "")
		}
		return a.printRun(v, false)
	}, first)
}
