package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/cmd/replay"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) replayCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "replay RUN|FILE|--all", Args: a.arguments(0, 1), ValidArgsFunction: a.completeRuns}, "replay")
	all := c.Flags().Bool("all", false, "flag.all")
	until := c.Flags().Uint64("until", 0, "flag.until")
	step := c.Flags().Bool("step", false, "flag.step")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *all == (len(args) == 1) {
			return a.usageError("usage.replay")
		}
		if len(args) == 1 && isBundle(args[0]) {
			return a.replayFile(c.Context(), args[0], *until, *step)
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

// isBundle tells the path of a file that a run was exported to from the name of a run.
func isBundle(name string) bool {
	if strings.HasSuffix(name, ".apollo") || isPath(name) {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// replayFile replays the runs of a file; no store has to be there.
func (a *app) replayFile(ctx context.Context, path string, until uint64, step bool) (err error) {
	f, file, err := bundle.OpenPath(path)
	if err != nil {
		return a.noBundle(path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	runs := f.Manifest.Runs
	if len(runs) == 1 || until > 0 || step {
		return a.replayOne(ctx, f, runs[0].Run, until, step)
	}
	all := make([]replay.Result, len(runs))
	differs := false
	for i := range runs {
		if all[i], _, err = replay.One(ctx, f, runs[i].Run, 0, nil); err != nil {
			return err
		}
		differs = differs || all[i].Verdict != replay.Same
	}
	switch a.output {
	case "json":
		err = writeJSON(a.out, fileResult{all[0], all[1:]}, true)
	case "jsonl":
		for i := range all {
			err = errors.Join(err, writeJSON(a.out, all[i], false))
		}
	default:
		for i := range all {
			a.printVerdict(all[i])
		}
	}
	if err == nil && differs {
		err = silent(exitDiffers)
	}
	return err
}

// fileResult is that of a file's main run, and those of the runs that came along.
type fileResult struct {
	replay.Result
	Others []replay.Result `json:"others"`
}

// noBundle says that there is no such file.
func (a *app) noBundle(path string, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return a.fail(exitNotFound, "E_NOT_FOUND", "error.no_bundle", lang.Data{"File": path})
	}
	return err
}

func (a *app) replayOne(ctx context.Context, s replay.Source, id events.ID, until uint64, step bool) error {
	if step && a.output == "text" {
		return a.step(ctx, s, id, until)
	}
	result, run, err := replay.One(ctx, s, id, until, nil)
	if err != nil {
		return err
	}
	if a.output != "text" {
		err = writeJSON(a.out, result, a.output == "json")
	} else {
		if until > 0 && result.Verdict == replay.Same {
			if err := a.printRun(newView(run, filepath.Join(a.logsDir(), id.String())), false); err != nil {
				return err
			}
		}
		a.printVerdict(result)
	}
	if err == nil && result.Verdict != replay.Same {
		err = silent(exitDiffers)
	}
	return err
}

func (a *app) printVerdict(r replay.Result) {
	if r.Mismatch == nil {
		fmt.Fprintln(a.out, a.paint(good, "✔ ")+a.say.T("replay.same", lang.Data{"N": r.Events, "Run": r.Run}))
		return
	}
	fmt.Fprintln(a.out, a.paint(bad, "✖ ")+line(a.say.T("replay.differs", map[string]any{"Run": r.Run, "Sequence": r.Mismatch.Sequence,
		"Recorded": r.Mismatch.Recorded, "Recomputed": r.Mismatch.Recomputed})))
}

func (a *app) replayAll(ctx context.Context, s *sqlite.Store) error {
	differs := 0
	_, err := replay.All(ctx, s, func(r replay.Result) error {
		if r.Verdict != replay.Same {
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
