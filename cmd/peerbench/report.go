package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what is printed; the shape is that of "apollo bench -o json".
type report struct {
	Machine machine  `json:"machine"`
	Figures []figure `json:"figures"`
}

// machine says where the figures were measured.
type machine struct {
	Cores int    `json:"cores"`
	CPU   string `json:"cpu"`
	Go    string `json:"go"`
	OS    string `json:"os"`
	Date  string `json:"date"` // RFC 3339, UTC
}

// figure is one measured number beside the physical limit read around it.
type figure struct {
	Name       string  `json:"name"`
	Value      float64 `json:"value"`
	Unit       string  `json:"unit"`
	LimitValue float64 `json:"limit_value"` // S1 in the figure's kind: transactions/s for a rate, p50 in ms for a time
	Ratio      float64 `json:"ratio"`       // value over limit_value
	Samples    int     `json:"samples"`
	P50        float64 `json:"p50"`  // ms
	P99        float64 `json:"p99"`  // ms
	Void       bool    `json:"void"` // the limit drifted by more than maxDrift around the figure
}

// result is what a peer's measurement found, before the limit is put beside it.
type result struct {
	name, unit string
	value      float64
	isTime     bool
	samples    int
	p50, p99   float64 // ms
}

// timeOf makes a result whose value is the median of sorted times in ms.
func timeOf(name string, times []float64) result {
	p50 := percentile(times, 0.50)
	return result{name: name, unit: "ms", value: p50, isTime: true, samples: len(times), p50: p50, p99: percentile(times, 0.99)}
}

// rateOf makes a result for a rate; times are the sorted times in ms of the units of work under that load.
func rateOf(name, unit string, value float64, samples int, times []float64) result {
	return result{name: name, unit: unit, value: value, samples: samples, p50: percentile(times, 0.50), p99: percentile(times, 0.99)}
}

// beside puts the limit, read before and after, beside a result: their mean is the limit, and their drift decides on void.
func (r result) beside(before, after limit) figure {
	a, b := before.perSecond, after.perSecond
	if r.isTime {
		a, b = percentile(before.times, 0.50), percentile(after.times, 0.50)
	}
	f := figure{Name: r.name, Value: r.value, Unit: r.unit, LimitValue: (a + b) / 2, Samples: r.samples, P50: r.p50, P99: r.p99}
	f.Void = drift(a, b) > maxDrift
	if f.LimitValue > 0 {
		f.Ratio = f.Value / f.LimitValue
	}
	return f
}

// thisMachine describes where we run at the given time.
func thisMachine(now time.Time) machine {
	return machine{
		Cores: runtime.NumCPU(),
		CPU:   cpuModel(),
		Go:    runtime.Version(),
		OS:    runtime.GOOS + "/" + runtime.GOARCH,
		Date:  now.UTC().Format(time.RFC3339),
	}
}

// cpuModel reads the processor's name where Linux tells it; elsewhere it is the architecture.
func cpuModel() string {
	content, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func (r report) writeJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r report) writeText(w io.Writer) error {
	fmt.Fprintf(w, "%d cores, %s, %s, %s, %s\n\n", r.Machine.Cores, r.Machine.CPU, r.Machine.Go, r.Machine.OS, r.Machine.Date)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "figure\tvalue\tunit\tS1\tratio\tsamples\tp50 ms\tp99 ms\tvoid\t")
	for _, f := range r.Figures {
		void := ""
		if f.Void {
			void = "void"
		}
		fmt.Fprintf(t, "%s\t%.2f\t%s\t%.3f\t%.3f\t%d\t%.3f\t%.3f\t%s\t\n", f.Name, f.Value, f.Unit, f.LimitValue, f.Ratio, f.Samples, f.P50, f.P99, void)
	}
	return t.Flush()
}
