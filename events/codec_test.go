package events

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDataRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := genData().Draw(t, "data")
		encoded := d.AppendEncoded([]byte("before"))[len("before"):]
		given := slices.Clone(encoded)
		var back Data
		if err := back.Decode(encoded); err != nil {
			t.Fatalf("%v: %x", err, encoded)
		}
		for i := range encoded {
			encoded[i] = 0xaa // what was decoded keeps nothing of the input
		}
		if diff := cmp.Diff(d, back); diff != "" {
			t.Fatal(diff)
		}
		if again := back.AppendEncoded(nil); !bytes.Equal(again, given) {
			t.Fatalf("encoded %x, then %x", given, again)
		}
	})
}

// TestDecodeIsStrict: each line is a second spelling, a mistake, or damage.
func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	id := "0f10" + hex.EncodeToString(bytes.Repeat([]byte{7}, 16))
	for name, c := range map[string]struct {
		encoded string
		ok      bool
	}{
		"nothing":                      {"", true},
		"a stage":                      {"010161", true},
		"an attempt":                   {"0202", true},
		"stage and attempt":            {"0101610202", true},
		"reordered":                    {"0202010161", false},
		"twice":                        {"010161010161", false},
		"number cut":                   {"80", false},
		"no value":                     {"02", false},
		"length cut":                   {"0180", false},
		"content cut":                  {"010261", false},
		"length beyond everything":     {"01ffffffffffffffffff01", false},
		"zero number":                  {"0200", false},
		"empty text":                   {"0100", false},
		"field zero":                   {"000101", false},
		"field that never was":         {"0401", false},
		"a long one":                   {"028200", false},
		"a long field number":          {"81000161", false},
		"a number over 64 bits":        {"02ffffffffffffffffff7f", false},
		"an id":                        {id, true},
		"a short id":                   {"0f0101", false},
		"a zero id":                    {"0f1000000000000000000000000000000000", false},
		"a pair":                       {"170403010161", true},
		"a pair with its parts turned": {"170706030162010161", false},
		"a pair with a part twice":     {"170706010161010162", false},
		"a pair with an unknown part":  {"170403050161", false},
		"a pair with an empty part":    {"1703020100", false},
		"an empty list":                {"1700", false},
		"a list with a zero element":   {"170100", true},
		"a list cut short":             {"170105", false},
		"an unknown field":             {"720f", true},
		"two unknown fields":           {"720f730161", true},
		"unknown fields turned":        {"730161720f", false},
		"an unknown field of zero":     {"7200", false},
		"an unknown field, then ours":  {"720f010161", false},
		"a usage of nothing":           {"3f020200", false},
	} {
		encoded, err := hex.DecodeString(c.encoded)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var d Data
		if err := d.Decode(encoded); (err == nil) != c.ok {
			t.Errorf("%s (%s): %v", name, c.encoded, err)
		}
	}
}

func TestEveryDataFieldIsEncoded(t *testing.T) {
	t.Parallel()
	last := uint64(0)
	for i := range dataFields {
		f := &dataFields[i]
		if f.number <= last || f.number > lastField {
			t.Errorf("field %d after %d, of at most %d", f.number, last, lastField)
		}
		last = f.number
	}
	samples := map[reflect.Type]any{
		reflect.TypeFor[string](): "x", reflect.TypeFor[int](): 1, reflect.TypeFor[int64](): int64(1),
		reflect.TypeFor[uint64](): uint64(1), reflect.TypeFor[time.Duration](): time.Duration(1), reflect.TypeFor[ID](): ID{1},
		reflect.TypeFor[Digest](): Digest{1}, reflect.TypeFor[Class](): Timeout, reflect.TypeFor[[]byte](): []byte("r\x01"),
		reflect.TypeFor[json.RawMessage](): json.RawMessage("1"), reflect.TypeFor[[]Pair](): []Pair{{Name: "x"}},
		reflect.TypeFor[[]Result](): []Result{{Role: "x"}}, reflect.TypeFor[[]Segment](): []Segment{{Name: "x"}},
		reflect.TypeFor[LogRef](): LogRef{Bytes: 1}, reflect.TypeFor[Usage](): Usage{User: 1},
		reflect.TypeFor[[]Check](): []Check{{Kind: "x", Holds: true}}, reflect.TypeFor[IO](): IO{Read: 1},
	}
	for i := range reflect.TypeFor[Data]().NumField() {
		var d Data
		v := reflect.ValueOf(&d).Elem().Field(i)
		v.Set(reflect.ValueOf(samples[v.Type()]))
		var back Data
		if err := back.Decode(d.AppendEncoded(nil)); err != nil || !cmp.Equal(d, back) {
			t.Errorf("%s does not survive: %v", reflect.TypeFor[Data]().Field(i).Name, err)
		}
	}
}

