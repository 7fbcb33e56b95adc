package verify

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
)

// How often executions are repeated before a verdict is given.
const (
	rounds = 2 // without and with each factor, before a factor is named
	sure   = 6 // under a clock that stands still, before the clock is: a result of chance may be the same a few times
	odd    = 3 // without a change, when only the recorded result is another one
)

// judge executes a stage and gives the verdict on it.
func (v *trials) judge(ctx context.Context, t *target, chosen []factor) (*Stage, error) {
	s := &Stage{Name: t.stage.Name, Item: t.item, Attempt: t.stand.Last.Attempt, State: t.stand.State, Key: t.stand.Last.StageKey()}
	if s.Reason = t.skip(v.o); s.Reason != "" {
		s.Verdict = Skipped
		return s, nil
	}
	missing, files := t.missing(ctx, v)
	if missing != "" {
		s.Verdict, s.Reason = NotVerifiable, missing
		return s, nil
	}
	if t.stage.Compare != nil && t.stage.Compare.Normalise != "" {
		var err error
		if t.results, err = v.normalised(ctx, t, t.results, v.o.Artifacts); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			s.Verdict, s.Reason = NotVerifiable, err.Error()
			return s, nil
		}
	}
	c := &inquiry{trials: v, ctx: ctx, target: t, verdict: s}
	c.choose(chosen, files)
	defer c.end()
	if err := c.inquire(); !errors.Is(err, errSettled) {
		return s, err
	}
	return s, nil
}

// errSettled ends an inquiry that cannot go on: the verdict says why.
var errSettled = errors.New("the verdict is given")

// inquiry is the search for what a stage's result depends on.
type inquiry struct {
	*trials
	ctx     context.Context //nolint:containedctx // of the verification
	target  *target
	verdict *Stage
	active  []factor // that can be changed
	round   int
	frozen  bool   // the clock stands still in every execution: it is one of the factors
	plain   *trial // without a change
	kept    []*trial
}

// choose keeps the factors that mean anything to the stage, and notes those that cannot be changed.
func (c *inquiry) choose(chosen []factor, files int) {
	about := &subject{stage: c.target.stage, kind: c.target.stage.Executor, files: files}
	for _, f := range chosen {
		switch f.fits(about, c.o.Host) {
		case fitting:
			c.active = append(c.active, f)
		case unable:
			c.verdict.Unable = append(c.verdict.Unable, f.name)
		case pointless:
		}
	}
}

func (c *inquiry) end() { drop(c.kept...) }

// try executes the stage with the factors changed. It gives errSettled when the stage cannot be verified.
func (c *inquiry) try(with []factor) (*trial, error) {
	t, err := c.run(c.ctx, c.target, with, c.round, c.frozen)
	if err != nil {
		return nil, err
	}
	c.kept = append(c.kept, t)
	c.verdict.Times++
	for _, name := range t.missed {
		if !slices.Contains(c.verdict.Unable, name) {
			c.verdict.Unable = append(c.verdict.Unable, name)
		}
	}
	switch why := c.impossible(t); {
	case why == "":
		return t, nil
	case c.target.stage.Executor == "container" && t.failure != nil && strings.HasPrefix(t.failure.Reason, "E_CONTAINER_ENGINE"):
		c.verdict.Verdict, c.verdict.Reason = Skipped, why
	default:
		c.verdict.Verdict, c.verdict.Reason = NotVerifiable, why
	}
	return nil, errSettled
}

// impossible says why a trial proves nothing: the machine could not carry it out, or it was not the recorded attempt.
func (c *inquiry) impossible(t *trial) string {
	if t.failure != nil && t.failure.Class == events.System {
		return t.failure.Reason
	}
	pins := []byte(t.data.Pinned)
	if len(pins) == 0 && !t.data.PinnedAt.IsZero() {
		pins, _ = content(t.store, t.data.PinnedAt) // it was stored a moment ago; without it there is nothing to compare
	}
	if len(pins) == 0 || t.failure != nil {
		return ""
	}
	return c.target.changed(c.trials, pins, c.definition(t, pins))
}

