package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// printLogText prints part of a log, each line with its stage when several are printed.
func (a *app) printLogText(text, stage string, label, raw bool) error {
	if !raw {
		text = clean(text)
	}
	if label {
		lines := strings.SplitAfter(text, "\n")
		var b strings.Builder
		for _, l := range lines {
			if l != "" {
				b.WriteString(a.paint(dim, stage+" │ ") + l)
			}
		}
		text = b.String()
	}
	_, err := io.WriteString(a.out, text)
	return err
}

func (a *app) cancelCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "cancel RUN", Args: cobra.ExactArgs(1)}, "cancel")
	reason := c.Flags().String("reason", "cancelled by hand", a.say.T("flag.reason"))
	c.RunE = func(c *cobra.Command, args []string) error {
		var id events.ID
		err := a.reading(c.Context(), func(s *sqlite.Store) (err error) {
			id, err = a.findRun(c.Context(), s, args[0])
			return err
		})
		if err != nil {
			return err
		}
		dir, err := filepath.Abs(a.data)
		if err != nil {
			return err
		}
		held, err := sqlite.Holder(dir)
		if err != nil {
			return err
		}
		if held != nil {
			return dialServer(dir).CancelRun(c.Context(), id, *reason)
		}
		return a.cancelHere(c.Context(), id, *reason)
	}
	return c
}

// cancelHere cancels a run whose server is not there: its attempts are lost already.
func (a *app) cancelHere(ctx context.Context, id events.ID, reason string) error {
	n, err := a.open(a.quietLogger(), nil)
	if err != nil {
		return err
	}
	if err = n.engine.Start(ctx); err == nil {
		err = n.CancelRun(ctx, id, reason)
	}
	if err == nil {
		err = a.untilEnd(ctx, n.store, id)
	}
	return errors.Join(err, n.close(ctx))
}

