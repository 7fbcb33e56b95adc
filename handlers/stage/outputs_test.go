package stage

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

func TestFileOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := attempt(&events.Stage{Outputs: []events.Output{
		{Role: "again", Path: "sub/../rows.csv"}, {Role: "bytes", Path: "b.bin"}, {Role: "list", Path: "sub/l.json", Format: "json"},
		{Role: "maybe", Path: "no/such.csv", Format: "csv", Optional: true}, {Role: "rows", Path: "rows.csv", Format: "csv", Contract: "order"}}})
	contents := map[string]string{"rows.csv": "id,price\n1,2\n2,3\n", "b.bin": "\x00\x01", "sub/l.json": "[1,2,3]", "undeclared": "stays"}
	o := b.run(a, files(contents))
	want(t, o.Failure, (*events.Failure)(nil))
	digest := func(name string) events.Digest { return events.DigestOf([]byte(contents[name])) }
	want(t, o.Data.Outputs, []events.Result{
		{Role: "again", Digest: digest("rows.csv"), Size: 17, Records: -1, Name: "rows.csv"},
		{Role: "bytes", Digest: digest("b.bin"), Size: 2, Records: -1, Name: "b.bin"},
		{Role: "list", Digest: digest("sub/l.json"), Size: 7, Records: 3, Name: "l.json"},
		{Role: "rows", Digest: digest("rows.csv"), Size: 17, Records: 2, Name: "rows.csv"},
	})
	for _, r := range o.Data.Outputs {
		want(t, events.DigestOf([]byte(b.get(r.Digest))), r.Digest)
	}
	want(t, b.store.Has(digest("undeclared")), false)
	want(t, b.kept(), []string{})
}

func TestValueOutputs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := attempt(&events.Stage{Outputs: []events.Output{{Role: "count", Schema: json.RawMessage(`{"type":"integer"}`)}, {Role: "maybe", Optional: true}, {Role: "map"}}})
	o := b.run(a, values(map[string]string{"count": "9007199254740993", "map": `{ "b": 1.0, "a": 2 }`, "undeclared": "1"}))
	want(t, o.Failure, (*events.Failure)(nil))
	want(t, o.Data.Outputs, []events.Result{
		{Role: "count", Digest: events.DigestOf([]byte("9007199254740993")), Size: 16, Records: -1, Value: json.RawMessage("9007199254740993")},
		{Role: "map", Digest: events.DigestOf([]byte(`{"b":1.0,"a":2}`)), Size: 15, Records: -1, Value: json.RawMessage(`{"b":1.0,"a":2}`)},
	})
	if _, err := os.Lstat(b.WorkDir); err == nil {
		t.Error("a directory was made for nothing")
	}
}

func TestOutputsThatAreRefused(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside.csv")
	want(t, os.WriteFile(outside, []byte("id\n1\n"), 0o600), nil)
	file := events.Output{Role: "rows", Path: "rows.csv", Format: "csv", Contract: "order"}
	plant := func(do func(path string) error) body {
		return func(_ context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
			path := filepath.Join(c.Dir, "out", "rows.csv")
			want(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), do(path)), nil)
			return &executor.Result{}, nil
		}
	}
	for name, c := range map[string]struct {
		output            events.Output
		do                body
		pointer, exp, act string
	}{
		"missing":                    {file, files(map[string]string{"other": ""}), "/outputs/rows", "a file out/rows.csv", "nothing"},
		"missing with its directory": {file, nothing, "/outputs/rows", "a file out/rows.csv", "nothing"},
		"link out":                   {file, plant(func(p string) error { return os.Symlink(outside, p) }), "/outputs/rows", "a file out/rows.csv", "a symbolic link"},
		"link in": {file, plant(func(p string) error {
			return errors.Join(os.WriteFile(p+"2", []byte("id\n1\n"), 0o600), os.Symlink("rows.csv2", p))
		}), "/outputs/rows", "a file out/rows.csv", "a symbolic link"},
		"named pipe": {file, plant(func(p string) error { return syscall.Mkfifo(p, 0o600) }), "/outputs/rows", "a file out/rows.csv", "a named pipe"},
		"directory":  {file, plant(func(p string) error { return os.Mkdir(p, 0o700) }), "/outputs/rows", "a file out/rows.csv", "a directory"},
		"directory that leads out": {events.Output{Role: "rows", Path: "sub/outside.csv"}, plant(func(p string) error {
			return os.Symlink(filepath.Dir(outside), filepath.Join(filepath.Dir(p), "sub"))
		}), "/outputs/rows", "a file out/sub/outside.csv", "a path that leads out of the directory"},
		"path that leads out": {events.Output{Role: "rows", Path: "../in/x"}, files(nil), "/outputs/rows", "a file out/../in/x", "nothing"},
		"a bad row":           {file, files(map[string]string{"rows.csv": "id,price\n1,2\nx,-1\n"}), "3:id", "integer", `"x"`},
		"no CSV":              {file, files(map[string]string{"rows.csv": "id\n\xff\n"}), "2:1", "readable CSV", "invalid UTF-8, at 2:1"},
		"value not set":       {events.Output{Role: "n"}, nothing, "/outputs/n", "a value under n in $APOLLO_OUTPUTS", "nothing"},
		"value of another type": {events.Output{Role: "n", Schema: json.RawMessage(`{"type":"integer"}`)}, values(map[string]string{"n": `"1"`}),
			"", "integer", `"1"`},
		"optional, but bad": {events.Output{Role: "rows", Path: "rows.csv", Format: "json", Optional: true}, files(map[string]string{"rows.csv": `{"a":1,"a":2}`}),
			"/a", "strict JSON", `the key "a" stands twice, at 1:8`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.Executors["fake"] = c.do
			o := b.Run(t.Context(), attempt(&events.Stage{Outputs: []events.Output{c.output}}))
			if o.Failure == nil || o.Failure.Class != events.BadOutput {
				t.Fatalf("got %+v", o.Failure)
			}
			want(t, []string{o.Failure.Pointer, o.Failure.Expected, o.Failure.Actual}, []string{c.pointer, c.exp, c.act})
			want(t, len(o.Data.Outputs), 0)
		})
	}
}

