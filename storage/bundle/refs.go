package bundle

import (
	"encoding/json"
	"regexp"

	"github.com/apollo-11/apollo/events"
)

// kind says what is in an artifact, as far as it names others.
type kind int

const (
	content  kind = iota // nothing that is looked into
	pins                 // an events.Pins
	manifest             // of a directory, or of a list of files
)

// A ref is an artifact that is referred to.
type ref struct {
	digest events.Digest
	kind   kind
}

// eventRefs gives what an event refers to. A small value is in the event, and no artifact; so is the file that a run was
// imported from.
func eventRefs(plan *events.Plan, e *events.Event) (refs []ref) {
	d := &e.Data
	add := func(digest events.Digest, k kind) {
		if !digest.IsZero() {
			refs = append(refs, ref{digest, k})
		}
	}
	if e.Type != events.RunImported && e.Type != events.DeliveryImported {
		add(d.Blob, content)
	}
	add(d.Evidence, content)
	add(d.Machine, content)
	add(d.PinnedAt, pins)
	for i := range d.Outputs {
		if o := &d.Outputs[i]; len(o.Value) == 0 {
			add(o.Digest, outputKind(plan, d.Stage, o))
		}
	}
	return append(refs, pinsRefs(d.Pinned)...)
}

// outputKind tells an output that is a directory: its path ends with a slash.
func outputKind(plan *events.Plan, stage string, o *events.Result) kind {
	if plan == nil {
		return content
	}
	for i := range plan.Stages {
		if plan.Stages[i].Name != stage {
			continue
		}
		for _, out := range plan.Stages[i].Outputs {
			if out.Role == o.Role && len(out.Path) > 1 && out.Path[len(out.Path)-1] == '/' {
				return manifest
			}
		}
	}
	return content
}

// pinsRefs gives what a pins document refers to: the definition and the inputs. A value that is too long for it is none.
func pinsRefs(document []byte) (refs []ref) {
	var p events.Pins
	if len(document) == 0 || json.Unmarshal(document, &p) != nil {
		return nil
	}
	if !p.Definition.IsZero() {
		refs = append(refs, ref{p.Definition, content})
	}
	for i := range p.Inputs {
		in := &p.Inputs[i]
		switch {
		case in.Digest.IsZero():
		case in.Kind == "file":
			refs = append(refs, ref{in.Digest, content})
		case in.Kind == "directory":
			refs = append(refs, ref{in.Digest, manifest})
		} // a list of files has a digest of its own, and is no artifact: what it lists are outputs
	}
	return refs
}

var digestText = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// listed gives the digests that a manifest of a directory names.
func listed(document []byte) (refs []ref) {
	for _, text := range digestText.FindAll(document, -1) {
		var d events.Digest
		if d.UnmarshalText(text) == nil {
			refs = append(refs, ref{d, content})
		}
	}
	return refs
}

// maxDocument is the size in bytes up to which a document is looked into for what it names.
const maxDocument = 64 << 20

// documentRefs gives what the bytes of an artifact refer to.
func documentRefs(k kind, document []byte) []ref {
	switch k {
	case pins:
		return pinsRefs(document)
	case manifest:
		return listed(document)
	case content:
	}
	return nil
}
