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
	"slices"
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

// show puts into the verdict what differs: one of the trials beside the recorded result, the last that is not like it.
func (c *inquiry) show(list ...*trial) {
	s, t := c.verdict, c.target
	for _, again := range slices.Backward(list) {
		if again == nil || again.store == nil {
			continue
		}
		role, same := t.recorded(again)
		if same {
			continue
		}
		s.Role = role
		expected, actual := resultOf(t.stand.Last.Outputs, role), resultOf(again.data.Outputs, role)
		if _, failed := again.outcome(t.opened); failed != nil {
			s.Expected, s.Actual, s.Evidence = "completed", "failed: "+string(failed.Class), clip([]byte(failed.Reason+"\n"))
			return
		}
		s.Expected, s.Actual = digestText(expected), digestText(actual)
		if expected != nil && actual != nil {
			s.Evidence = c.between(expected, again, actual)
		}
		c.keep(again)
		return
	}
}

// between says what differs inside an output; nothing when one of them cannot be read any more.
func (c *inquiry) between(recorded *events.Result, again *trial, result *events.Result) []byte {
	a, err := head(c.o.Artifacts, recorded)
	if err != nil {
		return nil
	}
	b, err := head(again.store, result)
	if err != nil {
		return nil
	}
	return clip(difference(a, b))
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
