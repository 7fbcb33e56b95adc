package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// The verdicts on a stage.
const (
	Reproduced       = "reproduced"       // the result was the recorded one under changed conditions
	Nondeterministic = "nondeterministic" // the result is another one though nothing was changed
	DependsOn        = "depends_on"       // the result is another one once a factor is changed
	NotVerifiable    = "not_verifiable"   // what the recorded attempt depended on cannot be had any more
	Skipped          = "skipped"          // executing it again would reach beyond this machine, or would prove nothing
)

// The verdicts on a run; the first is Reproduced.
const (
	Differs    = "differs"    // a stage is nondeterministic or depends on a factor
	Incomplete = "incomplete" // nothing differs, and not everything was verified
)

// Options are what a verification is made of.
type Options struct {
	Artifacts Artifacts // of the run; only read
	Executors map[string]executor.Executor
	Secrets   func(ref string) (string, error)
	Delivery  func(ctx context.Context, id events.ID) (*events.Data, error)
	PinKey    []byte // tells secrets apart in pins documents
	Logger    zerolog.Logger
	Host      *Host
	Scratch   string         // directory that is the verification's own
	Stages    []string       // only these; empty is all
	Factors   []string       // only these; empty is all
	Times     int            // executions under changed conditions of each stage; 0 is 1
	Jobs      int            // stages at once; 0 is one
	Network   bool           // stages that use the network are executed too
	Keep      string         // directory for the second outputs of stages that differ; empty keeps none
	Each      func(s *Stage) // called as stages are judged, one at a time; may be nil
}

// Report is what came of a verification.
type Report struct {
	Run          events.ID
	Verdict      string
	Diverging    string // label of the first stage, in topological order, that differs
	Factor       string // of that one
	Stages       []*Stage
	NotPerturbed []string // factors that could not be changed here for some stage that was executed
}

// Stage is the verdict on one stage, or instance.
type Stage struct {
	Name      string
	Item      int
	Attempt   int // recorded, that was repeated
	State     events.State
	Verdict   string
	Factor    string // what the result depends on; several stand with commas, those that only matter together with +
	Reason    string // one sentence
	Role      string // of the first output that differs
	Expected  string // its recorded digest
	Actual    string // its other digest, or how the attempt failed
	Times     int    // executions
	Isolation string // level that was reached under changed conditions
	Key       events.Digest
	Finding   bool     // one stage key has two results: nothing was changed between them
	Evidence  []byte   // text: what differs inside the output
	Kept      string   // directory of the second outputs
	Unable    []string // factors that could not be changed
}

// Label names the stage, or its instance with the number.
func (s *Stage) Label() string { return (&events.Stage{Name: s.Name}).Label(s.Item) }

// Diverges reports whether the stage's result is another one.
func (s *Stage) Diverges() bool { return s.Verdict == Nondeterministic || s.Verdict == DependsOn }

// Run verifies a run that has ended. Every stage is judged by itself, whatever became of others. The error is that of a
// context that ended, or of a machine that cannot go on.
func Run(ctx context.Context, r *events.Run, o Options) (*Report, error) {
	chosen, err := chooseFactors(o.Factors)
	if err != nil {
		return nil, err
	}
	targets, err := gather(r, &o)
	if err != nil {
		return nil, err
	}
	v := &trials{o: &o, scratch: o.Scratch}
	defer sweepClock(time.Now().Truncate(time.Second))
	report := &Report{Run: r.ID, Stages: make([]*Stage, len(targets))}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var one sync.Mutex
	free := make(chan struct{}, max(1, o.Jobs))
	for i, t := range targets {
		free <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-free }()
			s, err := v.judge(ctx, t, chosen)
			if err != nil {
				cancel(fmt.Errorf("verify the stage %s: %w", t.stage.Label(t.item), err))
				return
			}
			one.Lock()
			defer one.Unlock()
			if report.Stages[i] = s; o.Each != nil {
				o.Each(s)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	report.conclude()
	return report, nil
}

// conclude gives the run its verdict.
func (r *Report) conclude() {
	r.Verdict = Reproduced
	for _, s := range r.Stages {
		switch {
		case s.Diverges() && r.Verdict != Differs:
			r.Verdict, r.Diverging, r.Factor = Differs, s.Label(), s.Factor
		case !s.Diverges() && s.Verdict != Reproduced && r.Verdict == Reproduced:
			r.Verdict = Incomplete
		}
		for _, name := range s.Unable {
			if !slices.Contains(r.NotPerturbed, name) {
				r.NotPerturbed = append(r.NotPerturbed, name)
			}
		}
	}
	if len(r.Stages) == 0 {
		r.Verdict = Incomplete
	}
	names := Factors()
	slices.SortFunc(r.NotPerturbed, func(a, b string) int { return cmp.Compare(slices.Index(names, a), slices.Index(names, b)) })
}

// Count gives how many stages have the verdict.
func (r *Report) Count(verdict string) (n int) {
	for _, s := range r.Stages {
		if s.Verdict == verdict {
			n++
		}
	}
	return n
}

func chooseFactors(names []string) ([]factor, error) {
	if len(names) == 0 {
		return factors(), nil
	}
	var chosen []factor
	for _, f := range factors() {
		if slices.Contains(names, f.name) {
			chosen = append(chosen, f)
		}
	}
	known := Factors()
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%w: %s", ErrFactor, name)
		}
	}
	return chosen, nil
}
