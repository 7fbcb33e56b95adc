package events

import (
	"bytes"
	"encoding/json"
	"strings"
)

// Ref is an artifact that an event refers to.
type Ref struct {
	Digest Digest
	Kind   RefKind
	// Maybe says that the digest need not be one of an artifact: bytes that stand in an event are pinned by their digest too.
	Maybe bool
}

// RefKind says what an artifact refers to in turn.
type RefKind uint8

// The kinds of artifacts that are looked into.
const (
	RefBytes RefKind = iota // nothing
	RefPins                 // a pins document: PinsRefs
	RefItems                // a list of items: TextRefs
	RefTree                 // a directory, whose manifest the store of artifacts reads
)

// Refs gives every artifact that the event refers to. It may give one more than once.
func (e *Event) Refs(yield func(Ref)) {
	d := &e.Data
	give := func(digest Digest, kind RefKind) {
		if !digest.IsZero() {
			yield(Ref{Digest: digest, Kind: kind})
		}
	}
	switch e.Type {
	case RunImported, DeliveryImported: // the file that it came in is nobody's artifact
	case StageStarted:
		give(d.Blob, RefItems)
	default:
		give(d.Blob, RefBytes)
	}
	give(d.Evidence, RefBytes)
	give(d.Machine, RefBytes)
	if e.Type != StageIrreproducibleFound {
		give(d.PinnedAt, RefPins)
	} else if !d.PinnedAt.IsZero() { // it names the stage key, wherever the document stands
		yield(Ref{Digest: d.PinnedAt, Kind: RefPins, Maybe: true})
	}
	for i := range d.Outputs {
		switch o := &d.Outputs[i]; {
		case len(o.Value) > 0: // it stands in the event
		case strings.HasSuffix(o.Name, "/"):
			give(o.Digest, RefTree)
		default:
			give(o.Digest, RefBytes)
		}
	}
	PinsRefs(d.Pinned, yield)
	TextRefs(d.Items, yield)
	for _, text := range []string{d.Expected, d.Actual} {
		if digest, err := ParseDigest(text); err == nil {
			yield(Ref{Digest: digest, Kind: RefTree, Maybe: true})
		}
	}
}

// PinsRefs gives what a pins document refers to.
func PinsRefs(document []byte, yield func(Ref)) {
	if len(document) == 0 {
		return
	}
	TextRefs(document, yield) // values that are too long for it, and whatever a newer build pins
	var p struct {
		Definition Digest        `json:"definition"`
		Inputs     []PinnedInput `json:"inputs"`
	}
	if json.Unmarshal(document, &p) != nil {
		return
	}
	if !p.Definition.IsZero() {
		yield(Ref{Digest: p.Definition})
	}
	for i := range p.Inputs {
		if in := &p.Inputs[i]; in.Kind == "directory" && !in.Digest.IsZero() {
			yield(Ref{Digest: in.Digest, Kind: RefTree, Maybe: true})
		}
	}
}

// TextRefs gives every digest that is written in a text, each as one that may be an artifact's.
func TextRefs(text []byte, yield func(Ref)) {
	const prefix, whole = "sha256:", len("sha256:") + 64
	for {
		at := bytes.Index(text, []byte(prefix))
		if at < 0 || len(text) < at+whole {
			return
		}
		if d, err := ParseDigest(string(text[at : at+whole])); err == nil {
			yield(Ref{Digest: d, Maybe: true})
		}
		text = text[at+len(prefix):]
	}
}
