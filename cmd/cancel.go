package cmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) cancelCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "cancel RUN", Args: a.arguments(1, 1), ValidArgsFunction: a.completeRuns}, "cancel")
	reason := c.Flags().String("reason", "", "flag.reason")
	c.RunE = func(c *cobra.Command, args []string) error {
		var id events.ID
		err := a.reading(c.Context(), func(s *sqlite.Store) (err error) {
			id, err = a.findRun(c.Context(), s, args[0])
			return err
		})
		if err != nil {
			return err
		}
		s, err := a.session(c.Context())
		if err != nil {
			return err
		}
		return errors.Join(a.cancel(c.Context(), s, id, orText(*reason, a.say.T("cancel.reason"))), s.leave(c.Context()))
	}
	return c
}

// cancel asks for the end of a run and waits for it: its processes are gone then.
func (a *app) cancel(ctx context.Context, s session, id events.ID, reason string) error {
	if err := s.CancelRun(ctx, id, reason); err != nil {
		if a.exitOfError(err) == exitConflict {
			return a.fail(exitConflict, "E_RUN_ENDED", "error.run_ended", lang.Data{"Run": id.String()})
		}
		return err
	}
	v, err := openView(ctx, s.reader(), id, a.logsDir())
	if err == nil {
		err = v.untilEnd(ctx, s, a.newProgress())
	}
	if err != nil {
		return err
	}
	return a.printRun(v, false)
}
