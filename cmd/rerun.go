package cmd

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
)

// rerunFlags say how ended runs are run anew, and which when none is named.
type rerunFlags struct {
	from, reason, input, key string
	params                   []string
	pipeline, state, since   string
	fresh                    bool // no result of another run is taken over
	limit                    int
	yes                      bool
}

// filters are the flags that only go with runs that are looked for.
var filters = []string{"pipeline", "state", "since", "limit", "yes"}

func (a *app) rerunCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "rerun RUN|--state STATE", Args: a.arguments(0, 1), ValidArgsFunction: a.completeRuns}, "rerun")
	w := a.watchFlags(c)
	var f rerunFlags
	c.Flags().StringVar(&f.from, "from", "", "flag.from")
	c.Flags().StringArrayVar(&f.params, "param", nil, "flag.rerun_param")
	c.Flags().StringVar(&f.input, "input", "", "flag.rerun_input")
	c.Flags().StringVar(&f.reason, "reason", "", "flag.reason")
	c.Flags().BoolVar(&f.fresh, "no-cache", false, "flag.no_cache")
	c.Flags().StringVar(&f.key, "key", "", "flag.key")
	c.Flags().StringVar(&f.pipeline, "pipeline", "", "flag.pipeline")
	c.Flags().StringVar(&f.state, "state", "", "flag.rerun_state")
	c.Flags().StringVar(&f.since, "since", "", "flag.since")
	c.Flags().IntVar(&f.limit, "limit", 100, "flag.rerun_limit")
	c.Flags().BoolVar(&f.yes, "yes", false, "flag.yes")
	c.RunE = func(c *cobra.Command, args []string) error {
		filtered := slices.ContainsFunc(filters, func(name string) bool { return c.Flags().Changed(name) })
		switch {
		case filtered == (len(args) == 1), filtered && f.input != "":
			return a.usageError("usage.rerun")
		case f.limit < 1:
			return a.usageError("usage.positive", lang.Data{"Flag": "--limit", "Value": f.limit})
		}
		if err := a.checkWatch(w); err != nil {
			return err
		}
		request, err := a.rerunRequest(f)
		if err != nil {
			return err
		}
		if filtered {
			return a.rerunMany(c.Context(), f, request, w.detach)
		}
		return a.rerunOne(c.Context(), args[0], request, w.detach)
	}
	return c
}

// rerunRequest reads what is asked of each run.
func (a *app) rerunRequest(f rerunFlags) (r web.RerunRequest, err error) {
	who := by(f.reason)
	r = web.RerunRequest{From: f.from, Key: orText(f.key, newID().String()), Reason: who.Reason, Actor: who.Actor, NoCache: f.fresh}
	if r.Params, err = a.pairs("--param", f.params); err != nil {
		return r, err
	}
	r.Input, r.InputName, err = a.readInput(f.input, nil, 0)
	r.Empty = r.Input != nil && len(r.Input) == 0
	return r, err
}

// rerunOne runs one run anew and watches it.
func (a *app) rerunOne(ctx context.Context, name string, request web.RerunRequest, detach bool) error {
	id, err := a.runNamed(ctx, name)
	if err != nil {
		return err
	}
	r := &running{app: a}
	r.ask = func(ctx context.Context, s session) (events.ID, error) {
		receipt, err := s.RerunRun(ctx, id, request)
		if err != nil {
			return events.ID{}, a.refusal(err, id, request.From)
		}
		return receipt.Run, a.mustBeRun(receipt.Fate, receipt.Code, receipt.Reason)
	}
	return r.watch(ctx, detach)
}

// sinceWhen reads how far back is looked: a duration, or an instant.
func (a *app) sinceWhen(text string) (ns int64, err error) {
	if text == "" {
		return 0, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return time.Now().Add(-d).UnixNano(), nil
	}
	t, err := a.instant("--since", text)
	if err != nil {
		return 0, a.usageError("usage.since", lang.Data{"Text": text})
	}
	return t.UnixNano(), nil
}
