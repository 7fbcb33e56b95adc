package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/artifacts"
)

func newHash() hash.Hash { return sha256.New() }

func definitionOf(pins []byte) (events.Digest, bool) {
	var p events.Pins
	err := json.Unmarshal(pins, &p)
	return p.Definition, err == nil
}

const (
	maxCompared = 256 << 10 // bytes of each side that are compared for people
	maxEvidence = 16 << 10  // bytes
)

// show puts into the verdict what differs: between the recorded result and a trial, or between two trials.
func (c *inquiry) show(first, other *trial) {
	s, t := c.verdict, c.target
	if other == nil {
		other, first = first, nil
	}
	before, from, failed := t.stand.Last.Outputs, c.o.Artifacts, (*events.Failure)(nil)
	if first != nil && other != nil {
		if role, same := t.same(first, other); !same && s.Role == "" {
			s.Role = role
		}
	}
	if role, same := t.recorded(other); same { // the other one is like the record: show the first beside it
		if first == nil {
			return
		}
		other = first
	} else if s.Role = role; role == "" && other.failure == nil {
		return
	}
	after, failed := other.outcome(t.opened)
	expected, actual := resultOf(before, s.Role), resultOf(after, s.Role)
	s.Expected, s.Actual = digestText(expected), digestText(actual)
	if failed != nil {
		s.Actual = "failed: " + string(failed.Class)
		s.Evidence = clip([]byte(failed.Reason + "\n"))
		return
	}
	raw := resultOf(other.data.Outputs, s.Role)
	if expected == nil || raw == nil {
		return
	}
	s.Actual = digestText(raw)
	a, errA := head(from, expected)
	b, errB := head(other.store, raw)
	if errA == nil && errB == nil {
		s.Evidence = clip(difference(a, b))
	}
	c.keep(other)
}

func resultOf(list []events.Result, role string) *events.Result {
	for i := range list {
		if list[i].Role == role {
			return &list[i]
		}
	}
	return nil
}

func digestText(r *events.Result) string {
	if r == nil {
		return "missing"
	}
	return r.Digest.String()
}

// head reads the beginning of a result.
func head(from Artifacts, r *events.Result) ([]byte, error) {
	if len(r.Value) > 0 {
		return r.Value, nil
	}
	f, err := from.Get(r.Digest)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	return io.ReadAll(io.LimitReader(f, maxCompared))
}

// difference says what differs: the lines of texts, else the first byte.
func difference(a, b []byte) []byte {
	if utf8.Valid(a) && utf8.Valid(b) && !bytes.ContainsRune(a, 0) && !bytes.ContainsRune(b, 0) {
		return diff.Diff("recorded", a, "again", b)
	}
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	part := func(p []byte) []byte { return p[at:min(len(p), at+16)] }
	return fmt.Appendf(nil, "first difference at byte %d\nrecorded % x\nagain    % x\n", at, part(a), part(b))
}

func clip(p []byte) []byte {
	if len(p) <= maxEvidence {
		return p
	}
	cut := p[:maxEvidence]
	for len(cut) > 0 && !utf8.Valid(cut) {
		cut = cut[:len(cut)-1]
	}
	return append(bytes.Clone(cut), "\n…\n"...)
}

// keep copies the outputs of a trial to where a person can look at them.
func (c *inquiry) keep(t *trial) {
	if c.o.Keep == "" {
		return
	}
	dir := filepath.Join(c.o.Keep, c.verdict.Label())
	err := os.MkdirAll(dir, 0o700)
	for i := range t.data.Outputs {
		if r := &t.data.Outputs[i]; err == nil {
			err = keepResult(c, t, dir, r)
		}
	}
	if err != nil {
		c.o.Logger.Warn().Err(err).Str("dir", dir).Msg("keep the second outputs")
		return
	}
	c.verdict.Kept = dir
}

func keepResult(c *inquiry, t *trial, to string, r *events.Result) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // a directory
	name := r.Role
	if r.Name != "" {
		name += "-" + strings.TrimLeft(r.Name, ".")
	}
	_ = root.RemoveAll(strings.TrimSuffix(name, "/")) // of an earlier verification
	if len(r.Value) > 0 {
		return root.WriteFile(name+".json", r.Value, 0o600)
	}
	name, dir := strings.TrimSuffix(name, "/"), strings.HasSuffix(name, "/")
	return t.store.Place(c.ctx, r.Digest, root, name, artifacts.Placing{Dir: dir})
}
