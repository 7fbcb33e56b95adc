package cmd

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
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
