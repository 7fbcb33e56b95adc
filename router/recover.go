package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/schedule"
	"github.com/apollo-11/apollo/storage"
)

// recover folds every run that has not ended and makes the unit that moves them on: an attempt without a body here is
// lost, what waits takes its place in line, and what is due is decided. Start calls it once; after a failed commit it
// is how the engine comes back to what the store says.
func (e *Engine) recover(ctx context.Context) (*unit, error) {
	e.reset()
	var page storage.Page
	for {
		rows, err := e.o.Store.Unfinished(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("read unfinished runs: %w", err)
		}
		for i := range rows {
			if err := e.load(ctx, &rows[i]); err != nil {
				e.o.Logger.Error().Err(err).Stringer("run", rows[i].ID).Msg("run set aside: its log cannot be folded")
			}
		}
		if len(rows) == 0 {
			break
		}
		page.After = rows[len(rows)-1].ID
	}
	u := e.begin()
	lost := e.lineUp()
	u.cancelFirst()
	var orphans []executor.Orphan
	if len(lost) > 0 && e.o.KillOrphans != nil && !e.ready.Load() {
		var err error
		if orphans, err = e.o.KillOrphans(ctx); err != nil {
			return nil, fmt.Errorf("end processes of an engine that died: %w", err)
		}
	}
	for _, c := range lost {
		if c.live.run.StageOf(c.stage).Executor == "pipeline" { // its work is another run, which is not lost
			e.schedule.Line.Claim(c.live.run.StageOf(c.stage))
			c.again = true
			u.claims = append(u.claims, c)
			continue
		}
		u.lose(c, orphans)
		u.cascade()
	}
	for _, l := range e.inOrder() {
		u.nudge(l)
		u.cascade()
	}
	e.fill(u)
	return u, nil
}

// resync is recover for a running engine. It gives nil when the store cannot be read now.
func (e *Engine) resync() *unit {
	e.failed.Store(false)
	u, err := e.recover(context.Background())
	if err != nil {
		e.failed.Store(true)
		e.o.Logger.Error().Err(err).Msg("fold again after a failed commit")
		return nil
	}
	return u
}

// load folds one run. A log that cannot be folded, or a bug in folding, sets this run aside and no other.
func (e *Engine) load(ctx context.Context, row *storage.RunRow) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("fold panicked: %v", r)
		}
	}()
	g := e.plans[row.Plan]
	if g == nil {
		if g, err = e.readPlan(ctx, row.Plan); err != nil {
			return err
		}
	}
	e.known[row.Plan] = true
	run, err := e.refold(g, row.ID, nil)
	if err != nil {
		return err
	}
	e.live[row.ID] = &live{run: run, written: run.Mark}
	return nil
}

func (e *Engine) readPlan(ctx context.Context, digest events.Digest) (*events.Graph, error) {
	g, err := storage.ReadGraph(ctx, e.o.Store, digest)
	if err != nil {
		return nil, err
	}
	e.plans[digest] = g
	return g, nil
}

// foldPage is how many events are read at once.
const foldPage = 1000

// refold folds a run from the store and from events that are not stored yet, and checks its hash chain.
func (e *Engine) refold(g *events.Graph, id events.ID, unstored []storage.Sealed) (*events.Run, error) {
	run := events.NewRun(g)
	var scratch []byte
	follow := func(s *storage.Sealed) (err error) {
		if scratch, err = run.Chain.Follow(&s.Event, s.Encoded, scratch); err != nil {
			return fmt.Errorf("%w: %w", storage.ErrCorrupt, err)
		}
		return run.Apply(&s.Event)
	}
	for {
		log, err := e.o.Store.Events(context.Background(), id, run.Chain.Sequence, foldPage)
		if err != nil {
			return nil, err
		}
		for i := range log {
			if err := follow(&log[i]); err != nil {
				return nil, err
			}
		}
		if len(log) < foldPage {
			break
		}
	}
	for i := range unstored {
		if unstored[i].Stream == id && unstored[i].Sequence > run.Chain.Sequence {
			if err := follow(&unstored[i]); err != nil {
				return nil, err
			}
		}
	}
	return run, nil
}

