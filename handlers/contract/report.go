package contract

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/apollo-11/apollo/events"
)

// MaxKept is how many violations a report keeps; all are counted.
const MaxKept = 100

// maxShown is how many characters of a value a report shows.
const maxShown = 64

// Report is what a check found. A file with no violation met its contract.
type Report struct {
	Records    int64       `json:"records"` // CSV rows below the header, elements of a JSON array, NDJSON lines; -1 when the format has none
	Bytes      int64       `json:"bytes"`   // that were read
	Total      int64       `json:"total"`   // all violations
	Violations []Violation `json:"violations,omitempty"`
}

// Violation is one place where the data is not what the contract says. Texts are shortened to 64 characters and
// control characters are escaped.
type Violation struct {
	Row      int64             `json:"row,omitempty"`    // CSV: record number, the header is 1
	Line     int               `json:"line,omitempty"`   // CSV and NDJSON: line of the file, from 1
	Column   string            `json:"column,omitempty"` // CSV: name in the header
	Number   int               `json:"number,omitempty"` // CSV: number of the column, from 1
	Pointer  string            `json:"pointer"`          // JSON pointer; CSV: row:column, for malformed text line:column
	Rule     string            `json:"rule"`             // the schema's keyword, or a code as E_CSV
	Expected string            `json:"expected,omitempty"`
	Actual   string            `json:"actual,omitempty"`
	Type     string            `json:"type,omitempty"`   // JSON type of the actual value: for those who must not see the value
	Record   map[string]string `json:"record,omitempty"` // CSV: the whole row
}

// OK reports whether the contract was met.
func (r *Report) OK() bool { return r.Total == 0 }

// add counts a violation and keeps it if it is one of the first; only then is it made.
func (r *Report) add(build func() Violation) {
	if r.Total++; len(r.Violations) < MaxKept {
		r.Violations = append(r.Violations, build())
	}
}

// Failure gives the first violation as the failure of an attempt, or nil when there is none. The whole report is its
// evidence, which the caller stores.
func (r *Report) Failure(class events.Class) *events.Failure {
	if r.OK() {
		return nil
	}
	v := r.Violations[0]
	reason := v.String()
	if r.Total > 1 {
		reason += fmt.Sprintf("; %d violations in all", r.Total)
	}
	return &events.Failure{Class: class, Reason: reason, Pointer: v.Pointer, Expected: v.Expected, Actual: v.Actual}
}

// String gives one sentence without its full stop: place, rule, what was expected and what was found.
func (v Violation) String() string {
	var b strings.Builder
	switch {
	case v.Row == 0 && strings.HasPrefix(v.Rule, "E_"):
		return v.Rule + ": " + v.Actual
	case v.Row > 0 && v.Column != "":
		fmt.Fprintf(&b, "row %d, column %s", v.Row, v.Column)
	case v.Row > 0:
		fmt.Fprintf(&b, "row %d", v.Row)
	case v.Line > 0:
		fmt.Fprintf(&b, "line %d", v.Line)
	case v.Pointer == "":
		b.WriteString("the document")
	default:
		b.WriteString("at " + v.Pointer)
	}
	fmt.Fprintf(&b, " breaks %s: expected %s", v.Rule, v.Expected)
	if v.Actual != "" {
		b.WriteString(", found " + v.Actual)
	}
	return b.String()
}

// shorten makes a value fit for a message: at most 64 characters, nothing that moves a cursor or hides text.
func shorten(s string) string {
	var b strings.Builder
	count := 0
	for i, r := range s {
		if count++; count > maxShown {
			fmt.Fprintf(&b, "… (%d bytes)", len(s))
			break
		}
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsGraphic(r) && r != '\u2028' && r != '\u2029':
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}
