package events

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the document, its canonical bytes are those that encoding/json writes.
func TestPinsEncodeAsJSON(t *testing.T) {
	t.Parallel()
	raw := rapid.SampledFrom([]json.RawMessage{json.RawMessage("1"), json.RawMessage("0"), json.RawMessage("-3"), json.RawMessage(`"<a>"`), json.RawMessage(`{"a": [1, 2]}`), json.RawMessage("10"),
		json.RawMessage("1234567890123456789")})
	text := rapid.SampledFrom([]string{"", "a", "load", "名", `q"u`, "a<b", "a\\b", "\u2028"})
	rapid.Check(t, func(t *rapid.T) {
		p := Pins{Schema: rapid.IntRange(0, 2).Draw(t, "schema"), Stage: text.Draw(t, "stage"), Time: rapid.SampledFrom([]string{"", "2026-11-30T01:02:03.4Z", "<"}).Draw(t, "time"),
			Seed: rapid.Uint64().Draw(t, "seed"), Params: rapid.MapOfN(text, raw, 0, 3).Draw(t, "params")}
		if rapid.Bool().Draw(t, "defined") {
			p.Definition = DigestOf([]byte(p.Stage))
		}
		if rapid.Bool().Draw(t, "more") {
			p.Env, p.Number = rapid.MapOfN(text, text, 0, 2).Draw(t, "env"), rapid.IntRange(0, 3).Draw(t, "number")
		}
		got, err := p.Encode()
		want, wantErr := EncodeDocument(&p)
		if string(got) != string(want) || (err == nil) != (wantErr == nil) {
			t.Fatalf("%s, %v; want %s, %v", got, err, want, wantErr)
		}
	})
}
