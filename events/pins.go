package events

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Pins is everything that the result of one attempt may depend on. Its canonical form is its JSON as Encode writes it
// (struct order, sorted map keys, nothing that is zero); the SHA-256 of that is the stage key. It is kept in the event
// that ends the attempt (Data.Pinned), so that the hash chain covers it. What stages and runs have in common stands in a
// document of its own, the Definition, which it names by digest.
//
// What is not here is no part of the key: the attempt's number, the run's id, paths, hosts, instants (see Machine).
type Pins struct {
	Schema     int                        `json:"schema"` // version of this document, now 1
	Stage      string                     `json:"stage"`
	Definition Digest                     `json:"definition"`        // artifact: the Definition
	Item       json.RawMessage            `json:"item,omitempty"`    // value of a foreach stage's instance; a long one as PinnedValue
	Number     int                        `json:"number,omitempty"`  // of the instance, from 1
	Params     map[string]json.RawMessage `json:"params,omitempty"`  // with their defaults; long ones as PinnedValue
	With       json.RawMessage            `json:"with,omitempty"`    // the executor's settings, when expressions stand in them: with their values; a long one as PinnedValue
	Inputs     []PinnedInput              `json:"inputs,omitempty"`  // in the order of the roles
	Env        map[string]string          `json:"env,omitempty"`     // declared variables whose value is an expression's; a long value as its digest
	Secrets    map[string]string          `json:"secrets,omitempty"` // HMAC-SHA-256 of each value under a key of the data directory, in hexadecimal
	Time       string                     `json:"time"`              // logical time, RFC 3339
	Seed       uint64                     `json:"seed,string"`       // of the stage
}

// PinnedInput is an input by its content.
type PinnedInput struct {
	Role   string          `json:"role"`
	Kind   string          `json:"kind"`            // file, directory, files (a list, in its order), value
	Digest Digest          `json:"digest,omitzero"` // of the file, of a directory's or list's manifest
	Size   int64           `json:"size,omitempty"`  // bytes of the file, or of all of them
	Name   string          `json:"name,omitempty"`  // under which the stage finds it
	Value  json.RawMessage `json:"value,omitempty"` // a long one as PinnedValue
}

// PinnedValue stands for a value that is longer than MaxPinned.
type PinnedValue struct {
	Digest Digest `json:"digest"` // of the JSON
	Size   int    `json:"size"`   // bytes
}

// likePinned finds a value that begins as PinnedValue does.
var likePinned = regexp.MustCompile(`^\s*\{\s*"digest"\s*:`)

// PinnedText gives a text as it stands in a pins document: a long one, and one that could be taken for that, as its digest.
func PinnedText(text string) string {
	if len(text) <= MaxPinned && !strings.HasPrefix(text, "sha256:") {
		return text
	}
	return DigestOf([]byte(text)).String()
}

// MaxPinned is the longest value, in bytes, that stands in a pins document as it is.
const MaxPinned = 1 << 10

// Pinned gives a value as it stands in a pins document. A short value that could be taken for a PinnedValue stands as one
// too: no two values stand alike.
func Pinned(value json.RawMessage) json.RawMessage {
	if len(value) <= MaxPinned && (len(value) > 0 && value[0] != '{' && value[0] > ' ' || !likePinned.Match(value)) {
		return value
	}
	b, err := json.Marshal(PinnedValue{DigestOf(value), len(value)})
	if err != nil {
		return nil // a digest and a number always have a JSON form
	}
	return b
}

// Definition is the part of the pins that a stage has in common in all runs of a plan on a machine.
type Definition struct {
	Schema    int               `json:"schema"`
	Executor  string            `json:"executor"`
	With      json.RawMessage   `json:"with,omitempty"`      // the executor's settings, scripts and all, as the plan has them
	Command   []string          `json:"command,omitempty"`   // argv; the work directory is written $WORK
	Files     map[string]string `json:"files,omitempty"`     // digest of each file that is made for the command, by its path below $WORK
	Toolchain []Pair            `json:"toolchain,omitempty"` // what carries the command out: interpreter, version, image, build, each with its digest
	Platform  string            `json:"platform"`            // as linux/amd64
	Env       map[string]string `json:"env,omitempty"`       // the variables that are the same in every run
	Umask     string            `json:"umask,omitempty"`
	Inputs    []Input           `json:"inputs,omitempty"` // as the plan has them
	Outputs   []Output          `json:"outputs,omitempty"`
	Contracts map[string]string `json:"contracts,omitempty"` // digest of each schema that the inputs and outputs name
	Reconcile []Reconcile       `json:"reconcile,omitempty"`
	Gate      []Gate            `json:"gate,omitempty"`
	CPU       float64           `json:"cpu,omitempty"` // cores, as declared
	Network   string            `json:"network,omitempty"`
	Isolation string            `json:"isolation,omitempty"`
	Readable  []string          `json:"readable,omitempty"`
}

// Machine is what an attempt ran on: recorded and shown, and no part of the stage key.
type Machine struct {
	Schema    int    `json:"schema"`
	Apollo    string `json:"apollo"` // version
	Go        string `json:"go"`
	Platform  string `json:"platform"`
	Kernel    string `json:"kernel,omitempty"`
	CPU       string `json:"cpu,omitempty"` // model
	CPUs      int    `json:"cpus"`
	Hostname  string `json:"hostname,omitempty"`
	UID       int    `json:"uid"`
	Isolation string `json:"isolation,omitempty"` // the highest level that this machine reaches
	Landlock  int    `json:"landlock,omitempty"`  // ABI; 0 is none
}

// DocumentSchema is the version of Pins, Definition and Machine that this build writes.
const DocumentSchema = 1

// Differ gives the first role, in the order of a, in which two lists of outputs differ; roles that are ignored do not
// count. It gives false when they are the same.
func Differ(a, b []Result, ignore []string) (role string, differ bool) {
	digests := func(list []Result) map[string]Digest {
		m := make(map[string]Digest, len(list))
		for i := range list {
			m[list[i].Role] = list[i].Digest
		}
		return m
	}
	of := digests(b)
	for i := range a {
		if d, is := of[a[i].Role]; !slices.Contains(ignore, a[i].Role) && (!is || d != a[i].Digest) {
			return a[i].Role, true
		}
		delete(of, a[i].Role)
	}
	for i := range b {
		if _, left := of[b[i].Role]; left && !slices.Contains(ignore, b[i].Role) {
			return b[i].Role, true
		}
	}
	return "", false
}

// EncodeDocument gives the canonical bytes of Pins, Definition or Machine.
func EncodeDocument(document any) ([]byte, error) {
	b, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", document, err)
	}
	return b, nil
}
