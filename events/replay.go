package events

import (
	"fmt"
	"iter"
	"time"
)

// Mismatch is the first place where a recorded log is not what the engine would write now.
type Mismatch struct {
	Sequence   uint64 `json:"sequence"`
	Recorded   string `json:"recorded"`   // as "stage.skipped b"
	Recomputed string `json:"recomputed"` // as "stage.queued b", or "nothing" when no decision was due
}

// Replayer folds a run's log in lockstep with the decisions that the engine would take now. It executes nothing. The
// world speaks for itself: results, cancel requests, starts of stages that waited. Everything else must be the decision
// that is due, in its order, and what is due must come before the world goes on.
type Replayer struct {
	run     *Run
	due     []Decision // what Decide gave; the first `next` of them are recorded
	next    int
	scratch []byte
}

// NewReplayer stands before the first event of a run of the graph's plan.
func NewReplayer(g *Graph) *Replayer { return &Replayer{run: NewRun(g)} }

// Run gives the state after the last event that Step took.
func (p *Replayer) Run() *Run { return p.run }

// Step takes the next event, with its data as encoded in the log, and checks its place in the hash chain, that it
// answers what is due, and that the table allows it. After a mismatch the replay is over.
func (p *Replayer) Step(e *Event, encoded []byte) *Mismatch {
	var err error
	chain := p.run.Chain
	if p.scratch, err = p.run.Chain.Follow(e, encoded, p.scratch); err != nil {
		return brokenChain(chain, e)
	}
	if p.next == len(p.due) {
		p.due, p.next = p.run.appendDecisions(p.due[:0]), 0
	}
	fromWorld, m := p.judge(e)
	if m != nil {
		return m
	}
	if m := p.apply(e); m != nil {
		return m
	}
	if fromWorld || e.Type == RunQueued { // which puts off whatever was due
		p.due, p.next = p.due[:0], 0
	} else {
		p.next++
	}
	return nil
}

func (p *Replayer) apply(e *Event) *Mismatch {
	if err := p.run.Apply(e); err != nil {
		return mismatch(e, "refused: "+err.(*InvariantError).Why) //nolint:errorlint,forcetypeassert // Apply gives no other
	}
	return nil
}

// Replay steps through a whole log, each event with its encoded data. A log that ends early is no mismatch: the run's
// State says how far it came.
func Replay(g *Graph, log iter.Seq2[*Event, []byte]) (*Run, *Mismatch) {
	p := NewReplayer(g)
	for e, encoded := range log {
		if m := p.Step(e, encoded); m != nil {
			return p.run, m
		}
	}
	return p.run, nil
}

// judge says whether the event comes from the world or is a decision, and compares it with what the engine would do.
func (p *Replayer) judge(e *Event) (fromWorld bool, m *Mismatch) {
	switch p.sourceOf(e) {
	case anyTime:
		return true, nil
	case world:
		if p.next < len(p.due) {
			return true, mismatch(e, p.due[p.next].text(p.run))
		}
		return true, p.judgeWorld(e)
	case decision:
	}
	if p.next == len(p.due) {
		return false, mismatch(e, "nothing")
	}
	if d := p.due[p.next]; !d.Answers(p.run, e) {
		recomputed := d.text(p.run)
		if recorded := describe(e); recorded == recomputed {
			return false, &Mismatch{e.Sequence, recorded + ": " + e.Data.Reason, recomputed + ": " + d.Reason}
		}
		return false, mismatch(e, recomputed)
	}
	return false, nil
}

type source int

const (
	decision source = iota // must be due
	world                  // comes when nothing is due, since the engine decides in the commit of what it decides upon
	anyTime
)

// sourceOf says where an event comes from, by its type and the stage's state.
func (p *Replayer) sourceOf(e *Event) source {
	switch e.Type {
	case RunCreated, RunResumed, StageRetryScheduled:
		return world
	case StageCompleted, StageFailed:
		if i, ok := p.run.Find(e.Data.Stage, e.Data.Item); ok && (p.run.Expanded(i) || p.run.Passing(i)) {
			return decision
		}
		return world
	case RunStarted:
		if p.run.Waits != "" {
			return world
		}
		return decision
	case RunQueued, RunCompleted, RunCancelled, StageSkipped:
		return decision
	case RunFailed:
		if e.Data.Class != System || p.next < len(p.due) && p.due[p.next].Answers(p.run, e) {
			return decision
		}
	case StageQueued, StageStarted, StageCancelled:
		i, ok := p.run.Find(e.Data.Stage, e.Data.Item)
		if !ok || p.run.Expanded(i) || p.run.Passing(i) {
			return decision
		}
		if s := &p.run.Stages[i]; s.State == Pending && (!s.Queued || e.Type == StageCancelled) {
			return decision
		}
		return world
	}
	return anyTime
}

func (p *Replayer) stand(e *Event) *Stand {
	if i, ok := p.run.Find(e.Data.Stage, e.Data.Item); ok {
		return &p.run.Stages[i]
	}
	return nil
}

// judgeWorld checks what the engine made of what the world said: the plan of a run, when a retry starts, and what
// becomes of a failure.
func (p *Replayer) judgeWorld(e *Event) *Mismatch {
	if e.Type == RunCreated && e.Data.Plan != p.run.Graph.Digest {
		return &Mismatch{e.Sequence, "run.created with plan " + e.Data.Plan.String(), "plan " + p.run.Graph.Digest.String()}
	}
	if e.Type == RunStarted && e.Data.Reason != "" {
		return mismatch(e, "run.started without a reason")
	}
	s := p.stand(e)
	if s == nil {
		return nil
	}
	switch e.Type {
	case StageStarted:
		if e.Time < s.Due {
			return mismatch(e, "nothing before "+instant(s.Due))
		}
	case StageFailed, StageRetryScheduled, StageCancelled:
		f := e.Data.Failure()
		if f == nil {
			return mismatch(e, describe(e)+" with a failure class")
		}
		i, _ := p.run.Find(e.Data.Stage, e.Data.Item)
		if t, due := p.run.Settle(i, f, e.Time); t != e.Type || due != e.Data.Due {
			return &Mismatch{e.Sequence, describe(e) + dueText(e.Data.Due), t.Short() + " " + e.Data.Stage + dueText(due)}
		}
	}
	return nil
}

func brokenChain(before Chain, e *Event) *Mismatch {
	if e.Sequence != before.Sequence+1 {
		return &Mismatch{e.Sequence, fmt.Sprint("sequence ", e.Sequence), fmt.Sprint("sequence ", before.Sequence+1)}
	}
	return &Mismatch{e.Sequence, "prevhash " + orNone(e.Prev.String()), "prevhash " + orNone(before.Head.String())}
}

func mismatch(e *Event, recomputed string) *Mismatch {
	return &Mismatch{e.Sequence, describe(e), recomputed}
}

// describe names an event shortly, as "stage.skipped b" or "run.completed".
func describe(e *Event) string {
	if e.Data.Stage == "" || e.Type.Entity() != "stage" {
		return e.Type.Short()
	}
	return e.Type.Short() + " " + (&Stage{Name: e.Data.Stage}).Label(e.Data.Item)
}

func (d Decision) text(r *Run) string {
	e := d.Event(r)
	return describe(&e)
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(timeLayout) }

func dueText(due int64) string {
	if due == 0 {
		return ""
	}
	return " due " + instant(due)
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
