package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage/sqlite"
)

type runFlags struct {
	params []string
	key    string
	detach bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := a.describe(&cobra.Command{Use: "run NAME|FILE", Args: cobra.ExactArgs(1)}, "run")
	c.Flags().StringArrayVar(&f.params, "param", nil, a.say.T("flag.param"))
	c.Flags().StringVar(&f.key, "key", "", a.say.T("flag.key"))
	c.Flags().BoolVar(&f.detach, "detach", false, a.say.T("flag.detach"))
	c.RunE = func(c *cobra.Command, args []string) error { return a.runPipeline(c.Context(), args[0], f) }
	return c
}

func (a *app) runPipeline(ctx context.Context, name string, f runFlags) error {
	file, err := a.pipelineFile(name)
	if err != nil {
		return err
	}
	request := web.StartRequest{File: file, Params: map[string]string{}, Key: f.key}
	for _, p := range f.params {
		k, v, ok := strings.Cut(p, "=")
		if !ok {
			return &exitError{exitUsage, "E_USAGE", fmt.Errorf("--param %q; expected name=value", p)}
		}
		request.Params[k] = v
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
		return a.runRemote(ctx, dir, request, f.detach)
	}
	return a.runHere(ctx, request)
}

// runHere runs an engine in this process until the run has ended.
func (a *app) runHere(ctx context.Context, request web.StartRequest) error {
	logger := zerolog.New(a.err).Level(zerolog.ErrorLevel).With().Timestamp().Logger()
	n, err := a.open(logger, nil)
	if err != nil {
		return err
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		return n.close(ctx)
	}
	if err := n.engine.Start(ctx); err != nil {
		return errors.Join(err, stop())
	}
	receipt, err := n.StartRun(ctx, request)
	if err != nil {
		return errors.Join(err, stop())
	}
	if err := a.mustBeRun(receipt.Fate, receipt.Code, receipt.Reason); err != nil {
		return errors.Join(err, stop())
	}
	err = a.follow(ctx, n.store, receipt.Run)
	if ctx.Err() != nil {
		_ = n.engine.Cancel(context.WithoutCancel(ctx), receipt.Run, "interrupted")
		_ = a.follow(context.WithoutCancel(ctx), n.store, receipt.Run)
	}
	return errors.Join(err, stop())
}

const stopGrace = 10 * time.Second

// runRemote asks the server that holds the data directory.
func (a *app) runRemote(ctx context.Context, dir string, request web.StartRequest, detach bool) error {
	answer, err := dialServer(dir).StartRun(ctx, request)
	if err != nil {
		return err
	}
	if err := a.mustBeRun(answer.Fate, answer.Code, answer.Reason); err != nil {
		return err
	}
	if detach {
		if a.output == "text" {
			_, err = fmt.Fprintln(a.out, answer.Run)
			return err
		}
		return writeJSON(a.out, answer, a.output == "json")
	}
	id, err := events.ParseID(answer.Run)
	if err != nil {
		return err
	}
	store, err := sqlite.OpenReadOnly(dir)
	if err != nil {
		return err
	}
	defer store.Close()
	return a.follow(ctx, store, id)
}

// mustBeRun turns any other fate into an error; a duplicate is the run that was there first.
func (a *app) mustBeRun(fate, code, reason string) error {
	if fate == "run" || fate == "duplicate" {
		return nil
	}
	exit := exitInvalid
	if fate != "rejected" {
		exit = exitConflict
	}
	return &exitError{exit, orText(code, "E_FATE"), errors.New(orText(reason, fate))}
}

// follow shows a run until it has ended and turns its end into the exit code.
func (a *app) follow(ctx context.Context, store *sqlite.Store, id events.ID) error {
	p := a.newProgress(id)
	wake, stop := store.Wake()
	defer stop()
	for {
		view, err := loadView(ctx, store, id, a.logsDir())
		if err != nil {
			if ctx.Err() != nil {
				return silent(exitInterrupted)
			}
			return err
		}
		if view.run.State.Terminal() && view.run.RunningStages() == 0 {
			p.end()
			if err := a.printRun(view); err != nil {
				return err
			}
			return outcome(view)
		}
		p.show(view)
		select {
		case <-wake: // this process commits
		case <-time.After(200 * time.Millisecond): // another one does
		case <-ctx.Done():
			p.end()
			return silent(exitInterrupted)
		}
	}
}

// outcome gives the exit code of a run that has ended.
func outcome(v *view) error {
	switch v.run.State {
	case events.Failed:
		switch v.run.Class {
		case events.Timeout:
			return silent(exitTimedOut)
		case events.GateRejected:
			return silent(exitGate)
		default:
			return silent(exitFailed)
		}
	case events.Cancelled:
		return silent(exitCancelled)
	default:
		return nil
	}
}

// progress shows a run while it goes: redrawn in place on a terminal, one line a change elsewhere. It writes to stderr.
type progress struct {
	a     *app
	id    events.ID
	live  bool
	lines int
	last  string
	seen  map[string]string
}

func (a *app) newProgress(id events.ID) *progress {
	return &progress{a: a, id: id, live: a.output == "text" && isTerminal(a.err) && a.env("TERM") != "dumb", seen: map[string]string{}}
}

const progressRows = 20

func (p *progress) show(v *view) {
	if p.a.output != "text" {
		return
	}
	if !p.live {
		for i := range v.run.Stages {
			s := &v.run.Stages[i]
			name := v.run.Graph.Plan.Stages[i].Name
			if now := s.State.String(); p.seen[name] != now && s.State != events.Pending {
				p.seen[name] = now
				fmt.Fprintf(p.a.err, "%s  %s\n", p.a.state(s.State), name)
			}
		}
		return
	}
	rows := p.a.treeLines(v)
	if len(rows) > progressRows {
		rows = append(rows[:progressRows:progressRows], p.a.say.T("more.stages", map[string]any{"Count": len(v.run.Stages) - progressRows}))
	}
	frame := strings.Join(rows, "\n")
	if frame == p.last {
		return
	}
	p.clear()
	fmt.Fprintln(p.a.err, frame)
	p.last, p.lines = frame, len(rows)
}

func (p *progress) clear() {
	if p.lines > 0 {
		fmt.Fprintf(p.a.err, "\x1b[%dA\x1b[J", p.lines)
	}
}

func (p *progress) end() {
	if p.live {
		p.clear()
		p.lines = 0
	}
}
