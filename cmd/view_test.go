package cmd_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

type runView struct {
	Run, State, Class, Reason, Delivery, Pipeline, Parent string

	EndedAt string `json:"ended_at"`
	Sample  int
	Stages  []stageView
}

type stageView struct {
	Stage, State, Class, Reason string
	Item                        int // 0 is a stage of the plan
	Attempt                     int
	Outputs                     map[string]outputView
}

type outputView struct {
	Digest string
	Value  json.RawMessage
}

type deliveryView struct{ Delivery, Fate, Run, Trigger string }

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}

func (s *site) show(run string) runView {
	s.t.Helper()
	return decode[runView](s.t, s.must("show", run, "-o", "json"))
}

func (s *site) runs() []runView {
	s.t.Helper()
	return decode[[]runView](s.t, s.must("runs", "--limit", "10000", "-o", "json"))
}

func (s *site) inbox() []deliveryView {
	s.t.Helper()
	return decode[[]deliveryView](s.t, s.must("inbox", "--limit", "10000", "-o", "json"))
}

// event is one line of `apollo events`.
type event struct {
	Type string
	Data struct {
		Stage, Class, Reason string
		Attempt, Leftovers   int
		Exit                 int
		Signal               string
	}
}

func (s *site) events(run string) (log []event) {
	s.t.Helper()
	for line := range strings.Lines(s.must("events", run)) {
		e := decode[event](s.t, line)
		e.Type = strings.TrimSuffix(strings.TrimPrefix(e.Type, "apollo."), ".v1")
		log = append(log, e)
	}
	return log
}

func count(log []event, kind, stage string) int {
	return len(slices.DeleteFunc(slices.Clone(log), func(e event) bool { return e.Type != kind || e.Data.Stage != stage }))
}
