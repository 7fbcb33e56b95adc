package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// rerunRow is a run that is run anew, and what has become of that.
type rerunRow struct {
	Run      string `json:"run"`
	Pipeline string `json:"pipeline"`
	Rerun    string `json:"rerun"`          // the new run; empty while there is none
	Before   bool   `json:"before"`         // an earlier call with the key has started it
	State    string `json:"state"`          // of the new run, when this ended
	Code     string `json:"code,omitempty"` // why there is none
	Reason   string `json:"reason,omitempty"`

	id, to  events.ID
	created int64
	class   events.Class
	stage   string
	state   events.State
	exit    int // of what was refused
}

// rerunMany runs anew what a filter finds.
type rerunMany struct {
	app     *app
	request web.RerunRequest
	rows    []*rerunRow
	more    bool // the filter finds others beyond the limit
}

func (a *app) rerunMany(ctx context.Context, f rerunFlags, request web.RerunRequest, detach bool) error {
	m := &rerunMany{app: a, request: request}
	if err := a.reading(ctx, func(s *sqlite.Store) error { return m.find(ctx, s, f) }); err != nil {
		return err
	}
	if len(m.rows) == 0 {
		a.tell("rerun.none")
		return m.print()
	}
	if err := m.confirm(f.yes); err != nil {
		return err
	}
	if detach {
		return m.leaveBehind(ctx)
	}
	if err := m.run(ctx); err != nil {
		return err
	}
	if err := m.print(); err != nil {
		return err
	}
	return m.outcome()
}

// find selects runs, newest first. A run that has been run anew already is left out, and so is a child: its parent's stage
// starts it. What an earlier call with the key has done is found again, and what came of that is not run anew itself.
func (m *rerunMany) find(ctx context.Context, s storage.Store, f rerunFlags) error {
	want, err := events.ParseState(orText(f.state, events.Failed.String()))
	if err != nil || !want.Terminal() || want == events.Skipped {
		return m.app.choice("--state", f.state, "failed, completed, cancelled")
	}
	since, err := m.app.sinceWhen(f.since)
	if err != nil {
		return err
	}
	again := map[events.ID]bool{}
	page := storage.RunFilter{Page: storage.Page{Limit: 500}, Pipeline: f.pipeline}
	for {
		rows, err := s.Runs(ctx, page)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			if r.Created < since {
				return nil
			}
			own, err := m.own(ctx, s, r)
			if err != nil {
				return err
			}
			if again[r.Forked] = true; own || r.State != want || !r.Parent.IsZero() {
				continue
			}
			done, err := m.done(ctx, s, r.Pipeline, r.ID)
			if err != nil {
				return err
			}
			if again[r.ID] && done.IsZero() {
				continue
			}
			if m.more = len(m.rows) == f.limit; m.more {
				return nil
			}
			m.rows = append(m.rows, &rerunRow{Run: r.ID.String(), Pipeline: r.Pipeline, id: r.ID, created: r.Created, class: r.Class, stage: r.Stage,
				Before: !done.IsZero()})
		}
		if len(rows) < page.Limit {
			return nil
		}
		page.After = rows[len(rows)-1].ID
	}
}

// own reports whether a run is what a call with the key has made.
func (m *rerunMany) own(ctx context.Context, s storage.Store, r *storage.RunRow) (bool, error) {
	if r.Forked.IsZero() {
		return false, nil
	}
	made, err := m.done(ctx, s, r.Pipeline, r.Forked)
	return made == r.ID, err
}

// done gives the run that a call with the key has made of a run; zero when none has.
func (m *rerunMany) done(ctx context.Context, s storage.Store, pipeline string, run events.ID) (events.ID, error) {
	d, err := s.DeliveryByKey(ctx, storage.HashKey(pipeline, "rerun:"+run.String(), m.key(run)))
	if errors.Is(err, storage.ErrNotFound) {
		return events.ID{}, nil
	}
	return d.Run, err
}

// key is a run's own idempotency key.
func (m *rerunMany) key(run events.ID) string { return m.request.Key + "/" + run.String() }

