package configs

import (
	"fmt"
	"regexp"
	"strings"
)

// A lock file is a requirements file that leaves nothing open: each line is one package of one version, as
// `pip freeze`, `pip-compile` and `uv pip compile` write it, with or without the digests of its files.
var (
	lockedPackage = regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[A-Za-z0-9._\s,-]*\])?\s*==\s*([A-Za-z0-9][A-Za-z0-9._!+-]*)\s*(?:;\s*[^#]+)?$`)
	lockedHash    = regexp.MustCompile(`^--hash=sha(?:256:[0-9a-f]{64}|384:[0-9a-f]{96}|512:[0-9a-f]{128})$`)
	hashOption    = regexp.MustCompile(`(?:^|\s)--hash\b.*$`)
	lockComment   = regexp.MustCompile(`(?:^|\s)#.*$`)
)

// lockFault is the first line of a lock file that leaves something open.
type lockFault struct {
	line                 int
	what, expected, hint string
	unhashed, hashed     int // packages of each kind so far: hashes stand on every line or on none
}

// checkLock wants a Python lock file: what is not pinned would be another package on another day.
func (c *checker) checkLock(n *node, text string) {
	f := findLockFault(text)
	if f.what == "" {
		return
	}
	c.at(n, "E_LOCK", fmt.Sprintf("line %d of %s %s", f.line, n.text, f.what), f.expected, f.hint)
}

func findLockFault(text string) *lockFault {
	f := new(lockFault)
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		first, whole := i+1, lines[i]
		for strings.HasSuffix(whole, `\`) && i+1 < len(lines) {
			i++
			whole = strings.TrimSuffix(whole, `\`) + " " + lines[i]
		}
		if whole = strings.TrimSpace(lockComment.ReplaceAllString(whole, "")); whole == "" {
			continue
		}
		if f.line = first; !f.take(whole) {
			return f
		}
	}
	return f
}

// take looks at one line without its comment and reports whether it is pinned.
func (f *lockFault) take(whole string) bool {
	hashes := strings.TrimSpace(hashOption.FindString(whole))
	name := strings.TrimSpace(strings.TrimSuffix(whole, hashes))
	f.expected = "name==version"
	switch m := lockedPackage.FindStringSubmatch(name); {
	case strings.HasPrefix(name, "-"):
		f.what, f.hint = "is the option "+shortened(name), "a lock file holds packages only; the server's operator says where they come from"
	case m == nil && strings.ContainsAny(name, "@/"):
		f.what, f.hint = "is an address: "+shortened(name), "publish it to an index, and pin its version"
	case m == nil:
		f.what, f.hint = "is not pinned to one version: "+shortened(name), "pip freeze, pip-compile or uv pip compile writes such a file"
	}
	for hash := range strings.FieldsSeq(hashes) {
		if f.what == "" && !lockedHash.MatchString(hash) {
			f.what, f.expected = "has a hash that can't be read: "+shortened(hash), "--hash=sha256:<64 digits>"
		}
	}
	if hashes != "" {
		f.hashed++
	} else {
		f.unhashed++
	}
	if f.what == "" && f.hashed > 0 && f.unhashed > 0 {
		f.what, f.expected = "has a hash where another line has none, or none where another has one", "a hash on every line, or on none"
	}
	return f.what == ""
}
