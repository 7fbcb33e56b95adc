package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // DBOS classifies SQLite errors through it
)

// dbosConns is the pool size that DBOS itself chooses for SQLite.
const dbosConns = 8

// dbosWarmup is how many workflows run untimed first.
const dbosWarmup = 20

// dbosPeer runs workflows of five no-op steps on DBOS.
type dbosPeer struct {
	ctx       dbos.Context
	firstStep atomic.Int64 // when a first step last started, Unix ns; meaningful with one caller only
}

// dbosCallers measures DBOS with the given number of goroutines, each starting a workflow and waiting for its result, over and over.
// One caller gives the latencies as well.
func dbosCallers(callers int) func(context.Context, string, effort) ([]result, error) {
	return func(ctx context.Context, dir string, e effort) (_ []result, err error) {
		peer, stop, err := startDBOS(ctx, dir)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if _, _, _, err := peer.load(1, dbosWarmup, time.Minute); err != nil {
			return nil, err
		}
		times, starts, elapsed, err := peer.load(callers, 0, e.window)
		if err != nil {
			return nil, err
		}
		steps := float64(len(times)*chainLength) / elapsed.Seconds()
		results := []result{rateOf("dbos_steps_per_s_"+strconv.Itoa(callers), "steps/s", steps, len(times)*chainLength, times)}
		if callers == 1 {
			results = append(results, timeOf("dbos_workflow_ms", times), timeOf("dbos_start_to_first_step_ms", starts))
		}
		return results, nil
	}
}

// startDBOS launches DBOS on a fresh store. The store is opened here because DBOS sets synchronous=NORMAL again on the first
// connection of a pool that it opens itself, whatever the URL says.
func startDBOS(ctx context.Context, dir string) (*dbosPeer, func() error, error) {
	db, err := openModernc(ctx, filepath.Join(dir, "dbos.db"), dbosConns)
	if err != nil {
		return nil, nil, err
	}
	peer := &dbosPeer{}
	peer.ctx, err = dbos.NewContext(ctx, dbos.Config{
		AppName:            "peerbench",
		ApplicationVersion: "1",
		ExecutorID:         "local",
		SQLiteSystemDB:     db,
		Logger:             slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open DBOS: %w", err), db.Close())
	}
	stop := func() error {
		return errors.Join(dbos.Shutdown(peer.ctx, 10*time.Second), db.Close())
	}
	dbos.RegisterWorkflow(peer.ctx, peer.fiveSteps)
	if err := dbos.Launch(peer.ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("launch DBOS: %w", err), stop())
	}
	if err := requireFull(ctx, db, dbosConns); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return peer, stop, nil
}

func (p *dbosPeer) fiveSteps(ctx dbos.Context, _ int) (int, error) {
	for i := range chainLength {
		_, err := dbos.RunAsStep(ctx, func(context.Context) (int, error) {
			if i == 0 {
				p.firstStep.Store(time.Now().UnixNano())
			}
			return i, nil
		})
		if err != nil {
			return 0, err
		}
	}
	return chainLength, nil
}

// load keeps callers busy until count workflows have run (0: no bound) or the window is over. It returns the sorted times of the
// workflows and of their first steps' starts in ms, and how long the whole took.
func (p *dbosPeer) load(callers, count int, window time.Duration) (times, starts []float64, _ time.Duration, _ error) {
	var (
		mu     sync.Mutex
		failed error
		wg     sync.WaitGroup
		begun  atomic.Int64
	)
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for time.Since(start) < window {
				n := int(begun.Add(1))
				if count > 0 && n > count {
					return
				}
				took, first, err := p.runOne(n)
				mu.Lock()
				times, starts = append(times, took), append(starts, first)
				failed = errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	slices.Sort(times)
	slices.Sort(starts)
	return times, starts, elapsed, failed
}

func (p *dbosPeer) runOne(n int) (took, first float64, _ error) {
	before := time.Now()
	handle, err := dbos.RunWorkflow(p.ctx, p.fiveSteps, n)
	if err != nil {
		return 0, 0, fmt.Errorf("start DBOS workflow: %w", err)
	}
	if _, err := handle.GetResult(); err != nil {
		return 0, 0, fmt.Errorf("run DBOS workflow: %w", err)
	}
	took = milliseconds(time.Since(before))
	return took, float64(p.firstStep.Load()-before.UnixNano()) / 1e6, nil
}
