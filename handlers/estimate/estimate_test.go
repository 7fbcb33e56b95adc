package estimate

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// chain is fetch → clean, and beside it each, which runs for every item, and ask, which waits for a person.
func chain() *events.Plan {
	return &events.Plan{Schema: 1, Pipeline: "orders", Stages: []events.Stage{
		{Name: "fetch", Executor: "shell", Inputs: []events.Input{{Role: "drop", From: "trigger.file", Expr: true}}},
		{Name: "clean", Executor: "shell", Needs: []string{"fetch"}, Inputs: []events.Input{
			{Role: "orders", From: "stages.fetch.outputs.orders", Expr: true}, {Role: "note", From: "stages.fetch.outputs.orders"}}},
		{Name: "each", Executor: "shell", Foreach: "params.regions"},
		{Name: "ask", Executor: "approval", Needs: []string{"clean"}},
	}}
}

// happened adds a run; seconds are from its start.
type happened struct {
	run *Run
	t   *testing.T
}

func (h happened) add(second float64, kind events.Type, d events.Data) {
	h.run.Add(&events.Event{Type: kind, Time: 1e18 + int64(second*1e9), Data: d})
}

func TestHistoryOfRuns(t *testing.T) {
	t.Parallel()
	plan := chain()
	h := NewHistory(plan)
	for range 2 {
		r := happened{h.Begin(plan), t}
		r.add(0, events.RunCreated, events.Data{Size: 1000})
		r.add(1, events.RunStarted, events.Data{})
		r.add(1, events.StageStarted, events.Data{Worker: "w", Stage: "fetch", Attempt: 1})
		r.add(2, events.StageRetryScheduled, events.Data{Stage: "fetch", Attempt: 1, Class: events.ExecFailed})
		r.add(5, events.StageStarted, events.Data{Worker: "w", Stage: "fetch", Attempt: 2})
		r.add(7, events.StageCompleted, events.Data{Stage: "fetch", Attempt: 2, Duration: 2 * time.Second, IO: events.IO{Written: 900},
			Usage: events.Usage{User: 2 * time.Second, System: time.Second, MaxRSS: 100 << 20}, Outputs: []events.Result{{Role: "orders", Size: 500, Records: 7}}})
		r.add(7, events.StageStarted, events.Data{Worker: "w", Stage: "clean", Attempt: 1})
		r.add(11, events.StageCompleted, events.Data{Stage: "clean", Attempt: 1, Duration: 4 * time.Second, Outputs: []events.Result{{Role: "clean", Size: 300, Records: -1}}})
		r.add(7, events.StageStarted, events.Data{Stage: "each", Items: json.RawMessage(`["a","b"]`), Count: 2})
		for item := 1; item <= 2; item++ {
			r.add(7, events.StageStarted, events.Data{Worker: "w", Stage: "each", Item: item, Attempt: 1})
			r.add(8, events.StageCompleted, events.Data{Stage: "each", Item: item, Attempt: 1, Duration: time.Duration(item) * time.Second})
		}
		r.add(10, events.StageCompleted, events.Data{Stage: "each"})
		r.add(11, events.StageStarted, events.Data{Worker: "w", Stage: "ask", Attempt: 1})
		r.add(71, events.StageCompleted, events.Data{Stage: "ask", Attempt: 1, Duration: time.Minute})
		r.add(71, events.RunCompleted, events.Data{})
	}
	sample := happened{h.Begin(plan), t}
	sample.add(0, events.RunCreated, events.Data{Sample: 10})
	sample.add(0, events.StageStarted, events.Data{Worker: "w", Stage: "fetch", Attempt: 1})
	sample.add(9, events.StageCompleted, events.Data{Stage: "fetch", Attempt: 1, Duration: time.Hour})
	e := h.Estimate(3600)
	if e.Runs != 2 || e.Samples != 2 || e.Sure || e.Duration.P95.Value != 70 {
		t.Errorf("runs %+v", e)
	}
	if got := fmt.Sprint(e.Critical); got != "{[fetch clean ask] 70}" {
		t.Errorf("critical path %s", got)
	}
	for i, want := range []string{
		"fetch n=2 failed=2 2/run p95=2s cores=1.5 mem=1.048576e+08(2) data=1500 records=7 bps=6000",
		"clean n=2 failed=0 1/run p95=4s cores=0 mem=0(0) data=800 records=0 bps=1600",
		"each n=4 failed=0 2/run p95=2s cores=0 mem=0(0) data=0 records=0 bps=0",
		"ask n=2 failed=0 1/run p95=60s cores=0 mem=0(0) data=0 records=0 bps=0",
	} {
		s := &e.Stages[i]
		if got := fmt.Sprintf("%s n=%d failed=%d %v/run p95=%vs cores=%v mem=%v(%d) data=%v records=%v bps=%v", s.Stage, s.Samples, s.Failed, s.PerRun,
			s.Duration.P95.Value, s.Cores.P95.Value, s.Memory.P95.Value, s.Measured, s.Data.P95.Value, s.Records.P95.Value, s.Bandwidth.P95.Value); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	// One run a second: fetch twice for 2 s, clean for 4 s, each twice for 2 s are 12 slots; an approval holds none.
	if l := e.Load; l.Busy != 12 || l.Workers != 18 || math.Abs(l.Cores-6/0.7) > 1e-9 || l.Memory>>20 != 571 || l.Bandwidth != 43428 {
		t.Errorf("load %+v", l)
	}
	if a := e.Stages[0].Resources; a.CPU != 2 || a.Memory != 144<<20 || a.Disk != 16<<20 {
		t.Errorf("proposed %+v", a)
	}
	if e := h.Estimate(0); e.Load != nil {
		t.Errorf("a load without a rate: %+v", e.Load)
	}
}

func TestCriticalPathTakesTheSlowestNeed(t *testing.T) {
	t.Parallel()
	plan := &events.Plan{Stages: []events.Stage{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d", Needs: []string{"a", "b", "c"}}, {Name: "e", Needs: []string{"a"}}}}
	h := NewHistory(plan)
	for i, seconds := range []float64{2, 7, 3, 1, 5} {
		h.stages[i].wall = []float64{seconds}
	}
	if got := fmt.Sprint(h.Estimate(0).Critical); got != "{[b d] 8}" {
		t.Errorf("got %s", got)
	}
}

func TestAStageWithoutHistory(t *testing.T) {
	t.Parallel()
	e := NewHistory(chain()).Estimate(100)
	if e.Proposal != "" || e.Load.Workers != 0 || e.Stages[0].Timeout != 0 || e.Runs != 0 {
		t.Errorf("got %+v", e)
	}
}

// What is proposed can be pasted: it is a definition but for what the stages do.
func TestProposalIsOfTheLanguage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		stages := make([]Stage, rapid.IntRange(1, 5).Draw(t, "stages"))
		for i := range stages {
			s := series{}
			for range rapid.IntRange(1, 30).Draw(t, "samples") {
				took := rapid.Int64Range(0, int64(200*time.Hour)).Draw(t, "took")
				s.complete(&events.Data{Duration: time.Duration(took),
					IO:    events.IO{Written: rapid.Int64Range(0, 1<<45).Draw(t, "written")},
					Usage: events.Usage{User: time.Duration(rapid.Int64Range(0, 64*took).Draw(t, "user")), MaxRSS: rapid.Int64Range(0, 1<<45).Draw(t, "memory")}}, 0)
			}
			stages[i] = s.estimate(fmt.Sprintf("stage-%d", i), 10)
			stages[i].process = true
		}
		text := proposal(stages)
		src := "name: x\n" + strings.ReplaceAll(text, "    timeout:", "    run: \"true\"\n    timeout:")
		p, problems := configs.Parse("x.yaml", []byte(src), "", configs.Options{})
		if problems.HasErrors() {
			t.Fatalf("%v\n%s", problems, src)
		}
		for i, got := range p.Plan().Stages {
			s, asked := &stages[i], got.Resources
			if got.Timeout != Span(s.Timeout) || asked.Memory != s.Resources.Memory || asked.Disk != s.Resources.Disk || asked.CPU != s.Resources.CPU {
				t.Fatalf("%+v became %+v", s, got)
			}
			if m := s.Memory.P99.Value; float64(asked.Memory) < 1.3*m || m > 16<<20 && float64(asked.Memory) > 3*m {
				t.Fatalf("P99 %v, proposed %v", m, asked.Memory)
			}
		}
	})
}

