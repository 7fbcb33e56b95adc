package stage

import (
	"context"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// Perturbation changes conditions of an attempt that its result must not depend on, and nothing that its pins say.
type Perturbation struct {
	Alter    func(c *executor.Call) // sees the call once everything is filled in, before a file is made; may be nil
	Reversed bool                   // inputs are placed in the opposite order
	Touched  bool                   // input files have different times of modification, none of them the run's
}

func (p *Perturbation) alter(c *executor.Call) {
	if p != nil && p.Alter != nil {
		p.Alter(c)
	}
}

// turn gives which of n things comes at the place.
func (p *Perturbation) turn(place, n int) int {
	if p != nil && p.Reversed {
		return n - 1 - place
	}
	return place
}

// modified gives the time of modification of an input file, by its number among those of the attempt. Times of
// neighbours neither rise nor fall all the way, and the second is younger than the first.
func (p *Perturbation) modified(number int, logical time.Time) time.Time {
	if p == nil || !p.Touched {
		return logical
	}
	const cycle = 7
	place := (number*3+1)%cycle + number/cycle*cycle
	return logical.AddDate(-1, 0, 0).Add(time.Duration(place) * 83 * time.Minute)
}

// Rebuilt is what an attempt would depend on if it began now.
type Rebuilt struct {
	Pins       []byte                     // canonical; its digest is the stage key
	Definition []byte                     // canonical; named by Pins
	Described  bool                       // the executor has said what it would start; else the tool chain is known only once it has run
	Files      map[string][]events.Digest // artifacts that the inputs are, by role
	Listed     int                        // names that the stage finds when it lists its inputs; a directory counts as two
}

// Rebuild gives what an attempt would depend on now, without beginning it, and the artifacts that its inputs are, by role.
// The failure is that with which the attempt would end.
func (s *Steps) Rebuild(ctx context.Context, a *Attempt) (*Rebuilt, *events.Failure) {
	w := &work{Attempt: a}
	if a.Broken != "" {
		return nil, &events.Failure{Class: events.BadInput, Reason: a.Broken}
	}
	if f := w.begin(s); f != nil {
		return nil, f
	}
	if f := w.resolve(ctx, s); f != nil {
		return nil, f
	}
	var program *executor.Program
	if d, ok := s.Executors[a.Stage.Executor].(executor.Describer); ok {
		var f *events.Failure
		if program, f = d.Describe(ctx, &w.call); f != nil {
			return nil, f
		}
	}
	d, err := s.define(w, program, tools(program, nil))
	if err != nil {
		return nil, cannot(ctx, "define the stage", err)
	}
	r := &Rebuilt{Definition: d.bytes, Described: program != nil, Files: map[string][]events.Digest{}}
	if r.Pins, err = s.pins(w, d); err != nil {
		return nil, cannot(ctx, "pin the attempt", err)
	}
	for role, from := range w.sources {
		for _, f := range append([]*file{from.file}, from.list...) {
			if f != nil && f.inline == nil {
				r.Files[role] = append(r.Files[role], f.digest)
			}
			switch {
			case f == nil:
			case f.dir():
				r.Listed += 2
			default:
				r.Listed++
			}
		}
	}
	return r, nil
}
