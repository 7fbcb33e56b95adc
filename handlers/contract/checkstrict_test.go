package contract

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// both gives what DecodeStrict gives, and fails unless CheckStrict says the same of the text.
func both(tb interface {
	Helper()
	Errorf(format string, args ...any)
}, text []byte,
) (any, error) {
	tb.Helper()
	v, err := DecodeStrict(text)
	var decoded, checked *DecodeError
	isDecoded, isChecked := errors.As(err, &decoded), errors.As(CheckStrict(text), &checked)
	if isDecoded != isChecked || isDecoded && *decoded != *checked {
		tb.Errorf("%.200q: DecodeStrict says %+v, CheckStrict says %+v", text, decoded, checked)
	}
	return v, err
}

func TestCheckStrictAgreesOnBrokenTexts(t *testing.T) {
	t.Parallel()
	parts := []string{"{", "}", "[", "]", ",", ":", `"`, `\`, `\u00e9`, `\ud83d\ude00`, `\udc00`, `"a"`, `"A":1`, "é", "\xff", "\x00", "\n", " ",
		"0", "-", "1e400", "NaN", "-Infinity", "true", "tru", "\xef\xbb\xbf", strings.Repeat("[", MaxDepth), strings.Repeat(`{"a":`, MaxDepth)}
	rapid.Check(t, func(t *rapid.T) {
		text := drawJSON(t, 3)
		for range rapid.IntRange(0, 4).Draw(t, "mutations") {
			from := rapid.IntRange(0, len(text)).Draw(t, "from")
			to := min(len(text), from+rapid.IntRange(0, 3).Draw(t, "cut"))
			text = text[:from] + rapid.SampledFrom(append(parts, "", text[from:to]+text[from:to])).Draw(t, "put") + text[to:]
		}
		_, _ = both(t, []byte(text))
	})
}

var (
	drawKey    = rapid.SampledFrom([]string{`a`, `A`, `b`, `\u0061`, `k`, "\u212a", `s`, "ſ", `é`, `É`, `a/b`, `~`, ``, `\n`, `long key with \"escapes\"`})
	drawScalar = rapid.SampledFrom([]string{`null`, `true`, `false`, `0`, `-1.5e3`, `9223372036854775807`, `""`, `"x"`, `"Zoë \ud83d\ude00 \"\\"`})
)

// drawJSON gives the text of a value, sound but for keys that clash.
func drawJSON(t *rapid.T, depth int) string {
	kind := "scalar"
	if depth > 0 {
		kind = rapid.SampledFrom([]string{"scalar", "array", "object", "object"}).Draw(t, "kind")
	}
	if kind == "scalar" {
		return drawScalar.Draw(t, "scalar")
	}
	var items []string
	for range rapid.IntRange(0, 4).Draw(t, "items") {
		item := drawJSON(t, depth-1)
		if kind == "object" {
			item = `"` + drawKey.Draw(t, "key") + `" : ` + item
		}
		items = append(items, item)
	}
	if kind == "array" {
		return "[" + strings.Join(items, " ,") + "]"
	}
	return "{" + strings.Join(items, ", ") + "}"
}

// The first key that clashes with an earlier one is found, among few keys and among many.
func TestClashingKeysAreFound(t *testing.T) {
	t.Parallel()
	letters := rapid.StringOfN(rapid.RuneFrom([]rune("aAkK\u212asSſéÉßẞ中\"\\")), 0, 3, -1)
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for i := range rapid.SampledFrom([]int{0, 5, few - 3, few, few + 40}).Draw(t, "padding") {
			names = append(names, fmt.Sprintf("padding%d", i))
		}
		names = append(names, rapid.SliceOfN(letters, 0, 8).Draw(t, "names")...)
		var members []string
		for _, name := range names {
			members = append(members, spelled(t, name)+`:{"k":{}}`)
		}
		code, at := clashOf(names)
		_, err := both(t, []byte("{"+strings.Join(members, ",")+"}"))
		var bad *DecodeError
		if errors.As(err, &bad) != (code != "") || code != "" && (bad.Code != code || bad.Pointer != "/"+escapePointer(at)) {
			t.Fatalf("%q: %v, want %s at %q", names, err, code, at)
		}
	})
}

// clashOf compares each key with all before it.
func clashOf(names []string) (code, at string) {
	for i, name := range names {
		for _, earlier := range names[:i] {
			switch {
			case earlier == name:
				return CodeDup, name
			case strings.EqualFold(earlier, name):
				return CodeCase, name
			}
		}
	}
	return "", ""
}

// spelled writes a string with or without escapes.
func spelled(t *rapid.T, s string) string {
	if rapid.Bool().Draw(t, "escape") {
		var b strings.Builder
		for _, r := range s {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		return `"` + b.String() + `"`
	}
	return fmt.Sprintf("%q", s)
}

// A stranger may make an object as wide as a body is long: what a key costs must not grow with the keys before it.
func TestWideObjects(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, `,"key%d":0`, i)
	}
	wide := "{" + b.String()[1:]
	_, err := both(t, []byte(wide+"}"))
	want(t, err, nil)
	err = CheckStrict([]byte(wide + `,"KEY0":0}`))
	want(t, err, error(&DecodeError{Code: CodeCase, Pointer: "/KEY0", Offset: int64(len(wide) + 1), What: `the keys "key0" and "KEY0" differ only by case`}))
}

func TestCheckStrictMakesNoValues(t *testing.T) { //nolint:paralleltest // it counts allocations
	text := []byte(`{"rows":[` + strings.Repeat(`{"id":123456,"name":"Zoë \"x\" Müller","price":12.50,"tags":["a","b"],"ok":true,"none":null},`, 10) + `0]}`)
	allocs := testing.AllocsPerRun(100, func() {
		if err := CheckStrict(text); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 8 { // the buffers of a decoder; mostly there are some from before
		t.Errorf("%d bytes took %v allocations", len(text), allocs)
	}
}
