package contract

import (
	"strings"
	"unicode"
)

// folded finds keys of one object that differ only by case.
type folded struct {
	few  []string          // while there are few keys, comparing is faster than a map
	many map[string]string // folded form to key
}

const few = 8

// add gives the earlier key that the new one differs from only by case.
func (f *folded) add(key string) (other string, clash bool) {
	if f.many == nil {
		for _, k := range f.few {
			if strings.EqualFold(k, key) {
				return k, true
			}
		}
		if f.few = append(f.few, key); len(f.few) <= few {
			return "", false
		}
		f.many = make(map[string]string, 4*few)
		for _, k := range f.few {
			f.many[fold(k)] = k
		}
		return "", false
	}
	folded := fold(key)
	if other, clash = f.many[folded]; !clash {
		f.many[folded] = key
	}
	return other, clash
}

// fold gives one text for all the spellings that strings.EqualFold calls equal.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, s)
}
