package contract

import (
	"math/big"
	"strconv"
	"strings"
)

// maxNumber is the longest text of a number, in bytes.
const maxNumber = 256

// numberLength gives how many bytes at the start of b are a number as RFC 8259 writes it; 0 is none.
func numberLength[T string | []byte](b T) int {
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	whole := digits(b, i)
	switch {
	case whole == i:
		return 0
	case b[i] == '0':
		i++ // no digit may follow
	default:
		i = whole
	}
	if i < len(b) && b[i] == '.' {
		end := digits(b, i+1)
		if end == i+1 {
			return 0
		}
		i = end
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		start := i + 1
		if start < len(b) && (b[start] == '+' || b[start] == '-') {
			start++
		}
		end := digits(b, start)
		if end == start {
			return 0
		}
		i = end
	}
	return i
}

func digits[T string | []byte](b T, from int) int {
	for from < len(b) && b[from] >= '0' && b[from] <= '9' {
		from++
	}
	return from
}

// isNumber reports whether the whole cell is a number that fits.
func isNumber(cell string) bool {
	return cell != "" && numberLength(cell) == len(cell) && fits(cell)
}

func whole(number string) bool {
	for i := range len(number) {
		if c := number[i]; c == '.' || c|' ' == 'e' {
			return false
		}
	}
	return true
}

// fits reports whether programs agree on what a number is: an integer is one of 64 bits, any other has a float64 near
// it. It also keeps the schema's exact arithmetic away from numbers with a billion digits.
func fits(number string) bool {
	switch {
	case len(number) > maxNumber:
		return false
	case !whole(number):
		if strings.IndexByte(number, 'e') < 0 && strings.IndexByte(number, 'E') < 0 {
			return true // maxNumber keeps it well inside
		}
		f, err := strconv.ParseFloat(number, 64)
		mantissa, _, _ := strings.Cut(strings.ToLower(number), "e")
		return err == nil && (f != 0 || !strings.ContainsAny(mantissa, "123456789"))
	case len(number) <= 18:
		return true
	}
	_, err := strconv.ParseInt(number, 10, 64)
	return err == nil
}

// isInteger reports whether a number that fits has an integer's value, as 5, 5.0 and 5e3 have.
func isInteger(number string) bool {
	return whole(number) || rat(number).IsInt()
}

// rat gives the exact value of a number that fits.
func rat(number string) *big.Rat {
	r, _ := new(big.Rat).SetString(number)
	return r
}

// bound is a limit that numbers are compared with exactly.
type bound struct {
	exact *big.Rat
	near  float64
}

func newBound(r *big.Rat) *bound {
	if r == nil {
		return nil
	}
	near, _ := r.Float64()
	return &bound{exact: r, near: near}
}

// compare gives the sign of number - bound. Rounding to the nearest float64 keeps the order, so two different floats
// decide; only equal ones need exact arithmetic.
func (b *bound) compare(number string, near float64) int {
	switch {
	case near < b.near:
		return -1
	case near > b.near:
		return 1
	}
	return rat(number).Cmp(b.exact)
}

// ratText writes a limit of a schema as people write it.
func ratText(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
