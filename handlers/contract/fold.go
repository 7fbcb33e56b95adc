package contract

import (
	"bytes"
	"hash/maphash"
	"unicode"
	"unicode/utf8"
)

// seenKey is a key of an object that is still open.
type seenKey struct {
	at   int    // where it stands in the text
	hash uint64 // of its folded form
}

// scope is one object's part of the keys that were seen.
type scope struct {
	first int
	many  map[string]int // folded form to place, once there are too many to look through
}

// few is how many hashes are looked through faster than a map is filled.
const few = 128

// foldSeed is random, so that nobody can make many keys that have the same hash.
var foldSeed = maphash.MakeSeed()

// see adds a key to its object, unless an earlier one is the same or differs only by case: then it gives that.
func (d *decoder) see(s *scope, key []byte, at int) (other []byte, clash bool) {
	d.folded = appendFolded(d.folded[:0], key)
	if s.many != nil {
		earlier, clash := s.many[string(d.folded)]
		if clash {
			return d.stringAt(earlier), true
		}
		s.many[string(d.folded)] = at
		return nil, false
	}
	hash := maphash.Bytes(foldSeed, d.folded)
	for _, k := range d.seen[s.first:] {
		if k.hash == hash {
			if other = d.stringAt(k.at); bytes.EqualFold(other, key) {
				return other, true
			}
		}
	}
	if d.seen = append(d.seen, seenKey{at, hash}); len(d.seen)-s.first > few {
		d.spill(s)
	}
	return nil, false
}

// spill goes over from looking through the keys of an object to a map.
func (d *decoder) spill(s *scope) {
	s.many = make(map[string]int, 2*few)
	for _, k := range d.seen[s.first:] {
		d.folded = appendFolded(d.folded[:0], d.stringAt(k.at))
		s.many[string(d.folded)] = k.at
	}
	d.seen = d.seen[:s.first]
}

// stringAt reads a string again that was read before.
func (d *decoder) stringAt(at int) []byte {
	again := decoder{text: d.text, at: at}
	s, _ := again.str()
	return bytes.Clone(s)
}

// appendFolded appends one form for all the spellings that bytes.EqualFold calls equal.
func appendFolded(to, key []byte) []byte {
	for i := 0; i < len(key); {
		c := key[i]
		if c < utf8.RuneSelf { // the least of its spellings is the upper-case letter
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			to = append(to, c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(key[i:])
		to = utf8.AppendRune(to, leastSpelling(r))
		i += size
	}
	return to
}

func leastSpelling(r rune) rune {
	least := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		least = min(least, next)
	}
	return least
}
