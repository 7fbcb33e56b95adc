package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

func putText(b []byte, number uint64, s string) []byte {
	if s == "" {
		return b
	}
	b = binary.AppendUvarint(b, number)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func putFixed(b []byte, number uint64, content []byte) []byte {
	for _, c := range content {
		if c != 0 {
			b = binary.AppendUvarint(b, number)
			b = binary.AppendUvarint(b, uint64(len(content)))
			return append(b, content...)
		}
	}
	return b
}

func getFixed(to, content []byte) error {
	if len(content) != len(to) {
		return fmt.Errorf("%d bytes where %d are due", len(content), len(to))
	}
	copy(to, content)
	for _, c := range content {
		if c != 0 {
			return nil
		}
	}
	return errZero
}

func putUint(b []byte, number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return binary.AppendUvarint(binary.AppendUvarint(b, number), n)
}

func putInt(b []byte, number uint64, n int64) []byte { return putUint(b, number, zigzag(n)) }

func zigzag(n int64) uint64   { return uint64(n)<<1 ^ uint64(n>>63) } //nolint:gosec // the bit pattern is meant
func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }    //nolint:gosec // the bit pattern is meant

// putList appends a list's field; every element is a length and its parts.
func putList[T any](b []byte, number uint64, list []T, put func([]byte, *T) []byte) []byte {
	if len(list) == 0 {
		return b
	}
	var inner, one []byte
	for i := range list {
		one = put(one[:0], &list[i])
		inner = append(binary.AppendUvarint(inner, uint64(len(one))), one...)
	}
	b = binary.AppendUvarint(binary.AppendUvarint(b, number), uint64(len(inner)))
	return append(b, inner...)
}

func getList[T any](b []byte, get func([]byte, *T) error) (list []T, err error) {
	for len(b) > 0 {
		n, rest, err := uvarint(b)
		if err != nil {
			return nil, err
		}
		if n > uint64(len(rest)) {
			return nil, errCut
		}
		var one T
		if err := get(rest[:n], &one); err != nil {
			return nil, err
		}
		list, b = append(list, one), rest[n:]
	}
	return list, nil
}

// readParts walks the fields of a composite value: ascending, each once, none zero.
func readParts(b []byte, each func(number uint64, v value) error) error {
	last := uint64(0)
	for len(b) > 0 {
		number, v, rest, err := nextField(b)
		if err != nil {
			return err
		}
		if number <= last {
			return fmt.Errorf("part %d after %d", number, last)
		}
		if err := each(number, v); err != nil {
			return err
		}
		last, b = number, rest
	}
	return nil
}

var errUnknownPart = errors.New("unknown part")

func exactPair(p *Pair) bool       { return exactText(p.Name) && exactText(p.Value) }
func exactSegment(s *Segment) bool { return exactText(s.Name) }
func exactResult(r *Result) bool {
	return exactText(r.Role) && exactText(r.Name) && exactJSON(r.Value)
}

func appendPair(b []byte, p *Pair) []byte { return putText(putText(b, 1, p.Name), 3, p.Value) }

func readPair(b []byte, p *Pair) error {
	return readParts(b, func(number uint64, v value) error {
		switch number {
		case 1:
			p.Name = string(v.b)
		case 3:
			p.Value = string(v.b)
		default:
			return errUnknownPart
		}
		return nil
	})
}

func appendResult(b []byte, r *Result) []byte {
	b = putText(b, 1, r.Role)
	b = putFixed(b, 3, r.Digest[:])
	b = putInt(b, 4, r.Size)
	b = putInt(b, 6, r.Records)
	b = putText(b, 7, r.Name)
	return putText(b, 9, string(r.Value))
}

func readResult(b []byte, r *Result) error {
	return readParts(b, func(number uint64, v value) error {
		switch number {
		case 1:
			r.Role = string(v.b)
		case 3:
			return getFixed(r.Digest[:], v.b)
		case 4:
			r.Size = unzigzag(v.n)
		case 6:
			r.Records = unzigzag(v.n)
		case 7:
			r.Name = string(v.b)
		case 9:
			r.Value = append(r.Value, v.b...)
		default:
			return errUnknownPart
		}
		return nil
	})
}

func appendSegment(b []byte, s *Segment) []byte {
	return putInt(putText(b, 1, s.Name), 2, int64(s.Duration))
}

func readSegment(b []byte, s *Segment) error {
	return readParts(b, func(number uint64, v value) error {
		switch number {
		case 1:
			s.Name = string(v.b)
		case 2:
			s.Duration = time.Duration(unzigzag(v.n))
		default:
			return errUnknownPart
		}
		return nil
	})
}

func appendLogRef(b []byte, l *LogRef) []byte { return putInt(putInt(b, 2, l.Bytes), 4, l.Dropped) }

func readLogRef(b []byte, l *LogRef) error {
	return readParts(b, func(number uint64, v value) error {
		switch number {
		case 2:
			l.Bytes = unzigzag(v.n)
		case 4:
			l.Dropped = unzigzag(v.n)
		default:
			return errUnknownPart
		}
		return nil
	})
}

func appendUsage(b []byte, u *Usage) []byte {
	return putInt(putInt(putInt(b, 2, int64(u.User)), 4, int64(u.System)), 6, u.MaxRSS)
}

func readUsage(b []byte, u *Usage) error {
	return readParts(b, func(number uint64, v value) error {
		switch number {
		case 2:
			u.User = time.Duration(unzigzag(v.n))
		case 4:
			u.System = time.Duration(unzigzag(v.n))
		case 6:
			u.MaxRSS = unzigzag(v.n)
		default:
			return errUnknownPart
		}
		return nil
	})
}
