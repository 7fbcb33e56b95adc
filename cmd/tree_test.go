package cmd

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

// runOf folds a run of stages, each "name: need need", after some events.
func runOf(t *testing.T, stages []string, log ...events.Event) *view {
	t.Helper()
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: "每日订单"}
	for _, s := range stages {
		name, needs, _ := strings.Cut(s, ":")
		p.Stages = append(p.Stages, events.Stage{Name: name, Executor: "shell", Needs: strings.Fields(needs)})
	}
	g, err := events.NewGraph(p, events.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	all := append([]events.Event{{Sequence: 1, Type: events.RunCreated}, {Sequence: 2, Type: events.RunStarted}}, log...)
	for i := range all {
		all[i].Sequence, all[i].Time = uint64(i+1), int64(i+1)*1e9
		if all[i].Type == events.StageStarted {
			all[i].Data.Attempt = 1
		}
	}
	run, err := events.Fold(g, all)
	if err != nil {
		t.Fatal(err)
	}
	return &view{run: run}
}

func event(kind events.Type, stage string, token int) events.Event {
	e := events.Event{Type: kind, Data: events.Data{Stage: stage, Token: uint64(token)}}
	if kind == events.StageFailed {
		e.Data.Class, e.Data.Reason = events.ExecFailed, "the stage exited with code 3\x1b[2J"
	}
	if kind == events.StageSkipped {
		e.Data.Reason = "needs 清洗, which is failed"
	}
	return e
}

func TestTrees(t *testing.T) {
	t.Parallel()
	wide := []string{"start"}
	log := []events.Event{event(events.StageStarted, "start", 0), event(events.StageCompleted, "start", 3)}
	for i := range 30 {
		wide = append(wide, fmt.Sprintf("s%02d: start", i))
	}
	wide = append(wide, "end: s29")
	views := map[string]*view{
		"chain":   runOf(t, []string{"下载", "清洗: 下载", "notify: 清洗"}, event(events.StageStarted, "下载", 0), event(events.StageCompleted, "下载", 3), event(events.StageStarted, "清洗", 0), event(events.StageFailed, "清洗", 5), event(events.StageSkipped, "notify", 0)),
		"diamond": runOf(t, []string{"a", "b: a", "c: a", "d: b c", "e: d"}),
		"forest":  runOf(t, []string{"a", "x", "b: a", "y: x", "z: x"}),
		"wide":    runOf(t, wide, log...),
	}
	for name, v := range views {
		for _, tag := range lang.Tags() {
			a, _ := textApp(tag, "never")
			golden(t, filepath.Join("testdata", "tree", name+"."+tag+".txt"), strings.Join(a.treeLines(v, false), "\n")+"\n")
		}
	}
	a, _ := textApp(lang.English, "never")
	if n := len(a.treeLines(views["wide"], true)); n != len(wide) {
		t.Errorf("%d lines of %d stages", n, len(wide))
	}
}

// golden compares with a file, or writes it under -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}