// TestOutputsAgainstAModel draws what a stage declares and what it leaves: the outcome is what a few lines say.
func TestOutputsAgainstAModel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	number := 0
	rapid.Check(t, func(r *rapid.T) {
		left := rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c/d"}), rapid.SampledFrom([]string{"", "x\n", "id\n1\n", "id\nx\n", "id\n1\n2\n"})).Draw(r, "left")
		set := rapid.MapOf(rapid.SampledFrom([]string{"v", "w"}), rapid.SampledFrom([]string{"1", `"x"`, "[1, 2]"})).Draw(r, "set")
		var outputs []events.Output
		var expected []events.Result
		bad := ""
		for _, role := range []string{"a", "b", "c", "v", "w"} {
			if !rapid.Bool().Draw(r, "declares "+role) {
				continue
			}
			o := events.Output{Role: role, Optional: rapid.Bool().Draw(r, "optional")}
			if path, isFile := map[string]string{"a": "a", "b": "b", "c": "c/d"}[role]; isFile {
				o.Path = path
				if rapid.Bool().Draw(r, "checked") {
					o.Format, o.Contract = "csv", "order"
				}
			}
			outputs = append(outputs, o)
			content, has := left[o.Path]
			if o.Path == "" {
				content, has = set[role]
				content = strings.ReplaceAll(content, " ", "")
			}
			result := events.Result{Role: role, Digest: events.DigestOf([]byte(content)), Size: int64(len(content)), Records: -1, Name: filepath.Base(o.Path)}
			if o.Path == "" {
				result.Name, result.Value = "", json.RawMessage(content)
			}
			if o.Format == "csv" {
				result.Records = int64(max(0, strings.Count(content, "\n")-1))
			}
			switch {
			case !has && !o.Optional:
				bad += "missing " + role + " "
			case has && o.Format == "csv" && (!strings.HasPrefix(content, "id\n") || strings.Contains(content, "x")):
				bad += "broken " + role + " "
			case has:
				expected = append(expected, result)
			}
		}
		do := func(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
			if _, f := files(left)(ctx, c); f != nil {
				return &executor.Result{}, f
			}
			return values(set)(ctx, c)
		}
		a := attempt(&events.Stage{Outputs: outputs})
		number++
		a.Run[15], a.Run[14] = byte(number), byte(number>>8)
		b.Executors["fake"] = body(do)
		o := b.Run(context.Background(), a)
		switch {
		case bad == "" && o.Failure == nil:
			wantResults(r, o.Data.Outputs, expected)
		case bad == "" || o.Failure == nil || o.Failure.Class != events.BadOutput || len(o.Data.Outputs) > 0:
			r.Fatalf("%q: %+v", bad, o)
		}
	})
}

func wantResults(r *rapid.T, got, want []events.Result) {
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if string(a) != string(b) && len(got)+len(want) > 0 {
		r.Fatalf("%s\nwant %s", a, b)
	}
}
