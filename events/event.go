package events

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// Event is one immutable fact. It belongs to a stream: the run or the delivery whose id Stream is. The events of a
// stream are numbered from 1 without gaps and form a hash chain.
type Event struct {
	ID       ID
	Stream   ID     // run or delivery
	Sequence uint64 // 1, 2, ... within the stream
	Type     Type
	Time     int64  // Unix nanoseconds, UTC
	Cause    ID     // the event that led to this one; zero when the cause lies outside
	Prev     Digest // SHA-256 of the previous event's canonical bytes; zero for the first
	Data     Data
}

// When gives the event's time in UTC.
func (e *Event) When() time.Time { return time.Unix(0, e.Time).UTC() }

// canonicalVersion is the first canonical byte: the layout below. A new layout gets a new number.
const canonicalVersion = 1

// AppendCanonical appends the event's canonical bytes: the layout that the hash chain covers. It is, in order, the
// layout version (1 byte), id (16), stream (16), sequence (8, big endian), type (1), time (8, big endian), cause (16),
// prev (32) and the encoded data to the end. docs/event-format.md describes it for other readers.
func (e *Event) AppendCanonical(b []byte) []byte {
	return append(e.appendHeader(b), e.Data.AppendEncoded(nil)...)
}

func (e *Event) appendHeader(b []byte) []byte {
	b = append(b, canonicalVersion)
	b = append(b, e.ID[:]...)
	b = append(b, e.Stream[:]...)
	b = binary.BigEndian.AppendUint64(b, e.Sequence)
	b = append(b, byte(e.Type))
	b = binary.BigEndian.AppendUint64(b, uint64(e.Time)) //nolint:gosec // the bit pattern is what is stored
	b = append(b, e.Cause[:]...)
	return append(b, e.Prev[:]...)
}

// Hash gives the SHA-256 of the canonical bytes, with the data as the caller has encoded it already.
// scratch is reused for the bytes and given back.
func (e *Event) Hash(encoded, scratch []byte) (Digest, []byte) {
	scratch = append(e.appendHeader(scratch[:0]), encoded...)
	return sha256.Sum256(scratch), scratch
}

// Chain is the head of a stream: how many events it holds and the hash of the last.
type Chain struct {
	Sequence uint64
	Head     Digest
}

// Seal numbers the event, binds it to the one before and moves the head. encoded is the event's encoded data.
func (c *Chain) Seal(e *Event, encoded, scratch []byte) []byte {
	e.Sequence, e.Prev = c.Sequence+1, c.Head
	c.Sequence++
	c.Head, scratch = e.Hash(encoded, scratch)
	return scratch
}

// Follow checks that the event is the next of the stream and moves the head.
func (c *Chain) Follow(e *Event, encoded, scratch []byte) ([]byte, error) {
	switch {
	case e.Sequence != c.Sequence+1:
		return scratch, fmt.Errorf("event %s of %s: sequence %d follows %d", e.ID, e.Stream, e.Sequence, c.Sequence)
	case e.Prev != c.Head:
		return scratch, fmt.Errorf("event %s of %s: sequence %d does not continue the hash chain", e.ID, e.Stream, e.Sequence)
	}
	c.Sequence++
	c.Head, scratch = e.Hash(encoded, scratch)
	return scratch, nil
}
