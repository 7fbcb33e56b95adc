package events

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// goldenPlan is the plan of the golden runs of version 1; testdata/golden/v1-plan.json holds its bytes.
func goldenPlan() *Plan {
	return &Plan{Schema: 1, Pipeline: "orders", Stages: []Stage{
		{Name: "fetch", Executor: "shell", With: []byte(`{"run":"cp \"$APOLLO_IN_DROP\" orders.csv"}`),
			Retry: &Retry{Max: 2, Interval: 2 * time.Second, Backoff: 2, Jitter: 0.1, On: []string{"timeout", "exit:75"}}},
		{Name: "warm", Executor: "task", MayFail: true},
		{Name: "clean", Executor: "python", Needs: []string{"fetch"}, Outputs: []Output{{Role: "clean", Path: "clean.csv", Format: "csv"}}},
		{Name: "report", Executor: "task", Needs: []string{"clean", "warm"}},
		{Name: "notify", Executor: "http", Needs: []string{"clean"}, Always: true},
	}}
}

// goldenRuns tells the golden runs of version 1. A log that exists is never written again: a change of the code that it
// no longer agrees with is a new version, with an upcaster for the old.
var goldenRuns = map[string]func(s *sim){
	"completed": func(s *sim) {
		s.settleDown()
		s.golden(0, nil)
		s.golden(1, nil)
		s.golden(2, nil)
		s.golden(4, nil)
		s.golden(3, nil)
	},
	"failed": func(s *sim) {
		s.settleDown()
		s.golden(1, &Failure{Class: ExecFailed, Reason: "exit code 1", Exit: 1})
		s.golden(0, nil)
		s.golden(2, &Failure{Class: BadOutput, Reason: "row 3: price is no number: \xff", Pointer: "3:price", Expected: "number",
			Actual: "\xff", Evidence: DigestOf([]byte("bad rows"))})
		s.golden(4, nil)
	},
	"retried": func(s *sim) {
		s.settleDown()
		s.golden(1, nil)
		s.golden(0, &Failure{Class: ExecFailed, Reason: "exit code 75", Exit: 75})
		s.now = s.run.Stages[0].Due
		s.start(0)
		s.golden(0, &Failure{Class: Lost, Reason: "the worker is gone"})
		s.start(0)
		s.emit(StageLateResult, Data{Stage: "fetch", Attempt: 2, Token: 7, Reason: "the attempt was over already"})
		s.golden(0, &Failure{Class: Timeout, Reason: "ran over its time-out of 30s", Expected: "30s"})
		s.golden(4, nil)
		s.resume()
		s.settleDown()
		s.golden(0, nil)
		s.golden(2, nil)
		s.golden(3, nil)
	},
	"cancelled": func(s *sim) {
		s.settleDown()
		s.golden(0, nil)
		s.emit(RunCancelRequested, Data{Reason: "李雷 asked for it"})
		s.settleDown()
		s.golden(1, &Failure{Class: Aborted, Reason: "the run was cancelled"})
		s.golden(2, nil)
	},
}

// golden ends an attempt with everything that a result can say, and lets follow what is due.
func (s *sim) golden(i int, f *Failure) {
	s.now += int64(1500 * time.Millisecond)
	defer s.settleDown()
	if f != nil {
		s.finish(i, f)
		return
	}
	s.emit(StageCompleted, Data{Stage: s.name(i), Attempt: s.run.Stages[i].Attempt, Token: s.run.Stages[i].Token, Duration: 1500 * time.Millisecond,
		Outputs: []Result{{Role: "clean", Digest: DigestOf([]byte("a,b\n")), Size: 4, Records: 0, Name: "clean.csv"},
			{Role: "count", Digest: DigestOf([]byte("17")), Size: 2, Records: -1, Value: []byte("17")}},
		Segments: []Segment{{"下载", time.Second}}, Stdout: LogRef{Bytes: 100, Dropped: 1}, Stderr: LogRef{Bytes: 5},
		Usage: Usage{User: 1e9, System: 2e8, MaxRSS: 12 << 20}, Leftovers: 1,
		Unknown: goldenUnknown()})
}

// goldenUnknown gives two fields of a build so far away that none before it will know them: 100000 and 100001.
func goldenUnknown() []byte {
	b := binary.AppendUvarint(binary.AppendUvarint(nil, 100_000), 5)
	return putBytes(b, 100_001, "new")
}

