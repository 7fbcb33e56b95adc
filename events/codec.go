package events

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The encoded form of Data is a row of fields in ascending order of their number, each once, zero fields left out:
// number (uvarint), then a uvarint for numbers (zigzag when signed), or a length (uvarint) and bytes for everything
// else. Composite fields hold the same form inside, and do not grow: what a newer build adds gets a number of its own.
// Two equal values have one encoding, which the hash chain needs. Odd numbers carry a length and bytes, even numbers a
// plain uvarint: so a reader can pass over a field it does not know.

type field struct {
	number uint64
	put    func(b []byte, d *Data) []byte // appends the field's content after its number; nil when zero
	get    func(v value, d *Data) error
	exact  func(d *Data) bool // whether JSON can say the content exactly; nil for always
}

// value is one decoded field: the number for even fields, the bytes for odd ones.
type value struct {
	n uint64
	b []byte
}

var dataFields = []field{
	textField(1, func(d *Data) *string { return &d.Stage }),
	intField(2, func(d *Data) *int { return &d.Attempt }),
	textField(3, func(d *Data) *string { return &d.Pipeline }),
	digestField(5, func(d *Data) *Digest { return &d.Plan }),
	jsonField(7, func(d *Data) *json.RawMessage { return &d.Params }),
	textField(9, func(d *Data) *string { return &d.Kind }),
	textField(11, func(d *Data) *string { return &d.Trigger }),
	textField(13, func(d *Data) *string { return &d.Key }),
	idField(15, func(d *Data) *ID { return &d.Delivery }),
	idField(17, func(d *Data) *ID { return &d.Run }),
	textField(19, func(d *Data) *string { return &d.Reason }),
	textField(21, func(d *Data) *string { return &d.Code }),
	listField(23, func(d *Data) *[]Pair { return &d.Headers }, appendPair, readPair, exactPair),
	bytesField(25, func(d *Data) *[]byte { return &d.Body }),
	digestField(27, func(d *Data) *Digest { return &d.Blob }),
	int64Field(28, func(d *Data) *int64 { return &d.Size }),
	textField(29, func(d *Data) *string { return &d.File }),
	textField(31, func(d *Data) *string { return &d.Trace }),
	idField(33, func(d *Data) *ID { return &d.Forked }),
	intField(34, func(d *Data) *int { return &d.Sample }),
	textField(35, func(d *Data) *string { return &d.Worker }),
	uintField(36, func(d *Data) *uint64 { return &d.Token }),
	durationField(38, func(d *Data) *time.Duration { return &d.Lease }),
	textField(39, func(d *Data) *string { return &d.Waits }),
	int64Field(40, func(d *Data) *int64 { return &d.Due }),
	durationField(42, func(d *Data) *time.Duration { return &d.Duration }),
	textField(43, func(d *Data) *Class { return &d.Class }),
	textField(45, func(d *Data) *string { return &d.Pointer }),
	textField(47, func(d *Data) *string { return &d.Expected }),
	textField(49, func(d *Data) *string { return &d.Actual }),
	intField(50, func(d *Data) *int { return &d.Exit }),
	textField(51, func(d *Data) *string { return &d.Signal }),
	digestField(53, func(d *Data) *Digest { return &d.Evidence }),
	listField(55, func(d *Data) *[]Result { return &d.Outputs }, appendResult, readResult, exactResult),
	listField(57, func(d *Data) *[]Segment { return &d.Segments }, appendSegment, readSegment, exactSegment),
	partField(59, func(d *Data) *LogRef { return &d.Stdout }, appendLogRef, readLogRef),
	partField(61, func(d *Data) *LogRef { return &d.Stderr }, appendLogRef, readLogRef),
	partField(63, func(d *Data) *Usage { return &d.Usage }, appendUsage, readUsage),
	intField(64, func(d *Data) *int { return &d.Leftovers }),
	listField(65, func(d *Data) *[]Pair { return &d.Pins }, appendPair, readPair, exactPair),
	intField(66, func(d *Data) *int { return &d.Item }),
	jsonField(67, func(d *Data) *json.RawMessage { return &d.Items }),
	intField(68, func(d *Data) *int { return &d.Count }),
	textField(69, func(d *Data) *string { return &d.Group }),
	idField(71, func(d *Data) *ID { return &d.Parent }),
	intField(72, func(d *Data) *int { return &d.Depth }),
	textField(73, func(d *Data) *string { return &d.From }),
	listField(75, func(d *Data) *[]Check { return &d.Checks }, appendCheck, readCheck, exactCheck),
	jsonField(77, func(d *Data) *json.RawMessage { return &d.Answer }),
	textField(79, func(d *Data) *string { return &d.Actor }),
	partField(81, func(d *Data) *IO { return &d.IO }, appendIO, readIO),
	jsonField(83, func(d *Data) *json.RawMessage { return &d.Pinned }),
	digestField(85, func(d *Data) *Digest { return &d.PinnedAt }),
	digestField(87, func(d *Data) *Digest { return &d.Machine }),
	idField(89, func(d *Data) *ID { return &d.Cached }),
	listField(91, func(d *Data) *[]Pair { return &d.Accesses }, appendPair, readPair, exactPair),
	textField(93, func(d *Data) *string { return &d.Isolation }),
	digestField(95, func(d *Data) *Digest { return &d.Out }),
	digestField(97, func(d *Data) *Digest { return &d.Err }),
	int64Field(98, func(d *Data) *int64 { return &d.Logical }),
	uintField(100, func(d *Data) *uint64 { return &d.Seed }),
	intField(102, func(d *Data) *int { return &d.Shared }),
	textField(103, func(d *Data) *string { return &d.Verdict }),
	textField(105, func(d *Data) *string { return &d.Factor }),
	textField(107, func(d *Data) *string { return &d.Role }),
	intField(108, func(d *Data) *int { return &d.Times }),
	intField(110, func(d *Data) *int { return &d.Hermetic }),
	intField(112, func(d *Data) *int { return &d.Fresh }),
}

