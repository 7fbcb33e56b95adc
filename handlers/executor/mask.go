package executor

import (
	"bytes"
	"sort"
)

// minSecret is the shortest text that is masked; a shorter one would turn the log into stars.
const minSecret = 4

// maskText stands in a log for a secret.
var maskText = []byte("***")

// masker replaces secrets, and the parts of them that partsOf names, in a stream, wherever the chunks are cut. Text is
// held back only while it may be the beginning of a secret. Overlapping secrets are covered together.
type masker struct {
	secrets [][]byte
	held    []byte // the end of the stream, not yet written
	covered int    // how many of the held bytes belong to a secret that began before them
	inside  bool   // the byte before held was masked
	out     []byte
}

// newMasker gives nil when there is nothing to mask.
func newMasker(values map[string]string) *masker {
	found := make(map[string]bool)
	for _, value := range values {
		for _, text := range partsOf(value) {
			found[text] = true
		}
	}
	if len(found) == 0 {
		return nil
	}
	m := new(masker)
	for text := range found {
		m.secrets = append(m.secrets, []byte(text))
	}
	sort.Slice(m.secrets, func(i, j int) bool { return string(m.secrets[i]) < string(m.secrets[j]) })
	return m
}

// Mask hides the secrets in a text that is whole.
func Mask(secrets map[string]string, text []byte) []byte {
	m := newMasker(secrets)
	if m == nil {
		return text
	}
	return append(bytes.Clone(m.mask(text)), m.flush()...)
}

// mask takes the next bytes and gives what can be written by now. The answer is valid until the next call.
func (m *masker) mask(p []byte) []byte {
	m.held = append(m.held, p...)
	return m.emit(m.undecided())
}

// flush gives the rest at the end of the stream.
func (m *masker) flush() []byte { return m.emit(len(m.held)) }

// undecided is the first position from which the held bytes may be the beginning of a secret that goes on.
func (m *masker) undecided() int {
	first := len(m.held)
	for _, secret := range m.secrets {
		for n := min(len(secret)-1, len(m.held)); n > len(m.held)-first; n-- {
			if m.held[len(m.held)-n] == secret[0] && bytes.HasSuffix(m.held, secret[:n]) {
				first = len(m.held) - n
				break
			}
		}
	}
	return first
}

// emit writes the held bytes before end; every secret that begins before end is complete in what is held.
func (m *masker) emit(end int) []byte {
	m.out = m.out[:0]
	pos := 0
	for _, s := range m.spans(end) {
		if s.from > pos {
			m.out = append(m.out, m.held[pos:s.from]...)
			m.inside = false
		}
		if !m.inside && s.to > pos {
			m.out = append(m.out, maskText...)
			m.inside = true
		}
		pos = max(pos, s.to)
	}
	if pos < end {
		m.out = append(m.out, m.held[pos:end]...)
		m.inside = false
	}
	m.covered = max(0, pos-end)
	m.held = append(m.held[:0], m.held[end:]...)
	return m.out
}

// span is a range of held bytes that are part of a secret.
type span struct{ from, to int }

// spans finds every secret that begins before end, in order of their beginnings; they may overlap.
func (m *masker) spans(end int) []span {
	var found []span
	if m.covered > 0 {
		found = append(found, span{0, m.covered})
	}
	for _, secret := range m.secrets {
		for at := 0; at < end; at++ {
			next := bytes.Index(m.held[at:], secret)
			if next < 0 || at+next >= end {
				break
			}
			at += next
			found = append(found, span{at, at + len(secret)})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].from < found[j].from })
	return found
}
