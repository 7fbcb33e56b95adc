package cmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// difference is one thing that is not as a test expects.
type difference struct {
	At       string `json:"at"` // as stages.clean.outputs.rows.records
	Expected string `json:"expected"`
	Actual   string `json:"actual"`
}

// judgement compares a run with what a test expects of it.
type judgement struct {
	expect      *configs.TestExpect
	run         runJSON
	artifacts   *artifacts.Store
	logs        *view
	differences []difference
	odd         map[string]bool // stages that differ
}

func (j *judgement) differ(at, expected, actual string) {
	j.differences = append(j.differences, difference{at, expected, actual})
}

func (j *judgement) compare() {
	j.odd = map[string]bool{}
	if actual := j.run.State; actual != j.expect.State {
		if j.run.Class != "" {
			actual += " (" + j.run.Class + ": " + j.run.Reason + ")"
		}
		j.differ("state", j.expect.State, actual)
	}
	if j.expect.Class != "" && j.expect.Class != j.run.Class {
		j.differ("class", j.expect.Class, orText(j.run.Class, "none"))
	}
	for i := range j.run.Stages {
		s := &j.run.Stages[i]
		if want, said := j.expect.Stages[s.Stage]; said {
			before := len(j.differences)
			j.stage(s, want)
			j.odd[s.Stage] = len(j.differences) > before
		}
	}
}

func (j *judgement) stage(s *stageJSON, want configs.StageExpect) {
	at := "stages." + s.Stage + "."
	if want.State != "" && want.State != s.State {
		actual := s.State
		if s.Reason != "" {
			actual += " (" + strings.TrimPrefix(s.Class+": ", ": ") + s.Reason + ")"
		}
		j.differ(at+"state", want.State, actual)
	}
	if want.Class != "" && want.Class != s.Class {
		j.differ(at+"class", want.Class, orText(s.Class, "none"))
	}
	if want.Attempt > 0 && want.Attempt != s.Attempt {
		j.differ(at+"attempt", strconv.Itoa(want.Attempt), strconv.Itoa(s.Attempt))
	}
	roles := make([]string, 0, len(want.Outputs))
	for role := range want.Outputs {
		roles = append(roles, role)
	}
	slices.Sort(roles)
	for _, role := range roles {
		out, there := s.Outputs[role]
		if !there {
			j.differ(at+"outputs."+role, "an output", "none")
			continue
		}
		j.output(at+"outputs."+role+".", out, want.Outputs[role])
	}
}

func (j *judgement) output(at string, got outputJSON, want configs.OutputExpect) {
	if want.Digest != "" && want.Digest != got.Digest {
		j.differ(at+"digest", want.Digest, got.Digest)
	}
	if want.Records != nil {
		switch {
		case got.Records == nil:
			j.differ(at+"records", strconv.FormatInt(*want.Records, 10), "not counted: the output has no format")
		case *got.Records != *want.Records:
			j.differ(at+"records", strconv.FormatInt(*want.Records, 10), strconv.FormatInt(*got.Records, 10))
		}
	}
	if want.Value == nil && want.Text == nil && want.Contains == nil {
		return
	}
	text, err := j.text(got)
	if err != nil {
		j.differ(at+"content", "an artifact that can be read", err.Error())
		return
	}
	if want.Value != nil && !sameJSON(want.Value, []byte(text)) {
		j.differ(at+"value", string(want.Value), shownText(text))
	}
	if want.Text != nil && *want.Text != text {
		expected, actual := apart(*want.Text, text)
		j.differ(at+"text", expected, actual)
	}
	for _, part := range want.Contains {
		if !strings.Contains(text, part) {
			j.differ(at+"contains", part, shownText(text))
		}
	}
}

// maxCompared bounds the bytes of an output that are looked at.
const maxCompared = 16 << 20

func (j *judgement) text(o outputJSON) (string, error) {
	if len(o.Value) > 0 {
		return string(o.Value), nil
	}
	if o.Size > maxCompared {
		return "", fmt.Errorf("it has %d bytes, and at most %d are compared; use digest", o.Size, maxCompared)
	}
	d, err := events.ParseDigest(o.Digest)
	if err != nil {
		return "", err
	}
	r, err := j.artifacts.Get(d)
	if err != nil {
		return "", err
	}
	defer r.Close() //nolint:errcheck // read only
	b, err := io.ReadAll(r)
	return string(b), err
}

// sameJSON compares what two documents mean; 1 and 1.0 are the same number.
func sameJSON(a, b []byte) bool {
	x, errA := meaning(a)
	y, errB := meaning(b)
	return errA == nil && errB == nil && reflect.DeepEqual(x, y)
}

func meaning(b []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return exactly(v), nil
}

// exactly gives a number its value when that is exact, and its digits when it is not.
func exactly(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, err := v.Float64()
		if err == nil && f == float64(int64(f)) && f < 1<<53 && f > -1<<53 {
			return int64(f)
		}
		if err == nil {
			return f
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = exactly(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exactly(v[k])
		}
	}
	return v
}

const shownBytes = 400 // of an output in a difference

func shownText(text string) string {
	if len(text) > shownBytes {
		return strings.ToValidUTF8(text[:shownBytes], "") + "…"
	}
	return text
}

// apart shows where two texts part: the first line that differs, with its number.
func apart(want, got string) (expected, actual string) {
	a, b := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return lineOf(a, n), lineOf(b, n)
}

func lineOf(lines []string, n int) string {
	if n >= len(lines) || lines[n] == "" {
		return fmt.Sprintf("line %d: the end", n+1)
	}
	text := lines[n]
	if text, whole := strings.CutSuffix(text, "\n"); whole {
		return fmt.Sprintf("line %d: %s", n+1, strconv.Quote(shownText(text)))
	}
	return fmt.Sprintf("line %d, without a line break: %s", n+1, strconv.Quote(shownText(text)))
}

// tails gives the ends of the logs of stages that failed or differ.
func (j *judgement) tails(wanted bool) []testLog {
	var all []testLog
	for i := range j.run.Stages {
		s := &j.run.Stages[i]
		if !wanted || !j.odd[s.Stage] && s.State != "failed" {
			continue
		}
		for _, stream := range []string{"stderr", "stdout"} {
			if text := lastLines(j.logs.logFile(i, s.Attempt, stream), shownLogLines); text != "" {
				all = append(all, testLog{s.Stage, stream, text})
				break
			}
		}
	}
	return all
}
