package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage/sqlite"
)

type runFlags struct {
	params []string
	key    string
	input  string
	sample int
	asOf   string
	seed   uint64
	fresh  bool
	detach bool
	wait   bool // said aloud: it is what happens anyway
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := a.describe(&cobra.Command{Use: "run NAME|FILE", Args: a.arguments(1, 1)}, "run")
	c.Flags().StringArrayVar(&f.params, "param", nil, "flag.param")
	c.Flags().StringVar(&f.key, "key", "", "flag.key")
	c.Flags().StringVar(&f.input, "input", "", "flag.input")
	c.Flags().IntVar(&f.sample, "sample", 0, "flag.sample")
	c.Flags().StringVar(&f.asOf, "as-of", "", "flag.as_of")
	c.Flags().Uint64Var(&f.seed, "seed", 0, "flag.seed")
	c.Flags().BoolVar(&f.fresh, "no-cache", false, "flag.no_cache")
	c.Flags().BoolVar(&f.detach, "detach", false, "flag.detach")
	c.Flags().BoolVar(&f.wait, "wait", false, "flag.wait")
	c.Flags().StringVar(&a.httpAllow, "http-allow", "", "flag.httpallow")
	a.budgetFlags(c)
	c.ValidArgsFunction = a.completePipelines
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.detach && f.wait {
			return a.usageError("usage.detach")
		}
		if f.sample < 0 || f.sample == 0 && c.Flags().Changed("sample") {
			return a.usageError("usage.positive", lang.Data{"Flag": "--sample", "Value": f.sample})
		}
		if f.seed == 0 && c.Flags().Changed("seed") {
			return a.usageError("usage.positive", lang.Data{"Flag": "--seed", "Value": f.seed})
		}
		r := &running{app: a}
		if err := r.prepare(args[0], f); err != nil {
			return err
		}
		r.ask = r.start
		return r.watch(c.Context(), f.detach)
	}
	return c
}

// running is a run on its way that this process started or continued, and watches.
type running struct {
	app     *app
	request web.StartRequest // of `apollo run`
	ask     func(ctx context.Context, s session) (events.ID, error)
	asked   bool      // the engine has taken it
	id      events.ID // of the run, once there is one
	after   uint64    // events up to here are old: they are not told
}

// watch starts or continues a run, and waits for its end or not.
func (r *running) watch(ctx context.Context, detach bool) error {
	if detach {
		return r.leaveBehind(ctx)
	}
	return r.run(ctx)
}

// prepare reads the definition, the parameters and the input. A name without a definition here may be known to the
// server.
func (r *running) prepare(name string, f runFlags) (err error) {
	r.request = web.StartRequest{Pipeline: name, Params: map[string]string{}, Key: orText(f.key, newID().String()), Sample: f.sample, Seed: f.seed, NoCache: f.fresh}
	if r.request.AsOf, err = r.app.instant("--as-of", f.asOf); err != nil {
		return err
	}
	for _, p := range f.params {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return r.app.usageError("usage.param", lang.Data{"Param": p})
		}
		r.request.Params[k] = v
	}
	plan, err := r.definition(name)
	if err != nil {
		return err
	}
	if plan != nil {
		if r.request.Plan, err = plan.Encode(); err != nil {
			return err
		}
	}
	r.request.Input, r.request.InputName, err = r.app.readInput(f.input, plan, f.sample)
	return err
}

// instant reads a day or an instant as a flag gives it; empty is the zero time. A day begins at midnight UTC.
func (a *app) instant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil && t.Unix() > 0 && t.Year() < 2262 {
			return t.UTC(), nil
		}
	}
	return time.Time{}, a.usageError("usage.instant", lang.Data{"Flag": flag, "Text": text})
}

// definition reads the plan that a name or path means here; nil when only a server may know it.
func (r *running) definition(name string) (*events.Plan, error) {
	file, missing := r.app.pipelineFile(name)
	if missing != nil {
		if held, _ := sqlite.Holder(r.app.data); held == nil || held.Address == "" || isPath(name) {
			return nil, missing
		}
		return nil, nil //nolint:nilnil // documented: no plan is no mistake
	}
	r.app.tellSkipped()
	p, problems := configs.LoadFile(file, r.app.checkOptions())
	if problems.HasErrors() {
		return nil, errors.Join(r.app.printProblems(problems, 0), silent(exitInvalid))
	}
	return p.Plan(), nil
}

// run reaches an engine, starts the run and waits for its end. When the process that has the engine goes away, this one
// takes its place; the key makes sure that the run stays the same.
func (r *running) run(ctx context.Context) error {
	view := r.app.newProgress()
	defer view.end()
	for {
		if err := r.through(ctx, view); !errors.Is(err, errGone) {
			return err
		}
	}
}

func (r *running) through(ctx context.Context, view *progress) error {
	s, err := r.app.session(ctx)
	if err != nil {
		return err
	}
	leaving, cancel := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err = r.begin(ctx, s)
	if err == nil {
		err = r.follow(ctx, s, view)
	}
	if left := s.leave(leaving); err == nil && !errors.Is(left, errGone) {
		err = left
	}
	return err
}

// begin starts or continues the run, unless that was done through a process that is gone.
func (r *running) begin(ctx context.Context, s session) (err error) {
	if r.asked {
		return nil
	}
	r.id, err = r.ask(ctx, s)
	r.asked = err == nil
	return err
}

// start is how `apollo run` asks.
func (r *running) start(ctx context.Context, s session) (events.ID, error) {
	receipt, err := s.StartRun(ctx, r.request)
	if err != nil {
		return events.ID{}, err
	}
	return receipt.Run, r.app.mustBeRun(receipt.Fate, receipt.Code, receipt.Reason)
}