// confirm lists what is about to be done and asks, where there is somebody to ask.
func (m *rerunMany) confirm(yes bool) error {
	a, fresh := m.app, 0
	for _, r := range m.rows {
		why := string(r.class)
		if r.stage != "" {
			why = r.stage + ": " + why
		}
		if r.Before {
			why = a.say.T("rerun.before")
		} else {
			fresh++
		}
		a.put(strings.TrimRight(fmt.Sprintf("  %s  %s  %s  %s", r.Run, screen.FillRight(line(r.Pipeline), 16), screen.FillRight(a.ago(r.created), 14), line(why)), " "))
	}
	if m.more {
		a.tell("rerun.limit")
	}
	if yes || fresh == 0 {
		return nil
	}
	in, ok := a.in.(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(a.err) {
		return a.usageError("usage.yes", lang.Data{"N": fresh})
	}
	fmt.Fprint(a.err, a.say.T("rerun.ask", lang.Data{"N": fresh})+" ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil || !strings.EqualFold(strings.TrimSpace(answer), "y") {
		return silent(exitInterrupted)
	}
	return nil
}

// run starts the runs and waits for their ends. When the process that has the engine goes away, this one takes its place;
// the keys make sure that no run is started twice.
func (m *rerunMany) run(ctx context.Context) error {
	for {
		s, err := m.app.session(ctx)
		if err != nil {
			return err
		}
		leaving, cancel := signal.NotifyContext(context.WithoutCancel(ctx), os.Interrupt, syscall.SIGTERM)
		err = m.through(ctx, s)
		if ctx.Err() != nil && err != nil && !errors.Is(err, errGone) {
			m.app.tell("run.cancelling")
			err = errors.Join(m.cancel(leaving, s), silent(exitInterrupted))
		}
		if left := s.leave(leaving); err == nil && !errors.Is(left, errGone) {
			err = left
		}
		cancel()
		if !errors.Is(err, errGone) {
			return err
		}
	}
}

func (m *rerunMany) through(ctx context.Context, s session) error {
	for _, r := range m.rows {
		if err := m.start(ctx, s, r); err != nil {
			return err
		}
	}
	for {
		left, err := m.look(ctx, s)
		if err != nil || left == 0 {
			return err
		}
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// start begins the rerun of one run. That it is refused is written down and keeps the others from nothing; an engine that has no
// room is waited for.
func (m *rerunMany) start(ctx context.Context, s session, r *rerunRow) error {
	if !r.to.IsZero() || r.exit != 0 {
		return nil
	}
	request := m.request
	request.Key = m.key(r.id)
	for {
		receipt, err := s.RerunRun(ctx, r.id, request)
		if err == nil {
			err = m.app.mustBeRun(receipt.Fate, receipt.Code, receipt.Reason)
		}
		switch {
		case err == nil:
			r.to, r.Rerun, r.Before = receipt.Run, receipt.Run.String(), receipt.Fate == "duplicate"
			return nil
		case errors.Is(err, errGone) || ctx.Err() != nil:
			return err
		case m.app.exitOfError(err) == exitBusy:
			if _, err := m.look(ctx, s); err != nil {
				return err
			}
			if err := s.wait(ctx); err != nil {
				return err
			}
		default:
			err = m.app.refusal(err, r.id, request.From)
			r.exit, r.Code, r.Reason = m.app.exitOfError(err), codePattern.FindString(err.Error()), err.Error()
			m.app.put(fmt.Sprintf("%s  %s", r.Run, line(r.Reason)))
			return nil
		}
	}
}

// look sees which of the new runs have ended, tells of each once, and gives how many go on.
func (m *rerunMany) look(ctx context.Context, s session) (left int, err error) {
	for _, r := range m.rows {
		if r.to.IsZero() || r.state.Terminal() {
			continue
		}
		row, err := s.reader().Run(context.WithoutCancel(ctx), r.to)
		if err != nil {
			return left, err
		}
		if r.State = row.State.String(); !row.State.Terminal() {
			left++
			continue
		}
		r.state, r.class, r.stage, r.Reason = row.State, row.Class, row.Stage, row.Reason
		m.app.put(fmt.Sprintf("%s → %s  %s", r.Run, r.Rerun, m.app.state(r.state)))
	}
	return left, nil
}

// cancel cancels what goes on and waits for its end, unless it is interrupted again.
func (m *rerunMany) cancel(ctx context.Context, s session) error {
	for _, r := range m.rows {
		if r.to.IsZero() || r.Before || r.state.Terminal() {
			continue
		}
		if err := s.CancelRun(ctx, r.to, by(m.app.say.T("run.interrupted"))); err != nil && m.app.exitOfError(err) != exitConflict {
			return err
		}
	}
	for {
		left, err := m.look(ctx, s)
		if err != nil || left == 0 {
			return err
		}
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// leaveBehind starts the runs on a server and does not wait for them.
func (m *rerunMany) leaveBehind(ctx context.Context) error {
	s, err := m.app.connect(ctx)
	if errors.Is(err, errGone) {
		return m.app.fail(exitUnreachable, "E_NO_SERVER", "error.no_server", lang.Data{"Data": m.app.data})
	}
	if err != nil {
		return err
	}
	defer s.leave(ctx) //nolint:errcheck // nothing was written here
	for _, r := range m.rows {
		if err := m.start(ctx, s, r); err != nil {
			return err
		}
	}
	if _, err := m.look(ctx, s); err != nil {
		return err
	}
	if err := m.print(); err != nil {
		return err
	}
	return m.refused()
}

// print gives the summary: each run with the one that was made of it, and on standard error how many there are of what.
func (m *rerunMany) print() error {
	a := m.app
	if a.output == "text" && len(m.rows) == 0 {
		return nil
	}
	rows := make([]rerunRow, len(m.rows))
	ends := map[string]int{}
	for i, r := range m.rows {
		rows[i] = *r
		switch {
		case r.exit != 0:
			ends["refused"]++
		default:
			ends[r.State]++
		}
		if r.Before {
			ends["before"]++
		}
	}
	n := -1
	err := list(a, rows, a.heads("run", "pipeline", "rerun", "state", "why"), func(r rerunRow) []string {
		n++
		why := strings.Trim(rows[n].stage+": "+string(rows[n].class), ": ")
		if r.exit != 0 {
			why = r.Reason
		}
		state := ""
		if r.state != events.None {
			state = a.state(r.state)
		} else if r.State != "" {
			state = a.say.T("state." + r.State)
		}
		return []string{r.Run, r.Pipeline, orText(r.Rerun, "–"), state, why}
	})
	if len(rows) > 0 {
		a.tell("rerun.summary", lang.Data{"N": len(rows), "Completed": ends["completed"], "Failed": ends["failed"], "Cancelled": ends["cancelled"],
			"Refused": ends["refused"], "Before": ends["before"]})
	}
	return err
}

// refused gives the exit code of the first run that was refused.
func (m *rerunMany) refused() error {
	for _, r := range m.rows {
		if r.exit != 0 {
			return silent(r.exit)
		}
	}
	return nil
}

// outcome gives the exit code: that of a refusal, else 10 when one of the new runs has failed.
func (m *rerunMany) outcome() error {
	if err := m.refused(); err != nil {
		return err
	}
	for _, r := range m.rows {
		if r.state == events.Failed {
			return silent(exitFailed)
		}
		if r.state == events.Cancelled {
			return silent(exitCancelled)
		}
	}
	return nil
}
