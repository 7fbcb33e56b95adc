package cmd

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

func TestCleanStripsWhatMovesATerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"plain", "ok\tline\n", "ok\tline\n"},
		{"Chinese", "订单 ✔", "订单 ✔"},
		{"colour", "\x1b[1;31mred\x1b[0m", "red"},
		{"clear the screen", "a\x1b[2Jb", "ab"},
		{"clipboard", "a\x1b]52;c;aGk=\x07b", "ab"},
		{"title, ended by ST", "a\x1b]0;title\x1b\\b", "ab"},
		{"string without an end", "a\x1b]0;title\nb", "a\nb"},
		{"C1", "a\u009b31mb", "ab"},
		{"overwrite", "good\rbad", "good\nbad"},
		{"Windows line", "a\r\nb", "a\nb"},
		{"bell and backspace", "a\x07\x08b", "a\ufffd\ufffdb"},
		{"direction of writing", "a\u202eb\u2066c", "a\ufffdb\ufffdc"},
		{"line separator", "a\u2028b", "a\ufffdb"},
		{"no UTF-8", "a\xffb", "a\ufffdb"},
		{"escape at the end", "a\x1b", "a"},
	} {
		if got := clean(c.in); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestCleanLeavesNothingThatATerminalObeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.SampledFrom([]string{"\x1b", "[", "]", "P", "0", ";", "m", "\x07", "\\", "\u009b", "\u009d", "\u009c", "\r", "\n", "\xff", "\u202e", "中"})).Draw(t, "in")
		got := clean(strings.Join(in, ""))
		for _, r := range got {
			if r != '\n' && r != '\t' && (r < 0x20 || r >= 0x7f && r < 0xa0 || turnsText(r)) {
				t.Fatalf("%q holds %q", got, r)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q is no UTF-8", got)
		}
	})
}

func testApp(tag string) (*app, *bytes.Buffer) {
	var out bytes.Buffer
	return &app{out: &out, err: &out, env: func(string) string { return "" }, say: lang.New(tag), color: "never", output: "text"}, &out
}

func TestTableIsStraightWithChinese(t *testing.T) {
	t.Parallel()
	a, out := testApp(lang.Chinese)
	if err := a.table([]string{"流水线", "STATE", "WHY"}, [][]string{{"orders", a.state(events.Completed), "x"}, {"每日订单", "✖", "y\x1b[2J\nz"}}); err != nil {
		t.Fatal(err)
	}
	var columns []int
	for l := range strings.Lines(out.String()) {
		last := strings.LastIndexAny(l, "Wxy")
		if strings.HasPrefix(l, "每") {
			last = strings.LastIndex(l, "y")
		}
		columns = append(columns, screen.StringWidth(l[:last]))
	}
	if columns[0] != columns[1] || columns[1] != columns[2] {
		t.Errorf("the last column begins at %v:\n%s", columns, out)
	}
	if strings.Count(out.String(), "\n") != 3 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("a cell broke the table:\n%q", out)
	}
}

func TestCutKeepsColoursAndWidth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"清洗订单", 8, "清洗订单"},
		{"清洗订单", 7, "清洗订…"},
		{"清洗订单", 6, "清洗…"},
		{"\x1b[31mfailed\x1b[0m", 6, "\x1b[31mfailed\x1b[0m"},
		{"\x1b[31mfailed\x1b[0m", 4, "\x1b[31mfai…\x1b[0m"},
	} {
		if got := cut(c.in, c.width); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
}

func TestDurationsAreShort(t *testing.T) {
	t.Parallel()
	for ns, want := range map[int64]string{0: "0µs", 999_000: "999µs", 12e6: "12ms", 1.5e9: "1.5s", 61e9: "1m1s", 3600e9: "1h0m0s"} {
		if got := span(1, 1+ns); got != want {
			t.Errorf("%d ns: %s, want %s", ns, got, want)
		}
	}
	if got := span(10, 1); got != "0µs" {
		t.Errorf("a clock that went back gave %s", got)
	}
}
