package router

import (
	"errors"
	"time"

	"github.com/apollo-11/apollo/storage"
)

// input is one thing that came from outside the log. Exactly one of its fields is set; none set only wakes the loop.
type input struct {
	delivery  *accepting
	outcome   *finished
	act       *acting
	interrupt bool
	quiet     func() // called once everything before it is stored, and its bodies run
}

// loop prepares one unit of work after the other while the committer stores the one before.
func (e *Engine) loop() {
	defer close(e.units)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		e.arm(timer)
		var first input
		select {
		case first = <-e.inputs:
		case <-timer.C:
		case <-e.stopLoop:
			close(e.loopDone)
			e.refuseRest()
			return
		}
		u := e.begin() // takes the epoch before it looks whether a commit failed
		if e.failed.Load() {
			if u = e.resync(); u == nil {
				first.refuse()
				continue
			}
		}
		e.take(u, first)
		e.drain(u)
		e.fill(u)
		e.send(u)
	}
}

// maxNap is how long the loop sleeps at most while somebody waits for an instant: a clock that was set forward, or a
// machine that was asleep, is noticed by then.
const maxNap = 30 * time.Second

// arm sets the timer to the earliest instant that somebody waits for.
func (e *Engine) arm(timer *time.Timer) {
	wait := time.Hour
	if due := e.schedule.Timers.Next(); due > 0 && !e.stopping.Load() {
		wait = min(max(0, time.Duration(due-e.time.now())), maxNap)
	}
	if e.failed.Load() {
		wait = min(wait, resyncPause)
	}
	timer.Reset(wait)
}

func (e *Engine) begin() *unit {
	e.unit = &unit{engine: e, epoch: e.epoch.Load(), now: e.time.now()}
	if spare, ok := e.spare.Get().(*storage.Batch); ok {
		e.unit.batch.Events, e.unit.batch.Stages, e.unit.batch.Runs = spare.Events[:0], spare.Stages[:0], spare.Runs[:0]
	}
	e.keyLock.Lock()
	defer e.keyLock.Unlock()
	for _, key := range e.durable {
		delete(e.keys, key)
	}
	e.durable = e.durable[:0]
	return e.unit
}

// drain takes in what waits, up to half of what is running: that half is stored while the next is prepared. While the
// committer has nothing to do, a few senders are not kept waiting for more.
func (e *Engine) drain(u *unit) {
	most := min(max(e.schedule.Line.Taken()/2, minInputs), maxInputs)
	for n := 1; n < most && len(u.batch.Events) < maxEvents; n++ {
		if len(u.replies) >= fewSenders && e.stored.Load() == e.sent {
			return
		}
		select {
		case in := <-e.inputs:
			e.take(u, in)
		default:
			return
		}
	}
}

func (e *Engine) take(u *unit, in input) {
	switch {
	case in.delivery != nil:
		u.accept(in.delivery)
	case in.outcome != nil:
		u.finish(in.outcome)
	case in.act != nil:
		u.carryOut(in.act)
	case in.interrupt:
		e.interrupt(func(*body) bool { return true })
	case in.quiet != nil:
		u.quiet = append(u.quiet, in.quiet)
	}
	u.cascade()
}

// fill starts whoever waits in line while slots are free.
func (e *Engine) fill(u *unit) {
	for !e.stopping.Load() && len(u.batch.Events) < maxEvents {
		r, ev, ok := e.schedule.Next(u.now)
		if !ok {
			return
		}
		if err := u.append(r, ev); err != nil {
			e.o.Logger.Error().Err(err).Msg("go on with what waited")
		}
		u.cascade()
	}
	if !e.stopping.Load() {
		e.wakeUp() // there is more than one unit takes
	}
}

// send closes the unit and hands it to the committer.
func (e *Engine) send(u *unit) {
	if len(u.batch.Events)+len(u.claims)+len(u.finished)+len(u.replies)+len(u.quiet) == 0 {
		return
	}
	u.close()
	for _, l := range u.runs {
		if l.run.State.Terminal() {
			u.ended = append(u.ended, l.run.ID)
			if l.run.RunningStages() == 0 {
				delete(e.live, l.run.ID)
			}
		}
	}
	for _, c := range u.claims {
		u.starts = append(u.starts, e.newBody(c))
	}
	if len(u.batch.Events) <= fewEvents && len(e.inputs) == 0 && e.stored.Load() == e.sent {
		e.commitOne(u) // little, and nothing to prepare meanwhile: the hand-over would only cost time
		return
	}
	e.sent++
	e.units <- u
}

// commit stores the units that the loop hands over, in order.
func (e *Engine) commit() {
	defer close(e.committed)
	defer close(e.done)
	for u := range e.units {
		e.commitOne(u)
		e.stored.Add(1)
	}
}

// commitOne stores a unit and does what had to wait for that. A unit that was prepared on top of one that failed fails
// with it. The committer calls it, or the loop while the committer has nothing to do.
func (e *Engine) commitOne(u *unit) {
	err := e.cause
	if u.epoch == e.epoch.Load() {
		if err = e.o.Store.Commit(&u.batch); err != nil {
			e.commitFailed(u, err)
		}
	}
	for _, f := range u.finished {
		f.settle(err)
	}
	for _, reply := range u.replies {
		reply(err)
	}
	u.act(err == nil)
	for _, quiet := range u.quiet {
		quiet()
	}
	if cap(u.batch.Events) <= 2*maxEvents {
		e.spare.Put(&u.batch) // the store keeps nothing of it
	}
}

// commitFailed makes the loop fold everything anew before it goes on. The flag is set before the epoch moves: whoever
// sees the new epoch sees the flag.
func (e *Engine) commitFailed(u *unit, err error) {
	e.cause = err
	e.failed.Store(true)
	e.epoch.Add(1)
	if errors.Is(err, storage.ErrFsync) || errors.Is(err, storage.ErrCorrupt) {
		e.fail(err)
	}
	e.o.Logger.Error().Err(err).Int("events", len(u.batch.Events)).Msg("commit failed")
}

// act does what had to wait until the unit was durable: bodies start, cancelled ones are interrupted.
func (u *unit) act(durable bool) {
	for _, b := range u.starts {
		if durable {
			b.start()
		} else {
			b.forget()
		}
	}
	if !durable {
		return
	}
	if len(u.keys) > 0 {
		u.engine.keyLock.Lock()
		u.engine.durable = append(u.engine.durable, u.keys...)
		u.engine.keyLock.Unlock()
	}
	for _, b := range u.interrupts {
		b.cancel(errCancelled)
	}
	u.engine.children.ended(u.ended)
}

// wakeUp makes the loop pass once more.
func (e *Engine) wakeUp() {
	select {
	case e.inputs <- input{}:
	default: // something waits anyway
	}
}

// refuseRest answers what came too late. Whoever hands in an input while the loop ends calls it too.
func (e *Engine) refuseRest() {
	for {
		select {
		case in := <-e.inputs:
			in.refuse()
		default:
			return
		}
	}
}

// resyncPause is the wait between two tries to fold everything anew after a failed commit.
const resyncPause = 200 * time.Millisecond
