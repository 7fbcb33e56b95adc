package cmd

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/plugin"
	"github.com/apollo-11/apollo/handlers/web"
)

func TestSampled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		format   string
		n        int
		in, want string
	}{
		"csv":                           {"csv", 2, "id,name\n1,a\n2,b\n3,c\n", "id,name\n1,a\n2,b\n"},
		"line breaks in cells":          {"csv", 2, "id,note\n1,\"two\nlines\"\n2,\"\n\n\"\n3,c\n", "id,note\n1,\"two\nlines\"\n2,\"\n\n\"\n"},
		"a line break in the header":    {"csv", 1, "\"i\nd\",n\n1,a\n2,b\n", "\"i\nd\",n\n1,a\n"},
		"doubled quotes":                {"csv", 1, "a\n\"x\"\"\ny\"\nz\n", "a\n\"x\"\"\ny\"\n"},
		"a quote inside a plain cell":   {"csv", 1, "a,b\n5\" pipe,x\n2,y\n", "a,b\n5\" pipe,x\n"},
		"an empty quoted cell":          {"csv", 1, "a\n\"\"\nb\n", "a\n\"\"\n"},
		"byte order mark":               {"csv", 1, "\ufeff\"id\",n\n1,a\n2,b\n", "\ufeff\"id\",n\n1,a\n"},
		"mark before a quoted header":   {"csv", 1, "\ufeff\"i\nd\"\n1\n2\n", "\ufeff\"i\nd\"\n1\n"},
		"windows line ends":             {"csv", 2, "id\r\n1\r\n\r\n2\r\n3\r\n", "id\r\n1\r\n\r\n2\r\n"},
		"empty lines are no records":    {"csv", 1, "\nid\n\n1\n\n2\n", "\nid\n\n1\n"},
		"a line of blanks is a record":  {"csv", 1, "id\n \n2\n", "id\n \n"},
		"fewer records than asked for":  {"csv", 9, "id\n1\n2\n", "id\n1\n2\n"},
		"no line break at the end":      {"csv", 2, "id\n1\n2", "id\n1\n2"},
		"only a header":                 {"csv", 3, "id\n", "id\n"},
		"nothing":                       {"csv", 3, "", ""},
		"tabs":                          {"tsv", 1, "a\tb\n1\t\"x\ny\"\n2\tz\n", "a\tb\n1\t\"x\ny\"\n"},
		"a comma is no tab":             {"tsv", 1, "a\tb\n1\tx,\"y\n2\tz\n", "a\tb\n1\tx,\"y\n"},
		"ndjson":                        {"ndjson", 2, "{\"a\":1}\n\n{\"a\":\"\\\"\"}\n{\"a\":3}\n", "{\"a\":1}\n\n{\"a\":\"\\\"\"}\n"},
		"ndjson, blanks and CRLF":       {"ndjson", 1, " \t\r\n1\r\n2\r\n", " \t\r\n1\r\n"},
		"json array":                    {"json", 2, " [1.0, {\"a\": [2, 3]}, 4]", " [1.0,{\"a\": [2, 3]}]"},
		"json array with fewer items":   {"json", 5, "[1, 2]", "[1,2]"},
		"empty json array":              {"json", 5, "[ ]", "[]"},
		"json object stays whole":       {"json", 1, "{\"a\": [1, 2]}", "{\"a\": [1, 2]}"},
		"what is no json stays whole":   {"json", 1, "hello", "hello"},
		"other formats stay whole":      {"", 1, "a\nb\nc\n", "a\nb\nc\n"},
		"no sample":                     {"csv", 0, "a\nb\nc\n", "a\nb\nc\n"},
		"past the sample all may break": {"json", 1, "[1, oops", "[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
				got, err := io.ReadAll(sampled(r, c.format, c.n))
				if err != nil || string(got) != c.want {
					t.Errorf("%q, %v; want %q", got, err, c.want)
				}
				again, err := io.ReadAll(sampled(bytes.NewReader(got), c.format, c.n))
				if err != nil || !bytes.Equal(again, got) {
					t.Errorf("a sample of the sample is %q, %v", again, err)
				}
			}
		})
	}
	if _, err := io.ReadAll(sampled(strings.NewReader("[1, x"), "json", 2)); !errors.Is(err, errNoArray) {
		t.Errorf("a broken array within the sample: %v", err)
	}
}

// The cut agrees with the parser that the contracts use.
func TestSampledAgreesWithTheParser(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.SampledFrom([]string{"", "a", "\"", "x\ny", "\r\n", ",", " ", "\"\"\n", "世"})
		rows := rapid.SliceOfN(rapid.SliceOfN(cell, 2, 2), 1, 8).Draw(t, "rows")
		n := rapid.IntRange(1, 8).Draw(t, "n")
		var in bytes.Buffer
		w := csv.NewWriter(&in)
		w.UseCRLF = rapid.Bool().Draw(t, "crlf")
		if err := w.WriteAll(rows); err != nil {
			t.Fatal(err)
		}
		all, err := csv.NewReader(bytes.NewReader(in.Bytes())).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		got, err := csv.NewReader(sampled(&in, "csv", n)).ReadAll()
		if want := all[:min(len(all), n+1)]; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	})
}

// A sample is cut from a file of any length in the memory of a buffer: what follows it is never read.
func TestSampledReadsNoFurther(t *testing.T) {
	t.Parallel()
	endless := io.MultiReader(strings.NewReader("id\n"), readerFunc(func(p []byte) (int, error) { return copy(p, "1\n"), nil }))
	got, err := io.ReadAll(sampled(endless, "csv", 3))
	if err != nil || string(got) != "id\n1\n1\n1\n" {
		t.Errorf("%q, %v", got, err)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Whoever asks for a run over the API need not cut: the engine does, before it seals.
func TestSampleIsCutByTheEngine(t *testing.T) {
	t.Parallel()
	p, problems := configs.Parse("p.yaml", []byte("name: p\nstages:\n  take:\n    inputs: {rows: \"${{ trigger.file }}\"}\n    run: cp \"$APOLLO_IN_ROWS\" rows\n    outputs: {rows: {path: rows}}\n"), "", configs.Options{})
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	plan, err := p.Plan().Encode()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: io.Discard, env: func(string) string { return "" }, say: lang.New("en"), data: t.TempDir(), output: "json",
		pluginSet: func() *plugin.Set { return &plugin.Set{} }}
	s, err := a.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &running{app: a, request: web.StartRequest{Plan: plan, Input: []byte("id\n1\n2\n3\n"), InputName: "rows.csv", Sample: 2, Key: "one"}}
	r.ask = r.start
	err = r.begin(t.Context(), s)
	if err == nil {
		err = r.follow(t.Context(), s, a.newProgress())
	}
	if err := errors.Join(err, s.leave(t.Context())); err != nil {
		t.Fatal(err)
	}
	var got runJSON
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	if want := events.DigestOf([]byte("id\n1\n2\n")).String(); got.Stages[0].Outputs["rows"].Digest != want || got.Sample != 2 {
		t.Errorf("%+v", got)
	}
}