// oneSpelling takes whatever bytes and checks that there is one spelling of everything that is taken.
func oneSpelling(t interface {
	Fatalf(format string, args ...any)
}, encoded []byte) {
	var d Data
	if err := d.Decode(encoded); err != nil {
		return
	}
	if again := d.AppendEncoded(nil); !bytes.Equal(again, encoded) {
		t.Fatalf("taken %x, encoded again %x", encoded, again)
	}
}

func TestDecodedBytesAreTheOnlySpelling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := genData().Draw(t, "data")
		encoded := d.AppendEncoded(nil)
		oneSpelling(t, encoded[:rapid.IntRange(0, len(encoded)).Draw(t, "cut")])
		if len(encoded) > 0 {
			encoded[rapid.IntRange(0, len(encoded)-1).Draw(t, "place")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
			oneSpelling(t, encoded)
		}
		oneSpelling(t, rapid.SliceOf(rapid.ByteMax(70)).Draw(t, "bytes"))
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 1, 'a', 2, 2})
	full := Data{Stage: "a", Headers: []Pair{{"a", "b"}}, Outputs: []Result{{Role: "r", Records: -1, Value: json.RawMessage("1")}},
		Segments: []Segment{{"s", 1}}, Usage: Usage{MaxRSS: 5}, Unknown: []byte{66, 15}}
	f.Add(full.AppendEncoded(nil))
	f.Fuzz(func(t *testing.T, encoded []byte) { oneSpelling(t, encoded) })
}

func FuzzParseCloudEvent(f *testing.F) {
	e, o := sampleEvent()
	rendered, _ := e.CloudEvent(o)
	f.Add(rendered)
	e.Data.File = "\xff"
	rendered, _ = e.CloudEvent(o)
	f.Add(rendered)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, o, err := ParseCloudEvent(b)
		if err != nil {
			return
		}
		rendered, err := e.CloudEvent(o)
		if err != nil {
			t.Fatal(err)
		}
		if back, origin, err := ParseCloudEvent(rendered); err != nil || !cmp.Equal(e, back) || o != origin {
			t.Fatalf("%v: %s became %s", err, b, rendered)
		}
	})
}

// completion is the event that a log holds most of, beside stage.started.
func completion() Data {
	return Data{Stage: "clean", Attempt: 1, Token: 7, Duration: 1_234_567, Worker: "host-1",
		Outputs: []Result{{Role: "orders", Digest: DigestOf([]byte("x")), Size: 1234, Records: 17, Name: "orders.csv"}},
		Stdout:  LogRef{Bytes: 120}, Usage: Usage{User: 1e6, System: 2e6, MaxRSS: 5 << 20}}
}

func BenchmarkAppendEncoded(b *testing.B) {
	d := completion()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = d.AppendEncoded(buf[:0])
	}
}

func BenchmarkDecode(b *testing.B) {
	whole := completion()
	started := Data{Stage: "clean", Attempt: 1, Worker: "host-1"}
	for name, d := range map[string]*Data{"started": &started, "completed": &whole} {
		b.Run(name, func(b *testing.B) {
			encoded := d.AppendEncoded(nil)
			b.ReportAllocs()
			var d Data
			for b.Loop() {
				if err := d.Decode(encoded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
