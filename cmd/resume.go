package cmd

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
)

// watching are the flags of commands that watch a run.
type watching struct{ detach, wait bool }

func (a *app) watchFlags(c *cobra.Command) *watching {
	w := new(watching)
	c.Flags().BoolVar(&w.detach, "detach", false, "flag.detach")
	c.Flags().BoolVar(&w.wait, "wait", false, "flag.wait")
	return w
}

func (a *app) checkWatch(w *watching) error {
	if w.detach && w.wait {
		return a.usageError("usage.detach")
	}
	return nil
}

func (a *app) resumeCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "resume RUN", Args: a.arguments(1, 1), ValidArgsFunction: a.completeRuns}, "resume")
	w := a.watchFlags(c)
	reason := c.Flags().String("reason", "", "flag.reason")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := a.checkWatch(w); err != nil {
			return err
		}
		return a.resume(c.Context(), args[0], by(*reason), w)
	}
	return c
}

// resume continues a failed run, past the gates of the stages that are named, and watches it.
func (a *app) resume(ctx context.Context, name string, wish web.By, w *watching, open ...web.Place) error {
	row, err := a.rowNamed(ctx, name)
	if err != nil {
		return err
	}
	stage := ""
	if len(open) > 0 {
		stage = open[0].Stage
	}
	r := &running{app: a, after: row.Sequence}
	gone := false
	r.ask = func(ctx context.Context, s session) (events.ID, error) {
		err := s.ResumeRun(ctx, row.ID, wish, open...)
		if gone && a.exitOfError(err) == exitConflict {
			return row.ID, nil // the process that is gone had done it, and could not say so
		}
		gone = gone || errors.Is(err, errGone)
		return row.ID, a.refusal(err, row.ID, stage)
	}
	return r.watch(ctx, w.detach)
}

// pairs reads name=value, given any number of times.
func (a *app) pairs(flag string, given []string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, a.usageError("usage.pair", lang.Data{"Flag": flag, "Text": text})
		}
		all[name] = value
	}
	return all, nil
}
