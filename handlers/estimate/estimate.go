package estimate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Spare is the share that is added to what history says, or kept free of what is there: 30 %.
const Spare = 0.3

// Estimate is what the history of a pipeline says.
type Estimate struct {
	Pipeline string    `json:"pipeline"`
	Runs     int       `json:"runs"`     // that were looked at
	Samples  int       `json:"samples"`  // completed runs
	Sure     bool      `json:"sure"`     // Samples is not below Few
	Duration Quantiles `json:"seconds"`  // of completed runs
	Critical Path      `json:"critical"` // what a run takes when nothing has to wait
	Stages   []Stage   `json:"stages"`   // in the plan's order
	Load     *Load     `json:"load"`     // nil without a rate
	Proposal string    `json:"proposal"` // YAML of stages, to be pasted
}

// Path is the chain of strong needs that takes longest by the P95 of its stages.
type Path struct {
	Stages  []string `json:"stages"`
	Seconds float64  `json:"seconds"`
}

// Stage is what one stage takes.
type Stage struct {
	Stage     string    `json:"stage"`
	Samples   int       `json:"samples"`          // completed attempts, of every item
	Sure      bool      `json:"sure"`             // Samples is not below Few
	Failed    int       `json:"failed"`           // attempts
	PerRun    float64   `json:"attempts_per_run"` // with retries and items
	Duration  Quantiles `json:"seconds"`
	Cores     Quantiles `json:"cores"`
	Memory    Quantiles `json:"memory"` // bytes at the peak
	Measured  int       `json:"memory_samples"`
	Data      Quantiles `json:"data"` // bytes in and out
	Records   Quantiles `json:"records"`
	Bandwidth Quantiles `json:"bits_per_second"` // data in and out over the duration
	Timeout   float64   `json:"timeout_seconds"` // proposed; 0 is nothing to go by
	Resources Ask       `json:"resources"`       // proposed

	written Quantiles
	wall    Quantiles
	process bool // its attempts hold slots for processes
}

// Ask is what is proposed to ask for; 0 is nothing to go by.
type Ask struct {
	CPU    float64 `json:"cpu"`
	Memory int64   `json:"memory"`
	Disk   int64   `json:"disk"`
}

// Load is what a rate of runs needs, each figure with Spare.
type Load struct {
	PerHour   float64 `json:"runs_per_hour"`
	Busy      float64 `json:"busy"`            // process slots that are taken on average
	Workers   int     `json:"workers"`         // process slots to have
	Cores     float64 `json:"cores"`           // used at once
	Memory    int64   `json:"memory"`          // bytes used at once
	Bandwidth int64   `json:"bits_per_second"` // data in and out
}

// Estimate computes what the history says; perHour is the rate of runs to plan for, 0 for none.
func (h *History) Estimate(perHour float64) *Estimate {
	e := &Estimate{Pipeline: h.plan.Pipeline, Runs: h.runs, Samples: len(h.took), Sure: len(h.took) >= Few, Duration: quantiles(h.took),
		Stages: make([]Stage, len(h.stages))}
	for i := range h.stages {
		e.Stages[i] = h.stages[i].estimate(h.plan.Stages[i].Name, h.runs)
		e.Stages[i].process = holdsProcess(h.plan.Stages[i].Executor)
	}
	e.Critical = h.critical(e.Stages)
	if perHour > 0 {
		e.Load = load(e.Stages, perHour)
	}
	e.Proposal = proposal(e.Stages)
	return e
}

// holdsProcess tells the stages that wait or run inside the engine from those that take a slot for processes.
func holdsProcess(executor string) bool {
	return executor != "task" && executor != "approval" && executor != "pipeline"
}

func (s *series) estimate(name string, runs int) Stage {
	out := Stage{Stage: name, Samples: len(s.duration), Sure: len(s.duration) >= Few, Failed: s.failed, Measured: len(s.memory),
		Duration: quantiles(s.duration), Cores: quantiles(s.cores), Memory: quantiles(s.memory), Data: quantiles(s.data),
		Records: quantiles(s.records), written: quantiles(s.written), wall: quantiles(s.wall)}
	bits := make([]float64, len(s.perSecond))
	for i, n := range s.perSecond {
		bits[i] = 8 * n
	}
	out.Bandwidth = quantiles(bits)
	if runs > 0 {
		out.PerRun = float64(s.started) / float64(runs)
	}
	if out.Samples > 0 {
		out.Timeout = timeout(out.Duration.P99.Value, out.Sure)
		out.Resources = out.ask()
	}
	return out
}

