package events

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"pgregory.net/rapid"
)

// Generators of events and their data, as wide as the types allow: what is stored must survive, sensible or not.

func genID() *rapid.Generator[ID] {
	return rapid.Custom(func(t *rapid.T) (id ID) {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		id[6] = id[6]&0x0f | 0x70
		return id
	})
}

func genDigest() *rapid.Generator[Digest] {
	return rapid.Custom(func(t *rapid.T) Digest {
		if rapid.Bool().Draw(t, "none") {
			return Digest{}
		}
		return DigestOf(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "hashed"))
	})
}

// genText gives mostly words, sometimes any Unicode, sometimes bytes that are no UTF-8 at all.
func genText() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.Just(""), rapid.StringMatching(`[a-z][a-z0-9_-]{0,8}`), rapid.String(),
		rapid.SampledFrom([]string{"<&>\u2028\ufffd", "流水线", "\x00\x1f\"\\", "slot", "manual"}),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 12), func(b []byte) string { return string(b) }),
	)
}

// genRaw gives JSON as it may be stored: compact, spaced, or broken.
func genRaw() *rapid.Generator[json.RawMessage] {
	return rapid.OneOf(
		rapid.Just(json.RawMessage(nil)),
		rapid.Map(rapid.MapOf(rapid.String(), rapid.Float64Range(-1e300, 1e300)), func(m map[string]float64) json.RawMessage {
			b, _ := json.Marshal(m)
			return b
		}),
		rapid.SampledFrom([]json.RawMessage{json.RawMessage(`null`), json.RawMessage(`1.0e0`), json.RawMessage(`"\u003c<"`),
			json.RawMessage(`{"a":1,"a":2}`), json.RawMessage("{ \"a\":\n1}"), json.RawMessage(`{"a":`), json.RawMessage(" "),
			json.RawMessage("\"\xff\""), json.RawMessage(`12345678901234567890123`)}),
	)
}

func genPairs() *rapid.Generator[[]Pair] {
	return genList(rapid.Custom(func(t *rapid.T) Pair {
		return Pair{Name: genText().Draw(t, "name"), Value: genText().Draw(t, "value")}
	}))
}

func genList[T any](one *rapid.Generator[T]) *rapid.Generator[[]T] {
	return rapid.Map(rapid.SliceOfN(one, 0, 3), func(list []T) []T {
		if len(list) == 0 {
			return nil
		}
		return list
	})
}

func genNumber() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-2, 300), rapid.Int64())
}

// genUnknown gives fields of a newer build.
func genUnknown() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) (b []byte) {
		number := uint64(lastField)
		for range rapid.IntRange(0, 3).Draw(t, "unknown fields") {
			number += uint64(rapid.IntRange(1, 200).Draw(t, "number"))
			b = binary.AppendUvarint(b, number)
			if number%2 == 0 {
				b = binary.AppendUvarint(b, rapid.Uint64Range(1, 1<<63).Draw(t, "value"))
				continue
			}
			content := rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "content")
			b = append(binary.AppendUvarint(b, uint64(len(content))), content...)
		}
		return b
	})
}

func genData() *rapid.Generator[Data] {
	return rapid.Custom(func(t *rapid.T) Data {
		text := func(name string) string { return genText().Draw(t, name) }
		number := func(name string) int64 { return genNumber().Draw(t, name) }
		span := func(name string) time.Duration { return time.Duration(number(name)) }
		digest := func(name string) Digest { return genDigest().Draw(t, name) }
		id := func(name string) ID { return rapid.OneOf(rapid.Just(ID{}), genID()).Draw(t, name) }
		d := Data{Stage: text("stage"), Attempt: int(number("attempt")), Pipeline: text("pipeline"), Plan: digest("plan"),
			Params: genRaw().Draw(t, "params"), Kind: text("kind"), Trigger: text("trigger"), Key: text("key"),
			Delivery: id("delivery"), Run: id("run"), Reason: text("reason"), Code: text("code"),
			Headers: genPairs().Draw(t, "headers"), Blob: digest("blob"), Size: number("size"), File: text("file"),
			Trace: text("trace"), Forked: id("forked"), Sample: int(number("sample")), Worker: text("worker"),
			Token: rapid.Uint64().Draw(t, "token"), Lease: span("lease"), Waits: text("waits"), Due: number("due"),
			Duration: span("duration"), Class: Class(text("class")), Pointer: text("pointer"), Expected: text("expected"),
			Actual: text("actual"), Exit: int(number("exit")), Signal: text("signal"), Evidence: digest("evidence"),
			Leftovers: int(number("leftovers")), Pins: genPairs().Draw(t, "pins"), Unknown: genUnknown().Draw(t, "unknown"),
			Stdout: LogRef{Bytes: number("out"), Dropped: number("out dropped")}, Stderr: LogRef{Bytes: number("err")},
			Usage: Usage{User: span("user"), System: span("system"), MaxRSS: number("rss")},
			Item:  int(number("item")), Items: genRaw().Draw(t, "items"), Count: int(number("count")), Group: text("group"),
			Parent: id("parent"), Depth: int(number("depth")), From: text("from"), Answer: genRaw().Draw(t, "answer"),
			Actor: text("actor"), IO: IO{Read: number("read"), Written: number("written")}}
		if body := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "body"); len(body) > 0 {
			d.Body = body
		}
		d.Outputs = genList(rapid.Custom(func(t *rapid.T) Result {
			return Result{Role: text("role"), Digest: digest("digest"), Size: number("size"), Records: number("records"),
				Name: text("name"), Value: genRaw().Draw(t, "value")}
		})).Draw(t, "outputs")
		d.Checks = genList(rapid.Custom(func(t *rapid.T) Check {
			return Check{Kind: text("check"), Expr: text("expr"), Holds: rapid.Bool().Draw(t, "holds"),
				Inputs: genRaw().Draw(t, "check inputs"), Level: text("level"), Error: text("check error")}
		})).Draw(t, "checks")
		d.Segments = genList(rapid.Custom(func(t *rapid.T) Segment {
			return Segment{Name: text("segment"), Duration: span("segment time")}
		})).Draw(t, "segments")
		return d
	})
}

func genEvent() *rapid.Generator[Event] {
	return rapid.Custom(func(t *rapid.T) Event {
		return Event{ID: genID().Draw(t, "id"), Stream: genID().Draw(t, "stream"),
			Sequence: rapid.Uint64Range(1, 1<<63).Draw(t, "sequence"), Type: rapid.SampledFrom(Types()).Draw(t, "type"),
			Time: rapid.Int64().Draw(t, "time"), Cause: rapid.OneOf(rapid.Just(ID{}), genID()).Draw(t, "cause"),
			Prev: genDigest().Draw(t, "prev"), Data: genData().Draw(t, "data")}
	})
}
