package estimate

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The ranks were computed apart, with whole binomial coefficients; those of the medians stand in tables of the sign test.
func TestRanksAgainstKnownOnes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n         int
		p         float64
		low, high int
	}{
		{5, 0.5, 0, 6}, {6, 0.5, 1, 6}, {10, 0.5, 2, 9}, {20, 0.5, 6, 15}, {100, 0.5, 40, 61},
		{20, 0.95, 17, 21}, {72, 0.95, 64, 72}, {73, 0.95, 65, 73}, {100, 0.95, 90, 100}, {200, 0.95, 184, 197},
		{200, 0.99, 195, 201}, {367, 0.99, 359, 368}, {368, 0.99, 360, 368}, {1000, 0.99, 983, 997},
	} {
		if low, high := ranks(test.n, test.p); low != test.low || high != test.high {
			t.Errorf("n=%d p=%v: %d to %d, want %d to %d", test.n, test.p, low, high, test.low, test.high)
		}
	}
}

func TestQuantilesAgainstKnownOnes(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64((i*37)%100 + 1) // 1 to 100 in another order
	}
	q := quantiles(hundred)
	if q.P50.Value != 50 || q.P95.Value != 95 || q.P99.Value != 99 {
		t.Errorf("got %v, %v, %v", q.P50.Value, q.P95.Value, q.P99.Value)
	}
	if q.P50.Low != 40 || *q.P50.High != 61 || q.P95.Low != 90 || *q.P95.High != 100 || q.P99.High != nil {
		t.Errorf("got %+v", q)
	}
	if one := quantiles([]float64{7}); one.P50.Value != 7 || one.P99.Value != 7 || one.P50.High != nil || one.P50.Low != 0 {
		t.Errorf("one sample: %+v", one)
	}
	if none := quantiles(nil); none != (Quantiles{}) {
		t.Errorf("no samples: %+v", none)
	}
}

func TestQuantilesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Float64Range(0, 1e12), 1, 300).Draw(t, "samples")
		q := quantiles(slices.Clone(samples))
		if again := quantiles(rapid.Permutation(samples).Draw(t, "other order")); again.P50.Value != q.P50.Value || again.P95.Low != q.P95.Low {
			t.Fatalf("the order of samples counts: %+v, %+v", q, again)
		}
		last := 0.0
		for p, one := range map[float64]Quantile{0.5: q.P50, 0.95: q.P95, 0.99: q.P99} {
			if !slices.Contains(samples, one.Value) || one.Low > one.Value || one.High != nil && *one.High < one.Value {
				t.Fatalf("%v of %v: %+v", p, samples, one)
			}
			if below := slices.DeleteFunc(slices.Clone(samples), func(x float64) bool { return x > one.Value }); float64(len(below)) < p*float64(len(samples))-1e-6 {
				t.Fatalf("only %d of %d are at or below the %v: %+v", len(below), len(samples), p, one)
			}
		}
		for _, one := range []Quantile{q.P50, q.P95, q.P99} {
			if one.Value < last {
				t.Fatalf("got %+v", q)
			}
			last = one.Value
		}
	})
}

// TestRanksHoldTheirConfidence sums the binomial probabilities by their recurrence: between the bounds lies Confidence,
// and neither bound could be tighter.
func TestRanksHoldTheirConfidence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, p := rapid.IntRange(1, 2000).Draw(t, "n"), rapid.SampledFrom([]float64{0.5, 0.95, 0.99}).Draw(t, "p")
		low, high := ranks(n, p)
		var below, above, lowest float64 // P(B < low), P(B >= high), P(B <= low)
		for k := range n + 1 {
			m := math.Exp(logBinomial(n, k, p))
			if k < low {
				below += m
			}
			if k <= low {
				lowest += m
			}
			if k >= high {
				above += m
			}
		}
		tail := (1 - Confidence) / 2
		if below > tail+1e-9 || above > tail+1e-9 || lowest <= tail-1e-9 || low >= high {
			t.Fatalf("n=%d p=%v: ranks %d to %d, %v below, %v above", n, p, low, high, below, above)
		}
	})
}

func logBinomial(n, k int, p float64) float64 {
	log := float64(k)*math.Log(p) + float64(n-k)*math.Log(1-p)
	for i := 1; i <= min(k, n-k); i++ {
		log += math.Log(float64(n-i+1)) - math.Log(float64(i))
	}
	return log
}
