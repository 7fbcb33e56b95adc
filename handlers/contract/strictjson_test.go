package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func want(tb testing.TB, got, want any) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("differs (-want +got):\n%s", diff)
	}
}

func TestDecodeStrictKeepsNumbers(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"9007199254740993", "1152921506151679042", "1.417566161e+09", "-0", "0.1", "1E-7",
		"9223372036854775807", "-9223372036854775808", "1e308", "5e-324", "0e-999", "0.0000"} {
		got, err := both(t, []byte(text))
		want(t, err, nil)
		want(t, got, any(json.Number(text)))
	}
}

func TestDecodeStrictAccepts(t *testing.T) {
	t.Parallel()
	for text, value := range map[string]any{
		`null`: nil, ` true `: true, "\xef\xbb\xbffalse": false, `""`: "", `"a\n\"\\\/\b\f\r\té😀"`: "a\n\"\\/\b\f\r\té😀",
		`[]`: []any{}, `{}`: map[string]any{}, "[ 1 , \"x\" ]": []any{json.Number("1"), "x"},
		`{"a":{"b":[null]},"c":"中文"}`: map[string]any{"a": map[string]any{"b": []any{nil}}, "c": "中文"},
		`"\u0000"`:                    "\x00", `{"":1}`: map[string]any{"": json.Number("1")}, `"é€😀"`: "é€😀",
		`"\ud83d\ude00"`: "😀",
	} {
		got, err := both(t, []byte(text))
		want(t, err, nil)
		want(t, got, value)
	}
	v, err := both(t, []byte(strings.Repeat("[", 64)+strings.Repeat("]", 64)))
	want(t, err, nil)
	for range 63 {
		v = v.([]any)[0]
	}
	want(t, v, any([]any{}))
}

func TestDecodeStrictRefuses(t *testing.T) {
	t.Parallel()
	many := func(last string) string {
		var b strings.Builder
		b.WriteString(`{"o":{`)
		for i := range 20 {
			fmt.Fprintf(&b, `"key%d":0,`, i)
		}
		return b.String() + last + `:1}}`
	}
	for _, c := range []struct{ text, code, pointer string }{
		{`{"a":1,"a":2}`, CodeDup, "/a"},
		{`[0,{"x":{"a/b":1,"a\u002fb":2}}]`, CodeDup, "/1/x/a~1b"},
		{`{"amount":1,"AMOUNT":9}`, CodeCase, "/AMOUNT"},
		{`{"k":1,"\u212a":9}`, CodeCase, "/\u212a"}, // the Kelvin sign
		{many(`"KEY7"`), CodeCase, "/o/KEY7"},
		{many(`"key7"`), CodeDup, "/o/key7"},
		{`NaN`, CodeNumber, ""}, {`[Infinity]`, CodeNumber, "/0"}, {`[1,-Infinity]`, CodeNumber, "/1"},
		{`1e400`, CodeNumber, ""}, {`{"n":-1e400}`, CodeNumber, "/n"}, {`1e-400`, CodeNumber, ""}, {`9223372036854775808`, CodeNumber, ""},
		{`-9223372036854775809`, CodeNumber, ""}, {`1e-999999999`, CodeNumber, ""}, {"1." + strings.Repeat("1", 300), CodeNumber, ""},
		{strings.Repeat("[", 65) + strings.Repeat("]", 65), CodeDepth, strings.Repeat("/0", 64)},
		{strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65), CodeDepth, strings.Repeat("/a", 64)},
		{strings.Repeat("[", 1e6), CodeDepth, strings.Repeat("/0", 64)},
		{`{} {}`, CodeTrailing, ""}, {`[1]x`, CodeTrailing, ""}, {"1\x00", CodeTrailing, ""},
		{"\"\xff\"", CodeEncoding, ""}, {"{\"a\":\"\xc3\"}", CodeEncoding, "/a"}, {"\xff", CodeEncoding, ""}, {"{\"\xed\xa0\x80\":1}", CodeEncoding, ""},
		{`["\ud800"]`, CodeEncoding, "/0"}, {`"\udc00\ud800"`, CodeEncoding, ""}, {`"\ud800x"`, CodeEncoding, ""}, {`"\ud800\u0041"`, CodeEncoding, ""},
		{``, CodeSyntax, ""}, {"\n\n", CodeSyntax, ""}, {`{`, CodeSyntax, ""}, {`[1,]`, CodeSyntax, "/1"}, {`{"a":1,}`, CodeSyntax, ""},
		{`[1 2]`, CodeSyntax, "/0"}, {`{"a" 1}`, CodeSyntax, "/a"}, {`{a:1}`, CodeSyntax, ""}, {`'a'`, CodeSyntax, ""}, {`"a`, CodeSyntax, ""},
		{"\"a\nb\"", CodeSyntax, ""}, {`"\x"`, CodeSyntax, ""}, {`"\u12g4"`, CodeSyntax, ""}, {`"\u12`, CodeSyntax, ""}, {`"\ud800\u12`, CodeSyntax, ""},
		{`01`, CodeSyntax, ""}, {`-`, CodeSyntax, ""}, {`1.`, CodeSyntax, ""}, {`.5`, CodeSyntax, ""}, {`+1`, CodeSyntax, ""}, {`1e`, CodeSyntax, ""},
		{`tru`, CodeSyntax, ""}, {`nul`, CodeSyntax, ""}, {"\xff\xfe1\x00", CodeEncoding, ""},
	} {
		_, err := both(t, []byte(c.text))
		var bad *DecodeError
		if !errors.As(err, &bad) {
			t.Errorf("%.40q was accepted", c.text)
			continue
		}
		if bad.Code != c.code || bad.Pointer != c.pointer || bad.Offset > int64(len(c.text)) {
			t.Errorf("%.40q: %+v, want %s at %q", c.text, bad, c.code, c.pointer)
		}
	}
}

func TestDecodeErrorNamesTheByte(t *testing.T) {
	t.Parallel()
	_, err := both(t, []byte(`{"a":1,"a":2}`))
	want(t, err.Error(), `E_JSON_DUP: the key "a" stands twice at /a (byte 7)`)
	_, err = both(t, []byte("{\"a\x1b\":1,"))
	want(t, err.Error(), `E_JSON_SYNTAX: a bare control character 0x1b in a string (byte 3)`)
}

// FuzzDecodeStrict: what is accepted, encoding/json accepts as well and reads as the same value. CheckStrict agrees.
func FuzzDecodeStrict(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u00e9\ud83d\ude00",null,true]}`, `[[[]]]`, `"\ud800"`, "\"\xff\"", `{"a":1,"A":2}`, `-0.0e+1`, ` 1 `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := both(t, text)
		if err != nil {
			var bad *DecodeError
			if !errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > int64(len(text)) {
				t.Fatalf("%q: %#v", text, err)
			}
			return
		}
		d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(string(text), "\ufeff")))
		d.UseNumber()
		var peer any
		if err := d.Decode(&peer); err != nil || !reflect.DeepEqual(got, peer) {
			t.Fatalf("%q: %#v, but encoding/json gives %#v, %v", text, got, peer, err)
		}
	})
}

func BenchmarkDecodeStrict(b *testing.B) {
	row := `{"id":123456,"name":"Zoë \"x\" Müller","price":12.50,"tags":["a","b"],"ok":true,"none":null},`
	text := []byte("[" + strings.Repeat(row, 2000) + "0]")
	b.Run("strict", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := DecodeStrict(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if err := CheckStrict(text); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding_json", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			var v any
			d := json.NewDecoder(strings.NewReader(string(text)))
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