// lineUp fills the line, the timers and the groups anew from the folded runs and gives the claims that have no body here.
func (e *Engine) lineUp() (lost []claim) {
	h := e.schedule
	h.Line, h.Timers, h.Groups = e.newLine(), &schedule.Timers{}, e.newGroups()
	for _, l := range e.inOrder() {
		switch {
		case l.run.State == events.Running && h.Groups.Bound(l.run):
			h.Groups.Enter(l.run)
		case l.run.State == events.Pending && l.run.Waits != "":
			h.Groups.Wait(l.run)
		}
		if !l.run.State.Terminal() {
			h.Timers.AddDeadline(l.run)
		}
		for i := range l.run.Stages {
			s := &l.run.Stages[i]
			switch {
			case s.State == events.Running && s.Worker == "": // a foreach stage: its instances go on
			case s.State == events.Running && e.claimed(l, i):
				h.Line.Claim(l.run.StageOf(i))
			case s.State == events.Running:
				lost = append(lost, claim{live: l, stage: i, attempt: s.Attempt, token: s.Token})
			case s.State == events.Pending && s.Queued:
				h.Wait(l.run, i)
			}
		}
	}
	return lost
}

// inOrder gives the live runs by the time of their creation.
func (e *Engine) inOrder() []*live {
	all := slices.Collect(maps.Values(e.live))
	slices.SortFunc(all, func(a, b *live) int { return bytes.Compare(a.run.ID[:], b.run.ID[:]) })
	return all
}

// claimed reports whether a running stage has a body in this process, or gets one when the current unit is durable.
func (e *Engine) claimed(l *live, stage int) bool {
	token := l.run.Stages[stage].Token
	if e.running(l.run.ID, token) {
		return true
	}
	for _, c := range e.unit.claims {
		if c.live == l && c.stage == stage && c.token == token {
			return true
		}
	}
	return false
}

// cancelFirst records the wishes to end runs that came before the start: an attempt that was lost is not tried again then.
func (u *unit) cancelFirst() {
	for _, e := range u.engine.cancelFirst {
		if l := u.engine.live[e.Stream]; l != nil && !l.run.Cancelling() {
			u.must(l, e)
			u.cascade()
		}
	}
	u.engine.cancelFirst = nil
}

// lose records that an attempt's worker is gone, and how many of its processes had to be ended.
func (u *unit) lose(c claim, orphans []executor.Orphan) {
	s, plan := &c.live.run.Stages[c.stage], c.live.run.StageOf(c.stage)
	ended, run := 0, c.live.run.ID.String()
	for _, o := range orphans {
		if o.Run == run && o.Stage == plan.Label(int(s.Item)) && o.Attempt == c.attempt {
			ended++
		}
	}
	f := &events.Failure{Class: events.Lost, Reason: "engine stopped: its worker " + c.live.run.Stages[c.stage].Worker + " is gone"}
	if ended > 0 {
		f.Reason += fmt.Sprintf("; processes of it that went on (%d) were ended", ended)
	}
	t, due := c.live.run.Settle(c.stage, f, u.now)
	d := events.Data{Stage: plan.Name, Item: int(s.Item), Attempt: c.attempt, Token: c.token, Due: due, Leftovers: ended}
	d.SetFailure(f)
	u.must(c.live, &events.Event{Stream: c.live.run.ID, Type: t, Data: d})
}

// nudge asks the scheduler for what is due in a run that no event has just moved.
func (u *unit) nudge(l *live) {
	if _, due := l.run.NextDecision(); !due {
		return
	}
	msg := message.NewMessage("", nil)
	msg.SetContext(&schedule.Work{Context: context.Background(), Event: &events.Event{Stream: l.run.ID}, Run: l.run})
	produced, err := u.engine.schedule.Schedule(msg)
	if err == nil {
		err = errors.Join(u.engine.bus.Publish(anyTopic, produced...), u.engine.bus.take())
	}
	if err != nil {
		u.engine.o.Logger.Error().Err(err).Stringer("run", l.run.ID).Msg("move a recovered run")
	}
}