// inquire gives the verdict.
func (c *inquiry) inquire() error {
	if !c.clocked() && time.Now().Unix() <= c.target.stand.Ended/int64(time.Second) { // whose clock nothing can move
		if err := c.nextSecond(); err != nil {
			return err
		}
	}
	for c.round = range max(1, c.o.Times) {
		t, err := c.try(c.active)
		if err != nil {
			return err
		}
		c.verdict.Isolation = t.data.Isolation
		if role, same := c.target.recorded(t); !same {
			c.verdict.Role = role
			return c.explain(t)
		}
		drop(t)
	}
	c.verdict.Verdict = Reproduced
	return nil
}

// explain finds out why a trial with everything changed has another result than the recorded one.
func (c *inquiry) explain(changed *trial) error {
	first, err := c.try(nil)
	if err != nil {
		return err
	}
	if err := c.nextSecond(); err != nil {
		return err
	}
	again, err := c.try(nil)
	if err != nil {
		return err
	}
	_, likeRecord := c.target.recorded(first)
	_, steady := c.target.same(first, again)
	c.verdict.Finding = (!steady || !likeRecord) && first.failure == nil && again.failure == nil // a failure is no result
	c.plain = first
	if !steady {
		return c.unsteady(first, again)
	}
	drop(again)
	if _, same := c.target.same(changed, first); same {
		return c.odd(first)
	}
	found, err := c.search(c.active)
	if err != nil {
		return err
	}
	if found, again, err = c.confirm(found); err != nil {
		return err
	}
	if again != nil || len(found) == 0 {
		return c.unsteady(first, again)
	}
	c.dependsOn(found, changed)
	return nil
}

// odd judges a stage that always gives the same, which is not what the run has: whatever was changed made no difference.
func (c *inquiry) odd(first *trial) error {
	for range odd {
		t, err := c.try(nil)
		if err != nil {
			return err
		}
		if _, same := c.target.same(first, t); !same {
			return c.unsteady(first, t)
		}
		drop(t)
	}
	if f := first.failure; f != nil && f.Class == events.UndeclaredAccess {
		c.verdict.Verdict, c.verdict.Factor = DependsOn, "undeclared"
		c.show(first)
		c.verdict.Reason = "what it reads beside its inputs is not there as it was: " + f.Actual
		c.verdict.Evidence = clip([]byte(c.verdict.Reason + "\n"))
		return nil
	}
	c.verdict.Verdict = Nondeterministic
	c.verdict.Reason = "the result is the same each time now, and not the recorded one: something that is not pinned has changed since"
	c.show(first)
	return nil
}

// nextSecond waits until the machine's clock shows another second: what changes with the second would else be the same, or
// not, by chance.
func (c *inquiry) nextSecond() error {
	now := time.Now()
	wait := time.NewTimer(now.Truncate(time.Second).Add(time.Second).Sub(now))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
}

// unsteady judges a stage whose result changed though nothing was: by the clock, when it no longer does once that stands
// still; else by chance. other is nil when it was one factor that made a difference only now and then.
func (c *inquiry) unsteady(first, other *trial) error {
	c.verdict.Finding = c.verdict.Finding || other != nil
	if c.clocked() {
		still, steady, err := c.standStill()
		if err != nil {
			return err
		}
		if steady {
			return c.underStillClock(still, first, other)
		}
	}
	c.verdict.Verdict = Nondeterministic
	c.verdict.Reason = "the result is another one though nothing was changed: chance, a process id, a race, or something outside that moves"
	c.show(first, other)
	return nil
}

// clocked reports whether the clock can be stopped.
func (c *inquiry) clocked() bool {
	return slices.ContainsFunc(c.active, func(f factor) bool { return f.name == "time" }) && !slices.Contains(c.verdict.Unable, "time")
}

// standStill executes the stage under a clock that stands still, and reports whether the result is always the same. When it
// is, the clock goes on standing still.
func (c *inquiry) standStill() (first *trial, steady bool, err error) {
	c.frozen = true
	for n := range sure {
		if n == sure-1 {
			err = c.nextSecond()
		}
		var t *trial
		if err == nil {
			t, err = c.try(nil)
		}
		if err != nil {
			return nil, false, err
		}
		if first == nil {
			first = t
			continue
		}
		_, same := c.target.same(first, t)
		drop(t)
		if !same || first.failed() {
			c.frozen = false
			return nil, false, nil
		}
	}
	return first, true, nil
}

