package cmd

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

type runRowJSON struct {
	Run       string `json:"run"`
	Pipeline  string `json:"pipeline"`
	State     string `json:"state"`
	Trigger   string `json:"trigger"`
	CreatedAt string `json:"created_at"`
	StartedAt string `json:"started_at"`
	EndedAt   string `json:"ended_at"`
	Duration  int64  `json:"duration_ms"`
	Sample    int    `json:"sample,omitempty"`
	WaitsFor  string `json:"waits_for,omitempty"`
	Parent    string `json:"parent,omitempty"`
	Stage     string `json:"stage,omitempty"`
	Class     string `json:"class,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Imported  string `json:"imported_at,omitempty"`
	Verified  int    `json:"verified,omitempty"` // verifications that reproduced it
	Findings  int    `json:"findings,omitempty"` // two results for one stage key
}

// page adds --limit and --after to a list.
func (a *app) page(c *cobra.Command) (limit *int, after *string) {
	return c.Flags().Int("limit", 50, "flag.limit"), c.Flags().String("after", "", "flag.after")
}

func (a *app) pageOf(limit int, after string) (storage.Page, error) {
	p := storage.Page{Limit: limit}
	if limit < 1 {
		return p, a.usageError("usage.positive", lang.Data{"Flag": "--limit", "Value": limit})
	}
	if after == "" {
		return p, nil
	}
	id, err := events.ParseID(after)
	if err != nil {
		return p, a.usageError("usage.id", lang.Data{"ID": after})
	}
	p.After = id
	return p, nil
}

func (a *app) runsCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "runs", Args: a.arguments(0, 0)}, "runs")
	limit, after := a.page(c)
	pipeline := c.Flags().String("pipeline", "", "flag.pipeline")
	state := c.Flags().String("state", "", "flag.state")
	c.RunE = func(c *cobra.Command, _ []string) error {
		f := storage.RunFilter{Pipeline: *pipeline}
		var err error
		if f.Page, err = a.pageOf(*limit, *after); err != nil {
			return err
		}
		if *state != "" {
			if f.State, err = events.ParseState(*state); err != nil {
				return a.choice("--state", *state, "pending, running, completed, failed, cancelled")
			}
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error { return a.listRuns(c.Context(), s, f) })
	}
	return c
}

func (a *app) listRuns(ctx context.Context, s *sqlite.Store, f storage.RunFilter) error {
	rows, err := s.Runs(ctx, f)
	if err != nil {
		return err
	}
	all := make([]runRowJSON, len(rows))
	for i, r := range rows {
		all[i] = runRowJSON{Run: r.ID.String(), Pipeline: r.Pipeline, State: r.State.String(), Trigger: r.Kind, CreatedAt: stamp(r.Created),
			StartedAt: stamp(r.Started), EndedAt: stamp(r.Ended), WaitsFor: r.Waits, Sample: r.Sample, Stage: r.Stage, Class: string(r.Class), Reason: r.Reason,
			Imported: stamp(r.Imported), Verified: r.Verified, Findings: r.Findings}
		if !r.Parent.IsZero() {
			all[i].Parent = r.Parent.String()
		}
		if r.Ended > 0 {
			all[i].Duration = max(0, r.Ended-r.Created) / 1e6
		}
	}
	if len(rows) == 0 && a.output == "text" {
		a.tell("runs.none")
		return nil
	}
	n := -1
	heads := a.heads("run", "pipeline", "state", "trigger", "created", "duration", "why")
	proven := slices.ContainsFunc(rows, func(r storage.RunRow) bool { return r.Verified+r.Findings > 0 })
	if proven {
		heads = append(heads, a.heads("verified")...)
	}
	return list(a, all, heads, func(r runRowJSON) []string {
		n++
		why := r.Class
		switch {
		case r.Stage != "":
			why = r.Stage + ": " + r.Class
		case r.WaitsFor != "":
			why = a.because(r.WaitsFor, "")
		}
		pipeline := r.Pipeline
		if r.Sample > 0 {
			pipeline += " (" + a.say.T("sample.of", lang.Data{"Records": r.Sample}) + ")"
		}
		if r.Imported != "" {
			pipeline += " (" + a.say.T("mark.imported") + ")"
		}
		cells := []string{r.Run, pipeline, a.state(rows[n].State), r.Trigger, a.ago(rows[n].Created), span(rows[n].Created, rows[n].Ended), why}
		if proven {
			cells = append(cells, a.proven(r))
		}
		return cells
	})
}

// proven says what is known of a run's results, shortly.
func (a *app) proven(r runRowJSON) string {
	switch {
	case r.Findings > 0:
		return a.paint(bad, a.say.T("badge.findings", lang.Data{"N": r.Findings}))
	case r.Verified > 0:
		return a.paint(good, a.say.T("badge.reproduced", lang.Data{"N": r.Verified}))
	}
	return ""
}

func (a *app) heads(ids ...string) []string {
	heads := make([]string, len(ids))
	for i, id := range ids {
		heads[i] = a.say.T("head." + id)
	}
	return heads
}
