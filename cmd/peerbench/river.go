package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	riverWorkers = 100 // jobs that River may work at once
	riverChains  = 400 // chains in flight for the rate
)

// riverSetting is one way to run River; a zero duration means River's default.
type riverSetting struct {
	prefix              string // of the figures' names
	cooldown, pollEvery time.Duration
}

func riverDefaults() riverSetting { return riverSetting{prefix: "river_"} }

// riverTuned polls as often as River lets one ask for without burning the only connection.
func riverTuned() riverSetting {
	return riverSetting{prefix: "river_tuned_", cooldown: time.Millisecond, pollEvery: 2 * time.Millisecond}
}

// stepArgs is one job of a chain; the job inserts the next one until Step is the last.
type stepArgs struct {
	Step int `json:"step"`
}

// Kind names the job for River.
func (stepArgs) Kind() string { return "step" }

type stepWorker struct {
	river.WorkerDefaults[stepArgs]
	ended chan struct{} // one value for each chain whose last job has been worked
}

// Work is a no-op but for the hand-off to the next job.
func (w *stepWorker) Work(ctx context.Context, job *river.Job[stepArgs]) error {
	if job.Args.Step == chainLength {
		w.ended <- struct{}{}
		return nil
	}
	_, err := river.ClientFromContext[*sql.Tx](ctx).Insert(ctx, stepArgs{Step: job.Args.Step + 1}, nil)
	return err
}

// riverPeer is a started River client on a fresh store.
type riverPeer struct {
	client    *river.Client[*sql.Tx]
	ended     <-chan struct{}
	completed <-chan *river.Event // one event for each job whose completion is stored
}

// startRiver starts River on a fresh store with one connection, as its SQLite driver asks for. It takes any database/sql driver; with
// mattn's it was about 1.4 times as fast as with modernc's, so it gets that one.
func startRiver(ctx context.Context, dir string, s riverSetting) (*riverPeer, func() error, error) {
	db, err := openMattn(ctx, filepath.Join(dir, "river.db"))
	if err != nil {
		return nil, nil, err
	}
	fail := func(verb string, err error) (*riverPeer, func() error, error) {
		return nil, nil, errors.Join(fmt.Errorf("%s River: %w", verb, err), db.Close())
	}
	driver := riversqlite.New(db)
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return fail("open", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fail("migrate", err)
	}
	worker := &stepWorker{ended: make(chan struct{}, riverChains)}
	workers := river.NewWorkers()
	river.AddWorker(workers, worker)
	client, err := river.NewClient(driver, &river.Config{
		FetchCooldown:     s.cooldown,
		FetchPollInterval: s.pollEvery,
		Logger:            quiet,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:           workers,
	})
	if err != nil {
		return fail("configure", err)
	}
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: 2 * riverChains * chainLength, // River drops what does not fit
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	if err := client.Start(ctx); err != nil {
		return fail("start", err)
	}
	stop := func() error {
		unsubscribe()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(client.StopAndCancel(ctx), db.Close())
	}
	return &riverPeer{client: client, ended: worker.ended, completed: completed}, stop, nil
}

// riverChain measures chains one at a time, from the insert of the first job to the fifth job being worked: the store of that
// job's completion, up to 50 ms later, is not counted against River.
func riverChain(s riverSetting) func(context.Context, string, effort) ([]result, error) {
	return func(ctx context.Context, dir string, e effort) (_ []result, err error) {
		peer, stop, err := startRiver(ctx, dir, s)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		var times []float64
		for start := time.Now(); len(times) < e.chains && (len(times) == 0 || time.Since(start) < e.patience); {
			before := time.Now()
			if _, err := peer.client.Insert(ctx, stepArgs{Step: 1}, nil); err != nil {
				return nil, fmt.Errorf("insert River job: %w", err)
			}
			select {
			case <-peer.ended:
				times = append(times, milliseconds(time.Since(before)))
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		slices.Sort(times)
		return []result{timeOf(s.prefix+"chain_ms", times)}, nil
	}
}

// riverFlight measures how many jobs a second River completes with riverChains chains in flight, until all are done or patience ends.
func riverFlight(s riverSetting) func(context.Context, string, effort) ([]result, error) {
	return func(ctx context.Context, dir string, e effort) (_ []result, err error) {
		peer, stop, err := startRiver(ctx, dir, s)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		first := make([]river.InsertManyParams, riverChains)
		for i := range first {
			first[i].Args = stepArgs{Step: 1}
		}
		start := time.Now()
		if _, err := peer.client.InsertManyFast(ctx, first); err != nil {
			return nil, fmt.Errorf("insert River jobs: %w", err)
		}
		times := peer.awaitCompleted(ctx, riverChains*chainLength, e.patience)
		if len(times) == 0 {
			return nil, fmt.Errorf("no River job completed in %v", e.patience)
		}
		rate := float64(len(times)) / time.Since(start).Seconds()
		return []result{rateOf(s.prefix+"transitions_per_s", "transitions/s", rate, len(times), times)}, nil
	}
}

// awaitCompleted waits for count jobs to be completed, or for patience or ctx to end. It returns the sorted times in ms from the
// insert of each job to its completion.
func (p *riverPeer) awaitCompleted(ctx context.Context, count int, patience time.Duration) []float64 {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var times []float64
	for len(times) < count && ctx.Err() == nil {
		select {
		case event := <-p.completed:
			times = append(times, milliseconds(event.Job.FinalizedAt.Sub(event.Job.CreatedAt)))
		case <-ctx.Done():
		}
	}
	slices.Sort(times)
	return times
}
