package bundle

import (
	"fmt"
	"strings"

	"github.com/apollo-11/apollo/storage"
)

// The codes of what may be wrong with a file.
const (
	CodeZip     = "E_BUNDLE_ZIP"     // it is no zip file, or a broken one
	CodeFormat  = "E_BUNDLE_FORMAT"  // it has a format that this build does not read
	CodeEntry   = "E_BUNDLE_ENTRY"   // an entry does not belong
	CodeMissing = "E_BUNDLE_MISSING" // an entry is not there
	CodeSize    = "E_BUNDLE_SIZE"    // something is larger than it says, or than is allowed
	CodeDigest  = "E_BUNDLE_DIGEST"  // the bytes of an entry are not those of its digest
	CodeEvent   = "E_BUNDLE_EVENT"   // a line is no event, or not as Apollo writes it
	CodeChain   = "E_BUNDLE_CHAIN"   // a hash chain is broken, or does not end as the manifest says
	CodeReplay  = "E_BUNDLE_REPLAY"  // replaying a run gives something else than is recorded
)

// Error says what is wrong with a file and where.
type Error struct {
	Code  string
	Entry string // name of the entry; empty is the file as a whole
	Line  int    // of the entry, from 1; 0 is the whole entry
	What  string
	Hint  string // what to do about it
}

// Error gives "CODE: entry:line: what; hint".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Code + ": ")
	if e.Entry != "" {
		b.WriteString(e.Entry)
		if e.Line > 0 {
			fmt.Fprintf(&b, ":%d", e.Line)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.What)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

const (
	hintAgain  = "export the run again, and carry the file without changing it"
	hintDamage = "the file was changed or damaged on its way: get it again from where the run was exported"
)

func wrong(code, entry, hint, what string, args ...any) *Error {
	return &Error{Code: code, Entry: entry, What: fmt.Sprintf(what, args...), Hint: hint}
}

func wrongLine(code string, line int, hint, what string, args ...any) *Error {
	e := wrong(code, logName, hint, what, args...)
	e.Line = line
	return e
}

// Unwrap gives storage.ErrCorrupt: whoever reads a file as a store hears of damage in the same way.
func (*Error) Unwrap() error { return storage.ErrCorrupt }
