package router

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/stage"
)

var (
	errCancelled = errors.New("the run was cancelled")
	errStopping  = executor.ErrStopping
)

// body is one attempt while it runs. It is registered from the claim until its outcome is durable.
type body struct {
	engine  *Engine
	attempt *stage.Attempt
	ctx     context.Context
	cancel  context.CancelCauseFunc
	started atomic.Bool
}

// finished is the outcome of a body on its way into the log.
type finished struct {
	body    *body
	outcome stage.Outcome
	took    time.Duration
	adrift  bool // it waited for another run when the engine was stopped: the next engine goes on waiting
}

func (e *Engine) newBody(c claim) *body {
	a := e.attempt(c.live, c.stage)
	a.Number, a.Token, a.Again = c.attempt, c.token, c.again
	b := &body{engine: e, attempt: a}
	b.ctx, b.cancel = context.WithCancelCause(context.Background())
	if c.live.run.Cancelling() { // taken up again after a restart
		b.cancel(errCancelled)
	}
	e.bodyLock.Lock()
	defer e.bodyLock.Unlock()
	of := e.bodies[a.Run]
	if of == nil {
		of = make(map[uint64]*body, 1)
		e.bodies[a.Run] = of
	}
	of[c.token] = b
	return b
}

// bodiesOf gives the bodies of a run.
func (e *Engine) bodiesOf(run events.ID) []*body {
	e.bodyLock.Lock()
	defer e.bodyLock.Unlock()
	var all []*body
	for _, b := range e.bodies[run] {
		all = append(all, b)
	}
	return all
}

// running reports whether the claim with the token has a body in this process.
func (e *Engine) running(run events.ID, token uint64) bool {
	e.bodyLock.Lock()
	defer e.bodyLock.Unlock()
	b := e.bodies[run][token]
	return b != nil && b.started.Load()
}

// forget takes a body off the register.
func (b *body) forget() {
	b.cancel(nil)
	b.engine.bodyLock.Lock()
	defer b.engine.bodyLock.Unlock()
	of := b.engine.bodies[b.attempt.Run]
	delete(of, b.attempt.Token)
	if len(of) == 0 {
		delete(b.engine.bodies, b.attempt.Run)
	}
}

func (b *body) start() {
	b.started.Store(true)
	b.engine.outcomes.Add(1)
	select {
	case b.engine.idle <- b:
	default:
		go b.engine.carry(b)
	}
}

// maxIdle is how many goroutines wait for a body: their stacks have grown already, and growing them anew for every no-op
// task took a seventh of the time.
const maxIdle = 256

// carry runs bodies until there are enough goroutines that wait for one.
func (e *Engine) carry(b *body) {
	for {
		b.run()
		if e.waiting.Add(1) > maxIdle {
			e.waiting.Add(-1)
			return
		}
		select {
		case b = <-e.idle:
			e.waiting.Add(-1)
		case <-e.stopLoop:
			return
		}
	}
}

// run carries out the attempt and hands its outcome to the loop.
func (b *body) run() {
	begin := b.engine.o.Clock()
	f := &finished{body: b, outcome: b.execute()}
	f.adrift = b.waits() && f.outcome.Failure != nil && b.engine.stopping.Load()
	f.took = b.engine.o.Clock().Sub(begin)
	f.submit()
}

// waits reports whether the body only waits for another run.
func (b *body) waits() bool { return b.attempt.Stage.Executor == "pipeline" }

// submit brings the outcome to the loop. Once the engine has stopped it is given up: the next engine finds the attempt
// lost.
func (f *finished) submit() {
	if !f.body.engine.submit(input{outcome: f}) {
		f.body.end()
	}
}

// settle is told what became of the outcome. One that was not stored is kept and brought again: a full disk delays a
// result and does not lose it.
func (f *finished) settle(err error) {
	e := f.body.engine
	if err == nil || e.hurried.Load() {
		f.body.end()
		return
	}
	go func() {
		select {
		case <-time.After(resyncPause):
			f.submit()
		case <-e.stopLoop:
			f.body.end()
		}
	}()
}

// end takes the body off the register: its outcome is durable, or given up.
func (b *body) end() {
	b.forget()
	b.engine.outcomes.Done()
}

// execute runs the steps; a panic in them is Apollo's own fault and ends only the attempt.
func (b *body) execute() (o stage.Outcome) {
	defer func() {
		if r := recover(); r != nil {
			b.engine.o.Logger.Error().Interface("panic", r).Bytes("stack", debug.Stack()).Msg("attempt panicked")
			o = stage.Outcome{Failure: &events.Failure{Class: events.System, Reason: fmt.Sprintf("the engine panicked: %v", r)}}
		}
	}()
	o = b.engine.o.Runner.Run(b.ctx, b.attempt)
	if o.Failure != nil && o.Failure.Class == events.Aborted && errors.Is(context.Cause(b.ctx), errStopping) {
		o.Failure = &events.Failure{Class: events.Lost, Reason: errStopping.Error(), Evidence: o.Failure.Evidence}
	}
	return o
}

// interrupt ends bodies: their attempts are recorded as lost, but for those that only wait for another run.
func (e *Engine) interrupt(which func(*body) bool) {
	e.bodyLock.Lock()
	defer e.bodyLock.Unlock()
	for _, of := range e.bodies {
		for _, b := range of {
			if which(b) {
				b.cancel(errStopping)
			}
		}
	}
}

// finish takes an outcome into the unit: the result of the claim, or a late result that changes nothing.
func (u *unit) finish(f *finished) {
	a := f.body.attempt
	u.finished = append(u.finished, f)
	l := u.engine.live[a.Run]
	if f.adrift {
		return
	}
	if l == nil {
		return // the run ended by Apollo's own fault and was forgotten
	}
	var d events.Data
	if f.outcome.Data != nil {
		d = *f.outcome.Data
	}
	d.Duration = f.took
	d.Stage, d.Item, d.Attempt, d.Token = a.Stage.Name, a.Item, a.Number, a.Token
	if stand := &l.run.Stages[a.Index]; stand.State == events.Running && stand.Token == a.Token {
		u.engine.schedule.Line.Release(a.Stage)
	}
	if !l.run.Holds(a.Index, a.Token) {
		d.Reason = "the attempt was over already"
		u.must(l, &events.Event{Stream: a.Run, Type: events.StageLateResult, Data: d})
		if l.run.State.Terminal() && len(u.engine.bodiesOf(a.Run)) <= 1 {
			delete(u.engine.live, a.Run) // the last of a run that Apollo's own fault has ended
		}
		return
	}
	t := events.StageCompleted
	if f.outcome.Failure != nil {
		d.SetFailure(f.outcome.Failure)
		t, d.Due = l.run.Settle(a.Index, f.outcome.Failure, u.now)
	}
	u.must(l, &events.Event{Stream: a.Run, Type: t, Data: d})
	if t == events.StageCompleted {
		u.compare(l, a.Index)
	}
}

// must appends an event that the table cannot refuse; a refusal is a mistake of the engine and poisons the run.
func (u *unit) must(l *live, e *events.Event) {
	if err := u.append(l.run, e); err != nil {
		u.engine.o.Logger.Error().Err(err).Msg("invariant broken")
		u.poison(l, e, len(u.batch.Events))
	}
}