func goldenOrigin(s *sim) Origin {
	return Origin{Pipeline: "orders", Correlation: s.log[0].Data.Delivery, Trace: s.log[0].Data.Trace}
}

func playGolden(g *Graph, play func(*sim)) *sim {
	s := newSim(g)
	s.now = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC).UnixNano()
	s.emit(RunCreated, Data{Pipeline: "orders", Plan: g.Digest, Params: []byte(`{"region":"eu"}`), Kind: "webhook",
		Trigger: "webhook:orders", Delivery: s.id(), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Pins: []Pair{{"image:clean", "sha256:ab"}, {"script:clean.py", "sha256:cd"}}})
	play(s)
	return s
}

// stateText is what a golden log must fold to.
func stateText(r *Run) string {
	var b strings.Builder
	fmt.Fprintf(&b, "run %s\nclass %q\nreason %q\nculprit %q\ncreated %d\nstarted %d\nended %d\nsequence %d\nhead %s\n", r.State, r.Class,
		r.Reason, r.Culprit, r.Created, r.Started, r.Ended, r.Chain.Sequence, r.Chain.Head)
	for i := range r.Stages {
		s := &r.Stages[i]
		fmt.Fprintf(&b, "stage %s %s attempt %d token %d started %d ended %d waits %q\n", r.Graph.Plan.Stages[i].Name, s.State, s.Attempt,
			s.Token, s.Started, s.Ended, s.Waits)
	}
	return b.String()
}

func goldenPath(name string) string { return filepath.Join("testdata", "golden", name) }

// writeOnce writes a golden file that does not exist, when asked to.
func writeOnce(t *testing.T, name string, content []byte) {
	t.Helper()
	if _, err := os.Stat(goldenPath(name)); err == nil || !*update {
		return
	}
	if err := os.MkdirAll(goldenPath(""), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenPath(name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestGoldenLogsFoldAsTheyAlwaysDid(t *testing.T) {
	t.Parallel()
	written, err := goldenPlan().Encode()
	if err != nil {
		t.Fatal(err)
	}
	writeOnce(t, "v1-plan.json", written)
	planBytes := readTestdata(t, "golden/v1-plan.json")
	plan, err := DecodePlan(planBytes)
	if err != nil {
		t.Fatal(err)
	}
	g, err := NewGraph(plan, DigestOf(planBytes))
	if err != nil {
		t.Fatal(err)
	}
	for name, play := range goldenRuns {
		s := playGolden(g, play)
		if s.failure != nil || !s.run.State.Terminal() {
			t.Fatalf("%s: %s, %v", name, s.run.State, s.failure)
		}
		var lines bytes.Buffer
		for i := range s.log {
			line, err := s.log[i].CloudEvent(goldenOrigin(s))
			if err != nil {
				t.Fatal(err)
			}
			lines.Write(append(line, '\n'))
		}
		writeOnce(t, "v1-"+name+".log", lines.Bytes())
		writeOnce(t, "v1-"+name+".state", []byte(stateText(s.run)))
	}
	logs, err := filepath.Glob(goldenPath("v1-*.log"))
	if err != nil || len(logs) < len(goldenRuns) {
		t.Fatalf("%d golden logs, %v", len(logs), err)
	}
	for _, path := range logs {
		checkGolden(t, g, filepath.Base(path))
	}
}

// checkGolden reads a log from its file alone: nothing of what wrote it takes part.
func checkGolden(t *testing.T, g *Graph, name string) {
	t.Helper()
	p := NewReplayer(g)
	for line := range bytes.Lines(readTestdata(t, "golden/"+name)) {
		e, origin, err := ParseCloudEvent(line)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again, err := e.CloudEvent(origin); err != nil || string(again)+"\n" != string(line) {
			t.Errorf("%s: event %d is rendered otherwise now: %v\n%s\n%s", name, e.Sequence, err, line, again)
		}
		if m := p.Step(&e, e.Data.AppendEncoded(nil)); m != nil {
			t.Fatalf("%s: event %d: recorded %s, recomputed %s", name, m.Sequence, m.Recorded, m.Recomputed)
		}
	}
	want := string(readTestdata(t, "golden/"+strings.TrimSuffix(name, ".log")+".state"))
	if diff := cmp.Diff(want, stateText(p.Run())); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}
