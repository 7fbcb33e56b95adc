package compare

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func never() error { return nil }

// TestTableModel holds the streaming join against counting.
func TestTableModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		row := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "牛", "1,2"}), 2, 2)
		a, b := rapid.SliceOfN(row, 0, 12).Draw(t, "a"), rapid.SliceOfN(row, 0, 12).Draw(t, "b")
		keyed := rapid.Bool().Draw(t, "keyed")
		var key []string
		if keyed {
			key = []string{"k"}
		}
		got, err := compareTables("csv", key, 1000, joinBudget, never, encode(t, a), encode(t, b))
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string][2]int{}
		name := func(r []string) string {
			if keyed {
				return r[0]
			}
			return fmt.Sprintf("%q", r)
		}
		for side, rows := range [][][]string{a, b} {
			for _, r := range rows {
				c := counts[name(r)]
				c[side]++
				counts[name(r)] = c
			}
		}
		removed, added := 0, 0
		for _, c := range counts {
			removed, added = removed+max(0, c[0]-c[1]), added+max(0, c[1]-c[0])
		}
		if !keyed && got.Changed > 0 { // by position
			removed, added = removed-got.Changed, added-got.Changed
		}
		if got.Removed != removed || got.Added != added || len(got.Rows) != got.Added+got.Removed+got.Changed {
			t.Fatalf("removed %d of %d, added %d of %d, %d rows", got.Removed, removed, got.Added, added, len(got.Rows))
		}
	})
}

func encode(t *rapid.T, rows [][]string) *bytes.Reader {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.WriteAll(append([][]string{{"k", "v"}}, rows...)); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

func TestTooMuchWaits(t *testing.T) {
	t.Parallel()
	var a, b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&a, "%d,x\n", i)
		fmt.Fprintf(&b, "%d,x\n", i+5000)
	}
	got, err := compareTables("csv", []string{"k"}, 3, 10_000, never, strings.NewReader("k,v\n"+a.String()), strings.NewReader("k,v\n"+b.String()))
	if err != nil || !got.Partial || got.Removed == 0 || got.Removed > 100 {
		t.Errorf("%v %+v", err, got)
	}
}

// TestParts holds the search for the place against looking at every byte.
func TestParts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\n")), 0, 40, -1)
		head, a, b := strings.Repeat("some line\n", rapid.IntRange(0, 14000).Draw(t, "head")), text.Draw(t, "a"), text.Draw(t, "b")
		x, y := head+a, head+b
		p, err := parts(context.Background(), strings.NewReader(x), strings.NewReader(y))
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for want < min(len(x), len(y)) && x[want] == y[want] {
			want++
		}
		if p.offset != int64(want) || p.start > p.offset {
			t.Fatalf("they part at %d, starts at %d, want %d", p.offset, p.start, want)
		}
		if p.line != 1+strings.Count(x[:p.start], "\n") || p.start > 0 && x[p.start-1] != '\n' {
			t.Fatalf("line %d at %d", p.line, p.start)
		}
		if between := strings.Count(x[p.start:p.offset], "\n"); between > context3 || between < context3 && p.start > 0 {
			t.Fatalf("%d lines before the place", between)
		}
	})
}
