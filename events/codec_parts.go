package events

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// appendUvarint is binary.AppendUvarint with the short case in line.
func appendUvarint(b []byte, n uint64) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	return binary.AppendUvarint(b, n)
}

func putBytes[T ~string | ~[]byte](b []byte, number uint64, content T) []byte {
	if len(content) == 0 {
		return b
	}
	return append(appendUvarint(appendUvarint(b, number), uint64(len(content))), content...)
}

// insertLength puts the length of what b holds from start on before it.
func insertLength(b []byte, start int) []byte {
	n := len(b) - start
	var length [binary.MaxVarintLen64]byte
	width := binary.PutUvarint(length[:], uint64(n)) //nolint:gosec // a length
	b = append(b, length[:width]...)
	copy(b[start+width:], b[start:start+n])
	copy(b[start:], length[:width])
	return b
}

func putFixed(b []byte, number uint64, content []byte) []byte {
	if isZero(content) {
		return b
	}
	return putBytes(b, number, content)
}

func isZero(content []byte) bool {
	for _, c := range content {
		if c != 0 {
			return false
		}
	}
	return true
}

func getFixed(to, content []byte) error {
	if len(content) != len(to) {
		return fmt.Errorf("%d bytes where %d are due", len(content), len(to))
	}
	copy(to, content)
	if isZero(content) {
		return errZero
	}
	return nil
}

func putUint(b []byte, number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return appendUvarint(appendUvarint(b, number), n)
}

func putInt(b []byte, number uint64, n int64) []byte { return putUint(b, number, zigzag(n)) }

func zigzag(n int64) uint64   { return uint64(n)<<1 ^ uint64(n>>63) } //nolint:gosec // the bit pattern is meant
func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// putList appends a list's field; every element is a length and its parts.
func putList[T any](b []byte, number uint64, list []T, put func([]byte, *T) []byte) []byte {
	if len(list) == 0 {
		return b
	}
	b = appendUvarint(b, number)
	start := len(b)
	for i := range list {
		b = insertLength(put(b, &list[i]), len(b))
	}
	return insertLength(b, start)
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
func exactCheck(c *Check) bool {
	return exactText(c.Kind) && exactText(c.Expr) && exactText(c.Level) && exactText(c.Error) && exactJSON(c.Inputs)
}

func exactResult(r *Result) bool {
	return exactText(r.Role) && exactText(r.Name) && exactJSON(r.Value)
}

func appendPair(b []byte, p *Pair) []byte { return putBytes(putBytes(b, 1, p.Name), 3, p.Value) }

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
	b = putBytes(b, 1, r.Role)
	b = putFixed(b, 3, r.Digest[:])
	b = putInt(b, 4, r.Size)
	b = putInt(b, 6, r.Records)
	b = putBytes(b, 7, r.Name)
	return putBytes(b, 9, r.Value)
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
	return putInt(putBytes(b, 1, s.Name), 2, int64(s.Duration))
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

func appendIO(b []byte, io *IO) []byte { return putInt(putInt(b, 2, io.Read), 4, io.Written) }

func readIO(b []byte, io *IO) error {
	return readParts(b, func(number uint64, v value) error {
		switch number {
		case 2:
			io.Read = unzigzag(v.n)
		case 4:
			io.Written = unzigzag(v.n)
		default:
			return errUnknownPart
		}
		return nil
	})
}

func appendCheck(b []byte, c *Check) []byte {
	b = putBytes(putBytes(b, 1, c.Kind), 3, c.Expr)
	if c.Holds {
		b = putUint(b, 4, 1)
	}
	return putBytes(putBytes(putBytes(b, 5, c.Inputs), 7, c.Level), 9, c.Error)
}

func readCheck(b []byte, c *Check) error {
	return readParts(b, func(number uint64, v value) error {
		switch number {
		case 1:
			c.Kind = string(v.b)
		case 3:
			c.Expr = string(v.b)
		case 4:
			if v.n != 1 {
				return errLong
			}
			c.Holds = true
		case 5:
			c.Inputs = append(c.Inputs, v.b...)
		case 7:
			c.Level = string(v.b)
		case 9:
			c.Error = string(v.b)
		default:
			return errUnknownPart
		}
		return nil
	})
}
