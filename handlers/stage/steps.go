package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// Artifacts is what the steps need of the store of artifacts.
type Artifacts interface {
	ArtifactWriter
	ArtifactReader
}

// ArtifactWriter takes in what is kept of an attempt.
type ArtifactWriter interface {
	Put(ctx context.Context, r io.Reader) (artifacts.Info, error)
	PutFile(ctx context.Context, root *os.Root, name string) (artifacts.Info, error)
	PutDir(ctx context.Context, root *os.Root, name string) (artifacts.DirInfo, error)
	CopyDir(ctx context.Context, root *os.Root, name string) (artifacts.DirInfo, error)
}

// ArtifactReader gives attempts what was kept before.
type ArtifactReader interface {
	Place(ctx context.Context, d events.Digest, root *os.Root, name string, p artifacts.Placing) error
	Restore(ctx context.Context, d events.Digest, p artifacts.Placing) error
	Get(d events.Digest) (*artifacts.Reader, error)
	Has(d events.Digest) bool
}

// Steps carries out attempts with the built-in steps. It implements Runner and is safe for concurrent use.
type Steps struct {
	Artifacts Artifacts
	Executors map[string]executor.Executor
	WorkDir   string // of attempts: <run>/<stage>/<attempt> below it
	LogDir    string // of their logs, likewise
	Secrets   func(ref string) (string, error)
	Logger    zerolog.Logger
	PinKey    []byte                // tells secrets apart in pins documents
	Machine   func() events.Machine // what attempts run on, asked for once; may be nil

	dirs        runDirs
	seen        machineFiles
	definitions definitions
	machineOnce sync.Once
	machineAt   events.Digest
}

// step is one part of an attempt. A failure ends the attempt.
type step func(ctx context.Context, s *Steps, w *work) *events.Failure

// steps is the order of an attempt: the only place where it is said.
func steps() []step {
	return []step{
		prepare,      // inputs, environment and secrets become what the executor gets
		checkInputs,  // bad_input: before anything of the stage runs
		execute,      // the body
		unchanged,    // bad_input: what was taken in from the machine must be what it was
		takeOutputs,  // what was declared
		leave,        // what was not: recorded, or bad_output
		checkOutputs, // bad_output: nobody below sees what broke its contract
		reconcile,    // bad_output: what went out does not fit what came in
		gates,        // acceptance criteria
		seal,         // outputs become artifacts with digest, size and records
		turnAway,     // gate_rejected: after sealing, so that a person may let the outputs pass
	}
}

// work is an attempt on its way through the steps.
type work struct {
	*Attempt
	dir      string          // of the caller's choice, for inputs, outputs and logs; empty is below the directories of Steps
	whole    context.Context //nolint:containedctx // of the attempt
	call     executor.Call
	program  *executor.Program // what the executor starts; nil when it does not say
	result   *executor.Result
	inputs   map[string]*file  // file inputs by role
	lists    map[string]bool   // inputs that are lists of files, by role
	sources  map[string]source // inputs as their expressions gave them, by role
	machine  []taken           // inputs from the machine
	linked   []link            // inputs that may be hard links to artifacts
	placed   int               // files among the inputs that are in place
	eval     *evaluation
	took     time.Duration   // of the executor
	rejected *events.Failure // by a gate
	outputs  []output        // in the order of the plan
	out      events.Data
}

// Run takes the attempt through the steps and cleans up behind it: a work directory is kept only for a failure.
func (s *Steps) Run(ctx context.Context, a *Attempt) Outcome {
	if a.Broken != "" {
		return Outcome{Failure: &events.Failure{Class: events.BadInput, Reason: a.Broken}}
	}
	w := &work{Attempt: a}
	left := s.dirs.enter(s.WorkDir, a.Run)
	failure := s.carryOut(ctx, w, steps())
	s.conclude(ctx, w, failure)
	if failure != nil {
		s.unlink(ctx, w, true)
		w.unlockInputs()
		left("")
	} else {
		s.unlink(ctx, w, false)
		left(s.tidy(w.call.Dir))
	}
	return Outcome{Data: &w.out, Failure: failure}
}

// conclude puts what there is to say of an attempt that is over into its event, and the evidence into its failure.
func (s *Steps) conclude(ctx context.Context, w *work, failure *events.Failure) {
	w.record()
	s.pin(ctx, w, failure != nil)
	if failure == nil {
		return
	}
	w.conceal(failure)
	s.evidence(ctx, w, failure)
	if failure.Class != events.GateRejected {
		w.out.Outputs = nil
	}
}

// carryOut does the steps in order. One that ends since its context does leaves the reason to the context.
func (s *Steps) carryOut(ctx context.Context, w *work, todo []step) *events.Failure {
	w.whole = ctx
	for _, do := range todo {
		ctx := ctx
		if w.Again && w.result == nil { // the executor has to hear of it, whatever became of the run meanwhile
			ctx = context.WithoutCancel(ctx)
		}
		if ctx.Err() != nil {
			return interrupted(ctx)
		}
		if f := do(ctx, s, w); f != nil {
			return f
		}
	}
	return nil
}

