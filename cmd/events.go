package cmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) eventsCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "events RUN", Args: a.arguments(1, 1), ValidArgsFunction: a.completeRuns}, "events")
	follow := c.Flags().BoolP("follow", "f", false, "flag.follow")
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			id, err := a.findRun(c.Context(), s, args[0])
			if err != nil {
				return err
			}
			return a.printEvents(c.Context(), s, id, *follow)
		})
	}
	return c
}

func (a *app) printEvents(ctx context.Context, s *sqlite.Store, id events.ID, follow bool) error {
	var origin events.Origin
	var after uint64
	w := &logWatch{app: a}
	defer w.stop()
	for {
		log, err := s.Events(ctx, id, after, viewPage)
		if err != nil {
			return err
		}
		for i := range log {
			e := &log[i].Event
			if e.Sequence == 1 {
				origin = events.Origin{Pipeline: e.Data.Pipeline, Correlation: e.Data.Delivery, Trace: e.Data.Trace}
			}
			b, err := e.CloudEvent(origin)
			if err != nil {
				return err
			}
			if _, err := a.out.Write(append(b, '\n')); err != nil {
				return err
			}
			after = e.Sequence
		}
		if len(log) == viewPage {
			continue
		}
		if !follow {
			return nil
		}
		if row, err := s.Run(ctx, id); err != nil || row.State.Terminal() && len(log) == 0 {
			return err
		}
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
}

// logWatch waits for a log to grow that this command only reads: the process that writes it is asked, and while there is
// none, the store is looked at now and then.
type logWatch struct {
	app     *app
	session session
}

// idle is the time between two looks at a store that nobody writes.
const idle = time.Second

// wait returns when the log may have grown.
func (w *logWatch) wait(ctx context.Context) error {
	if w.session == nil {
		s, err := w.app.connect(ctx)
		if errors.Is(err, errGone) {
			return pause(ctx, idle)
		}
		if err != nil {
			return err
		}
		w.session = s
	}
	err := w.session.wait(ctx)
	if errors.Is(err, errGone) {
		w.stop()
		return nil
	}
	return err
}

func (w *logWatch) stop() {
	if w.session != nil {
		_ = w.session.leave(context.Background()) // it only reads
		w.session = nil
	}
}