// critical finds the longest chain; the plan's stages stand in a topological order.
func (h *History) critical(stages []Stage) Path {
	longest, before, last := make([]float64, len(stages)), make([]int, len(stages)), -1
	for i := range stages {
		before[i] = -1
		for _, need := range h.plan.Stages[i].Needs {
			if j, ok := h.index[need]; ok && (before[i] < 0 || longest[j] > longest[before[i]]) {
				before[i] = j
			}
		}
		longest[i] = stages[i].wall.P95.Value
		if before[i] >= 0 {
			longest[i] += longest[before[i]]
		}
		if last < 0 || longest[i] > longest[last] {
			last = i
		}
	}
	var p Path
	if last >= 0 {
		p.Seconds = longest[last]
	}
	for ; last >= 0; last = before[last] {
		p.Stages = append([]string{stages[last].Stage}, p.Stages...)
	}
	return p
}

// load applies Little's law: what is in a system on average is the rate at which it comes times how long each stays. The
// P95 of the time stands for the average, which is on the safe side, and Spare of the slots stay free.
func load(stages []Stage, perHour float64) *Load {
	l := &Load{PerHour: perHour}
	var memory, bandwidth float64
	for i := range stages {
		s := &stages[i]
		perSecond := perHour / 3600 * s.PerRun
		busy := perSecond * s.Duration.P95.Value
		bandwidth += 8 * perSecond * s.Data.P95.Value
		if s.process {
			l.Busy += busy
			l.Cores += busy * s.Cores.P95.Value
			memory += busy * s.Memory.P95.Value
		}
	}
	if l.Busy > 0 {
		l.Workers = int(math.Ceil(l.Busy / (1 - Spare)))
	}
	l.Cores /= 1 - Spare
	l.Memory, l.Bandwidth = int64(memory/(1-Spare)), int64(bandwidth/(1-Spare))
	return l
}

// ParseRate reads a rate of runs, as 100/h, and gives it for an hour. Units are s, m, h and d.
func ParseRate(text string) (perHour float64, err error) {
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.ParseFloat(number, 64)
	times, known := map[string]float64{"s": 3600, "m": 60, "h": 1, "d": 1.0 / 24}[unit]
	if err != nil || !known || !(n > 0 && n < 1e12) {
		return 0, fmt.Errorf("parse rate %q: a number above 0, then /s, /m, /h or /d", text)
	}
	return n * times, nil
}

// timeout proposes between twice and three times the P99, the larger the fewer samples there are, in a time that people
// write; it is never below a second.
func timeout(p99 float64, sure bool) float64 {
	factor := 2.2
	if !sure {
		factor = 2.7
	}
	seconds := max(1, factor*p99)
	step := 0.1
	for _, s := range []float64{1, 5, 15, 60, 300, 900} {
		if s <= seconds/10 { // rounding adds a tenth at most
			step = s
		}
	}
	tenths := math.Round(10 * step) // in whole tenths the sum is exact
	return tenths * math.Ceil(10*seconds/tenths-1e-9) / 10
}

// ask proposes the P99 with Spare added, rounded up.
func (s *Stage) ask() Ask {
	a := Ask{CPU: math.Ceil(max(0.1, s.Cores.P95.Value*(1+Spare))*10-1e-9) / 10}
	a.Memory = roundSize(s.Memory.P99.Value*(1+Spare), 16<<20)
	a.Disk = roundSize(s.written.P99.Value*(1+Spare), 16<<20)
	return a
}

// roundSize rounds up to whole steps, in larger sizes to a sixteenth of the power of two below; 0 stays 0.
func roundSize(bytes float64, step int64) int64 {
	if bytes <= 0 {
		return 0
	}
	for float64(step)*32 <= bytes {
		step *= 2
	}
	return int64(math.Ceil(bytes/float64(step))) * step
}

// Span writes seconds as definitions write them.
func Span(seconds float64) time.Duration { return time.Duration(math.Round(seconds * 1e9)) }
