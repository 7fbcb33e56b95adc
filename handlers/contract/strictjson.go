package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// The codes of what DecodeStrict refuses.
const (
	CodeSyntax   = "E_JSON_SYNTAX"   // no JSON
	CodeDup      = "E_JSON_DUP"      // an object has a key twice
	CodeCase     = "E_JSON_CASE"     // two keys of an object differ only by case
	CodeDepth    = "E_JSON_DEPTH"    // arrays and objects nested deeper than MaxDepth
	CodeNumber   = "E_JSON_NUMBER"   // NaN, an integer outside 64 bits, or a number no float64 comes near
	CodeTrailing = "E_JSON_TRAILING" // something after the end of the value
	CodeEncoding = "E_ENCODING"      // invalid UTF-8, or half of a surrogate pair
)

// MaxDepth is how deep arrays and objects may be nested.
const MaxDepth = 64

// DecodeError says what is wrong with a JSON text, and where.
type DecodeError struct {
	Code    string
	Pointer string // JSON pointer of the value or key; empty is the whole document
	Offset  int64  // byte, from 0
	What    string
}

// Error gives "code: what, at pointer (byte n)".
func (e *DecodeError) Error() string {
	at := ""
	if e.Pointer != "" {
		at = " at " + shorten(e.Pointer)
	}
	return fmt.Sprintf("%s: %s%s (byte %d)", e.Code, e.What, at, e.Offset)
}

var utf8BOM = []byte("\xef\xbb\xbf")

// DecodeStrict reads one JSON value: map[string]any, []any, string, json.Number, bool or nil. Numbers keep their text.
// The error is a *DecodeError. A UTF-8 byte order mark in front is dropped, as RFC 8259 allows.
func DecodeStrict(text []byte) (any, error) {
	return decode(text, true)
}

// CheckStrict gives the error that DecodeStrict gives, and makes no value: of a sound text it copies next to nothing.
func CheckStrict(text []byte) error {
	_, err := decode(text, false)
	return err
}

func decode(text []byte, build bool) (any, error) {
	d, _ := decoders.Get().(*decoder)
	defer d.release()
	d.text, d.build = text, build
	if bytes.HasPrefix(text, utf8BOM) {
		d.at = len(utf8BOM)
	}
	d.space()
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	d.path = d.path[:0]
	if d.space(); d.at < len(text) {
		return nil, d.fail(CodeTrailing, "data after the end of the value")
	}
	return v, nil
}

// decoder is a recursive descent over the whole text. Where it does not build, it gives nil for each value.
type decoder struct {
	text      []byte
	at        int
	build     bool
	path      []token
	seen      []seenKey // of all objects that are open, those of the innermost last
	folded    []byte    // the last key, folded
	unescaped []byte    // the last string that had escapes, without them
}

// decoders keeps the buffers of decoders that are done.
var decoders = sync.Pool{New: func() any {
	return &decoder{path: make([]token, 0, MaxDepth), seen: make([]seenKey, 0, few), folded: make([]byte, 0, 64), unescaped: make([]byte, 0, 256)}
}}

const maxKept = 64 << 10 // bytes; a longer buffer is left to the garbage collector

// release keeps the buffers, and nothing of the text. MaxDepth and few bound path and seen.
func (d *decoder) release() {
	if max(cap(d.folded), cap(d.unescaped)) <= maxKept {
		*d = decoder{path: d.path[:0], seen: d.seen[:0], folded: d.folded, unescaped: d.unescaped}
		decoders.Put(d)
	}
}

// token is one step of the way to the current value: the key at a place of the text, or an index.
type token struct {
	key   int
	index int
	array bool
}

func (d *decoder) fail(code, format string, args ...any) error {
	return d.failAt(d.at, code, format, args...)
}

func (d *decoder) failAt(at int, code, format string, args ...any) error {
	var pointer strings.Builder
	for _, t := range d.path {
		pointer.WriteByte('/')
		if t.array {
			pointer.WriteString(strconv.Itoa(t.index))
		} else {
			pointer.WriteString(escapePointer(string(d.stringAt(t.key))))
		}
	}
	return &DecodeError{Code: code, Pointer: pointer.String(), Offset: int64(at), What: fmt.Sprintf(format, args...)}
}