// execute hands the attempt to its executor.
func execute(_ context.Context, s *Steps, w *work) (failure *events.Failure) {
	ex := s.Executors[w.Stage.Executor]
	if ex == nil && !slices.Contains(configs.Executors(), w.Stage.Executor) {
		return &events.Failure{Class: events.System, Reason: fmt.Sprintf("E_PLUGIN_MISSING: no plug-in %q is loaded here; apollo plugin list shows which are, and why one was skipped", w.Stage.Executor)}
	}
	if ex == nil {
		return &events.Failure{Class: events.System, Reason: fmt.Sprintf("E_INTERNAL: the executor %q was not handed to this engine", w.Stage.Executor)}
	}
	began := time.Now()
	w.result, failure = ex.Execute(w.whole, &w.call)
	w.took = time.Since(began)
	if failure == nil {
		failure = executor.Revealed(w.call.Secrets, w.result.Values)
	}
	return failure
}

// evaluation gives what the attempt's expressions see; it is built once.
func (w *work) evaluation(ctx context.Context, s *Steps) *evaluation {
	if w.eval == nil {
		w.eval = &evaluation{ctx: ctx, attempt: w.Attempt, artifacts: s.Artifacts, files: map[string]*file{}}
	}
	return w.eval
}

// conceal hides the stage's secrets in what a failure says.
func (w *work) conceal(f *events.Failure) {
	for _, text := range []*string{&f.Reason, &f.Pointer, &f.Expected, &f.Actual} {
		*text = w.masked(*text)
	}
}

func (w *work) masked(text string) string {
	if len(w.call.Secrets) == 0 {
		return text
	}
	return string(executor.Mask(w.call.Secrets, []byte(text)))
}

// record copies what the executor left into the event.
func (w *work) record() {
	if w.result == nil {
		return
	}
	r := w.result
	for _, seg := range r.Segments {
		w.out.Segments = append(w.out.Segments, events.Segment{Name: w.masked(seg.Name), Duration: seg.Duration})
	}
	w.out.Stdout = events.LogRef{Bytes: r.Stdout.Bytes, Dropped: r.Stdout.Dropped}
	w.out.Stderr = events.LogRef{Bytes: r.Stderr.Bytes, Dropped: r.Stderr.Dropped}
	w.out.Out, w.out.Err = logDigest(&r.Stdout), logDigest(&r.Stderr)
	w.out.Usage = events.Usage{User: r.Usage.User, System: r.Usage.System, MaxRSS: r.Usage.MaxRSS}
	w.out.IO = events.IO{Read: r.Usage.Read, Written: r.Usage.Written}
	w.out.Leftovers, w.out.Pins = r.Leftovers, r.Pins
	w.out.Isolation = r.Isolation
	for _, access := range r.Accesses {
		w.out.Accesses = append(w.out.Accesses, events.Pair{Name: access.Name, Value: w.masked(access.Value)})
	}
	if r.Hermetic {
		w.out.Hermetic = 1
	}
}

// logDigest gives the digest of what a stage wrote to a stream; zero when it wrote nothing or not all of it was kept.
func logDigest(log *executor.Log) events.Digest {
	if log.Path == "" || log.Bytes == 0 || log.Dropped > 0 {
		return events.Digest{}
	}
	f, err := os.Open(log.Path)
	if err != nil {
		return events.Digest{}
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := artifacts.Hash(context.Background(), f)
	if err != nil || info.Size != log.Bytes {
		return events.Digest{}
	}
	return info.Digest
}

const evidenceTail = 16 << 10 // bytes of a log that become evidence

// evidence stores what proves a failure, unless a step has done so: the executor's own text, else the end of what the
// stage wrote to stderr, else to stdout.
func (s *Steps) evidence(ctx context.Context, w *work, f *events.Failure) {
	if !f.Evidence.IsZero() || w.result == nil {
		return
	}
	proof := []byte(w.result.Evidence)
	for _, log := range []executor.Log{w.result.Stderr, w.result.Stdout} {
		if len(proof) == 0 {
			proof = log.Tail(evidenceTail)
		}
	}
	if len(proof) > 0 {
		f.Evidence = s.keep(ctx, w, proof)
	}
}

// keep stores evidence without the stage's secrets, also when the attempt is being cancelled. That it could not be stored is logged and does not
// change the failure.
func (s *Steps) keep(ctx context.Context, w *work, content []byte) events.Digest {
	content = executor.Mask(w.call.Secrets, content)
	info, err := s.Artifacts.Put(context.WithoutCancel(ctx), bytes.NewReader(content))
	if err != nil {
		s.Logger.Warn().Err(err).Msg("keep evidence")
		return events.Digest{}
	}
	return info.Digest
}

// interrupted says why the context of an attempt ended, in the words that executors use.
func interrupted(ctx context.Context) *events.Failure {
	cause := context.Cause(ctx)
	var own *events.Failure
	switch {
	case errors.As(cause, &own):
		failure := *own
		return &failure
	case errors.Is(cause, context.DeadlineExceeded):
		return &events.Failure{Class: events.Timeout, Reason: "the attempt ran out of time"}
	}
	return &events.Failure{Class: events.Aborted, Reason: cause.Error()}
}

// cannot says that Apollo or the machine, not the stage, is at fault; or the context, when that is why it could not.
func cannot(ctx context.Context, doing string, err error) *events.Failure {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return interrupted(ctx)
	}
	return &events.Failure{Class: events.System, Reason: fmt.Sprintf("cannot %s: %v", doing, err)}
}
