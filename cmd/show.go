package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) showCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "show RUN [STAGE[#ITEM]]", Args: a.arguments(1, 2), ValidArgsFunction: a.completeRuns}, "show")
	all := c.Flags().Bool("all", false, "flag.all_stages")
	checks := c.Flags().Bool("checks", false, "flag.checks")
	pins := c.Flags().Bool("pins", false, "flag.pins")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 2 && !*pins {
			return a.usageError("usage.show_stage")
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			id, err := a.findRun(c.Context(), s, args[0])
			if err != nil {
				return err
			}
			if *pins {
				return a.printPins(c.Context(), s, id, strings.Join(args[1:], ""))
			}
			v, err := loadView(c.Context(), s, id, a.logsDir())
			if err != nil {
				return err
			}
			if *checks && a.output == "text" {
				return a.printChecks(v)
			}
			return a.printRun(v, *all)
		})
	}
	return c
}

// reading opens the store for reading, beside a running server.
func (a *app) reading(_ context.Context, do func(*sqlite.Store) error) (err error) {
	s, err := sqlite.OpenReadOnly(a.data)
	if errors.Is(err, storage.ErrNotFound) {
		return a.fail(exitNotFound, "E_NO_STORE", "error.no_store", lang.Data{"Data": a.data})
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return do(s)
}

// findRun takes a whole id, the start of one, or "latest".
func (a *app) findRun(ctx context.Context, s *sqlite.Store, name string) (events.ID, error) {
	if name == "latest" {
		rows, err := s.Runs(ctx, storage.RunFilter{Page: storage.Page{Limit: 1}})
		if err != nil {
			return events.ID{}, err
		}
		if len(rows) == 0 {
			return events.ID{}, a.fail(exitNotFound, "E_NOT_FOUND", "error.no_runs")
		}
		return rows[0].ID, nil
	}
	found, err := s.FindRuns(ctx, name, 3)
	if err != nil {
		return events.ID{}, err
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return events.ID{}, a.fail(exitNotFound, "E_NOT_FOUND", "error.no_run", lang.Data{"Run": name})
	}
	return events.ID{}, a.usageError("error.ambiguous_run", lang.Data{"Run": name, "First": found[0].String(), "Second": found[1].String()})
}

// printRun shows a run: what failed first, then the tree of stages.
func (a *app) printRun(v *view, all bool) error {
	if a.output != "text" {
		return writeJSON(a.out, v.json(), a.output == "json")
	}
	var b strings.Builder
	r := v.run
	b.WriteString(a.runLine(v) + "\n")
	for _, said := range a.origin(v) {
		fmt.Fprintf(&b, "  %s\n", a.paint(dim, said))
	}
	if r.Sample > 0 {
		fmt.Fprintf(&b, "  %s\n", a.paint(warn, a.say.T("sample.of", lang.Data{"Records": r.Sample})))
	}
	for _, said := range append(a.proofLines(v), a.findingLines(v)...) {
		fmt.Fprintf(&b, "  %s\n", said)
	}
	if r.State == events.Failed {
		b.WriteString(a.failure(v))
	}
	for _, row := range append(a.treeLines(v, all), a.undeclaredLines(v)...) {
		b.WriteString(row + "\n")
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

// runLine is the first line about a run.
func (a *app) runLine(v *view) string {
	r := v.run
	parts := []string{a.paint(bold, r.Graph.Plan.Pipeline), r.ID.String(), a.state(r.State)}
	switch {
	case r.Ended > 0:
		parts = append(parts, span(r.Created, r.Ended))
	case r.State == events.Pending && r.Waits != "":
		parts = append(parts, a.because(r.Waits, v.held))
	}
	if r.State == events.Cancelled {
		parts = append(parts, line(r.Reason))
		if v.canceller != "" {
			parts = append(parts, a.say.T("run.cancelled_by", lang.Data{"By": line(v.canceller)}))
		}
	}
	return strings.Join(parts, "  ")
}

// origin says where an unusual run comes from, and by which definition it goes.
func (a *app) origin(v *view) (lines []string) {
	r := v.run
	if r.Imported > 0 {
		lines = append(lines, a.say.T("run.imported", lang.Data{"At": stamp(r.Imported)}))
	}
	if !r.Parent.IsZero() {
		lines = append(lines, a.say.T("run.child_of", lang.Data{"Run": r.Parent.String()}))
	}
	switch {
	case r.Forked.IsZero():
	case r.From != "":
		lines = append(lines, a.say.T("run.rerun_from", lang.Data{"Run": r.Forked.String(), "Stage": r.From}))
	default:
		lines = append(lines, a.say.T("run.rerun_of", lang.Data{"Run": r.Forked.String()}))
	}
	if v.forkedFor != "" {
		lines = append(lines, a.say.T("run.rerun_for", lang.Data{"By": line(v.forkedBy), "Reason": line(v.forkedFor)}))
	}
	if r.Resumed() || !r.Forked.IsZero() {
		lines = append(lines, a.say.T("run.own_plan", lang.Data{"Plan": r.Graph.Digest.String(), "N": len(r.Graph.Plan.Stages)}))
	}
	return lines
}

const shownLogLines = 20

// failure says what a person needs at once: stage, class, evidence, last lines.
func (a *app) failure(v *view) string {
	var b strings.Builder
	i, ok := v.run.Graph.Index(v.run.Culprit)
	if !ok {
		return a.paint(bad, line(v.run.Reason)) + "\n"
	}
	i = v.firstFailed(i)
	s := v.stage(i)
	row := func(id, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %s %s\n", screen.FillRight(a.say.T(id), 10), line(value))
		}
	}
	row("failure.stage", fmt.Sprintf("%s (%s)", v.label(i), a.say.T("attempt", map[string]any{"Number": s.Attempt})))
	row("failure.class", s.Class)
	row("failure.reason", s.Reason)
	row("failure.pointer", s.Pointer)
	row("failure.expected", s.Expected)
	row("failure.actual", s.Actual)
	row("failure.signal", s.Signal)
	if s.Exit != nil && *s.Exit != 0 {
		row("failure.exit", fmt.Sprint(*s.Exit))
	}
	row("failure.evidence", s.Evidence)
	for _, stream := range []string{"stderr", "stdout"} {
		if tail := lastLines(v.logFile(i, s.Attempt, stream), shownLogLines); tail != "" {
			fmt.Fprintf(&b, "  %s\n", a.say.T("failure.log", map[string]any{"Stream": stream}))
			for l := range strings.SplitSeq(tail, "\n") {
				fmt.Fprintf(&b, "    %s\n", a.paint(dim, line(l)))
			}
			break
		}
	}
	return b.String()
}

// firstFailed gives the instance that a foreach stage failed with, or the stage itself.
func (v *view) firstFailed(i int) int {
	s := &v.run.Stages[i]
	for k := s.First; k < s.First+s.Count; k++ {
		if v.run.Stages[k].State == events.Failed {
			return int(k)
		}
	}
	return i
}

// lastLines gives the last lines of a file, nothing when it is not there.
func lastLines(path string, n int) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(info.Size(), 64<<10))
	if _, err := f.ReadAt(b, info.Size()-int64(len(b))); err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
