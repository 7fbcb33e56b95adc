package cmd

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// view is a run folded from its log as far as that goes: the same for every command that shows one.
type view struct {
	run  *events.Run
	logs string // directory of the logs
	at   int64  // the instant that is shown, Unix nanoseconds; 0 is now
	seen
}

func (v *view) now() int64 {
	if v.at != 0 {
		return v.at
	}
	return time.Now().UnixNano()
}

const viewPage = 2000

// openView reads a run's plan and stands before its first event.
func openView(ctx context.Context, s storage.Store, id events.ID, logs string) (*view, error) {
	row, err := s.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	g, err := storage.ReadGraph(ctx, s, row.Plan)
	if err != nil {
		return nil, err
	}
	v := newView(events.NewRun(g), filepath.Join(logs, id.String()))
	v.run.ID = id
	return v, nil
}

// advance folds what the log has gained; each, when set, sees every new event after it was applied. A log whose chain is
// broken is an error that names the place.
func (v *view) advance(ctx context.Context, s storage.Store, each func(e *events.Event)) error {
	var scratch []byte
	for {
		page, err := s.Events(ctx, v.run.ID, v.run.Chain.Sequence, viewPage)
		if err != nil {
			return err
		}
		for i := range page {
			if scratch, err = v.run.Chain.Follow(&page[i].Event, page[i].Encoded, scratch); err != nil {
				return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
			}
			if err := v.run.Apply(&page[i].Event); err != nil {
				return err
			}
			v.see(v.run, &page[i].Event)
			if each != nil {
				each(&page[i].Event)
			}
		}
		if len(page) < viewPage {
			return nil
		}
	}
}

// loadView folds a run as far as its log goes.
func loadView(ctx context.Context, s storage.Store, id events.ID, logs string) (*view, error) {
	v, err := openView(ctx, s, id, logs)
	if err == nil {
		err = v.advance(ctx, s, nil)
	}
	return v, err
}

// label names a stage, or its instance: "clean", "clean#3".
func (v *view) label(i int) string { return v.run.StageOf(i).Label(int(v.run.Stages[i].Item)) }

// logFile gives where an attempt's stream was kept.
func (v *view) logFile(i, attempt int, stream string) string {
	return filepath.Join(v.logs, v.label(i), strconv.Itoa(attempt), stream)
}

func (a *app) logsDir() string { return filepath.Join(a.data, "logs") }
