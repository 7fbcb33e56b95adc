package bench

import (
	"slices"
	"time"
)

// Figure is one line of the report. LimitValue is the physical limit measured around it in the same run; Ratio is
// Value over LimitValue. P50 and P99 are milliseconds, where the figure has single times.
type Figure struct {
	Name       string  `json:"name"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
	LimitValue float64 `json:"limit_value"`
	Ratio      float64 `json:"ratio"`
	Samples    int     `json:"samples"`
	P50        float64 `json:"p50"`
	P99        float64 `json:"p99"`
	Required   string  `json:"required,omitempty"` // as ">= 2.5"
	Met        bool    `json:"met"`
	Void       string  `json:"void,omitempty"` // why it does not count
}

// times are single durations of one thing.
type times []time.Duration

func (t times) quantile(q float64) time.Duration {
	if len(t) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (t times) p50() time.Duration { return t.quantile(0.5) }
func (t times) p99() time.Duration { return t.quantile(0.99) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// driftLimit is how far a limit may move around a figure before the figure is void.
const driftLimit = 0.20

// drift gives how far two readings of a limit lie apart, as a share of the larger.
func drift(before, after float64) float64 {
	larger := max(before, after)
	if larger == 0 {
		return 0
	}
	return (larger - min(before, after)) / larger
}

// bound is what a figure must hold: at least, or at most.
type bound struct {
	least, most float64
	text        string
}

func (b bound) holds(v float64) bool {
	return (b.least == 0 || v >= b.least) && (b.most == 0 || v <= b.most)
}