func escapePointer(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
}

func (d *decoder) space() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

// peek gives the next byte, or 0 at the end: a NUL is no valid start of anything.
func (d *decoder) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

func (d *decoder) value() (any, error) {
	switch c := d.peek(); {
	case c == '{':
		return d.object()
	case c == '[':
		return d.array()
	case c == '"':
		return d.quoted()
	case c == '-' || c >= '0' && c <= '9':
		return d.number()
	case d.literal("true"):
		return true, nil
	case d.literal("false"):
		return false, nil
	case d.literal("null"):
		return nil, nil //nolint:nilnil // JSON's null
	case d.literal("NaN") || d.literal("Infinity"):
		return nil, d.fail(CodeNumber, "NaN and Infinity are no JSON numbers")
	}
	return nil, d.unexpected("a value")
}

func (d *decoder) literal(word string) bool {
	if len(d.text)-d.at >= len(word) && string(d.text[d.at:d.at+len(word)]) == word {
		d.at += len(word)
		return true
	}
	return false
}

func (d *decoder) unexpected(wanted string) error {
	if d.at >= len(d.text) {
		return d.fail(CodeSyntax, "expected %s, found the end", wanted)
	}
	r, size := utf8.DecodeRune(d.text[d.at:])
	if r == utf8.RuneError && size == 1 {
		return d.fail(CodeEncoding, "invalid UTF-8: byte 0x%02x", d.text[d.at])
	}
	return d.fail(CodeSyntax, "expected %s, found %q", wanted, r)
}

func (d *decoder) enter() error {
	if len(d.path) >= MaxDepth {
		return d.fail(CodeDepth, "nested deeper than %d levels", MaxDepth)
	}
	d.at++
	d.space()
	return nil
}

func (d *decoder) array() (any, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	var items []any
	if d.build {
		items = []any{}
	}
	if d.peek() == ']' {
		d.at++
		return items, nil
	}
	d.path = append(d.path, token{array: true})
	for {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		if d.build {
			items = append(items, v)
		}
		more, err := d.next(']')
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
		d.path[len(d.path)-1].index++
	}
	d.path = d.path[:len(d.path)-1]
	return items, nil
}

// next reads a comma (true) or the end of the array or object.
func (d *decoder) next(end byte) (bool, error) {
	d.space()
	switch d.peek() {
	case ',':
		d.at++
		d.space()
		return true, nil
	case end:
		d.at++
		return false, nil
	}
	return false, d.unexpected(fmt.Sprintf("',' or %q", end))
}

func (d *decoder) object() (any, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	var o map[string]any
	if d.build {
		o = map[string]any{}
	}
	if d.peek() == '}' {
		d.at++
		return o, nil
	}
	keys := scope{first: len(d.seen)}
	for {
		if err := d.member(o, &keys); err != nil {
			return nil, err
		}
		more, err := d.next('}')
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
	}
	d.seen = d.seen[:keys.first]
	return o, nil
}

// member reads one `"key": value`.
func (d *decoder) member(o map[string]any, keys *scope) error {
	start := d.at
	if d.peek() != '"' {
		return d.unexpected("a key in quotes")
	}
	key, err := d.str()
	if err != nil {
		return err
	}
	d.path = append(d.path, token{key: start})
	if other, clash := d.see(keys, key, start); clash {
		if bytes.Equal(other, key) {
			return d.failAt(start, CodeDup, "the key %q stands twice", shorten(string(key)))
		}
		return d.failAt(start, CodeCase, "the keys %q and %q differ only by case", shorten(string(other)), shorten(string(key)))
	}
	var name string
	if d.build {
		name = string(key) // the value may overwrite the key
	}
	if d.space(); d.peek() != ':' {
		return d.unexpected("':'")
	}
	d.at++
	d.space()
	v, err := d.value()
	if err != nil { // the path says where
		return err
	}
	if d.build {
		o[name] = v
	}
	d.path = d.path[:len(d.path)-1]
	return nil
}

