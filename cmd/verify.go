package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/verify"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// verifying are the flags of the command.
type verifying struct {
	stages, factors []string
	times, jobs     int
	network, all    bool
	keep            bool
	pipeline        string
}

func (a *app) verifyCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "verify RUN|--all", Args: a.arguments(0, 1), ValidArgsFunction: a.completeRuns}, "verify")
	var w verifying
	f := c.Flags()
	f.StringArrayVar(&w.stages, "stage", nil, "flag.verify_stage")
	f.StringSliceVar(&w.factors, "factor", nil, "flag.factor")
	f.IntVar(&w.times, "times", 1, "flag.times")
	f.IntVar(&w.jobs, "jobs", max(1, runtime.NumCPU()), "flag.jobs")
	f.BoolVar(&w.network, "network", false, "flag.verify_network")
	f.BoolVar(&w.keep, "keep", false, "flag.keep")
	f.BoolVar(&w.all, "all", false, "flag.verify_all")
	f.StringVar(&w.pipeline, "pipeline", "", "flag.pipeline")
	c.RunE = func(c *cobra.Command, args []string) error {
		if w.all == (len(args) == 1) || w.pipeline != "" && !w.all {
			return a.usageError("usage.verify")
		}
		for flag, n := range map[string]int{"--times": w.times, "--jobs": w.jobs} {
			if n < 1 {
				return a.usageError("usage.positive", lang.Data{"Flag": flag, "Value": n})
			}
		}
		for _, name := range w.factors {
			if !slices.Contains(verify.Factors(), name) {
				return a.choice("--factor", name, strings.Join(verify.Factors(), ", "))
			}
		}
		runs, err := a.toVerify(c.Context(), args, &w)
		if err != nil {
			return err
		}
		return a.verifyRuns(c.Context(), runs, &w)
	}
	return c
}

// toVerify gives the run that is named, or with --all every run that has ended, oldest first.
func (a *app) toVerify(ctx context.Context, args []string, w *verifying) (list []events.ID, err error) {
	return list, a.reading(ctx, func(s *sqlite.Store) error {
		if !w.all {
			id, err := a.findRun(ctx, s, args[0])
			list = []events.ID{id}
			return err
		}
		page := storage.Page{Limit: viewPage}
		for {
			rows, err := s.Runs(ctx, storage.RunFilter{Page: page, Pipeline: w.pipeline})
			if err != nil || len(rows) == 0 {
				slices.Reverse(list)
				return err
			}
			for i := range rows {
				if page.After = rows[i].ID; rows[i].State.Terminal() {
					list = append(list, rows[i].ID)
				}
			}
		}
	})
}

func (a *app) verifyRuns(ctx context.Context, runs []events.ID, w *verifying) error {
	differs := false
	for _, id := range runs {
		r, err := a.verifyRun(ctx, id, w)
		if err == nil {
			err = a.record(ctx, r)
		}
		if err == nil {
			err = a.printReport(r)
		}
		if err != nil {
			return err
		}
		differs = differs || r.Verdict == verify.Differs
	}
	if differs {
		return silent(exitDiffers)
	}
	return nil
}