// underStillClock looks for what else the result depends on besides the clock.
func (c *inquiry) underStillClock(still, first, other *trial) error {
	c.plain = still
	rest := slices.DeleteFunc(slices.Clone(c.active), func(f factor) bool { return f.name == "time" })
	found := [][]factor{{factors()[0]}}
	different, err := c.differs(rest)
	if err != nil {
		return err
	}
	if different {
		more, err := c.search(rest)
		if err != nil {
			return err
		}
		confirmed, _, err := c.confirm(more)
		if err != nil {
			return err
		}
		found = append(found, confirmed...)
	}
	if other == nil {
		other = first
	}
	c.dependsOn(found, other)
	return nil
}

// differs reports whether the result is another one with the factors changed.
func (c *inquiry) differs(with []factor) (bool, error) {
	if len(with) == 0 {
		return false, nil
	}
	t, err := c.try(with)
	if err != nil {
		return false, err
	}
	defer drop(t)
	_, same := c.target.same(c.plain, t)
	return !same, nil
}

// search finds the factors that change the result, one by one or together, among some that do when all are changed: it
// looks at both halves, and into those that make a difference.
func (c *inquiry) search(among []factor) ([][]factor, error) {
	if len(among) == 1 {
		return [][]factor{among}, nil
	}
	var found [][]factor
	for _, half := range [][]factor{among[:len(among)/2], among[len(among)/2:]} {
		different, err := c.differs(half)
		if err != nil {
			return nil, err
		}
		if !different {
			continue
		}
		more, err := c.search(half)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	if len(found) > 0 {
		return found, nil
	}
	return c.together(among)
}

// together finds a least set of factors that change the result only when all of them are changed.
func (c *inquiry) together(set []factor) ([][]factor, error) {
	for i := 0; i < len(set) && len(set) > 1; {
		rest := slices.Delete(slices.Clone(set), i, i+1)
		different, err := c.differs(rest)
		if err != nil {
			return nil, err
		}
		if different {
			set = rest
		} else {
			i++
		}
	}
	return [][]factor{set}, nil
}

// confirm repeats what was found and drops what does not hold. It gives a trial without a change that has another result
// than the first one, when there is one.
func (c *inquiry) confirm(found [][]factor) (held [][]factor, unsteady *trial, err error) {
	for range rounds {
		plain, err := c.try(nil)
		if err != nil {
			return nil, nil, err
		}
		if _, same := c.target.same(c.plain, plain); !same {
			return nil, plain, nil
		}
		drop(plain)
		held = nil
		for _, set := range found {
			different, err := c.differs(set)
			if err != nil {
				return nil, nil, err
			}
			if different {
				held = append(held, set)
			}
		}
		found = held
	}
	return held, nil, nil
}

// dependsOn gives the verdict that names factors.
func (c *inquiry) dependsOn(found [][]factor, changed *trial) {
	var names []string
	for _, set := range found {
		var one []string
		for _, f := range set {
			one = append(one, f.name)
		}
		names = append(names, strings.Join(one, "+"))
	}
	c.verdict.Verdict, c.verdict.Factor = DependsOn, strings.Join(names, ",")
	c.verdict.Reason = "the result is another one when this is changed: " + strings.Join(names, ", ")
	c.show(changed)
	if changed.failure != nil {
		c.verdict.Reason += "; with everything changed the attempt fails: " + changed.failure.Reason
	}
}

// definition gives the definition that a trial's pins name.
func (c *inquiry) definition(t *trial, pins []byte) []byte {
	d, ok := definitionOf(pins)
	if !ok {
		return nil
	}
	b, _ := content(t.store, d) // likewise
	return b
}

// steps are those of the recorded attempt, to say what it would depend on now.
func (v *trials) steps() *stage.Steps {
	return &stage.Steps{Executors: v.o.Executors, WorkDir: v.scratch, LogDir: v.scratch, Secrets: v.o.Secrets, Logger: v.o.Logger, PinKey: v.o.PinKey,
		Artifacts: &overlay{recorded: v.o.Artifacts}}
}
