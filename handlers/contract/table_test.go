package contract

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCells(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ property, cells, bad string }{ // cells separated by |; the bad ones as rule:cell
		{`{"type":"integer"}`, `1|-5|9007199254740993|5.0|5e3`, ``},
		{`{"type":"integer"}`, `1.5|007|+5|1,0|x| 1|9223372036854775808|0x10|１`, `type:1.5|type:007|type:+5|type:1,0|type:x|type: 1|type:9223372036854775808|type:0x10|type:１`},
		{`{"type":"number"}`, `1.417566161e+09|-0|1E-7|.097|1e400|NaN|1.`, `type:.097|type:1e400|type:NaN|type:1.`},
		{`{"type":"boolean"}`, `true|False|TRUE|1|yes|tRUE`, `type:1|type:yes|type:tRUE`},
		{`{"type":"string"}`, `007|1|true|x`, ``},
		{`{"type":["integer","string"],"minimum":5}`, `7|x|3|3.5`, `minimum:3`},
		{`{"type":["null","integer"]}`, `1|`, ``},
		{`{"enum":[1,2.50,true,null,"x"]}`, `1|1.0|2.5|true||x|3|false`, `enum:3|enum:false`},
		{`{"const":5}`, `5|5.0|6`, `const:6`},
		{`{"type":"string","minLength":0}`, `|x`, ``},
		{`{"type":"string"}`, ``, `required:`}, {`{"type":"integer"}`, ``, `required:`}, {`{"enum":["a"]}`, ``, `required:`},
		{`{"enum":["a",""]}`, `a|`, ``},
		{`{"type":"number","minimum":0.1,"exclusiveMaximum":10}`, `0.1|0.1000000000000000055511151231257827|0.0999999999999999999999|10|9.9999999999999999999999`,
			`minimum:0.0999999999999999999999|exclusiveMaximum:10`},
		{`{"type":"integer","maximum":9007199254740992}`, `9007199254740992|9007199254740993`, `maximum:9007199254740993`},
		{`{"type":"string","minLength":2,"maxLength":3,"pattern":"^[a-z中]+$"}`, `ab|中中|a|abcd|AB`, `minLength:a|maxLength:abcd|pattern:AB`},
		{`{"type":"string","format":"date"}`, `2026-02-28|2026-02-30`, `format:2026-02-30`},
		{`{"multipleOf":0.01,"type":"number"}`, `1.23|1.234`, `multipleOf:1.234`},
		{`{"type":"object"}`, `x`, `type:x`},
	} {
		schema := `{"required":["c"],"properties":{"c":` + c.property + `}}`
		var data strings.Builder
		data.WriteString("id,c\n")
		for cell := range strings.SplitSeq(c.cells, "|") {
			fmt.Fprintf(&data, "0,%q\n", cell)
		}
		for _, compiled := range []*Contract{mustCompile(t, schema), byLibrary(mustCompile(t, schema))} {
			r, err := compiled.CheckCSV(t.Context(), strings.NewReader(data.String()))
			want(t, err, nil)
			var bad []string
			for _, v := range r.Violations {
				bad = append(bad, v.Rule+":"+v.Record["c"])
			}
			if got := strings.Join(bad, "|"); got != c.bad {
				t.Errorf("%s: %s, want %s", c.property, got, c.bad)
			}
		}
	}
}

// byLibrary gives the same contract without the direct checks.
func byLibrary(c *Contract) *Contract { return &Contract{schema: c.schema} }

func TestHeaderAgainstSchema(t *testing.T) {
	t.Parallel()
	schema := `{"required":["id","price","name"],"additionalProperties":false,"properties":{"id":{},"price":{},"name":{"type":"string"}}}`
	for _, c := range []*Contract{mustCompile(t, schema), byLibrary(mustCompile(t, schema))} {
		r, err := c.CheckCSV(t.Context(), strings.NewReader("id,colour,name\n1,red,x\n2,blue,\n"))
		want(t, err, nil)
		want(t, r.Records, int64(2))
		want(t, r.Violations, []Violation{
			{Row: 1, Line: 1, Column: "colour", Number: 2, Pointer: "1:colour", Rule: "additionalProperties", Expected: "no such column", Actual: "colour"},
			{Row: 1, Line: 1, Column: "price", Pointer: "1:price", Rule: "required", Expected: "a column price", Actual: "nothing"},
			{Row: 3, Line: 3, Column: "name", Number: 3, Pointer: "3:name", Rule: "required", Expected: "a value", Actual: "nothing",
				Record: map[string]string{"id": "2", "colour": "blue", "name": ""}},
		})
	}
}