// verifyRun executes the stages of a run again. Nothing in the data directory but the scratch directory is written to.
func (a *app) verifyRun(ctx context.Context, id events.ID, w *verifying) (report *verify.Report, err error) {
	dir, err := filepath.Abs(a.data)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	err = a.reading(ctx, func(s *sqlite.Store) (err error) {
		v, err := loadView(ctx, s, id, a.logsDir())
		if err != nil {
			return err
		}
		o := verify.Options{Logger: zerolog.New(a.err).Level(zerolog.ErrorLevel), Stages: w.stages, Factors: w.factors, Times: w.times, Jobs: w.jobs,
			Network: w.network, Secrets: func(ref string) (string, error) { return firstOf(a.secrets(dir)(ref)) }, Host: verify.Look(ctx),
			Delivery: func(ctx context.Context, id events.ID) (*events.Data, error) { return deliveryOf(ctx, s, id) }}
		if w.keep {
			o.Keep = filepath.Join(dir, "verify", id.String())
		}
		if o.PinKey, err = pinKey(dir); err != nil {
			return err
		}
		store, err := artifacts.Open(filepath.Join(dir, "artifacts"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		o.Artifacts = store
		report, err = a.verifyWith(ctx, v.run, dir, o)
		return err
	})
	switch {
	case errors.Is(err, verify.ErrNotEnded):
		return nil, a.fail(exitConflict, "E_NOT_ENDED", "error.not_ended", lang.Data{"Run": id.String()})
	case errors.Is(err, verify.ErrNoStage):
		return nil, a.fail(exitNotFound, "E_REF", "error.no_stage", lang.Data{"Run": id.String(), "Stage": strings.Join(w.stages, ", ")})
	}
	return report, err
}

// verifyWith makes the scratch directory and the executors, and takes them away again.
func (a *app) verifyWith(ctx context.Context, r *events.Run, dir string, o verify.Options) (report *verify.Report, err error) {
	if o.Scratch, o.Host.Ordered, err = verify.Scratch(filepath.Join(dir, "work"), verify.Room(r, o.Jobs)); err != nil {
		return nil, fmt.Errorf("make a scratch directory: %w", err)
	}
	defer func() { err = errors.Join(err, verify.Remove(o.Scratch)) }()
	allow, err := a.allowedHosts()
	if err != nil {
		return nil, err
	}
	build, _ := version()
	o.Executors = a.executors(executor.Settings{Owner: o.Scratch, Tasks: a.tasks, HTTPAllow: allow, Version: build, Cache: filepath.Join(dir, "cache"),
		Pip: pipSettings(a.env), ContainerHost: containerHost(a.env)})
	reaping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go executor.ReapOrphans(reaping)
	p := a.verifyProgress(r)
	o.Each = p.each
	defer p.end()
	return verify.Run(ctx, r, o)
}

func deliveryOf(ctx context.Context, s storage.Store, id events.ID) (*events.Data, error) {
	log, err := s.Events(ctx, id, 0, 1)
	if err != nil {
		return nil, fmt.Errorf("read delivery: %w", err)
	}
	if len(log) == 0 {
		return nil, fmt.Errorf("read delivery %s: not in the log", id)
	}
	return &log[0].Data, nil
}

// record has the verdicts stored by whoever holds the data directory.
func (a *app) record(ctx context.Context, r *verify.Report) error {
	v := web.Verification{Verdict: r.Verdict, Diverging: r.Diverging, Factor: r.Factor, Reason: tally(r), Stages: []web.StageVerification{}}
	var err error
	if v.Machine, err = events.EncodeDocument(machine()); err != nil {
		return err
	}
	for _, s := range r.Stages {
		if s.State != events.Completed {
			continue // it has no result of which anything could be said
		}
		v.Stages = append(v.Stages, web.StageVerification{Stage: s.Name, Item: s.Item, Attempt: s.Attempt, Verdict: s.Verdict, Factor: s.Factor,
			Reason: s.Reason, Role: s.Role, Expected: s.Expected, Actual: s.Actual, Times: s.Times, Isolation: s.Isolation, Key: s.Key.String(),
			Finding: s.Finding, Evidence: s.Evidence})
	}
	return a.steer(ctx, func(s session) error { return s.RecordVerification(ctx, r.Run, by(""), v) })
}

// tally counts the verdicts: "4 reproduced, 1 skipped".
func tally(r *verify.Report) string {
	var parts []string
	for _, verdict := range verdicts {
		if n := r.Count(verdict); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, verdict))
		}
	}
	return strings.Join(parts, ", ")
}

var verdicts = []string{verify.Reproduced, verify.Nondeterministic, verify.DependsOn, verify.NotVerifiable, verify.Skipped}

