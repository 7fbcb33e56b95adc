package main

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		name   string
		sorted []float64
		p      float64
		want   float64
	}{
		{"nothing", nil, 0.5, 0},
		{"one value", []float64{7}, 0.99, 7},
		{"median of an odd count", []float64{1, 2, 9}, 0.5, 2},
		{"median of an even count is the lower", []float64{1, 2, 3, 9}, 0.5, 2},
		{"p50 of 1..100", hundred, 0.5, 50},
		{"p99 of 1..100", hundred, 0.99, 99},
		{"p99 of few values is the largest", []float64{1, 2, 3}, 0.99, 3},
		{"p0 is the smallest", hundred, 0, 1},
		{"p100 is the largest", hundred, 1, 100},
	} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("%s: percentile = %v, want %v", c.name, got, c.want)
		}
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want float64 }{
		{100, 100, 0},
		{100, 125, 0.25},
		{125, 100, 0.25},
		{1, 3, 2},
		{0, 100, math.Inf(1)},
		{0, 0, math.Inf(1)},
	} {
		if got := drift(c.a, c.b); got != c.want {
			t.Errorf("drift(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestProbeLimitReadsDurableTransactions(t *testing.T) {
	t.Parallel()
	l, err := probeLimit(t.Context(), t.TempDir(), 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if l.perSecond <= 0 || len(l.times) == 0 || !slices.IsSorted(l.times) {
		t.Errorf("limit = %v/s with %d times, sorted %v", l.perSecond, len(l.times), slices.IsSorted(l.times))
	}
}

func TestStoreWithoutFullIsRefused(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"synchronous": "file:" + t.TempDir() + "/a.db?_journal_mode=WAL&_synchronous=NORMAL",
		"journal":     "file:" + t.TempDir() + "/a.db?_journal_mode=DELETE&_synchronous=FULL",
	} {
		db, err := openFull(context.Background(), "sqlite3", dsn, 1)
		if err == nil {
			db.Close()
			t.Errorf("%s: a store that is weaker than S1 was accepted", name)
		}
	}
}