// leaveBehind starts or continues the run on a server and does not wait for it.
func (r *running) leaveBehind(ctx context.Context) error {
	dir, err := filepath.Abs(r.app.data)
	if err != nil {
		return err
	}
	server := dialServer(dir)
	status, err := server.status(ctx)
	if errors.Is(err, errGone) || err == nil && status.Kind != kindServe {
		return r.app.fail(exitUnreachable, "E_NO_SERVER", "error.no_server", lang.Data{"Data": r.app.data})
	}
	if err == nil {
		err = r.begin(ctx, server)
	}
	if err != nil {
		return err
	}
	if r.app.output == "text" {
		_, err = fmt.Fprintln(r.app.out, r.id)
		return err
	}
	return r.app.reading(ctx, func(s *sqlite.Store) error {
		v, err := loadView(ctx, s, r.id, r.app.logsDir())
		if err != nil {
			return err
		}
		return r.app.printRun(v, false)
	})
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

// follow shows the run until it has ended and turns its end into the exit code. An interrupt cancels the run, and its
// end is waited for; a second one is the end here.
func (r *running) follow(ctx context.Context, s session, p *progress) error {
	v, err := openView(ctx, s.reader(), r.id, r.app.logsDir())
	if err != nil {
		return err
	}
	p.after = r.after
	err = v.untilEnd(ctx, s, p)
	interrupted := ctx.Err() != nil
	if interrupted && err != nil {
		r.app.tell("run.cancelling")
		err = r.abort(context.WithoutCancel(ctx), s, v, p)
	}
	if err != nil {
		return err
	}
	p.end()
	if err := r.app.printRun(v, false); err != nil {
		return err
	}
	if interrupted {
		return silent(exitInterrupted)
	}
	return outcome(v)
}

// abort cancels the run and waits for its end, unless it is interrupted.
func (r *running) abort(ctx context.Context, s session, v *view, p *progress) error {
	again, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.CancelRun(again, r.id, by(r.app.say.T("run.interrupted"))); err != nil && r.app.exitOfError(err) != exitConflict {
		return err
	}
	err := v.untilEnd(again, s, p)
	if again.Err() != nil {
		return silent(exitInterrupted)
	}
	return err
}

// untilEnd folds the run and shows it until it has ended and nothing of it runs any more.
func (v *view) untilEnd(ctx context.Context, s session, p *progress) error {
	for {
		if err := v.advance(context.WithoutCancel(ctx), s.reader(), func(e *events.Event) { p.event(v, e) }); err != nil {
			return err
		}
		if v.over() {
			return nil
		}
		p.show(ctx, v)
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// over reports whether the run has ended and nothing of it runs any more. One that ended by Apollo's own fault leaves its
// stages as they stood: nobody waits for those.
func (v *view) over() bool {
	return v.run.State.Terminal() && (v.run.RunningStages() == 0 || v.run.State == events.Failed && v.run.Class == events.System)
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
		if v.run.Class == events.Timeout { // its deadline
			return silent(exitTimedOut)
		}
		return silent(exitCancelled)
	default:
		return nil
	}
}

// progress shows a run while it goes, on standard error: redrawn in place on a terminal when something has changed, one
// line a change elsewhere.
type progress struct {
	a     *app
	live  bool
	lines int
	last  string
	after uint64 // events up to here are old: they are not told
}

func (a *app) newProgress() *progress {
	return &progress{a: a, live: a.output == "text" && isTerminal(a.err) && a.env("TERM") != "dumb"}
}

// event prints the line of a change, where there is no terminal.
func (p *progress) event(v *view, e *events.Event) {
	if p.live || p.a.output != "text" || e.Sequence <= p.after {
		return
	}
	if e.Type == events.RunQueued {
		p.a.put(p.a.runLine(v))
	}
	i, ok := v.run.Find(e.Data.Stage, e.Data.Item)
	if !ok || e.Type.Entity() != "stage" {
		return
	}
	if s := &v.run.Stages[i]; s.State != events.Pending || s.Waits == "approval" {
		p.a.put(p.a.stageLine(v, i, v.run.StageOf(i).Label(e.Data.Item), 0))
	}
}

// frame is the least time between two drawings.
const frame = 50 * time.Millisecond

// show draws the tree, when it is not what stands there already, and rests for a frame: what changes meanwhile is drawn
// together.
func (p *progress) show(ctx context.Context, v *view) {
	if !p.live {
		return
	}
	width, height, err := term.GetSize(int(os.Stderr.Fd()))
	if err != nil || width <= 0 {
		width, height = 80, 24
	}
	rows := p.a.treeLines(v, false)
	if room := max(2, height-1); len(rows) > room {
		rows = append(rows[:room-1:room-1], p.a.say.T("more.alike", lang.Data{"N": len(rows) - room + 1}))
	}
	for i := range rows {
		rows[i] = cut(rows[i], width-1)
	}
	drawing := strings.Join(rows, "\n")
	if drawing == p.last {
		return
	}
	p.clear()
	fmt.Fprintln(p.a.err, drawing)
	p.last, p.lines = drawing, len(rows)
	_ = pause(ctx, frame) // the caller looks at the context itself
}

func (p *progress) clear() {
	if p.lines > 0 {
		fmt.Fprintf(p.a.err, "\x1b[%dA\x1b[J", p.lines)
	}
}

// end takes the drawing away: what comes next is the whole picture.
func (p *progress) end() {
	if p.live {
		p.clear()
		p.lines, p.last = 0, ""
	}
}