// RecordVerification implements web.Verifications.
func (n *node) RecordVerification(ctx context.Context, run events.ID, by web.By, v web.Verification) error {
	keep := func(content []byte) (d events.Digest, err error) {
		if len(content) == 0 {
			return d, nil
		}
		info, err := n.artifacts.Put(ctx, strings.NewReader(string(content)))
		return info.Digest, err
	}
	machine, err := keep(v.Machine)
	if err != nil {
		return err
	}
	var list []events.Event
	for i := range v.Stages {
		s := &v.Stages[i]
		evidence, err := keep(s.Evidence)
		if err != nil {
			return err
		}
		d := events.Data{Stage: s.Stage, Item: s.Item, Attempt: s.Attempt, Verdict: s.Verdict, Factor: s.Factor, Reason: s.Reason, Role: s.Role,
			Expected: s.Expected, Actual: s.Actual, Times: s.Times, Isolation: s.Isolation, Machine: machine, Evidence: evidence, Actor: by.Actor}
		list = append(list, events.Event{Type: events.StageVerified, Data: d})
		if s.Finding {
			found := events.Data{Stage: s.Stage, Item: s.Item, Attempt: s.Attempt, Role: s.Role, Expected: s.Expected, Actual: s.Actual, Evidence: evidence,
				Reason: "the same pins gave another result when the stage was verified"}
			_ = found.PinnedAt.UnmarshalText([]byte(s.Key)) // an attempt without pins has no key
			list = append(list, events.Event{Type: events.StageIrreproducibleFound, Data: found})
		}
	}
	stage, item, _ := strings.Cut(v.Diverging, "#")
	d := events.Data{Verdict: v.Verdict, Stage: stage, Factor: v.Factor, Reason: v.Reason, Machine: machine, Actor: by.Actor}
	_, _ = fmt.Sscan(item, &d.Item) // a stage of the plan has no number
	return refused(n.engine.Verified(ctx, run, append(list, events.Event{Type: events.RunVerified, Data: d})))
}

// verifyJSON is the JSON shape of a verification: fields may be added, never renamed.
type verifyJSON struct {
	Run          string            `json:"run"`
	Verdict      string            `json:"verdict"`
	Diverging    *string           `json:"first_diverging"`
	Stages       []verifyStageJSON `json:"stages"`
	NotPerturbed []string          `json:"not_perturbed"`
	Counts       map[string]int    `json:"counts"`
}

type verifyStageJSON struct {
	Stage        string   `json:"stage"`
	Item         *int     `json:"item"`
	Verdict      string   `json:"verdict"`
	Factor       string   `json:"factor"`
	Output       string   `json:"output"`
	Isolation    string   `json:"isolation"`
	Reason       string   `json:"reason"`
	Expected     string   `json:"expected,omitempty"`
	Actual       string   `json:"actual,omitempty"`
	Diff         string   `json:"diff,omitempty"`
	Times        int      `json:"executions"`
	Finding      bool     `json:"finding,omitempty"`
	Kept         string   `json:"kept,omitempty"`
	NotPerturbed []string `json:"not_perturbed,omitempty"`
}

func reportJSON(r *verify.Report) verifyJSON {
	j := verifyJSON{Run: r.Run.String(), Verdict: r.Verdict, Stages: []verifyStageJSON{}, NotPerturbed: append([]string{}, r.NotPerturbed...),
		Counts: map[string]int{}}
	if r.Diverging != "" {
		j.Diverging = &r.Diverging
	}
	for _, s := range r.Stages {
		one := verifyStageJSON{Stage: s.Name, Verdict: s.Verdict, Factor: s.Factor, Output: s.Role, Isolation: s.Isolation, Reason: s.Reason,
			Expected: s.Expected, Actual: s.Actual, Diff: string(s.Evidence), Times: s.Times, Finding: s.Finding, Kept: s.Kept, NotPerturbed: s.Unable}
		if s.Item > 0 {
			one.Item = &s.Item
		}
		j.Stages = append(j.Stages, one)
		j.Counts[s.Verdict]++
	}
	return j
}
