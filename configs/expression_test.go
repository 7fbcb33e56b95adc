package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// data is what a run might have recorded, read as the engine reads it.
func data(t *testing.T) map[string]any {
	t.Helper()
	v, err := decodeJSON([]byte(`{
		"params": {"region": "eu", "n": 3, "my-param": 7},
		"trigger": {"payload": {"id": 1152921506151679042, "pushed_at": 1.417566161e+09, "huge": 123456789012345678901234567890,
			"items": [{"price": 1.5, "n": 2}, {"price": 2.5, "n": 3}], "names": ["b", "a", "b"], "none": null}},
		"stages": {"fetch-all": {"outputs": {"orders": {"records": 20, "digest": "sha256:ab"}, "my-role": 4}}, "1st": {"outputs": {"x": 1}}},
		"from": {"records": 100}, "to": {"records": 95}}`))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

func TestEval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		src  string
		want any
	}{
		{"trigger.payload.id", json.Number("1152921506151679042")},
		{"trigger.payload.pushed_at", json.Number("1.417566161e+09")},
		{"trigger.payload.huge", json.Number("123456789012345678901234567890")},
		{"trigger.payload.id == 1152921506151679042", true},
		{"trigger.payload.id == 1152921506151679041", false},
		{"trigger.payload.id + 1", 1152921506151679043},
		{"trigger.payload.pushed_at == 1417566161", true},
		{"string(trigger.payload.id)", "1152921506151679042"},
		{"string(trigger.payload.huge)", "123456789012345678901234567890"},
		{"trigger.payload.items[1].price", json.Number("2.5")},
		{"trigger.payload.items[-1].n", json.Number("3")},
		{"sum(trigger.payload.items, .price)", 4.0},
		{"sum(map(trigger.payload.items, .n))", 5},
		{"all(trigger.payload.items, .price > 1)", true},
		{"len(filter(trigger.payload.items, .price > 2))", 1},
		{"count(trigger.payload.items, .price > 2)", 1},
		{`join(sort(uniq(trigger.payload.names)), ",")`, "a,b"},
		{"max(trigger.payload.items[0].n, 7)", 7},
		{"to.records >= 0.95 * from.records", true},
		{"to.records <= from.records and not (to.records == 0)", true},
		{"stages.fetch-all.outputs.orders.records > 0", true},
		{"stages.fetch-all.outputs.orders.records - 1", 19},
		{`stages.fetch-all.outputs["my-role"]`, json.Number("4")},
		{`"stages.fetch-all.outputs" + "x"`, "stages.fetch-all.outputsx"},
		{"stages.1st.outputs.x", json.Number("1")},
		{`params["my-param"] + 1`, 8},
		{`params.region in ["eu", "us"] ? "yes" : "no"`, "yes"},
		{`params.missing`, nil},
		{`trigger.payload?.none?.x ?? "nothing"`, "nothing"},
		{`let n = params.n; n * n`, 9},
		{`{"a": {"b": 1}}`, map[string]any{"a": map[string]any{"b": 1}}},
		{`"订单" + params.region`, "订单eu"},
		{`params.region matches "^e.$"`, true},
	} {
		got, err := Eval(c.src, data(t))
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
		} else if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.src, diff)
		}
	}
}

func TestEvalRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, says string }{
		{"env.HOME", "unknown name env"}, {"now()", "now"}, {"$env", "$env"}, {"repeat(\"a\", 9)", "repeat"},
		{"trigger.payload.none.x", "cannot fetch x"}, {"trigger.payload.huge + 1", "json.Number"}, {"1 +", "unexpected token"},
		{"params.n > \"a\"", "invalid operation"},
	} {
		if v, err := Eval(c.src, data(t)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s gave %v, %v; want an error with %q", c.src, v, err, c.says)
		}
	}
	if _, err := EvalBool("params.n + 1", data(t)); err == nil {
		t.Error("a number passed for a condition")
	}
}

// TestEvalIsBounded sees that no expression, whatever the data, takes for ever or fills the memory.
func TestEvalIsBounded(t *testing.T) {
	t.Parallel()
	list := make([]any, 10_000)
	for i := range list {
		list[i] = json.Number(fmt.Sprint(i))
	}
	env := map[string]any{"trigger": map[string]any{"list": list, "n": json.Number("100000000"), "text": strings.Repeat("x", 1<<20)}}
	for _, src := range []string{
		"all(trigger.list, {let a = #; all(trigger.list, # + a >= 0)})",
		"len(1..trigger.n) > 0",
		"count(1..2000, len(trigger.text + trigger.text) > 0) == 2000",
	} {
		if _, err := Eval(src, env); !errors.Is(err, ErrExprCost) {
			t.Errorf("%s: %v", src, err)
		}
	}
}

func TestEvalDoesNotChangeItsData(t *testing.T) {
	t.Parallel()
	env := data(t)
	for range 2 {
		if _, err := Eval("sort(map(trigger.payload.items, .price))[0] + params.n", env); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(data(t), env); diff != "" {
		t.Error(diff)
	}
}

// TestIntegersStayExact compares calculations on random 64-bit integers with Go's own.
func TestIntegersStayExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		env := map[string]any{"a": json.Number(fmt.Sprint(a)), "b": json.Number(fmt.Sprint(b))}
		for src, want := range map[string]any{"a < b": a < b, "a == b": a == b, "a + b": int(a + b), "a": env["a"]} {
			if got, err := Eval(src, env); err != nil || got != want {
				t.Fatalf("%s of %d and %d gave %v, %v", src, a, b, got, err)
			}
		}
	})
}

func TestExpressionStandsAlone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"${{ a }}": "a", "  ${{a}} ": "a", `${{ {"x": {"y": 1}} }}`: `{"x": {"y": 1}}`,
		"a ${{ b }}": "", "${{ a }} ${{ b }}": "", "${{": "", "}}": "", "": "", "$": ""} {
		if got, ok := Expression(text); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
}

func TestFormatValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  string
	}{{nil, ""}, {"a b", "a b"}, {json.Number("1.417566161e+09"), "1.417566161e+09"}, {true, "true"}, {3, "3"},
		{[]any{json.Number("1152921506151679042"), "x"}, `[1152921506151679042,"x"]`}} {
		if got, err := FormatValue(c.value); err != nil || got != c.want {
			t.Errorf("%v gave %q, %v", c.value, got, err)
		}
	}
}

// TestOffsetsLeadBack maps places behind dashed names to the source as it was written.
func TestOffsetsLeadBack(t *testing.T) {
	t.Parallel()
	src := `stages.a-b.outputs.x > 1 and stages.1c-d.outputs.y < zzz`
	compiled, shifts := bracketNames(src)
	if want := `stages["a-b"].outputs.x > 1 and stages["1c-d"].outputs.y < zzz`; compiled != want {
		t.Fatal(compiled)
	}
	for _, part := range []string{"outputs.x", "> 1", "outputs.y", "zzz"} {
		if got, want := writtenOffset(strings.Index(compiled, part), shifts), strings.Index(src, part); got != want {
			t.Errorf("%s: %d, want %d", part, got, want)
		}
	}
}

func BenchmarkEval(b *testing.B) {
	env := map[string]any{"from": map[string]any{"records": json.Number("100")}, "to": map[string]any{"records": json.Number("95")}}
	for b.Loop() {
		if _, err := Eval("to.records <= from.records", env); err != nil {
			b.Fatal(err)
		}
	}
}