// lastField is the highest number that this build knows; unknown fields lie above it.
const lastField = 112

var fieldByNumber = indexFields()

func indexFields() (index [lastField + 1]*field) {
	for i := range dataFields {
		index[dataFields[i].number] = &dataFields[i]
	}
	return index
}

// AppendEncoded appends the encoded form.
func (d *Data) AppendEncoded(b []byte) []byte {
	for i := range dataFields {
		b = dataFields[i].put(b, d)
	}
	return append(b, d.Unknown...)
}

// Decode fills d from an encoded form. Strings and bytes are copied: encoded may be reused. It is strict: fields out
// of order, twice, zero or cut short are errors, so that each value has exactly one encoding.
func (d *Data) Decode(encoded []byte) error {
	*d = Data{}
	last := uint64(0)
	for rest := encoded; len(rest) > 0; {
		start := rest
		number, v, tail, err := nextField(rest)
		if err != nil {
			return fmt.Errorf("decode event data: %w", err)
		}
		if number <= last {
			return fmt.Errorf("decode event data: field %d after %d", number, last)
		}
		last, rest = number, tail
		switch {
		case number > lastField:
			d.Unknown = append(d.Unknown, start[:len(start)-len(tail)]...)
		case fieldByNumber[number] == nil:
			return fmt.Errorf("decode event data: no field %d", number)
		default:
			if err := fieldByNumber[number].get(v, d); err != nil {
				return fmt.Errorf("decode event data: field %d: %w", number, err)
			}
		}
	}
	return nil
}

var (
	errCut  = errors.New("cut short")
	errZero = errors.New("a zero value is left out, not written")
	errLong = errors.New("a number is written in as few bytes as it needs")
)

// uvarint reads one number in its only spelling.
func uvarint(b []byte) (n uint64, rest []byte, err error) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), b[1:], nil
	}
	n, width := binary.Uvarint(b)
	switch {
	case width <= 0:
		return 0, nil, errCut
	case b[width-1] == 0:
		return 0, nil, errLong
	}
	return n, b[width:], nil
}

func nextField(b []byte) (number uint64, v value, rest []byte, err error) {
	if number, b, err = uvarint(b); err != nil {
		return 0, value{}, nil, err
	}
	if v.n, b, err = uvarint(b); err != nil {
		return 0, value{}, nil, err
	}
	switch {
	case v.n == 0:
		return 0, value{}, nil, errZero
	case number%2 == 0:
		return number, v, b, nil
	case v.n > uint64(len(b)):
		return 0, value{}, nil, errCut
	}
	v.b = b[:v.n]
	return number, v, b[v.n:], nil
}

