package stage

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// Steps carries out attempts with the built-in steps. It implements Runner.
type Steps struct {
	Artifacts *artifacts.Store
	Executors map[string]executor.Executor
	WorkDir   string // of attempts: <run>/<stage>/<attempt> below it
	LogDir    string // of their logs, likewise
	Secrets   func(ref string) (string, error)
	Logger    zerolog.Logger
}

// step is one part of an attempt. A failure ends the attempt.
type step struct {
	name string
	do   func(ctx context.Context, s *Steps, w *work) *events.Failure
}

// steps is the order of an attempt: the only place where it is said.
func steps() []step {
	return []step{
		{"prepare", prepare},            // inputs, environment and secrets become what the executor gets
		{"check inputs", checkInputs},   // bad_input: before anything of the stage runs
		{"execute", execute},            // the body
		{"take outputs", takeOutputs},   // what was declared, and nothing else
		{"check outputs", checkOutputs}, // bad_output: nobody below sees what broke its contract
		{"seal", seal},                  // outputs become artifacts with digest, size and records
	}
}

// work is an attempt on its way through the steps.
type work struct {
	*Attempt
	call    executor.Call
	result  *executor.Result
	inputs  map[string]*file // file inputs by role
	outputs []output
	out     events.Data
}

// Run takes the attempt through the steps and cleans up behind it: a work directory is kept only for a failure.
func (s *Steps) Run(ctx context.Context, a *Attempt) Outcome {
	w := &work{Attempt: a}
	var failure *events.Failure
	for _, st := range steps() {
		if failure = st.do(ctx, s, w); failure != nil {
			break
		}
	}
	w.record()
	if failure != nil {
		s.evidence(ctx, w, failure)
		return Outcome{Data: w.out, Failure: failure}
	}
	if w.usesDir() {
		s.clean(w)
	}
	return Outcome{Data: w.out}
}

// record copies what the executor left into the event.
func (w *work) record() {
	if w.result == nil {
		return
	}
	r := w.result
	for _, seg := range r.Segments {
		w.out.Segments = append(w.out.Segments, events.Segment{Name: seg.Name, Duration: seg.Duration})
	}
	w.out.Stdout = events.LogRef{Bytes: r.Stdout.Bytes, Dropped: r.Stdout.Dropped}
	w.out.Stderr = events.LogRef{Bytes: r.Stderr.Bytes, Dropped: r.Stderr.Dropped}
	w.out.Usage = events.Usage{User: r.Usage.User, System: r.Usage.System, MaxRSS: r.Usage.MaxRSS}
	w.out.Leftovers = r.Leftovers
}

const evidenceTail = 16 << 10 // bytes of a log that become evidence

// evidence stores what proves a failure, unless a step has done so.
func (s *Steps) evidence(ctx context.Context, w *work, f *events.Failure) {
	if !f.Evidence.IsZero() || w.result == nil || s.Artifacts == nil {
		return
	}
	proof := []byte(w.result.Evidence)
	for _, log := range []executor.Log{w.result.Stderr, w.result.Stdout} {
		if len(proof) == 0 {
			proof = log.Tail(evidenceTail)
		}
	}
	if len(proof) > 0 {
		f.Evidence = s.store(context.WithoutCancel(ctx), proof)
	}
}

// store keeps evidence; that it could not be kept is logged and does not change the failure.
func (s *Steps) store(ctx context.Context, content []byte) events.Digest {
	info, err := s.Artifacts.Put(ctx, newReader(content))
	if err != nil {
		s.Logger.Warn().Err(err).Msg("keep evidence")
		return events.Digest{}
	}
	return info.Digest
}

func (w *work) usesDir() bool {
	return w.Stage.Executor != "task" || len(w.inputs) > 0 || len(w.outputs) > 0
}

func (s *Steps) clean(w *work) {
	if err := removeTree(w.call.Dir); err != nil {
		s.Logger.Warn().Err(err).Str("dir", w.call.Dir).Msg("remove a work directory")
	}
	// The run's and the stage's directories go when nothing is left in them.
	_ = os.Remove(filepath.Dir(w.call.Dir))
	_ = os.Remove(filepath.Dir(filepath.Dir(w.call.Dir)))
}

// execute hands the attempt to its executor.
func execute(ctx context.Context, s *Steps, w *work) (failure *events.Failure) {
	ex := s.Executors[w.Stage.Executor]
	if ex == nil {
		return &events.Failure{Class: events.System, Reason: fmt.Sprintf("E_NOT_YET: this build has no executor %q", w.Stage.Executor)}
	}
	w.result, failure = ex.Execute(ctx, &w.call)
	return failure
}

// attemptDirs gives where the attempt works and logs. Names are checked identifiers: none can leave its directory.
func (s *Steps) attemptDirs(a *Attempt) (dir, logs string) {
	below := filepath.Join(a.Run.String(), a.Stage.Name, strconv.Itoa(a.Number))
	return filepath.Join(s.WorkDir, below), filepath.Join(s.LogDir, below)
}

// seed gives a stage its own seed, the same on every attempt: derived from the run and the stage.
func seed(a *Attempt) uint64 {
	h := events.DigestOf(append(a.Run[:], a.Stage.Name...))
	return binary.BigEndian.Uint64(h[:8])
}

// contractOf compiles a named contract of the plan, or an inline schema; nil when there is none.
func contractOf(p *events.Plan, name string, schema json.RawMessage) (*contract.Contract, *events.Failure) {
	if name != "" {
		schema = p.Contracts[name].Schema
	}
	if len(schema) == 0 {
		return nil, nil
	}
	c, err := contract.Compile(schema)
	if err != nil {
		return nil, &events.Failure{Class: events.System, Reason: err.Error()}
	}
	return c, nil
}

func systemFailure(doing string, err error) *events.Failure {
	class := events.System
	if errors.Is(err, context.Canceled) {
		class = events.Aborted
	}
	return &events.Failure{Class: class, Reason: fmt.Sprintf("cannot %s: %v", doing, err)}
}

// logical is the time that a stage is told: the run's, never the clock's.
func logical(a *Attempt) time.Time { return a.Logical }
