package storage

import (
	"context"
	"fmt"
	"iter"

	"github.com/apollo-11/apollo/events"
)

// EventReader reads the events of a stream; a Store is one, and so is an exported file.
type EventReader interface {
	Events(ctx context.Context, stream events.ID, after uint64, limit int) ([]Sealed, error)
}

// PlanReader reads the canonical bytes of frozen plans.
type PlanReader interface {
	Plan(ctx context.Context, digest events.Digest) ([]byte, error)
}

// streamPage is how many events of a stream are read at once.
const streamPage = 1000

// Stream gives the events of a stream after a sequence, read page by page. An error is the last that it gives, without an
// event. An event is the caller's to keep.
func Stream(ctx context.Context, from EventReader, stream events.ID, after uint64) iter.Seq2[*Sealed, error] {
	return func(yield func(*Sealed, error) bool) {
		for {
			page, err := from.Events(ctx, stream, after, streamPage)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page {
				if after = page[i].Sequence; !yield(&page[i], nil) {
					return
				}
			}
			if len(page) < streamPage {
				return
			}
		}
	}
}

// ReadGraph reads a plan and makes its graph. Bytes that are not those of the digest are ErrCorrupt.
func ReadGraph(ctx context.Context, from PlanReader, digest events.Digest) (*events.Graph, error) {
	b, err := from.Plan(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("read plan %s: %w", digest, err)
	}
	return DecodeGraph(b, digest)
}

// DecodeGraph makes the graph of a plan from its canonical bytes. Bytes that are not those of the digest are ErrCorrupt.
func DecodeGraph(b []byte, digest events.Digest) (*events.Graph, error) {
	if events.DigestOf(b) != digest {
		return nil, fmt.Errorf("plan %s: %w: its bytes have another digest", digest, ErrCorrupt)
	}
	plan, err := events.DecodePlan(b)
	if err != nil {
		return nil, err
	}
	return events.NewGraph(plan, digest)
}
