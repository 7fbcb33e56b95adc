package verify

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// trial is one execution of a stage, and what came of it.
type trial struct {
	dir     string // of its own: directories of the attempt, logs, artifacts
	store   *artifacts.Store
	data    *events.Data
	failure *events.Failure
	results []events.Result // as they are compared
	missed  []string        // names of factors that could not be changed after all
}

// trials carries out executions of the stages of one run.
type trials struct {
	o       *Options
	scratch string
	number  atomic.Int64
	load    load
}

// run executes an attempt under the conditions of the factors. The error is that of a machine which cannot go on, never
// the stage's.
func (v *trials) run(ctx context.Context, t *target, with []factor, round int, frozen bool) (*trial, error) {
	c := conditions{round: round}
	for _, f := range with {
		f.change(&c, v.o.Host)
	}
	c.Frozen = frozen
	made, err := v.open()
	if err != nil {
		return nil, err
	}
	if c.loaded {
		defer v.load.add(len(v.o.Host.CPUs))()
	}
	perturb := &c.Perturbation
	a := *t.attempt
	a.Perturb = &stage.Perturbation{Reversed: c.reversed, Touched: c.touched, Alter: func(call *executor.Call) {
		call.Timeout = t.patience()
		for _, change := range c.calls {
			change(call, perturb)
		}
		call.Perturb = perturb
	}}
	work := filepath.Join(v.scratch, "work", strconv.Itoa(t.index))
	if c.elsewhere {
		work = filepath.Join(v.scratch, "another-directory-with-a-longer-path", strconv.Itoa(t.index), "below")
	}
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, fmt.Errorf("make a work directory: %w", err)
	}
	steps := &stage.Steps{Artifacts: &overlay{Store: made.store, recorded: v.o.Artifacts, reversed: c.reversed}, Executors: v.o.Executors, WorkDir: work, LogDir: filepath.Join(made.dir, "logs"),
		Secrets: v.o.Secrets, Logger: v.o.Logger, PinKey: v.o.PinKey}
	outcome := steps.Run(ctx, &a)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := removeAll(work); err != nil {
		return nil, fmt.Errorf("remove a work directory: %w", err)
	}
	made.data, made.failure = outcome.Data, outcome.Failure
	if made.data == nil {
		made.data = &events.Data{}
	}
	for _, f := range with {
		if f.field != "" && slices.Contains(perturb.Missed, f.field) {
			made.missed = append(made.missed, f.name)
		}
	}
	made.results = made.data.Outputs
	if made.failure == nil && t.stage.Compare != nil && t.stage.Compare.Normalise != "" {
		made.results, err = v.normalised(ctx, t, made.results, made.store)
	}
	return made, err
}

// open makes the directory of a trial.
func (v *trials) open() (*trial, error) {
	t := &trial{dir: filepath.Join(v.scratch, "trials", strconv.FormatInt(v.number.Add(1), 10))}
	var err error
	if t.store, err = artifacts.Open(filepath.Join(t.dir, "artifacts")); err != nil {
		return nil, fmt.Errorf("open the artifacts of an execution: %w", err)
	}
	return t, nil
}

// drop removes what the trials have made. nil is dropped already.
func drop(list ...*trial) {
	for _, t := range list {
		if t != nil && t.store != nil {
			_ = t.store.Close()
			_ = removeAll(t.dir) // goes with the scratch directory otherwise
			t.store = nil
		}
	}
}

// removeAll removes a directory, also when there are read-only directories in it. What an ended process was about to make
// there a moment ago is removed at the next try.
func removeAll(dir string) (err error) {
	const tries, pause = 20, 25 * time.Millisecond
	for n := range tries {
		if n > 0 {
			<-time.After(pause)
		}
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, _ error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700) //nolint:gosec // a directory needs its x bits
			}
			return nil
		})
	}
	return err
}

func (t *trial) failed() bool { return t.failure != nil }

// outcome gives the results to compare. An attempt whose gate rejected it has results too: somebody had opened the gate.
func (t *trial) outcome(opened bool) ([]events.Result, *events.Failure) {
	if t.failure != nil && t.failure.Class == events.GateRejected && opened {
		return t.results, nil
	}
	return t.results, t.failure
}

// load keeps the machine busy while anybody wants that.
type load struct {
	mu     sync.Mutex
	wanted int
	stop   chan struct{}
}

// add keeps so many processors busy until done is called; who comes second shares the load of the first.
func (l *load) add(processors int) (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted++; l.wanted == 1 {
		l.stop = make(chan struct{})
		for range processors {
			go spin(l.stop)
		}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.wanted--; l.wanted == 0 {
			close(l.stop)
		}
	}
}

func spin(stop chan struct{}) {
	for n := uint64(1); ; n = n*6364136223846793005 + 1 {
		if n&0xfffff != 1 {
			continue
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}

// patience is how long an execution may take: much longer than the recorded one, as conditions slow it down.
func (t *target) patience() time.Duration {
	const least, factor = time.Minute, 20
	return max(least, factor*t.took, 4*t.stage.Timeout)
}
