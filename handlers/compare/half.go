package compare

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"github.com/apollo-11/apollo/events"
)

// half is a side with what has been read of it.
type half struct {
	*Side
	params    any
	documents map[events.Digest]any // decoded artifacts; nil is one that cannot be had
	items     map[int][]json.RawMessage
}

func newHalf(s *Side) *half {
	return &half{Side: s, params: decoded(s.Run.Params), documents: map[events.Digest]any{}, items: map[int][]json.RawMessage{}}
}

const (
	maxDocument = 64 << 20 // bytes of a pins document or a manifest, which are decoded whole
	maxJSON     = 8 << 20  // bytes of an output that is compared by JSON pointer
)

// document reads an artifact that holds JSON; nil when it cannot be had.
func (h *half) document(d events.Digest) any {
	if d.IsZero() {
		return nil
	}
	if v, known := h.documents[d]; known {
		return v
	}
	h.documents[d] = decoded(h.bytes(d))
	return h.documents[d]
}

func (h *half) bytes(d events.Digest) []byte {
	r, err := h.open(d)
	if err != nil {
		return nil
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil || len(b) > maxDocument {
		return nil
	}
	return b
}

func (h *half) open(d events.Digest) (io.ReadCloser, error) {
	if h.Artifacts == nil {
		return nil, errNoArtifacts
	}
	return h.Artifacts.Open(d)
}

// delivered gives the digest of what the run was given to work on; empty is nothing, or nobody knows.
func (h *half) delivered() string {
	d := h.Delivery
	switch {
	case d == nil:
		return ""
	case !d.Blob.IsZero():
		return d.Blob.String()
	case len(d.Body) > 0:
		return events.DigestOf(d.Body).String()
	}
	return ""
}

// itemsOf gives the items of a foreach stage.
func (h *half) itemsOf(i int) []json.RawMessage {
	if list, known := h.items[i]; known {
		return list
	}
	var list []json.RawMessage
	if d := h.Run.Stages[i].Items; d != nil {
		raw := []byte(d.Items)
		if len(raw) == 0 {
			raw = h.bytes(d.Blob)
		}
		_ = json.Unmarshal(raw, &list) // what is no list has no items to compare by
	}
	h.items[i] = list
	return list
}

func (h *half) value(i int) json.RawMessage {
	s := &h.Run.Stages[i]
	if list := h.itemsOf(int(s.Plan)); s.Item > 0 && int(s.Item) <= len(list) {
		return list[s.Item-1]
	}
	return nil
}

// decoded reads JSON and keeps its numbers as they are written; nil when it is none.
func decoded(raw []byte) any {
	if len(raw) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

func instant(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

func seed(n uint64) string { return strconv.FormatUint(n, 10) }
