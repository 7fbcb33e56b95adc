package contract

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"

	"github.com/apollo-11/apollo/events"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustCompile(tb testing.TB, schema string) *Contract {
	tb.Helper()
	c, err := Compile(json.RawMessage(schema))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func check(tb testing.TB, format, schema, data string) *Report {
	tb.Helper()
	var c *Contract
	if schema != "" {
		c = mustCompile(tb, schema)
	}
	r, err := Check(context.Background(), format, c, strings.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	want(tb, r.Bytes, int64(len(data)))
	return r
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	for schema, reason := range map[string]string{
		``:                                 "E_JSON_SYNTAX",
		`{"type":"objekt"}`:                "/type",
		`{"type":"object","type":"array"}`: "E_JSON_DUP",
		`{"minimum":5,"maximum":3}`:        "minimum 5 leaves nothing below maximum 3",
		`{"properties":{"a":{"exclusiveMinimum":3,"maximum":3}}}`:      "exclusiveMinimum 3 leaves nothing below maximum 3",
		`{"items":{"anyOf":[{"minLength":5,"maxLength":4}]}}`:          "minLength 5 is above maxLength 4",
		`{"patternProperties":{"x":{"minItems":2,"maxItems":1}}}`:      "minItems 2",
		`{"properties":{"a":{"enum":[]}}}`:                             `at "/properties/a": the enum is empty`,
		`{"pattern":"("}`:                                              "pattern",
		`{"pattern":"` + strings.Repeat("a", MaxPattern+1) + `"}`:      "at most 1024",
		`{"$ref":"https://example.com/schema.json"}`:                   "outside the schema",
		`{"$ref":"file:///etc/passwd"}`:                                "outside the schema",
		`{"$ref":"other.json"}`:                                        "outside the schema",
		`{"$ref":"#/$defs/none"}`:                                      "none",
		`{"$schema":"https://example.com/my-meta"}`:                    "outside the schema",
		`{"description":"` + strings.Repeat("x", MaxSchema) + `"}`:     "at most 262144",
		strings.Repeat(`{"not":`, 80) + `{}` + strings.Repeat(`}`, 80): "E_JSON_DEPTH",
	} {
		_, err := Compile(json.RawMessage(schema))
		if err == nil || !strings.HasPrefix(err.Error(), "E_CONTRACT: ") || !strings.Contains(err.Error(), reason) {
			t.Errorf("%.60s: %v, want %q in it", schema, err, reason)
		}
		if err != nil && strings.Contains(err.Error(), "apollo:///") {
			t.Errorf("the error shows an inner address: %v", err)
		}
	}
}

func TestCompileAccepts(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`true`, `{}`, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`,
		`{"$defs":{"p":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/p"}}}`,
		`{"type":"array","items":{"$ref":"#"}}`, `{"minimum":3,"maximum":3}`, `{"pattern":"` + strings.Repeat("a", MaxPattern) + `"}`,
	} {
		a := mustCompile(t, schema)
		if b := mustCompile(t, schema); a != b {
			t.Errorf("%.40s was compiled twice", schema)
		}
	}
}

func TestCacheIsBounded(t *testing.T) { //nolint:paralleltest // it fills the cache of all
	for i := range maxCache + 10 {
		mustCompile(t, `{"minLength":`+json.Number(strings.Repeat("1", 1+i%9)).String()+strings.Repeat(" ", i/9)+`}`)
	}
	cache.Lock()
	defer cache.Unlock()
	if len(cache.m) > maxCache {
		t.Errorf("%d schemas kept", len(cache.m))
	}
}

const orders = `{"type":"array","items":{"type":"object","required":["id","price"],"additionalProperties":false,
	"properties":{"id":{"type":"integer"},"price":{"type":"number","minimum":0},"kind":{"enum":["a","b"]},"day":{"type":"string","format":"date"}}}}`

func TestCheckJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		data    string
		records int64
		found   []string // "pointer rule expected|actual"
	}{
		{`[{"id":9007199254740993,"price":1.417566161e+09}]`, 1, nil},
		{`[]`, 0, nil},
		{`[{"id":1,"price":1},{"id":2,"price":0},{"id":3,"price":-5}]`, 3, []string{"/2/price minimum at least 0|-5"}},
		{`{"id":1}`, 1, []string{" type array|an object of 1"}},
		{`[{"price":"12","x\u001b[2J":1}]`, 1, []string{`/0/id required a value|nothing`, `/0/price type number|"12"`,
			`/0/x\x1b[2J additionalProperties nothing here|1`}},
		{`[{"id":1.5,"price":1,"kind":"c","day":"2026-02-30"}]`, 1, []string{`/0/day format the format date|"2026-02-30"`,
			"/0/id type integer|1.5", `/0/kind enum "a" or "b"|"c"`}},
		{`[{"id":1,"price":1,"price":2}]`, -1, []string{`/0/price E_JSON_DUP strict JSON|the key "price" stands twice, at 1:20`}},
		{"[\n1e400]", -1, []string{"/0 E_JSON_NUMBER strict JSON|1e400 is outside the range of numbers, at 2:1"}},
		{"", -1, []string{" E_JSON_SYNTAX strict JSON|expected a value, found the end, at 1:1"}},
	} {
		r := check(t, "json", orders, c.data)
		var found []string
		for _, v := range r.Violations {
			found = append(found, v.Pointer+" "+v.Rule+" "+v.Expected+"|"+v.Actual)
		}
		want(t, found, c.found)
		want(t, r.Records, c.records)
		want(t, r.Total, int64(len(c.found)))
	}
}

// TestOrderAndCount: 100 violations are kept, in the order of the data and not of its maps; all are counted.
func TestOrderAndCount(t *testing.T) {
	t.Parallel()
	data := "[" + strings.Repeat(`{"b":1},`, 249) + `{"b":1}]`
	r := check(t, "json", `{"items":{"required":["a"],"properties":{"b":{"type":"string"}}}}`, data)
	want(t, r.Total, int64(500))
	want(t, len(r.Violations), MaxKept)
	want(t, r.Violations[0].Pointer, "/0/a")
	want(t, r.Violations[5].Pointer, "/2/b")
	want(t, r.Violations[99].Pointer, "/49/b")
	lines := check(t, "ndjson", `{"type":"string"}`, strings.Repeat("1\n", 250))
	want(t, lines.Total, int64(250))
	want(t, lines.Violations[99].Pointer, "/99")
}

func TestAlternativesAreOneViolation(t *testing.T) {
	t.Parallel()
	r := check(t, "json", `{"anyOf":[{"type":"string"},{"type":"object","required":["a","b"]}]}`, `{}`)
	want(t, r.Total, int64(1))
	want(t, r.Violations[0].Rule, "anyOf")
	r = check(t, "json", `{"not":{"type":"object"}}`, `{}`)
	want(t, r.Violations[0].Rule, "not")
	r = check(t, "json", `false`, `1`)
	want(t, r.Violations[0].Rule, "falseSchema")
}

func TestCheckNDJSON(t *testing.T) {
	t.Parallel()
	schema := `{"type":"object","properties":{"a":{"type":"integer"}}}`
	r := check(t, "ndjson", schema, "\ufeff{\"a\":1}\r\n\n{\"a\":\"x\"}\n{\"a\":1,\"a\":2}\n{\"a\":3}")
	want(t, r.Records, int64(4))
	want(t, r.Total, int64(2))
	want(t, r.Violations[0], Violation{Line: 3, Pointer: "/1/a", Rule: "type", Expected: "integer", Actual: `"x"`, Type: "string"})
	want(t, r.Violations[1].Pointer+" "+r.Violations[1].Rule, "/2/a E_JSON_DUP")
	want(t, r.Violations[1].Line, 4)
	long := check(t, "jsonl", "", `{}`+"\n"+strings.Repeat(" ", window)+"\n")
	want(t, long.Records, int64(1))
}

func TestOtherFormatsAreCountedInBytes(t *testing.T) {
	t.Parallel()
	want(t, *check(t, "", "", "\x00\xff"), Report{Records: -1, Bytes: 2})
	r := check(t, "text", `{"type":"string"}`, "anything")
	want(t, r.Failure(events.BadInput).Reason, `E_FORMAT: no contract can be checked on the format "text"`)
}

func TestReadingFaultsAreErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken disk")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, format := range []string{"csv", "tsv", "json", "ndjson", "bytes"} {
		if _, err := Check(t.Context(), format, nil, iotest.ErrReader(broken)); !errors.Is(err, broken) {
			t.Errorf("%s: %v", format, err)
		}
		if _, err := Check(cancelled, format, nil, strings.NewReader("a,b\n1,2\n")); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func TestFailure(t *testing.T) {
	t.Parallel()
	want(t, check(t, "json", orders, `[]`).Failure(events.BadInput) == nil, true)
	f := check(t, "json", orders, `[{"id":1,"price":-5},{"id":1,"price":-6}]`).Failure(events.BadOutput)
	want(t, f, &events.Failure{Class: events.BadOutput, Pointer: "/0/price", Expected: "at least 0", Actual: "-5",
		Reason: "at /0/price breaks minimum: expected at least 0, found -5; 2 violations in all"})
	f = check(t, "csv", `{"properties":{"price":{"type":"number","minimum":0}}}`, "id,price\n1,2\n2,-5\n").Failure(events.BadInput)
	want(t, f, &events.Failure{Class: events.BadInput, Pointer: "3:price", Expected: "at least 0", Actual: "-5",
		Reason: "row 3, column price breaks minimum: expected at least 0, found -5"})
	f = check(t, "csv", "", "a,b\n1,\"x\"y\n").Failure(events.BadInput)
	want(t, f.Pointer, "2:5")
	want(t, f.Reason, `E_CSV: a quoted field does not end, or something follows its closing ", at 2:5`)
}

func TestShorten(t *testing.T) {
	t.Parallel()
	for in, out := range map[string]string{
		"plain 中文": "plain 中文", "\x1b]52;c;x\x07": `\x1b]52;c;x\a`, "a\nb\r\x00": `a\nb\r\x00`, "\xff\xfe": `\xff\xfe`,
		"\u202eevil": `\u202eevil`, "\u2028": `\u2028`, "\ufffd": "\ufffd", strings.Repeat("中", 65): strings.Repeat("中", 64) + "… (195 bytes)",
		strings.Repeat("x", 64): strings.Repeat("x", 64),
	} {
		want(t, shorten(in), out)
	}
}
