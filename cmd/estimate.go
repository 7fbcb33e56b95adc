package cmd

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/estimate"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) estimateCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "estimate PIPELINE", Args: a.arguments(1, 1), ValidArgsFunction: a.completePipelines}, "estimate")
	runs := c.Flags().Int("runs", 200, "flag.runs")
	rate := c.Flags().String("rate", "", "flag.rate")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *runs < 1 {
			return a.usageError("usage.positive", lang.Data{"Flag": "--runs", "Value": *runs})
		}
		perHour := 0.0
		if *rate != "" {
			var err error
			if perHour, err = estimate.ParseRate(*rate); err != nil {
				return a.usageError("usage.rate", lang.Data{"Value": *rate})
			}
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			h, err := a.history(c.Context(), s, args[0], *runs)
			if err != nil {
				return err
			}
			e := h.Estimate(perHour)
			if a.output != "text" {
				return writeJSON(a.out, e, a.output == "json")
			}
			return a.printEstimate(e, *rate)
		})
	}
	return c
}

// history reads the newest runs of a pipeline, in the terms of the newest one's plan.
func (a *app) history(ctx context.Context, s storage.Store, pipeline string, limit int) (*estimate.History, error) {
	var h *estimate.History
	graphs := map[events.Digest]*events.Graph{}
	page := storage.Page{}
	for limit > 0 {
		page.Limit = min(limit, 200)
		rows, err := s.Runs(ctx, storage.RunFilter{Page: page, Pipeline: pipeline})
		if err != nil {
			return nil, err
		}
		for i := range rows {
			g := graphs[rows[i].Plan]
			if g == nil {
				if g, err = storage.ReadGraph(ctx, s, rows[i].Plan); err != nil {
					return nil, err
				}
				graphs[rows[i].Plan] = g
			}
			if h == nil {
				h = estimate.NewHistory(g.Plan)
			}
			if err := addRun(ctx, s, h.Begin(g.Plan), rows[i].ID); err != nil {
				return nil, err
			}
			page.After = rows[i].ID
		}
		limit -= len(rows)
		if len(rows) < page.Limit {
			break
		}
	}
	if h == nil {
		return nil, a.fail(exitNotFound, "E_NOT_FOUND", "error.no_history", lang.Data{"Name": pipeline})
	}
	return h, nil
}

func addRun(ctx context.Context, s storage.Store, r *estimate.Run, id events.ID) error {
	for e, err := range storage.Stream(ctx, s, id, 0) {
		if err != nil {
			return err
		}
		r.Add(&e.Event)
	}
	return nil
}

func (a *app) printEstimate(e *estimate.Estimate, rate string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s\n", a.paint(bold, line(e.Pipeline)), a.say.T("estimate.runs", lang.Data{"N": e.Runs, "Completed": e.Samples}))
	if e.Samples > 0 {
		fmt.Fprintln(&b, a.say.T("estimate.took", lang.Data{"P50": a.interval(e.Duration.P50, seconds), "P95": a.interval(e.Duration.P95, seconds),
			"P99": a.interval(e.Duration.P99, seconds), "Sure": a.sure(e.Samples, e.Sure)}))
	}
	if len(e.Critical.Stages) > 0 {
		fmt.Fprintln(&b, a.say.T("estimate.critical", lang.Data{"Path": strings.Join(e.Critical.Stages, " → "), "Took": seconds(e.Critical.Seconds)}))
	}
	fmt.Fprintln(&b)
	if _, err := io.WriteString(a.out, b.String()); err != nil {
		return err
	}
	if err := a.estimateTable(e.Stages); err != nil {
		return err
	}
	b.Reset()
	if l := e.Load; l != nil {
		fmt.Fprintf(&b, "\n%s\n", a.say.T("estimate.load", lang.Data{"Rate": rate, "Busy": strconv.FormatFloat(l.Busy, 'g', 3, 64), "Workers": l.Workers,
			"Cores": strconv.FormatFloat(l.Cores, 'g', 3, 64), "Memory": known(l.Memory > 0, configs.SizeAbout(l.Memory)), "Bandwidth": bits(float64(l.Bandwidth))}))
	}
	if e.Proposal != "" {
		fmt.Fprintf(&b, "\n%s\n%s", a.say.T("estimate.proposal"), e.Proposal)
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

func (a *app) estimateTable(stages []estimate.Stage) error {
	rows := make([][]string, len(stages))
	for i := range stages {
		s := &stages[i]
		if s.Samples == 0 {
			rows[i] = []string{s.Stage, "0", "", "", "", "", "", "", a.sure(0, false)}
			continue
		}
		rows[i] = []string{s.Stage, strconv.Itoa(s.Samples), seconds(s.Duration.P50.Value), a.interval(s.Duration.P95, seconds), seconds(s.Duration.P99.Value),
			known(s.Measured > 0, a.interval(s.Memory.P95, size)), a.interval(s.Data.P95, size), bits(s.Bandwidth.P95.Value), a.sure(s.Samples, s.Sure)}
	}
	return a.table(a.heads("stage", "samples", "p50", "p95", "p99", "memory", "data", "bandwidth", "sure"), rows)
}

// known shows a dash where nothing was measured.
func known(ok bool, text string) string {
	if !ok {
		return "–"
	}
	return text
}

// interval shows a quantile and between which bounds it lies.
func (a *app) interval(q estimate.Quantile, show func(float64) string) string {
	high := "∞"
	if q.High != nil {
		high = show(*q.High)
	}
	return fmt.Sprintf("%s (%s–%s)", show(q.Value), show(q.Low), high)
}

func (a *app) sure(samples int, sure bool) string {
	if sure {
		return a.say.T("estimate.sure")
	}
	return a.say.T("estimate.few", lang.Data{"N": samples})
}

func seconds(s float64) string { return short(estimate.Span(s)) }

func size(bytes float64) string { return configs.SizeAbout(int64(bytes)) }

func bits(perSecond float64) string {
	for _, u := range []struct {
		suffix string
		size   float64
	}{{"Gbps", 1e9}, {"Mbps", 1e6}, {"kbps", 1e3}} {
		if perSecond >= u.size {
			return strconv.FormatFloat(perSecond/u.size, 'f', 1, 64) + u.suffix
		}
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64) + "bps"
}
