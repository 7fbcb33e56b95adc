package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFigureBesideLimit(t *testing.T) {
	t.Parallel()
	at := func(perSecond, p50 float64) limit { return limit{perSecond: perSecond, times: []float64{p50}} }
	rate := rateOf("rate", "steps/s", 2200, 10, []float64{1, 2, 3})
	span := timeOf("time", []float64{1, 3, 5})
	for _, c := range []struct {
		name          string
		result        result
		before, after limit
		limit, ratio  float64
		void          bool
	}{
		{"a rate goes over transactions per second", rate, at(1000, 1), at(1200, 9), 1100, 2, false},
		{"a time goes over the p50", span, at(1, 0.5), at(9, 0.5), 0.5, 6, false},
		{"20 % is not void", rate, at(1000, 1), at(1200, 1), 1100, 2, false},
		{"over 20 % up is void", rate, at(1000, 1), at(1201, 1), 1100.5, 2200 / 1100.5, true},
		{"over 20 % down is void", rate, at(1201, 1), at(1000, 1), 1100.5, 2200 / 1100.5, true},
		{"a drifting p50 voids a time", span, at(1, 1), at(1, 2), 1.5, 2, true},
		{"no limit at all is void", rate, at(0, 0), at(0, 0), 0, 0, true},
	} {
		got := c.result.beside(c.before, c.after)
		if got.LimitValue != c.limit || got.Ratio != c.ratio || got.Void != c.void {
			t.Errorf("%s: limit %v ratio %v void %v, want %v %v %v", c.name, got.LimitValue, got.Ratio, got.Void, c.limit, c.ratio, c.void)
		}
	}
}

// TestVoidIsMeasuredAgain has a disk that is slow in the third reading only: both figures beside it are void, measured again and then good.
func TestVoidIsMeasuredAgain(t *testing.T) {
	t.Parallel()
	readings := 0
	b := bench{dir: t.TempDir(), effort: effort{retry: time.Hour}, progress: io.Discard, start: time.Now()}
	b.readLimit = func(context.Context, string, time.Duration) (limit, error) {
		readings++
		if readings == 3 {
			return limit{perSecond: 500, times: []float64{2}}, nil
		}
		return limit{perSecond: 1000, times: []float64{1}}, nil
	}
	counts := map[string]int{}
	counting := func(name string) measurement {
		return measurement{name, func(context.Context, string, effort) ([]result, error) {
			counts[name]++
			return []result{rateOf(name, "steps/s", float64(counts[name]), 1, nil)}, nil
		}}
	}
	broken := measurement{"broken", func(context.Context, string, effort) ([]result, error) { return nil, errors.New("no peer") }}
	figures, err := b.all(t.Context(), []measurement{counting("a"), counting("b"), counting("c"), broken, counting("d")})
	if err == nil || !strings.Contains(err.Error(), "measure broken: no peer") {
		t.Errorf("error = %v, want the broken peer's", err)
	}
	var got []string
	for _, f := range figures[:len(figures)-1] {
		got = append(got, f.Name)
		if f.Void {
			t.Errorf("%s is still void", f.Name)
		}
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("figures = %v, want %v", got, want)
	}
	if counts["a"] != 1 || counts["b"] != 2 || counts["c"] != 2 || counts["d"] != 1 {
		t.Errorf("runs = %v, want b and c twice", counts)
	}
	if s1 := figures[len(figures)-1]; s1.Name != "s1_transactions_per_s" || s1.Value != 1000 || !s1.Void {
		t.Errorf("S1 over the run = %+v, want the median 1000, void", s1)
	}
	if left, _ := os.ReadDir(b.dir); len(left) != 0 {
		t.Errorf("%d directories left behind", len(left))
	}
}

func TestReportShape(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := (report{Machine: thisMachine(time.Unix(0, 0)), Figures: []figure{{Name: "x"}}}).writeJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got map[string]json.RawMessage
	var figures []map[string]any
	var on map[string]any
	if err := errors.Join(json.Unmarshal(out.Bytes(), &got), json.Unmarshal(got["figures"], &figures), json.Unmarshal(got["machine"], &on)); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, "machine", on, "cores", "cpu", "go", "os", "date")
	wantKeys(t, "figure", figures[0], "name", "value", "unit", "limit_value", "ratio", "samples", "p50", "p99", "void")
	if len(got) != 2 {
		t.Errorf("report has %d keys, want machine and figures", len(got))
	}
}

func wantKeys(t *testing.T, what string, object map[string]any, want ...string) {
	t.Helper()
	for _, key := range want {
		if _, ok := object[key]; !ok {
			t.Errorf("%s has no %q", what, key)
		}
	}
	if len(object) != len(want) {
		t.Errorf("%s has %d keys, want %d: %v", what, len(object), len(want), object)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-h"}, 0, "-dagu PATH"},
		{[]string{"-o", "xml"}, 2, "want text or json"},
		{[]string{"surplus"}, 2, `unexpected argument "surplus"`},
		{[]string{"--dagu", "/no/such/dagu"}, 2, "--dagu"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), c.args, &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%v: code %d, stderr %q, want %d and %q", c.args, code, stderr.String(), c.code, c.says)
		}
	}
}
