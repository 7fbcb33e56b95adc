package cmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

func textApp(tag, color string) (*app, *bytes.Buffer) {
	var out bytes.Buffer
	return &app{out: &out, say: lang.New(tag), color: color, output: "text", env: func(string) string { return "" }}, &out
}

func TestTableAlignsChinese(t *testing.T) {
	t.Parallel()
	a, out := textApp("zh", "never")
	rows := [][]string{{"订单清洗", "✔ 完成", "x"}, {"hello", "✖ 失败", "y"}}
	if err := a.table(a.heads("pipeline", "state", "why"), rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, last := range []string{"原因", "x", "y"} {
		before, _, ok := strings.Cut(lines[i], last)
		if got, want := screen.StringWidth(before), 10+8; !ok || got != want {
			t.Errorf("line %d: the last column begins at %d, want %d: %q", i, got, want, lines[i])
		}
	}
}

func TestTableKeepsItsColoursAndNoOthers(t *testing.T) {
	t.Parallel()
	a, out := textApp("en", "always")
	rows := [][]string{{a.state(events.Failed), "evil\x1b[2J\x07", "z"}, {a.paint(bad, "in\x1b[31mside"), "", ""}}
	if err := a.table([]string{"A", "B", "C"}, rows); err != nil {
		t.Fatal(err)
	}
	want := "\x1b[2mA\x1b[0m         \x1b[2mB\x1b[0m      \x1b[2mC\x1b[0m\n" +
		"\x1b[31m✖ failed\x1b[0m  evil\ufffd  z\n" +
		"\x1b[31minside\x1b[0m\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestLineIsOneLine(t *testing.T) {
	t.Parallel()
	if got := line("a\tb\nc"); got != "a b c" {
		t.Errorf("line: %q", got)
	}
}

func TestDurationsAreNeverNegative(t *testing.T) {
	t.Parallel()
	a, _ := textApp("en", "never")
	if got := span(2e9, 1e9); got != "0µs" {
		t.Errorf("span back in time: %q", got)
	}
	if got := span(0, 1e9); got != "" {
		t.Errorf("span of what did not begin: %q", got)
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "just now", 0: "just now", 90 * time.Second: "1m30s ago", 125 * time.Minute: "2h5m ago", 75 * time.Hour: "3 days ago",
	} {
		if got := a.ago(time.Now().Add(-d - 100*time.Millisecond).UnixNano()); got != want {
			t.Errorf("ago %v: %q, want %q", d, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		900 * time.Nanosecond: "0µs", 12 * time.Millisecond: "12ms", 1500 * time.Millisecond: "1.5s", 59960 * time.Millisecond: "1m0s", time.Hour: "1h0m0s",
	} {
		if got := short(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// drawn draws stages given as "name: need need", one a line.
func drawn(t *testing.T, stages string) string {
	t.Helper()
	plan := &events.Plan{Pipeline: "p"}
	for l := range strings.SplitSeq(strings.TrimSpace(stages), "\n") {
		name, needs, _ := strings.Cut(l, ":")
		plan.Stages = append(plan.Stages, events.Stage{Name: strings.TrimSpace(name), Needs: strings.Fields(needs)})
	}
	g, err := events.NewGraph(plan, events.Digest{})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := textApp("en", "never")
	return "\n" + strings.Join(a.planLines(g), "\n") + "\n"
}

func TestTree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stages, want string }{
		"one": {"a:", `
a
`},
		"chain": {"fetch:\nclean: fetch\nload: clean", `
fetch
↓ clean
↓ load
`},
		"fan-out": {"a:\nb: a\nb2: b\nc: a\nc2: c", `
a
├─ b
│  ↓ b2
└─ c
   ↓ c2
`},
		"diamond": {"a:\nb: a\nc: a\nd: b c\nend: d", `
a
├─ b
├─ c
└─ d      ← b, c
   ↓ end
`},
		"several roots": {"a:\nb:\nc: a b", `
a
b
c  ← a, b
`},
		"a need above another": {"a:\nb: a\nc: a b", `
a
↓ b
↓ c  ← a, b
`},
		"a need that parted ways again": {"a:\nb: a\nc: a\nd: b c a", `
a
├─ b
├─ c
└─ d  ← b, c, a
`},
		"Chinese": {"取数:\n清洗: 取数\n入库: 取数", `
取数
├─ 清洗
└─ 入库
`},
	} {
		if diff := cmp.Diff(c.want, drawn(t, c.stages)); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", name, diff)
		}
	}
}