func textField[T ~string](number uint64, at func(*Data) *T) field {
	return field{number,
		func(b []byte, d *Data) []byte { return putBytes(b, number, *at(d)) },
		func(v value, d *Data) error { *at(d) = T(intern(v.b)); return nil },
		func(d *Data) bool { return exactText(string(*at(d))) }}
}

// intern spares an allocation for the texts that nearly every event repeats.
func intern(b []byte) string {
	switch string(b) {
	case "manual":
		return "manual"
	case "webhook":
		return "webhook"
	case "slot":
		return "slot"
	}
	return string(b)
}

func bytesField(number uint64, at func(*Data) *[]byte) field {
	return field{number,
		func(b []byte, d *Data) []byte { return putBytes(b, number, *at(d)) },
		func(v value, d *Data) error { *at(d) = append([]byte(nil), v.b...); return nil }, nil}
}

func jsonField(number uint64, at func(*Data) *json.RawMessage) field {
	return field{number,
		func(b []byte, d *Data) []byte { return putBytes(b, number, *at(d)) },
		func(v value, d *Data) error { *at(d) = append(json.RawMessage(nil), v.b...); return nil },
		func(d *Data) bool { return exactJSON(*at(d)) }}
}

func digestField(number uint64, at func(*Data) *Digest) field {
	return field{number,
		func(b []byte, d *Data) []byte {
			if at(d).IsZero() {
				return b
			}
			return putBytes(b, number, at(d)[:])
		},
		func(v value, d *Data) error { return getFixed(at(d)[:], v.b) }, nil}
}

func idField(number uint64, at func(*Data) *ID) field {
	return field{number,
		func(b []byte, d *Data) []byte {
			if at(d).IsZero() {
				return b
			}
			return putBytes(b, number, at(d)[:])
		},
		func(v value, d *Data) error { return getFixed(at(d)[:], v.b) }, nil}
}

func uintField(number uint64, at func(*Data) *uint64) field {
	return field{number,
		func(b []byte, d *Data) []byte { return putUint(b, number, *at(d)) },
		func(v value, d *Data) error { *at(d) = v.n; return nil }, nil}
}

func intField(number uint64, at func(*Data) *int) field {
	return field{number,
		func(b []byte, d *Data) []byte { return putInt(b, number, int64(*at(d))) },
		func(v value, d *Data) error { *at(d) = int(unzigzag(v.n)); return nil }, nil}
}

func int64Field(number uint64, at func(*Data) *int64) field {
	return field{number,
		func(b []byte, d *Data) []byte { return putInt(b, number, *at(d)) },
		func(v value, d *Data) error { *at(d) = unzigzag(v.n); return nil }, nil}
}

func durationField(number uint64, at func(*Data) *time.Duration) field {
	return field{number,
		func(b []byte, d *Data) []byte { return putInt(b, number, int64(*at(d))) },
		func(v value, d *Data) error { *at(d) = time.Duration(unzigzag(v.n)); return nil }, nil}
}

// listField holds each element as a length and its parts; an element, unlike a field, may be zero.
func listField[T any](number uint64, at func(*Data) *[]T, put func([]byte, *T) []byte, get func([]byte, *T) error,
	exact func(*T) bool) field {
	return field{number,
		func(b []byte, d *Data) []byte { return putList(b, number, *at(d), put) },
		func(v value, d *Data) (err error) { *at(d), err = getList(v.b, get); return err },
		func(d *Data) bool {
			list := *at(d)
			for i := range list {
				if !exact(&list[i]) {
					return false
				}
			}
			return true
		}}
}

// partField holds one composite value; a zero value is left out.
func partField[T comparable](number uint64, at func(*Data) *T, put func([]byte, *T) []byte, get func([]byte, *T) error) field {
	return field{number,
		func(b []byte, d *Data) []byte {
			var zero T
			if *at(d) == zero {
				return b
			}
			b = appendUvarint(b, number)
			return insertLength(put(b, at(d)), len(b))
		},
		func(v value, d *Data) error { return get(v.b, at(d)) }, nil}
}
