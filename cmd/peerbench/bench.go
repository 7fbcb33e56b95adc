package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// freeTransaction is the S1 p50 in ms under which a durable transaction cannot have reached a disk.
const freeTransaction = 0.025

// hangAfter ends a measurement whose peer has stopped answering.
const hangAfter = 30 * time.Second

// bench runs measurements one after the other, with S1 read before, between and after them.
type bench struct {
	dir       string // where each measurement gets a directory of its own
	effort    effort
	progress  io.Writer
	start     time.Time
	readLimit func(ctx context.Context, dir string, window time.Duration) (limit, error)
	runs      int // directories made so far
}

// all makes every measurement, then once more each that was void while there is time. It returns the figures in the list's order,
// S1 itself last; a peer that fails does not stop the others.
func (b *bench) all(ctx context.Context, list []measurement) ([]figure, error) {
	limits, err := b.probe(ctx, nil)
	if err != nil {
		return nil, err
	}
	figures := make([][]figure, len(list))
	var failed error
	for pass := 0; pass < 2 && ctx.Err() == nil; pass++ {
		for i, m := range list {
			if pass > 0 && (!anyVoid(figures[i]) || time.Since(b.start) > b.effort.retry) {
				continue
			}
			results, err := b.one(ctx, m)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("measure %s: %w", m.name, err))
			}
			if limits, err = b.probe(ctx, limits); err != nil {
				return slices.Concat(figures...), errors.Join(failed, err)
			}
			if fresh := putBeside(results, limits); pass == 0 || len(fresh) > 0 && !anyVoid(fresh) {
				figures[i] = fresh
			}
		}
	}
	return append(slices.Concat(figures...), limitFigure(limits)), failed
}

// one makes one measurement in a fresh directory, which is gone afterwards.
func (b *bench) one(ctx context.Context, m measurement) ([]result, error) {
	ctx, cancel := context.WithTimeout(ctx, hangAfter)
	defer cancel()
	var results []result
	err := b.inFreshDir(func(dir string) (err error) {
		results, err = m.run(ctx, dir, b.effort)
		return err
	})
	for _, r := range results {
		fmt.Fprintf(b.progress, "%5.1f s  %s: %.2f %s\n", time.Since(b.start).Seconds(), r.name, r.value, r.unit)
	}
	return results, err
}

// probe appends one reading of S1.
func (b *bench) probe(ctx context.Context, limits []limit) ([]limit, error) {
	err := b.inFreshDir(func(dir string) error {
		l, err := b.readLimit(ctx, dir, b.effort.probe)
		limits = append(limits, l)
		return err
	})
	if err != nil {
		return limits, fmt.Errorf("probe S1: %w", err)
	}
	l := limits[len(limits)-1]
	fmt.Fprintf(b.progress, "%5.1f s  S1: %.0f/s, p50 %.3f ms\n", time.Since(b.start).Seconds(), l.perSecond, percentile(l.times, 0.50))
	if len(limits) == 1 && percentile(l.times, 0.50) < freeTransaction {
		fmt.Fprintln(b.progress, "peerbench: durable transactions cost next to nothing here; is --dir in memory?")
	}
	return limits, nil
}

func (b *bench) inFreshDir(do func(dir string) error) (err error) {
	b.runs++
	dir := filepath.Join(b.dir, strconv.Itoa(b.runs))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return do(dir)
}

// putBeside makes figures of the results that were measured between the last two readings of S1.
func putBeside(results []result, limits []limit) []figure {
	var figures []figure
	for _, r := range results {
		figures = append(figures, r.beside(limits[len(limits)-2], limits[len(limits)-1]))
	}
	return figures
}

func anyVoid(figures []figure) bool {
	return slices.ContainsFunc(figures, func(f figure) bool { return f.Void })
}

// limitFigure is S1 over the whole run: the median of its readings, void when the lowest and the highest drifted apart.
func limitFigure(limits []limit) figure {
	var rates, times []float64
	for _, l := range limits {
		rates = append(rates, l.perSecond)
		times = append(times, l.times...)
	}
	slices.Sort(rates)
	slices.Sort(times)
	median := percentile(rates, 0.50)
	f := rateOf("s1_transactions_per_s", "transactions/s", median, len(times), times).beside(limits[0], limits[0])
	f.LimitValue, f.Ratio = median, 1
	f.Void = drift(rates[0], rates[len(rates)-1]) > maxDrift
	return f
}
