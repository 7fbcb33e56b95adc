package estimate

import (
	"regexp"
	"time"

	"github.com/apollo-11/apollo/events"
)

// History is what runs of one pipeline took. Runs are added one after the other, each with its events in order.
type History struct {
	plan   *events.Plan
	stages []series // in the plan's order
	index  map[string]int
	runs   int
	took   []float64 // seconds of each completed run
}

// series is what the attempts of one stage took. A foreach stage has one attempt for each item.
type series struct {
	started, failed int       // attempts
	wall            []float64 // seconds of the stage from its first start to its completion, with all items and retries

	// Of completed attempts:
	duration  []float64 // seconds
	cores     []float64 // CPU time in each second
	memory    []float64 // bytes at the peak, where that was measured
	data      []float64 // bytes in and out
	perSecond []float64 // bytes in and out, in each second
	written   []float64 // bytes through calls
	records   []float64 // of all outputs
}

// NewHistory begins a history in the terms of the newest plan: stages that it does not have are left out.
func NewHistory(plan *events.Plan) *History {
	h := &History{plan: plan, stages: make([]series, len(plan.Stages)), index: make(map[string]int, len(plan.Stages))}
	for i := range plan.Stages {
		h.index[plan.Stages[i].Name] = i
	}
	return h
}

// Run is one run while its events are added.
type Run struct {
	history *History
	plan    *events.Plan
	begin   int64
	trigger int64                       // bytes that the run came with
	outputs map[string]map[string]int64 // bytes by stage and role
	inputs  map[string][]input
	first   map[string]int64 // when a stage first started
	cut     bool             // a sample run: it says nothing about whole ones
	given   map[string]bool  // stages and instances, by label, that had their outputs already: nothing ran for them
}

// input is where a stage's data comes from: an output of a stage, or the trigger when stage is empty.
type input struct{ stage, role string }

// Begin begins a run with the plan that it was frozen with.
func (h *History) Begin(plan *events.Plan) *Run {
	r := &Run{history: h, plan: plan, outputs: map[string]map[string]int64{}, inputs: make(map[string][]input, len(plan.Stages)), first: map[string]int64{}}
	for i := range plan.Stages {
		r.inputs[plan.Stages[i].Name] = sources(&plan.Stages[i])
	}
	return r
}

var (
	stageOutput = regexp.MustCompile(`\bstages(?:\.|\[")([a-z0-9][a-z0-9_-]*)(?:"\])?\.outputs(?:\.|\[")([a-z0-9][a-z0-9_-]*)`)
	triggerData = regexp.MustCompile(`\btrigger\.(?:file|body|payload)\b`)
)

// sources lists whose bytes the inputs of a stage are.
func sources(s *events.Stage) (list []input) {
	for _, in := range s.Inputs {
		if !in.Expr {
			continue
		}
		for _, m := range stageOutput.FindAllStringSubmatch(in.From, -1) {
			list = append(list, input{m[1], m[2]})
		}
		if triggerData.MatchString(in.From) {
			list = append(list, input{})
		}
	}
	return list
}

// Add takes in the run's next event.
func (r *Run) Add(e *events.Event) {
	switch e.Type {
	case events.RunCreated:
		r.trigger, r.cut = e.Data.Size, e.Data.Sample > 0
		if !r.cut {
			r.history.runs++
		}
	case events.RunStarted:
		r.begin = e.Time
	case events.RunCompleted:
		if r.begin > 0 && !r.cut && len(r.given) == 0 {
			r.history.took = append(r.history.took, time.Duration(max(0, e.Time-r.begin)).Seconds())
		}
	default:
		if i, ok := r.history.index[e.Data.Stage]; ok && !r.cut {
			r.stage(&r.history.stages[i], e)
		}
	}
}

func (r *Run) stage(s *series, e *events.Event) {
	d := &e.Data
	foreach := d.Item > 0 || r.foreach(d.Stage)
	attempt := d.Item > 0 || !foreach // the events of a foreach stage itself are no attempts
	label := (&events.Stage{Name: d.Stage}).Label(d.Item)
	switch e.Type {
	case events.StageStarted:
		if attempt && d.Worker == "" {
			if r.given == nil {
				r.given = map[string]bool{}
			}
			r.given[label] = true
			return
		}
		if attempt {
			s.started++
		}
		if r.first[d.Stage] == 0 {
			r.first[d.Stage] = e.Time
		}
	case events.StageFailed, events.StageRetryScheduled:
		if attempt && d.Attempt > 0 {
			s.failed++
		}
	case events.StageCompleted:
		if attempt && !r.given[label] {
			s.complete(d, r.volume(d))
		}
		if d.Item == 0 {
			if first := r.first[d.Stage]; first > 0 && !r.given[label] {
				s.wall = append(s.wall, time.Duration(max(0, e.Time-first)).Seconds())
			}
			sizes := make(map[string]int64, len(d.Outputs))
			for _, o := range d.Outputs {
				sizes[o.Role] += o.Size
			}
			r.outputs[d.Stage] = sizes
		}
	default:
	}
}

func (r *Run) foreach(stage string) bool {
	for i := range r.plan.Stages {
		if r.plan.Stages[i].Name == stage {
			return r.plan.Stages[i].Foreach != ""
		}
	}
	return false
}

// volume is the bytes of an attempt's inputs and outputs, as far as the log says them: those of literals and of single
// values inside an expression are not.
func (r *Run) volume(d *events.Data) (bytes int64) {
	for _, in := range r.inputs[d.Stage] {
		if in.stage == "" {
			bytes += r.trigger
		} else {
			bytes += r.outputs[in.stage][in.role]
		}
	}
	for _, o := range d.Outputs {
		bytes += o.Size
	}
	return bytes
}

// shortest is the duration from which CPU time over it says something: of less, the start of a process is most.
const shortest = 10 * time.Millisecond

func (s *series) complete(d *events.Data, volume int64) {
	seconds := d.Duration.Seconds()
	s.duration = append(s.duration, seconds)
	s.data = append(s.data, float64(volume))
	s.written = append(s.written, float64(d.IO.Written))
	if d.Usage.MaxRSS > 0 {
		s.memory = append(s.memory, float64(d.Usage.MaxRSS))
	}
	if d.Duration >= shortest {
		s.cores = append(s.cores, (d.Usage.User+d.Usage.System).Seconds()/seconds)
	}
	if seconds > 0 {
		s.perSecond = append(s.perSecond, float64(volume)/seconds)
	}
	records := int64(0)
	for _, o := range d.Outputs {
		records += max(0, o.Records)
	}
	s.records = append(s.records, float64(records))
}