func (a *app) untilEnd(ctx context.Context, s *sqlite.Store, id events.ID) error {
	wake, stop := s.Wake()
	defer stop()
	for {
		row, err := s.Run(ctx, id)
		if err != nil || row.State.Terminal() {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type replayJSON struct {
	Run      string           `json:"run"`
	Events   uint64           `json:"events"`
	Verdict  string           `json:"verdict"`
	Mismatch *events.Mismatch `json:"first_mismatch"`
}

func (a *app) replayCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "replay RUN|--all", Args: cobra.MaximumNArgs(1)}, "replay")
	all := c.Flags().Bool("all", false, a.say.T("flag.all"))
	until := c.Flags().Uint64("until", 0, a.say.T("flag.until"))
	step := c.Flags().Bool("step", false, a.say.T("flag.step"))
	c.RunE = func(c *cobra.Command, args []string) error {
		if *all == (len(args) == 1) {
			return &exitError{exitUsage, "E_USAGE", errors.New("a run, or --all")}
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
			if err := a.printRun(&view{run: run, logs: filepath.Join(a.logsDir(), id.String())}); err != nil {
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
		fmt.Fprintln(a.out, a.paint(good, "✔ ")+a.say.T("replay.same", map[string]any{"Count": r.Events, "Run": r.Run}))
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

func (a *app) storeCommand() *cobra.Command {
	root := a.describe(&cobra.Command{Use: "store", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}, "store")
	rebuild := a.describe(&cobra.Command{Use: "rebuild", Args: cobra.NoArgs}, "store.rebuild")
	write := rebuild.Flags().Bool("write", false, a.say.T("flag.write"))
	rebuild.RunE = func(c *cobra.Command, _ []string) error { return a.rebuildStore(c.Context(), *write) }
	backup := a.describe(&cobra.Command{Use: "backup FILE", Args: cobra.ExactArgs(1)}, "store.backup")
	backup.RunE = func(c *cobra.Command, args []string) error {
		return a.reading(c.Context(), func(s *sqlite.Store) error { return s.Backup(c.Context(), args[0]) })
	}
	fsck := a.describe(&cobra.Command{Use: "fsck", Args: cobra.NoArgs}, "store.fsck")
	fsck.RunE = func(c *cobra.Command, _ []string) error { return a.fsck(c.Context()) }
	root.AddCommand(rebuild, backup, fsck)
	return root
}

type differenceJSON struct {
	Table   string `json:"table"`
	Key     string `json:"key"`
	Live    string `json:"live"`
	FromLog string `json:"from_log"`
}

func (a *app) rebuildStore(ctx context.Context, write bool) (err error) {
	var s *sqlite.Store
	if write {
		lock, err := sqlite.TakeLock(a.data)
		if err != nil {
			return err
		}
		defer lock.Release() //nolint:errcheck // the process ends
		s, err = sqlite.Open(a.data, sqlite.Options{Logger: a.quietLogger()})
		if err != nil {
			return err
		}
	} else if s, err = sqlite.OpenReadOnly(a.data); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	differences, err := s.Rebuild(ctx, write)
	if err != nil {
		return err
	}
	rows := make([]differenceJSON, len(differences))
	for i, d := range differences {
		rows[i] = differenceJSON{d.Table, d.Key, d.Live, d.FromTheLog}
	}
	if len(rows) == 0 && a.output == "text" {
		fmt.Fprintln(a.out, a.say.T("rebuild.same"))
		return nil
	}
	if err := list(a, rows, a.heads("table", "key", "live", "log"), func(d differenceJSON) []string { return []string{d.Table, d.Key, d.Live, d.FromLog} }); err != nil {
		return err
	}
	if len(rows) > 0 && !write {
		return silent(exitDiffers)
	}
	return nil
}

type problemJSON struct {
	Code  string `json:"code"`
	Place string `json:"place"`
	What  string `json:"what"`
}

func (a *app) fsck(ctx context.Context) error {
	rows := []problemJSON{}
	report := func(p storage.Problem) { rows = append(rows, problemJSON(p)) }
	err := a.reading(ctx, func(s *sqlite.Store) error {
		return errors.Join(s.Check(ctx, report), checkArtifacts(ctx, a.data, report))
	})
	switch {
	case errors.Is(err, storage.ErrCorrupt):
		report(storage.Problem{Code: "E_STORE_CORRUPT", Place: filepath.Join(a.data, sqlite.FileName), What: err.Error()})
	case err != nil:
		return err
	}
	if len(rows) == 0 && a.output == "text" {
		fmt.Fprintln(a.out, a.say.T("fsck.ok"))
		return nil
	}
	if err := list(a, rows, a.heads("code", "place", "what"), func(p problemJSON) []string { return []string{p.Code, p.Place, p.What} }); err != nil {
		return err
	}
	if len(rows) > 0 {
		return silent(exitDiffers)
	}
	return nil
}

func (a *app) graphCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "graph NAME|FILE|RUN", Args: cobra.ExactArgs(1)}, "graph")
	format := c.Flags().String("format", "text", a.say.T("flag.format"))
	c.RunE = func(c *cobra.Command, args []string) error {
		g, err := a.graphOf(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.printGraph(g, *format)
	}
	return c
}

// graphOf takes a run's own plan when the name means a run, else the definition as it is now.
func (a *app) graphOf(ctx context.Context, name string) (*events.Graph, error) {
	file, missing := a.pipelineFile(name)
	if missing == nil {
		p, problems := configs.LoadFile(file, a.checkOptions())
		if problems.HasErrors() {
			return nil, &exitError{exitInvalid, "", problems.Err()}
		}
		return events.NewGraph(p.Plan(), events.Digest{})
	}
	var g *events.Graph
	err := a.reading(ctx, func(s *sqlite.Store) error {
		id, err := a.findRun(ctx, s, name)
		if err != nil {
			return err
		}
		row, err := s.Run(ctx, id)
		if err != nil {
			return err
		}
		g, err = loadGraph(ctx, s, row.Plan)
		return err
	})
	if err != nil {
		return nil, missing
	}
	return g, nil
}

func (a *app) printGraph(g *events.Graph, format string) error {
	if a.output != "text" {
		return writeJSON(a.out, g.Plan, a.output == "json")
	}
	var b strings.Builder
	switch format {
	case "text":
		for _, l := range a.planLines(g) {
			b.WriteString(l + "\n")
		}
	case "dot":
		b.WriteString("digraph {\n  rankdir=LR\n")
		for _, s := range g.Plan.Stages {
			fmt.Fprintf(&b, "  %q\n", s.Name)
			for _, need := range s.Needs {
				fmt.Fprintf(&b, "  %q -> %q\n", need, s.Name)
			}
		}
		b.WriteString("}\n")
	case "mermaid": // by number: "end" as a name would end the drawing
		b.WriteString("flowchart LR\n")
		for i, s := range g.Plan.Stages {
			fmt.Fprintf(&b, "  s%d[\"%s\"]\n", i, s.Name)
			for _, need := range s.Needs {
				from, _ := g.Index(need)
				fmt.Fprintf(&b, "  s%d --> s%d\n", from, i)
			}
		}
	default:
		return usage("--format", format, "text, dot, mermaid")
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

func (a *app) completionCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "completion bash|zsh|fish|powershell", Args: cobra.ExactArgs(1), ValidArgs: []string{"bash", "zsh", "fish", "powershell"}}, "completion")
	c.RunE = func(c *cobra.Command, args []string) error {
		switch args[0] {
		case "bash":
			return c.Root().GenBashCompletionV2(a.out, true)
		case "zsh":
			return c.Root().GenZshCompletion(a.out)
		case "fish":
			return c.Root().GenFishCompletion(a.out, true)
		case "powershell":
			return c.Root().GenPowerShellCompletionWithDesc(a.out)
		}
		return usage("completion", args[0], "bash, zsh, fish, powershell")
	}
	return c
}

// version is what this build says of itself.
func version() (module, commit string) {
	module, commit = "devel", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" && info.Main.Version != "(devel)" {
			module = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = s.Value
			}
		}
	}
	return module, commit
}

func (a *app) versionCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "version", Args: cobra.NoArgs}, "version")
	c.RunE = func(*cobra.Command, []string) error {
		module, commit := version()
		if a.output != "text" {
			return writeJSON(a.out, map[string]any{"version": module, "commit": commit, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH,
				"schema": sqlite.Version, "plan": events.PlanSchema}, a.output == "json")
		}
		_, err := fmt.Fprintf(a.out, "apollo %s %s %s/%s %s\n", module, commit, runtime.GOOS, runtime.GOARCH, runtime.Version())
		return err
	}
	return c
}
