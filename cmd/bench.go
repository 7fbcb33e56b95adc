package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/bench"
	"github.com/apollo-11/apollo/cmd/replay"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) benchCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "bench", Args: a.arguments(0, 0)}, "bench")
	quick := c.Flags().Bool("quick", false, "flag.quick")
	only := c.Flags().String("only", "", "flag.only")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *only != "" && !slices.Contains(bench.Groups(), *only) {
			return a.choice("--only", *only, strings.Join(bench.Groups(), ", "))
		}
		return a.bench(c.Context(), *quick, *only)
	}
	return c
}

func (a *app) bench(ctx context.Context, quick bool, only string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(".", ".apollo-bench-") // on the disk where the user stands
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	report, err := bench.Run(ctx, bench.Options{Quick: quick, Only: only, Dir: dir,
		Child:  func(ctx context.Context, args ...string) *exec.Cmd { return exec.CommandContext(ctx, self, args...) },
		Agree:  a.agree,
		Replay: benchReplay,
		Tell:   func(what string) { fmt.Fprintln(a.err, a.say.T("bench.measuring", map[string]any{"What": what})) }})
	if len(report.Figures) > 0 {
		err = errors.Join(err, a.printFigures(report))
	}
	if err == nil && !quick {
		for _, f := range report.Figures {
			if !f.Met && f.Void == "" {
				return silent(exitGate)
			}
		}
	}
	return err
}

func (a *app) printFigures(r bench.Report) error {
	if a.output != "text" {
		return writeJSON(a.out, r, a.output == "json")
	}
	fmt.Fprintf(a.out, "%d × %s, %s %s, %s\n\n", r.Machine.Cores, r.Machine.CPU, r.Machine.OS, r.Machine.Go, r.Machine.Date)
	return list(a, r.Figures, a.heads("figure", "value", "limit", "ratio", "required", "met"), func(f bench.Figure) []string {
		limit, ratio := "", ""
		if f.LimitValue != 0 {
			limit, ratio = fmt.Sprintf("%.4g", f.LimitValue), fmt.Sprintf("%.2f", f.Ratio)
		}
		met := a.say.T("bench.yes")
		if f.Void != "" {
			met = a.say.T("bench.void", map[string]any{"Why": f.Void})
		} else if !f.Met {
			met = a.paint(bad, a.say.T("bench.no"))
		}
		return []string{f.Name, fmt.Sprintf("%.4g %s", f.Value, f.Unit), limit, ratio, f.Required, met}
	})
}

// agree is the zero-loss check: the process was killed; every acknowledged delivery is there, no run's log has a step
// that may not follow, and every decision is the same when it is made again.
func (a *app) agree(ctx context.Context, dir string, accepted int64) (err error) {
	s, err := sqlite.Open(dir, sqlite.Options{Clock: time.Now})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	runs := int64(0)
	_, err = replay.All(ctx, s, func(r replay.Result) error {
		runs++
		if r.Verdict != "same" {
			return fmt.Errorf("zero-loss check: run %s differs at event %d: recorded %s, recomputed %s", r.Run, r.Mismatch.Sequence, r.Mismatch.Recorded, r.Mismatch.Recomputed)
		}
		return nil
	})
	if err == nil && runs < accepted {
		err = fmt.Errorf("zero-loss check: %d deliveries were acknowledged, the store holds %d runs", accepted, runs)
	}
	return err
}

func benchReplay(ctx context.Context, dir string) (n int, took time.Duration, err error) {
	s, err := sqlite.OpenReadOnly(dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	begin := time.Now()
	n, err = replay.All(ctx, s, func(r replay.Result) error {
		if r.Verdict != "same" {
			return fmt.Errorf("run %s differs", r.Run)
		}
		return nil
	})
	return n, time.Since(begin), err
}

// subjectCommand is the process that bench measures and kills.
func (a *app) subjectCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "bench-subject LOAD", Args: a.arguments(1, 1), Hidden: true}, "subject")
	c.RunE = func(c *cobra.Command, args []string) error {
		var l bench.Load
		if err := json.Unmarshal([]byte(args[0]), &l); err != nil {
			return &exitError{exitUsage, "E_USAGE", err}
		}
		return a.subject(c.Context(), l)
	}
	return c
}

func (a *app) subject(ctx context.Context, l bench.Load) error {
	s := bench.NewSubject()
	a.tasks["noop"], a.tasks["held"] = s.Task, s.Held
	a.tune = func(steps *stage.Steps, o *router.Options) {
		o.Handlers, o.Runner, o.ProcessSlots, o.MaxLive = s.Handlers(), s.Runner(steps), 2, 1_000_000
	}
	n, err := a.open(a.quietLogger(), nil)
	if err != nil {
		return err
	}
	s.Engine, s.Dir, s.Sealer = n.engine, n.dir, sealer{n}
	if err := n.engine.Start(ctx); err != nil {
		return err
	}
	done, err := s.Run(ctx, l)
	if err != nil {
		return err
	}
	if err := writeJSON(a.out, done, false); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, a.in) // until it is killed
	return nil
}
