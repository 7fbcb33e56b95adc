package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// The hash chain proves every event but the last of a stream that goes on, and nothing that is no event. So each row
// that the chain does not prove carries a checksum, which Check compares.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is a CRC-32C of fields, each with its length.
type checksum uint32

func (c checksum) bytes(b []byte) checksum {
	return checksum(crc32.Update(uint32(c.number(int64(len(b)))), castagnoli, b))
}

func (c checksum) text(s string) checksum { return c.bytes([]byte(s)) }

func (c checksum) number(n int64) checksum {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n)) //nolint:gosec // the bit pattern
	return checksum(crc32.Update(uint32(c), castagnoli, b[:]))
}

// value is the sum as a column: a signed number takes four bytes at most.
func (c checksum) value() int64 { return int64(int32(c)) } //nolint:gosec // the bit pattern

// eventSum makes checksums of events. It keeps the fields of fixed size, which come first, in one place.
type eventSum [104]byte

func (b *eventSum) event(e *events.Event, encoded []byte) int64 {
	b[0] = byte(e.Type)
	binary.LittleEndian.PutUint64(b[8:], e.Sequence)
	binary.LittleEndian.PutUint64(b[16:], uint64(e.Time)) //nolint:gosec // the bit pattern
	copy(b[24:], e.Stream[:])
	copy(b[40:], e.ID[:])
	copy(b[56:], e.Cause[:])
	copy(b[72:], e.Prev[:])
	return checksum(crc32.Update(crc32.Update(0, castagnoli, b[:]), castagnoli, encoded)).value()
}

func sumMessage(topic string, uuid []byte, at int64, payload, metadata []byte) int64 {
	return checksum(0).text(topic).bytes(uuid).number(at).bytes(payload).bytes(metadata).value()
}

func sumCursor(topic, group string, position int64) int64 {
	return checksum(0).text(topic).text(group).number(position).value()
}

func sumParked(p *storage.ParkedRow) int64 {
	return checksum(0).bytes(p.Event[:]).bytes(p.Stream[:]).text(p.Handler).text(p.Reason).number(p.At).value()
}

// sums names every row whose checksum is another, and every plan whose bytes are not those of its digest.
func (s *reads) sums(ctx context.Context, report func(storage.Problem)) error {
	for _, t := range []struct {
		query string
		check func(*sql.Rows) (place string, ok bool, err error)
	}{
		{`SELECT e.position, e.sum, ` + eventColumns + ` FROM events e WHERE topic < 1000`, checkEvent},
		{`SELECT e.position, e.sum, t.name, e.id, e.time, e.data, e.metadata FROM events e LEFT JOIN topics t ON t.id = e.topic WHERE e.topic >= 1000 AND e.stream IS NULL AND e.seq IS NULL
			UNION ALL SELECT position, NULL, NULL, x'', 0, x'', x'' FROM events WHERE topic >= 1000 AND (stream IS NOT NULL OR seq IS NOT NULL)`, checkMessage},
		{`SELECT topic, grp, position, sum FROM cursors`, checkCursor},
		{`SELECT event, stream, handler, reason, at, sum FROM parked`, checkParked},
		{`SELECT digest, pipeline, bytes FROM plans`, checkPlan},
	} {
		if err := s.sumsOf(ctx, t.query, t.check, report); err != nil {
			return err
		}
	}
	return nil
}

func (s *reads) sumsOf(ctx context.Context, query string, check func(*sql.Rows) (string, bool, error), report func(storage.Problem)) error {
	rows, err := s.q.QueryContext(ctx, query)
	if err != nil {
		return damage(err)
	}
	defer rows.Close()
	for rows.Next() {
		place, ok, err := check(rows)
		if err != nil {
			return fmt.Errorf("%w: %s: %w", storage.ErrCorrupt, place, damage(err))
		}
		if !ok {
			report(storage.Problem{Code: "E_STORE_CORRUPT", Place: place, What: "the row does not fit its checksum"})
		}
	}
	return damage(rows.Err())
}

func checkEvent(rows *sql.Rows) (string, bool, error) {
	var position, topic, seq, sum int64
	var e events.Event
	var of eventSum
	var data sql.RawBytes
	err := rows.Scan(&position, &sum, &topic, fixed(e.Stream[:]), &seq, fixed(e.ID[:]), &e.Time, fixed(e.Cause[:]), fixed(e.Prev[:]), &data)
	e.Type, e.Sequence = events.Type(topic), uint64(seq) //nolint:gosec // compared
	return fmt.Sprintf("events position %d", position), err == nil && sum == of.event(&e, data), err
}

func checkMessage(rows *sql.Rows) (string, bool, error) {
	var position, at int64
	var sum sql.NullInt64
	var topic sql.NullString
	var id, data, metadata sql.RawBytes
	err := rows.Scan(&position, &sum, &topic, &id, &at, &data, &metadata)
	return fmt.Sprintf("events position %d", position), err == nil && sum.Valid && sum.Int64 == sumMessage(topic.String, id, at, data, metadata), err
}

func checkCursor(rows *sql.Rows) (string, bool, error) {
	var topic, group string
	var position, sum int64
	err := rows.Scan(&topic, &group, &position, &sum)
	return fmt.Sprintf("cursors %q %q", topic, group), err == nil && sum == sumCursor(topic, group, position), err
}

func checkParked(rows *sql.Rows) (string, bool, error) {
	var p storage.ParkedRow
	var sum int64
	err := rows.Scan(fixed(p.Event[:]), fixed(p.Stream[:]), &p.Handler, &p.Reason, &p.At, &sum)
	return "parked " + p.Event.String(), err == nil && sum == sumParked(&p), err
}

func checkPlan(rows *sql.Rows) (string, bool, error) {
	var digest events.Digest
	var pipeline string
	var content sql.RawBytes
	if err := rows.Scan(fixed(digest[:]), &pipeline, &content); err != nil {
		return "plans", false, err
	}
	plan, err := events.DecodePlan(content)
	return "plans " + digest.String(), err == nil && events.DigestOf(content) == digest && plan.Pipeline == pipeline, nil
}
