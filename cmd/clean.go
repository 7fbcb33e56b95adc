package cmd

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// escapes are whole terminal control sequences: CSI, OSC and other strings up to their end, and short ones.
var escapes = regexp.MustCompile("(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]" +
	"|(?:\x1b[\\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[^\x07\x1b\u009c\n]*(?:\x07|\x1b\\\\|\u009c)?" +
	"|\x1b[ -/]*[0-~]?")

// sgr are the sequences that this package itself colours text with.
var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// clean makes data safe for a terminal and keeps its line breaks and tabs: control sequences go, any other character
// that could move the cursor, ring, or turn the direction of writing becomes a replacement mark, as does what is not
// UTF-8. A carriage return becomes a line break.
func clean(s string) string {
	if plainText(s) {
		return s
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	s = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(escapes.ReplaceAllString(s, ""))
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case r < 0x20, r >= 0x7f && r < 0xa0, turnsText(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// turnsText reports bidirectional controls, and separators that terminals may take as line breaks.
func turnsText(r rune) bool {
	return r == 0x061c || r == 0x200e || r == 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

func plainText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}