func (d *decoder) number() (any, error) {
	n := numberLength(d.text[d.at:])
	if n == 0 {
		if bytes.HasPrefix(d.text[d.at:], []byte("-Infinity")) {
			return nil, d.fail(CodeNumber, "NaN and Infinity are no JSON numbers")
		}
		return nil, d.fail(CodeSyntax, "not a JSON number")
	}
	text := d.text[d.at : d.at+n]
	if !fits(string(text)) {
		return nil, d.fail(CodeNumber, "%s is outside the range of numbers", shorten(string(text)))
	}
	d.at += n
	if c := d.peek(); c >= '0' && c <= '9' {
		return nil, d.fail(CodeSyntax, "a number begins with 0")
	}
	if !d.build {
		return nil, nil //nolint:nilnil // no value is asked for
	}
	return json.Number(text), nil
}

func (d *decoder) quoted() (any, error) {
	s, err := d.str()
	if err != nil || !d.build {
		return nil, err
	}
	return string(s), nil
}

// str reads a string. It is a part of the text or, when it has escapes, a copy that holds until the next one.
func (d *decoder) str() ([]byte, error) {
	d.at++
	start, copied := d.at, false
	d.unescaped = d.unescaped[:0]
	for {
		d.at += plainLength(d.text[d.at:])
		switch d.peek() {
		case '"':
			s := d.text[start:d.at]
			d.at++
			if copied {
				d.unescaped = append(d.unescaped, s...)
				s = d.unescaped
			}
			return s, nil
		case '\\':
			d.unescaped = append(d.unescaped, d.text[start:d.at]...)
			r, err := d.escape()
			if err != nil {
				return nil, err
			}
			d.unescaped = utf8.AppendRune(d.unescaped, r)
			start, copied = d.at, true
		default:
			if err := d.char(); err != nil {
				return nil, err
			}
		}
	}
}

// plainLength gives how many bytes at the start of b are ASCII that stands for itself in a string.
func plainLength(b []byte) int {
	for i, c := range b {
		if !verbatim[c] {
			return i
		}
	}
	return len(b)
}

var verbatim = func() (is [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// char steps over one character that is no such byte but stands for itself.
func (d *decoder) char() error {
	if d.at >= len(d.text) {
		return d.unexpected("the closing quote")
	}
	c := d.text[d.at]
	if c < ' ' {
		return d.fail(CodeSyntax, "a bare control character 0x%02x in a string", c)
	}
	r, size := utf8.DecodeRune(d.text[d.at:])
	if r == utf8.RuneError && size == 1 {
		return d.fail(CodeEncoding, "invalid UTF-8: byte 0x%02x", c)
	}
	d.at += size
	return nil
}

const escapes = `""\\//` + "b\bf\fn\nr\rt\t" // pairs: letter, character

func (d *decoder) escape() (rune, error) {
	start := d.at
	d.at++
	c := d.peek()
	for i := 0; i < len(escapes); i += 2 {
		if c == escapes[i] {
			d.at++
			return rune(escapes[i+1]), nil
		}
	}
	if c != 'u' {
		return 0, d.failAt(start, CodeSyntax, "an unknown escape in a string")
	}
	r, ok := d.hex4()
	if ok && utf16.IsSurrogate(r) {
		low := rune(-1)
		if d.peek() == '\\' && d.at+1 < len(d.text) && d.text[d.at+1] == 'u' {
			d.at++
			low, ok = d.hex4()
		}
		if r = utf16.DecodeRune(r, low); ok && r == utf8.RuneError {
			return 0, d.failAt(start, CodeEncoding, "half of a surrogate pair")
		}
	}
	if !ok {
		return 0, d.failAt(start, CodeSyntax, `expected four hexadecimal digits after \u`)
	}
	return r, nil
}

// hex4 reads "uXXXX", standing on the u.
func (d *decoder) hex4() (rune, bool) {
	if d.at+5 > len(d.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(d.text[d.at+1:d.at+5]), 16, 16)
	d.at += 5
	return rune(n), err == nil
}
