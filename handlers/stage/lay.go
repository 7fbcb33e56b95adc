package stage

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// Laid is the work directory of an attempt as the attempt would find it, with nothing of the attempt begun.
type Laid struct {
	Call    *executor.Call    // what the executor gets
	Program *executor.Program // what it would start; nil when it does not say
	Pinned  json.RawMessage   // the pins document that an attempt would have now; without a Program its tool chain is missing
	work    *work
}

// Lay makes the work directory of an attempt at dir, by the steps of a real attempt: its inputs, read-only and with the
// run's time as their own, the files that its executor makes for it, and out and tmp. Nothing else is made or changed, and
// Artifacts is only read. The failure is the one with which the attempt itself would end.
func (s *Steps) Lay(ctx context.Context, a *Attempt, dir string) (*Laid, *events.Failure) {
	if a.Broken != "" {
		return nil, &events.Failure{Class: events.BadInput, Reason: a.Broken}
	}
	w := &work{Attempt: a, dir: dir}
	if f := prepare(ctx, s, w); f != nil {
		w.conceal(f)
		return nil, f
	}
	if d, is := s.Executors[a.Stage.Executor].(executor.Describer); is && w.program == nil {
		var f *events.Failure
		if w.program, f = d.Describe(ctx, &w.call); f != nil {
			w.conceal(f)
			return nil, f
		}
	}
	var errs []error
	for _, name := range []string{"out", "tmp", "state"} {
		errs = append(errs, os.MkdirAll(filepath.Join(dir, name), 0o700))
	}
	laid := &Laid{Call: &w.call, Program: w.program, work: w}
	if w.program != nil {
		for path, text := range w.program.Files {
			errs = append(errs, os.WriteFile(path, []byte(text), 0o600))
		}
	}
	d, err := s.define(w, w.program, tools(w.program, nil))
	if err == nil {
		laid.Pinned, err = s.pins(w, d)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, cannot(ctx, "lay out the work directory", err)
	}
	return laid, nil
}

// Environ gives the environment of the attempt as NAME=value, sorted. secrets, unless it is nil, stands in the place of the
// secrets' values. Segments are marked in a file of the work
// directory, where an attempt has a named pipe.
func (l *Laid) Environ(secrets map[string]string) ([]string, *events.Failure) {
	call, program := *l.Call, l.Program
	if secrets != nil {
		call.Secrets = secrets
	}
	if program == nil {
		program = &executor.Program{}
	}
	list, f := program.Environ(&call)
	if f != nil {
		return nil, f
	}
	list = append(list, "APOLLO_SEGMENTS="+filepath.Join(call.Dir, "state", "marks"))
	slices.Sort(list)
	return list, nil
}

// Rehearse carries a laid attempt out, by the steps of a real one, and leaves its directory as the attempt does, with the
// logs below it. Artifacts gets the outputs, the evidence and the documents of the pins.
func (s *Steps) Rehearse(ctx context.Context, l *Laid) Outcome {
	failure := s.carryOut(ctx, l.work, steps()[1:]) // it is prepared
	s.conclude(ctx, l.work, failure)
	return Outcome{Data: &l.work.out, Failure: failure}
}
