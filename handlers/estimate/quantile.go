package estimate

import (
	"math"
	"slices"
)

// Confidence is how often the interval of a Quantile holds the true one.
const Confidence = 0.95

// Few is the number of samples below which an estimate is not to be relied on.
const Few = 20

// Quantile is an estimate from samples: the value, and the bounds between which the true quantile lies with Confidence.
type Quantile struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	// High is nil where the samples give no upper bound: there are too few of them to have come above the quantile.
	High *float64 `json:"high"`
}

// Quantiles are those that people plan with.
type Quantiles struct {
	P50 Quantile `json:"p50"`
	P95 Quantile `json:"p95"`
	P99 Quantile `json:"p99"`
}

// quantiles sorts the samples. No samples are all zero.
func quantiles(samples []float64) Quantiles {
	slices.Sort(samples)
	return Quantiles{quantile(samples, 0.5), quantile(samples, 0.95), quantile(samples, 0.99)}
}

// quantile takes the nearest rank: the smallest sample that at least the share p of all samples does not exceed. Its
// bounds are samples too, chosen so that they hold whatever the distribution is: see ranks. Below the smallest sample
// the bound is 0, since nothing that is estimated here is negative.
func quantile(sorted []float64, p float64) Quantile {
	n := len(sorted)
	if n == 0 {
		return Quantile{}
	}
	q := Quantile{Value: sorted[max(0, int(math.Ceil(p*float64(n)-1e-9))-1)]}
	low, high := ranks(n, p)
	if low >= 1 {
		q.Low = sorted[low-1]
	}
	if high <= n {
		q.High = &sorted[high-1]
	}
	return q
}

// ranks gives the ranks of the samples (from 1) between which the quantile p of n independent samples lies with at least
// Confidence: low is 0 when there is none, high is n+1. The number of samples below the true quantile is binomial, B(n, p);
// each side may err with half of what is left of Confidence. It is exact for continuous distributions and on the safe
// side for others (David and Nagaraja, Order Statistics, 3rd edition, section 7.1).
func ranks(n int, p float64) (low, high int) {
	const tail = (1 - Confidence) / 2
	below := 0.0 // P(B < k)
	for k := range n + 1 {
		if below <= tail {
			low = k // P(B < low) <= tail
		}
		below += binomial(n, k, p) // now P(B <= k)
		if 1-below <= tail {
			return low, k + 1 // P(B >= high) <= tail
		}
	}
	return low, n + 1
}

// binomial is the probability of k successes among n.
func binomial(n, k int, p float64) float64 {
	lg := func(x int) float64 { v, _ := math.Lgamma(float64(x) + 1); return v }
	return math.Exp(lg(n) - lg(k) - lg(n-k) + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
}
