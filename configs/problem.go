package configs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// The severities of a Problem.
const (
	SeverityError   = "error"
	SeverityWarning = "warning"
)

// Problem is one thing that is wrong at one place. Line and Col count from 1, Col in characters; 0 means the whole file.
type Problem struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Col      int    `json:"col"`
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
	Expected string `json:"expected"`
	Hint     string `json:"hint"`
	Snippet  string `json:"-"` // the source line and a caret under the place, for terminals
}

// Text gives "file:line:col: CODE: what; expected …; hint", and below it the source line with a caret.
func (p Problem) Text() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Col)
	}
	fmt.Fprintf(&b, ": %s: %s", p.Code, p.Message)
	if p.Expected != "" {
		b.WriteString("; expected " + p.Expected)
	}
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	if p.Snippet != "" {
		b.WriteString("\n" + p.Snippet)
	}
	return b.String()
}

// Problems is every problem found in one pass, in the order of the files and lines.
type Problems []Problem //nolint:errname // it is a list first, and an error when a caller wants one

// Error joins the texts of all problems.
func (ps Problems) Error() string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.Text()
	}
	return strings.Join(texts, "\n")
}

// HasErrors reports whether any problem is more than a warning.
func (ps Problems) HasErrors() bool { return slices.ContainsFunc(ps, isError) }

// Err gives the problems as an error, or nil when there is none above a warning.
func (ps Problems) Err() error {
	if ps.HasErrors() {
		return ps
	}
	return nil
}

func isError(p Problem) bool { return p.Severity == SeverityError }

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return slices.CompactFunc(ps, func(a, b Problem) bool { // one place is wrong in one way once
		return a.File == b.File && a.Line == b.Line && a.Col == b.Col && a.Code == b.Code && a.Line > 0
	})
}

// secretPattern finds credentials by the shape their issuers give them.
var secretPattern = regexp.MustCompile(`gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}|` +
	`\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bxox[abeprs]-[A-Za-z0-9-]{10,}|\b[sr]k_live_[A-Za-z0-9]{16,}|\bAIza[A-Za-z0-9_-]{30,}|` +
	`whsec_[A-Za-z0-9+/=]{16,}|-----BEGIN [A-Z ]*PRIVATE KEY-----`)

// secretSigns are the fixed parts of secretPattern: text without any of them need not be matched, which is slow.
var secretSigns = []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "AKIA", "ASIA", "xox", "k_live_", "AIza", "whsec_", "-----BEGIN "}

// secretIn gives where a credential stands in a text, or nil.
func secretIn(s string) []int {
	if !slices.ContainsFunc(secretSigns, func(sign string) bool { return strings.Contains(s, sign) }) {
		return nil
	}
	return secretPattern.FindStringIndex(s)
}

// masked hides credentials, so that no message and no snippet repeats one.
func masked(s string) string {
	if secretIn(s) == nil {
		return s
	}
	return secretPattern.ReplaceAllString(s, "********")
}

const (
	snippetWidth = 100 // columns of a long source line that a snippet shows
	snippetBytes = 600 // bytes before and after the place that are looked at
)

// snippet draws the source line and a caret below column col, right also when wide characters stand before it.
func snippet(lines []string, line, col int) string {
	if line < 1 || line > len(lines) || col < 1 {
		return ""
	}
	text := lines[line-1]
	at := byteOffset(text, col-1)
	from, to := max(0, at-snippetBytes), min(len(text), at+snippetBytes)
	left, right := []rune(shown(text[from:at])), []rune(shown(text[at:to]))
	if secretIn(text[from:to]) != nil {
		return maskedLine(text) // a caret could tell where in the secret the place is
	}
	before := "  "
	if len(left) > snippetWidth*2/3 {
		left, before = left[len(left)-snippetWidth/2:], "… "
	}
	right = right[:min(len(right), snippetWidth-len(left))]
	return before + string(left) + string(right) + "\n  " + strings.Repeat(" ", runewidth.StringWidth(string(left))) + "^"
}

// maskedLine shows a line that holds a secret, or nothing when it is long.
func maskedLine(text string) string {
	line := masked(shown(text))
	if len(line) > 2*snippetBytes {
		return ""
	}
	return "  " + line
}

func shown(s string) string { return printable(strings.ToValidUTF8(s, "\ufffd")) }

// byteOffset gives where the character of a number, counted from 0, begins.
func byteOffset(s string, character int) int {
	for i := range s {
		if character == 0 {
			return i
		}
		character--
	}
	return len(s)
}

// printable replaces what would move the cursor: a tab becomes one blank, any other control character a mark.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < 0x20, r >= 0x7f && r < 0xa0, r >= 0x200e && r <= 0x200f, r >= 0x2028 && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
			return '\ufffd'
		}
		return r
	}, strings.TrimSuffix(s, "\r"))
}