func TestSchemasThatNeedTheLibrary(t *testing.T) {
	t.Parallel()
	for schema, found := range map[string]string{
		`{"properties":{"n":{"$ref":"#/$defs/n"}},"$defs":{"n":{"type":"integer","maximum":1}}}`:                  "3:n maximum",
		`{"patternProperties":{"^n":{"type":"integer","maximum":1}}}`:                                             "3:n maximum",
		`{"additionalProperties":{"type":"integer","maximum":1}}`:                                                 "3:n maximum",
		`{"properties":{"n":{"type":"integer"}},"if":{"properties":{"n":{"const":2}}},"then":{"required":["m"]}}`: "3:m required",
		`{"properties":{"n":{"type":"integer","multipleOf":3}}}`:                                                  "2:n multipleOf",
		`{"maxProperties":0}`: "2: maxProperties",
		`{"type":"array"}`:    "2: type",
	} {
		c := mustCompile(t, schema)
		if c.direct != nil {
			t.Errorf("%s was taken for simple", schema)
		}
		r, err := c.CheckCSV(t.Context(), strings.NewReader("n\n1\n2\n"))
		want(t, err, nil)
		if r.OK() {
			t.Errorf("%s: nothing found", schema)
			continue
		}
		want(t, r.Violations[0].Pointer+" "+r.Violations[0].Rule, found)
	}
	if mustCompile(t, five).direct == nil {
		t.Error("a simple schema went to the library")
	}
}

// TestDirectChecksAgreeWithTheLibrary compares whole reports on random simple schemas and random files.
func TestDirectChecksAgreeWithTheLibrary(t *testing.T) {
	t.Parallel()
	cells := rapid.SampledFrom([]string{"", "0", "1", "2", "1.0", "2.5", "-3", "10", "9007199254740993", "9007199254740992", "0.1", "1e2", "1e400", "007", "+1",
		"true", "FALSE", "a", "ab", "abc", "中", "é", " ", "2026-01-31", "2026-02-30", "null", "NaN"})
	rapid.Check(t, func(r *rapid.T) {
		schema := drawSchema(r)
		c, err := Compile(schema)
		if err != nil {
			r.Skip(err)
		}
		if c.direct == nil {
			r.Fatalf("not simple: %s", schema)
		}
		header := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 1, 4, rapid.ID[string]).Draw(r, "header")
		var data strings.Builder
		w := csv.NewWriter(&data)
		_ = w.Write(header)
		for range rapid.IntRange(1, 5).Draw(r, "rows") {
			_ = w.Write(rapid.SliceOfN(cells, len(header), len(header)).Draw(r, "row"))
		}
		w.Flush()
		direct, err1 := c.CheckCSV(context.Background(), strings.NewReader(data.String()))
		library, err2 := byLibrary(c).CheckCSV(context.Background(), strings.NewReader(data.String()))
		a, _ := json.Marshal(direct)
		b, _ := json.Marshal(library)
		if err1 != nil || err2 != nil || string(a) != string(b) {
			r.Fatalf("%s\n%s\ndirect  %s\nlibrary %s", schema, data.String(), a, b)
		}
	})
}

func drawSchema(r *rapid.T) json.RawMessage {
	properties := map[string]any{}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), rapid.ID[string]).Draw(r, "properties") {
		p := map[string]any{}
		maybe := func(key string, draw func() any) {
			if rapid.IntRange(0, 3).Draw(r, key+"?") == 0 {
				p[key] = draw()
			}
		}
		if rapid.Bool().Draw(r, "typed") {
			p["type"] = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"null", "boolean", "integer", "number", "string"}), 1, 3, rapid.ID[string]).Draw(r, "type")
		}
		maybe("enum", func() any {
			return rapid.SliceOfN(rapid.SampledFrom([]any{nil, true, 1, 2.5, "a", "", "1"}), 1, 4).Draw(r, "enum")
		})
		for _, key := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
			maybe(key, func() any { return rapid.SampledFrom([]any{-3, 0, 1, 0.1, 2.5, 100, 9007199254740992}).Draw(r, key) })
		}
		maybe("minLength", func() any { return rapid.IntRange(0, 3).Draw(r, "min") })
		maybe("maxLength", func() any { return rapid.IntRange(0, 3).Draw(r, "max") })
		maybe("pattern", func() any { return rapid.SampledFrom([]string{"^[a-z]+$", "1", "^$"}).Draw(r, "pattern") })
		maybe("format", func() any { return "date" })
		properties[name] = p
	}
	schema := map[string]any{"properties": properties, "description": "random",
		"required": rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "b", "d"}), rapid.ID[string]).Draw(r, "required")}
	if rapid.Bool().Draw(r, "closed") {
		schema["additionalProperties"] = rapid.Bool().Draw(r, "additional")
	}
	text, err := json.Marshal(schema)
	if err != nil {
		r.Fatal(err)
	}
	return text
}
