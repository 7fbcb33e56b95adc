package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) showCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "show RUN", Args: cobra.ExactArgs(1)}, "show")
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			id, err := a.findRun(c.Context(), s, args[0])
			if err != nil {
				return err
			}
			v, err := loadView(c.Context(), s, id, a.logsDir())
			if err != nil {
				return err
			}
			return a.printRun(v)
		})
	}
	return c
}

// reading opens the store for reading, beside a running server.
func (a *app) reading(_ context.Context, do func(*sqlite.Store) error) (err error) {
	s, err := sqlite.OpenReadOnly(a.data)
	if errors.Is(err, storage.ErrNotFound) {
		return &exitError{exitNotFound, "E_STORE", fmt.Errorf("there is no store in %s yet; apollo run or apollo serve makes one", a.data)}
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
			return events.ID{}, &exitError{exitNotFound, "E_RUN", errors.New("there are no runs yet")}
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
		return events.ID{}, &exitError{exitNotFound, "E_RUN", fmt.Errorf("no run %q; apollo runs lists them", name)}
	}
	return events.ID{}, &exitError{exitUsage, "E_RUN", fmt.Errorf("%q begins the ids of several runs, such as %s and %s", name, found[0], found[1])}
}

// printRun shows a run: what failed first, then the tree of stages.
func (a *app) printRun(v *view) error {
	if a.output != "text" {
		return writeJSON(a.out, v.json(), a.output == "json")
	}
	var b strings.Builder
	r := v.run
	fmt.Fprintf(&b, "%s  %s  %s", a.paint(bold, r.Graph.Plan.Pipeline), r.ID, a.state(r.State))
	if r.Ended > 0 {
		fmt.Fprintf(&b, "  %s", span(r.Created, r.Ended))
	}
	b.WriteByte('\n')
	if r.State == events.Failed {
		b.WriteString(a.failure(v))
	}
	for _, row := range a.treeLines(v) {
		b.WriteString(row + "\n")
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

const shownLogLines = 20

// failure says what a person needs at once: stage, class, evidence, last lines.
func (a *app) failure(v *view) string {
	var b strings.Builder
	i, ok := v.run.Graph.Index(v.run.Culprit)
	if !ok {
		return a.paint(bad, line(v.run.Reason)) + "\n"
	}
	s := v.stage(i)
	row := func(id, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %s %s\n", runewidth.FillRight(a.say.T(id), 10), line(value))
		}
	}
	row("failure.stage", fmt.Sprintf("%s (%s)", s.Stage, a.say.T("attempt", map[string]any{"Number": s.Attempt})))
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
		if tail := lastLines(v.logFile(s.Stage, s.Attempt, stream), shownLogLines); tail != "" {
			fmt.Fprintf(&b, "  %s\n", a.say.T("failure.log", map[string]any{"Stream": stream}))
			for l := range strings.SplitSeq(tail, "\n") {
				fmt.Fprintf(&b, "    %s\n", a.paint(dim, line(l)))
			}
			break
		}
	}
	return b.String()
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

// treeLines draws the stages below the one that they need last; a stage with several needs names the others.
func (a *app) treeLines(v *view) []string {
	stages := v.run.Graph.Plan.Stages
	children := make([][]int, len(stages))
	var roots []int
	for i := range stages {
		if len(stages[i].Needs) == 0 {
			roots = append(roots, i)
			continue
		}
		deepest := 0
		for _, need := range stages[i].Needs {
			if n, ok := v.run.Graph.Index(need); ok {
				deepest = max(deepest, n)
			}
		}
		children[deepest] = append(children[deepest], i)
	}
	width := 0
	for i := range stages {
		width = max(width, min(40, runewidth.StringWidth(stages[i].Name)))
	}
	var rows []string
	var draw func(i int, indent string, last bool)
	draw = func(i int, indent string, last bool) {
		if len(children[i]) == 1 { // a chain goes straight down
			rows = append(rows, indent+"├─ "+a.stageLine(v, i, width))
			draw(children[i][0], indent, last)
			return
		}
		branch, below := "├─ ", "│  "
		if last {
			branch, below = "└─ ", "   "
		}
		rows = append(rows, indent+branch+a.stageLine(v, i, width))
		for n, child := range children[i] {
			draw(child, indent+below, n == len(children[i])-1)
		}
	}
	for n, i := range roots {
		draw(i, "", n == len(roots)-1)
	}
	return rows
}

func (a *app) stageLine(v *view, i, width int) string {
	s := v.stage(i)
	st := &v.run.Stages[i]
	text := runewidth.FillRight(s.Stage, width) + "  " + a.state(st.State)
	if st.Started > 0 {
		end := st.Ended
		if st.State == events.Running {
			end = time.Now().UnixNano()
		}
		if end > 0 {
			text += "  " + a.paint(dim, span(st.Started, end))
		}
	}
	if s.Attempt > 1 {
		text += "  " + a.say.T("attempt", map[string]any{"Number": s.Attempt})
	}
	if s.WaitsFor != "" && st.State == events.Pending {
		text += "  " + a.say.T("waits", map[string]any{"For": a.say.T("waits." + s.WaitsFor)})
	}
	if s.Class != "" && st.State != events.Completed {
		text += "  " + a.paint(bad, s.Class)
	}
	if s.Reason != "" && st.State != events.Completed {
		text += ": " + line(s.Reason)
	}
	for _, o := range v.run.Graph.Plan.Stages[i].Outputs {
		if out, ok := s.Outputs[o.Role]; ok && out.Records != nil {
			text += "  " + a.say.T("records", map[string]any{"Role": o.Role, "Count": *out.Records})
		}
	}
	return text
}