func TestTimeoutIsTwoToThreeTimesTheP99(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p99, sure := rapid.Float64Range(0, 1e6).Draw(t, "p99"), rapid.Bool().Draw(t, "sure")
		got := timeout(p99, sure)
		if got < 2*p99 || got > max(1, 3*p99) || got < 1 {
			t.Fatalf("%v seconds: proposed %v", p99, got)
		}
	})
	for p99, want := range map[float64]float64{0: 1, 0.001: 1, 1: 2.2, 10: 22, 61: 135, 1000: 2220} {
		if got := timeout(p99, true); got != want {
			t.Errorf("%v: got %v, want %v", p99, got, want)
		}
	}
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"100/h": 100, "2/s": 7200, "1.5/m": 90, "48/d": 2} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "100", "100/", "/h", "-1/h", "0/h", "1/w", "NaN/h", "Inf/s", "1/h/h", "1e300/s"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// Nothing ran for a stage that took over its result, or had it already: neither its time nor the run's says anything.
func TestResultsTakenOverSayNothing(t *testing.T) {
	t.Parallel()
	plan := chain()
	h := NewHistory(plan)
	r := happened{h.Begin(plan), t}
	r.add(0, events.RunCreated, events.Data{})
	r.add(0, events.RunStarted, events.Data{})
	r.add(0, events.StageStarted, events.Data{Stage: "fetch", Attempt: 1})
	r.add(0, events.StageCompleted, events.Data{Stage: "fetch", Attempt: 1})
	r.add(0, events.StageStarted, events.Data{Stage: "clean", Attempt: 1, Worker: "w"})
	r.add(4, events.StageCompleted, events.Data{Stage: "clean", Attempt: 1, Duration: 4 * time.Second})
	r.add(4, events.RunCompleted, events.Data{})
	fetch, clean := &h.stages[0], &h.stages[1]
	if fetch.started+len(fetch.duration)+len(fetch.wall) != 0 || len(h.took) != 0 {
		t.Errorf("taken over: %+v, runs %v", fetch, h.took)
	}
	if clean.started != 1 || len(clean.duration) != 1 || len(clean.wall) != 1 {
		t.Errorf("ran: %+v", clean)
	}
}
