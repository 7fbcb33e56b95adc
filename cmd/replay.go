package cmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

type replayJSON struct {
	Run      string           `json:"run"`
	Events   uint64           `json:"events"`
	Verdict  string           `json:"verdict"`
	Mismatch *events.Mismatch `json:"first_mismatch"`
}

func (a *app) replayCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "replay RUN|--all", Args: a.arguments(0, 1), ValidArgsFunction: a.completeRuns}, "replay")
	all := c.Flags().Bool("all", false, "flag.all")
	until := c.Flags().Uint64("until", 0, "flag.until")
	step := c.Flags().Bool("step", false, "flag.step")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *all == (len(args) == 1) {
			return a.usageError("usage.replay")
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			if *all {
				return a.replayAll(c.Context(), s)
			}
			id, err := a.findRun(c.Context(), s, args[0])
			if err != nil {
				return err
			}
			return a.replayOne(c.Context(), s, id, *until, *step)
		})
	}
	return c
}

// replay folds a run's log in lockstep with what the engine would decide now; each, when set, sees every step.
func replay(ctx context.Context, s *sqlite.Store, id events.ID, until uint64, each func(e *events.Event, r *events.Run)) (replayJSON, *events.Run, error) {
	row, err := s.Run(ctx, id)
	if err != nil {
		return replayJSON{}, nil, err
	}
	g, err := loadGraph(ctx, s, row.Plan)
	if err != nil {
		return replayJSON{}, nil, err
	}
	p := events.NewReplayer(g)
	result := replayJSON{Run: id.String(), Verdict: "same"}
	var failed error
	for e, encoded := range storedLog(ctx, s, id, &failed) {
		if until > 0 && e.Sequence > until {
			break
		}
		if m := p.Step(e, encoded); m != nil {
			result.Verdict, result.Mismatch = "differs", m
			return result, p.Run(), nil
		}
		result.Events++
		if each != nil {
			each(e, p.Run())
		}
	}
	if errors.Is(failed, storage.ErrCorrupt) {
		result.Verdict, result.Mismatch = "differs", &events.Mismatch{Sequence: result.Events + 1, Recorded: "damaged", Recomputed: failed.Error()}
		return result, p.Run(), nil
	}
	if row.State.Terminal() && until == 0 && (p.Run().Mark.Sequence != row.Sequence || p.Run().Mark.Head != row.Head) {
		result.Verdict, result.Mismatch = "differs", &events.Mismatch{Sequence: row.Sequence, Recorded: "row with head " + row.Head.String(),
			Recomputed: "log with head " + p.Run().Mark.Head.String()}
	}
	return result, p.Run(), failed
}

func storedLog(ctx context.Context, s *sqlite.Store, id events.ID, failed *error) iter.Seq2[*events.Event, []byte] {
	return func(yield func(*events.Event, []byte) bool) {
		var after uint64
		for {
			page, err := s.Events(ctx, id, after, viewPage)
			if err != nil {
				*failed = err
				return
			}
			for i := range page {
				after = page[i].Sequence
				if !yield(&page[i].Event, page[i].Encoded) {
					return
				}
			}
			if len(page) < viewPage {
				return
			}
		}
	}
}

func (a *app) replayOne(ctx context.Context, s *sqlite.Store, id events.ID, until uint64, step bool) error {
	var each func(*events.Event, *events.Run)
	if step && a.output == "text" {
		each = func(e *events.Event, r *events.Run) {
			fmt.Fprintf(a.out, "%6d  %s  %s %s  %s\n", e.Sequence, e.When().Format("15:04:05.000000"), e.Type.Short(), e.Data.Stage, a.state(r.State))
			if step && isTerminal(a.out) {
				_, _ = fmt.Fscanln(a.in)
			}
		}
	}
	result, run, err := replay(ctx, s, id, until, each)
	if err != nil {
		return err
	}
	if a.output != "text" {
		err = writeJSON(a.out, result, a.output == "json")
	} else {
		if until > 0 && result.Verdict == "same" {
			if err := a.printRun(newView(run, filepath.Join(a.logsDir(), id.String())), false); err != nil {
				return err
			}
		}
		a.printVerdict(result)
	}
	if err == nil && result.Verdict != "same" {
		err = silent(exitDiffers)
	}
	return err
}

func (a *app) printVerdict(r replayJSON) {
	if r.Mismatch == nil {
		fmt.Fprintln(a.out, a.paint(good, "✔ ")+a.say.T("replay.same", lang.Data{"N": r.Events, "Run": r.Run}))
		return
	}
	fmt.Fprintln(a.out, a.paint(bad, "✖ ")+line(a.say.T("replay.differs", map[string]any{"Run": r.Run, "Sequence": r.Mismatch.Sequence,
		"Recorded": r.Mismatch.Recorded, "Recomputed": r.Mismatch.Recomputed})))
}

func (a *app) replayAll(ctx context.Context, s *sqlite.Store) error {
	differs := 0
	_, err := replayLog(ctx, s, func(r replayJSON) error {
		if r.Verdict != "same" {
			differs++
		}
		if a.output != "text" {
			return writeJSON(a.out, r, false)
		}
		a.printVerdict(r)
		return nil
	})
	if err == nil && differs > 0 {
		err = silent(exitDiffers)
	}
	return err
}
