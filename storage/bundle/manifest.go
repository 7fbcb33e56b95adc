package bundle

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// Format is the version of the file format that this build writes.
const Format = 1

// The names of the entries.
const (
	manifestName = "manifest.json"
	logName      = "events.jsonl"
	planDir      = "plans/"
	artifactDir  = "artifacts/sha256/"
)

// Manifest says what a file holds. It is the file's first entry.
type Manifest struct {
	Format     int             `json:"format"`
	Apollo     string          `json:"apollo"`     // version that wrote the file
	Runs       []Run           `json:"runs"`       // the one that was asked for first, then those that its stages started
	Deliveries []Delivery      `json:"deliveries"` // what the runs came from
	Named      []Named         `json:"named"`      // runs that are referred to and not in the file
	Plans      []Content       `json:"plans"`      // sorted by digest
	Artifacts  []Content       `json:"artifacts"`  // sorted by digest
	Missing    []events.Digest `json:"missing"`    // artifacts that the store had no more, sorted
	Log        Log             `json:"events"`
}

// Run is a run of a file.
type Run struct {
	Run      events.ID     `json:"run"`
	Pipeline string        `json:"pipeline"`
	State    events.State  `json:"state"` // after its last event; pending or running of a run that went on
	Plan     events.Digest `json:"plan"`
	Events   uint64        `json:"events"`
	Head     events.Digest `json:"head"`          // hash of its last event
	Mark     uint64        `json:"mark_sequence"` // of the last event that changed the run's own row
	MarkHead events.Digest `json:"mark_head"`     // hash of that event
	Delivery events.ID     `json:"delivery,omitzero"`
	Forked   events.ID     `json:"forked_from,omitzero"`
	Parent   events.ID     `json:"parent,omitzero"` // run whose stage started this one
}

// Delivery is a delivery of a file.
type Delivery struct {
	Delivery events.ID     `json:"delivery"`
	Events   uint64        `json:"events"`
	Head     events.Digest `json:"head"`
}

// Named is a run that is referred to and not in the file.
type Named struct {
	Run events.ID `json:"run"`
	Why string    `json:"why"` // forked_from, parent, child, cached_from
}

// Content is the bytes behind a digest.
type Content struct {
	Digest events.Digest `json:"digest"`
	Size   int64         `json:"size"` // bytes
}

// Log is the file's events: those of each run in the order of the manifest, then those of each delivery.
type Log struct {
	Digest events.Digest `json:"digest"`
	Size   int64         `json:"size"`  // bytes
	Lines  uint64        `json:"lines"` // events
}

// Ended reports whether every run of the file has ended.
func (m *Manifest) Ended() bool {
	for i := range m.Runs {
		if !m.Runs[i].State.Terminal() {
			return false
		}
	}
	return true
}

func (m *Manifest) encode() ([]byte, error) {
	for _, list := range []func(){ // lists are never null
		func() { m.Runs = nonNil(m.Runs) }, func() { m.Deliveries = nonNil(m.Deliveries) }, func() { m.Named = nonNil(m.Named) },
		func() { m.Plans = nonNil(m.Plans) }, func() { m.Artifacts = nonNil(m.Artifacts) }, func() { m.Missing = nonNil(m.Missing) },
	} {
		list()
	}
	b, err := json.MarshalIndent(m, "", "  ")
	return append(b, '\n'), err
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// decodeManifest is strict: a member that this build does not know, or text behind the object, is refused. The version is
// looked at first, so that a file of a later format is named as such.
func decodeManifest(b []byte) (*Manifest, error) {
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, wrong(CodeFormat, manifestName, hintAgain, "it is no manifest: %v", err)
	}
	if version.Format != Format {
		return nil, wrong(CodeFormat, manifestName, "use the version of Apollo that wrote it, or a later one", "format %d; this build reads %d", version.Format, Format)
	}
	m, d := new(Manifest), json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(m)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("text follows the object")
		}
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, wrong(CodeFormat, manifestName, hintAgain, "%v", err)
	}
	return m, nil
}

// check holds what the manifest must be in itself.
func (m *Manifest) check() error {
	streams := map[events.ID]bool{}
	var lines uint64
	add := func(id events.ID, n uint64) error {
		if id.IsZero() || streams[id] || n == 0 {
			return fmt.Errorf("the stream %q is named twice, has no id or no events", id)
		}
		streams[id] = true
		if lines += n; lines < n {
			return errors.New("there are more events than can be counted")
		}
		return nil
	}
	var problems []error
	for i := range m.Runs {
		problems = append(problems, add(m.Runs[i].Run, m.Runs[i].Events))
	}
	for i := range m.Deliveries {
		problems = append(problems, add(m.Deliveries[i].Delivery, m.Deliveries[i].Events))
	}
	problems = append(problems, ascending("plans", m.Plans), ascending("artifacts", m.Artifacts))
	if len(m.Runs) == 0 {
		problems = append(problems, errors.New("it names no run"))
	}
	if lines != m.Log.Lines {
		problems = append(problems, fmt.Errorf("the streams have %d events, and the log %d", lines, m.Log.Lines))
	}
	return errors.Join(problems...)
}

func ascending(name string, list []Content) error {
	for i := range list {
		if list[i].Digest.IsZero() || list[i].Size < 0 || i > 0 && bytes.Compare(list[i-1].Digest[:], list[i].Digest[:]) >= 0 {
			return fmt.Errorf("%s: place %d is out of order, or has no digest or size", name, i+1)
		}
	}
	return nil
}

// contents gives every entry that the manifest asks for, with its size.
func (m *Manifest) contents() map[string]int64 {
	all := map[string]int64{logName: m.Log.Size}
	for _, p := range m.Plans {
		all[planDir+plain(p.Digest)] = p.Size
	}
	for _, a := range m.Artifacts {
		all[artifactDir+plain(a.Digest)] = a.Size
	}
	return all
}

// plain gives a digest's hexadecimal digits.
func plain(d events.Digest) string { return hex.EncodeToString(d[:]) }

// nameFault says why no entry of a file can have the name; empty when one can.
func nameFault(name string) string {
	hexadecimal, ok := strings.CutPrefix(name, planDir)
	if !ok {
		hexadecimal, ok = strings.CutPrefix(name, artifactDir)
	}
	switch {
	case name == manifestName || name == logName:
		return ""
	case ok && len(hexadecimal) == 64 && strings.Trim(hexadecimal, "0123456789abcdef") == "":
		return ""
	case strings.ContainsAny(name, "\\\x00"):
		return "its name holds a backslash or a zero byte"
	case strings.HasPrefix(name, "/") || len(name) > 1 && name[1] == ':':
		return "its name is an absolute path"
	case strings.Contains("/"+name+"/", "/../"):
		return "its name leads out of the file"
	case strings.HasSuffix(name, "/"):
		return "it is a directory"
	}
	return "nothing of that name belongs into such a file"
}
