package compare_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/compare"
)

// contentOf compares two outputs of one stage.
func contentOf(t *testing.T, output events.Output, name, a, b string, o compare.Options) *compare.Content {
	t.Helper()
	w := world{}
	output.Role = "out"
	plan := chain("one")
	plan.Stages[0].Outputs = []events.Output{output}
	side := func(content string) *compare.Side {
		return w.side(t, plan, map[string]*events.Data{"one": {Outputs: []events.Result{w.file("out", name, content)}}})
	}
	return runs(t, side(a), side(b), o).Stages[0].Outputs[0].Content
}

func rowsOf(t *compare.Table) (all []string) {
	for _, r := range t.Rows {
		cells := ""
		for _, c := range r.Cells {
			cells += fmt.Sprintf(" %s:%v>%v", c.Field, c.A, c.B)
		}
		key := ""
		for _, k := range r.Key {
			key += fmt.Sprintf(" %s=%v", k.Field, k.A)
		}
		all = append(all, fmt.Sprintf("%s %d%s |%s", r.Change, r.Number, key, cells))
	}
	return all
}

func TestTables(t *testing.T) {
	t.Parallel()
	id := []string{"id"}
	for name, test := range map[string]struct {
		output  events.Output
		name    string
		a, b    string
		want    []string
		columns string
	}{
		"by key": {events.Output{Format: "csv", Key: id}, "x", "id,v\n1,a\n2,b\n3,c\n", "id,v\n3,c\n2,B\n4,d\n",
			[]string{"changed 2 id=2 | v:b>B", "removed 1 id=1 | id:1>– v:a>–", "added 3 id=4 | id:–>4 v:–>d"}, ""},
		"key of two":  {events.Output{Format: "csv", Key: []string{"a", "b"}}, "x", "a,b,v\n1,11,x\n11,1,y\n", "a,b,v\n11,1,y\n1,11,z\n", []string{"changed 1 a=1 b=11 | v:x>z"}, ""},
		"a key twice": {events.Output{Format: "csv", Key: id}, "x", "id,v\n1,a\n1,b\n1,c\n", "id,v\n1,a\n1,B\n", []string{"changed 2 id=1 | v:b>B", "removed 3 id=1 | id:1>– v:c>–"}, ""},
		"by content":  {events.Output{Format: "csv"}, "x", "id,v\n1,a\n2,b\n3,c\n", "id,v\n3,c\n1,a\n2,b\n4,d\n", []string{"added 4 | id:–>4 v:–>d"}, ""},
		"by position": {events.Output{Format: "csv"}, "x", "id,v\n1,a\n2,b\n3,c\n", "id,v\n1,a\n2,B\n3,C\n", []string{"changed 2 | v:b>B", "changed 3 | v:c>C"}, ""},
		"columns":     {events.Output{Format: "csv", Key: id}, "x", "id,v,gone\n1,a,x\n2,b,x\n", "new,v,id\n9,a,1\n9,B,2\n", []string{"changed 2 id=2 | v:b>B"}, "[new] [gone]"},
		"quoted":      {events.Output{Format: "csv", Key: id}, "x", "id,v\n1,\"a,\n\"\"b\"\n", "id,v\n1,\"a,\n\"\"c\"\n", []string{"changed 1 id=1 | v:a,\n\"b>a,\n\"c"}, ""},
		"by its name": {events.Output{}, "x.tsv", "id\tv\n1\ta\n", "id\tv\n1\tb\n", []string{"changed 1 | v:a>b"}, ""},
		"lines":       {events.Output{Format: "ndjson", Key: id}, "x", `{"id":1,"v":1}` + "\n" + `{"id":2,"v":1}`, `{"v":1,"id":2}` + "\n" + `{"id":1,"v":1.0,"w":null}`, []string{"changed 1 id=1 | v:1>1.0 w:–>null"}, ""},
		"Chinese":     {events.Output{Format: "csv", Key: []string{"编号"}}, "x", "编号,名\n1,牛\n", "编号,名\n1,马\n", []string{"changed 1 编号=1 | 名:牛>马"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := contentOf(t, test.output, test.name, test.a, test.b, compare.Options{})
			if got.Table == nil {
				t.Fatalf("no table: %+v", got)
			}
			if diff := cmp.Diff(test.want, rowsOf(got.Table)); diff != "" || got.Partial {
				t.Error(diff, got.Partial)
			}
			columns := ""
			if len(got.Table.NewColumns) > 0 {
				columns = fmt.Sprint(got.Table.NewColumns, " ", got.Table.GoneColumns)
			}
			if columns != test.columns {
				t.Errorf("columns %s, want %s", columns, test.columns)
			}
		})
	}
}

func TestContents(t *testing.T) {
	t.Parallel()
	at := func(n int64) *int64 { return &n }
	lines := strings.Repeat("line\n", 50_000)
	for name, test := range map[string]struct {
		output events.Output
		name   string
		a, b   string
		want   compare.Content
	}{
		"text":     {events.Output{}, "a.txt", "a\nb\nc\n", "a\nB\nc\n", compare.Content{Format: "text", Text: "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"}},
		"far text": {events.Output{}, "a.txt", lines + "x\nend\n", lines + "y\nend\n", compare.Content{Format: "text", Text: "@@ -49998,5 +49998,5 @@\n line\n line\n line\n-x\n+y\n end\n"}},
		"no newline": {events.Output{}, "a.txt", "a", "a\n", compare.Content{Format: "text",
			Text: "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n"}},
		"empty": {events.Output{}, "a.txt", "", "a\n", compare.Content{Format: "text", Text: "@@ -0,0 +1,1 @@\n+a\n"}},
		"json": {events.Output{Format: "json"}, "x", `{"a":{"b/c":[1,2,3]},"n":9007199254740993}`, `{"a":{"b/c":[1,4,5,3]},"n":9007199254740992}`,
			compare.Content{Format: "json", Changes: []compare.Field{{Field: "/a/b~1c/1", A: json.Number("2"), B: json.Number("4")}, {Field: "/a/b~1c/2", A: "–", B: json.Number("5")},
				{Field: "/n", A: json.Number("9007199254740993"), B: json.Number("9007199254740992")}}}},
		"json in other bytes": {events.Output{Format: "json"}, "x", `{"a":1}` + "\n", `{"a": 1}` + "\n", compare.Content{Format: "text", Text: "@@ -1,1 +1,1 @@\n-{\"a\":1}\n+{\"a\": 1}\n"}},
		"broken json":         {events.Output{Format: "json"}, "x", "{\n", "}\n", compare.Content{Format: "text", Text: "@@ -1,1 +1,1 @@\n-{\n+}\n", Note: "it is no JSON"}},
		"lines of json":       {events.Output{Format: "ndjson"}, "x", "{}\n", "[]\n", compare.Content{Format: "ndjson", Text: "@@ -1,1 +1,1 @@\n-{}\n+[]\n"}},
		"binary":              {events.Output{}, "a.bin", "a\x00bcd", "a\x00bXd", compare.Content{Format: "binary", Offset: at(3)}},
		"longer binary":       {events.Output{}, "a.bin", "a\x00b", "a\x00bXd", compare.Content{Format: "binary", Offset: at(3)}},
		"broken csv":          {events.Output{Format: "csv"}, "x", "a\n\"\n", "a\n1\n", compare.Content{Format: "text"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := contentOf(t, test.output, test.name, test.a, test.b, compare.Options{})
			for i := range got.Changes {
				if s, ok := got.Changes[i].A.(fmt.Stringer); ok && s.String() == "–" {
					got.Changes[i].A = "–"
				}
			}
			if name == "broken csv" {
				if got.Note == "" || got.Format != "text" || got.Text == "" {
					t.Errorf("got %+v", got)
				}
				return
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestContentIsBounded(t *testing.T) {
	t.Parallel()
	var a, b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&a, "%d,a\n", i)
		fmt.Fprintf(&b, "%d,b\n", i)
	}
	got := contentOf(t, events.Output{Format: "csv", Key: []string{"id"}}, "x", "id,v\n"+a.String(), "id,v\n"+b.String(), compare.Options{Limit: 3})
	if len(got.Table.Rows) != 3 || got.Table.More != 997 || got.Table.Changed != 1000 {
		t.Errorf("%d rows, %d more, %d changed", len(got.Table.Rows), got.Table.More, got.Table.Changed)
	}
	got = contentOf(t, events.Output{}, "x.txt", a.String(), b.String(), compare.Options{Limit: 3})
	if strings.Count(got.Text, "\n") != 3 || got.More != 1998 {
		t.Errorf("%q, %d more", got.Text, got.More)
	}
	long := strings.Repeat("x", 1<<20)
	got = contentOf(t, events.Output{}, "x.txt", long+"a", long+"b", compare.Options{})
	if len(got.Text) > 2000 || !strings.Contains(got.Text, "…") {
		t.Errorf("%d bytes of a line", len(got.Text))
	}
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	w := world{}
	manifest := func(files map[string]string) string {
		type line struct {
			Path   string        `json:"path"`
			Digest events.Digest `json:"digest"`
			Size   int           `json:"size"`
		}
		var all []line
		for _, name := range []string{"a.txt", "b/c.csv", "d", "e"} {
			if content, ok := files[name]; ok {
				all = append(all, line{name, w.put(content), len(content)})
			}
		}
		b, _ := json.Marshal(map[string]any{"schema": 1, "entries": all})
		return string(b)
	}
	side := func(files map[string]string) *compare.Side {
		return w.side(t, chain("one"), map[string]*events.Data{"one": {Outputs: []events.Result{w.file("out", "site/", manifest(files))}}})
	}
	r := runs(t, side(map[string]string{"a.txt": "same", "b/c.csv": "id\n1\n", "d": "gone"}), side(map[string]string{"a.txt": "same", "b/c.csv": "id\n2\n", "e": "new"}), compare.Options{})
	content := r.Stages[0].Outputs[0].Content
	var got []string
	for _, f := range content.Files {
		got = append(got, f.Change+" "+f.Path)
	}
	if diff := cmp.Diff([]string{"changed b/c.csv", "removed d", "added e"}, got); diff != "" || content.Files[0].Content.Table.Changed != 1 {
		t.Error(diff, content.Files[0].Content)
	}
}

func TestExternalIsAskedForBinariesOnly(t *testing.T) {
	t.Parallel()
	asked := 0
	o := compare.Options{External: func(_ context.Context, name string, a, b io.Reader) (string, error) {
		asked++
		x, _ := io.ReadAll(a)
		y, _ := io.ReadAll(b)
		return fmt.Sprintf("%s %d %d\n", name, len(x), len(y)), nil
	}}
	if got := contentOf(t, events.Output{}, "a.bin", "\x00a", "\x00bc", o); got.Text != "a.bin 2 3\n" {
		t.Errorf("got %+v", got)
	}
	contentOf(t, events.Output{}, "a.txt", "a", "b", o)
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	o.External = func(context.Context, string, io.Reader, io.Reader) (string, error) {
		return "", errors.New("not installed")
	}
	if got := contentOf(t, events.Output{}, "a.bin", "\x00a", "\x00bc", o); got.Note != "not installed" || got.Offset == nil {
		t.Errorf("got %+v", got)
	}
}

// generated is a long CSV that nobody holds.
type generated struct {
	rows, at, odd int
	left          []byte
}

func (g *generated) Read(p []byte) (int, error) {
	if len(g.left) == 0 {
		if g.at > g.rows {
			return 0, io.EOF
		}
		switch g.at {
		case 0:
			g.left = []byte("id,v\n")
		case g.odd:
			g.left = fmt.Appendf(nil, "%d,odd\n", g.at)
		default:
			g.left = fmt.Appendf(nil, "%d,%s\n", g.at, "a value that is the same on both sides and somewhat long")
		}
		g.at++
	}
	n := copy(p, g.left)
	g.left = g.left[n:]
	return n, nil
}

func (g *generated) Close() error { return nil }

// streams opens long files by the first byte of their digests.
type streams struct{ rows int }

func (s streams) Open(d events.Digest) (io.ReadCloser, error) {
	return &generated{rows: s.rows, odd: int(d[0]) * s.rows / 200}, nil
}

// TestLongTables compares two CSV files of 25 MB that differ in two rows, and looks at the heap.
func TestLongTables(t *testing.T) { //nolint:paralleltest // it measures the heap
	const rows = 400_000
	plan := chain("one")
	plan.Stages[0].Outputs = []events.Output{{Role: "out", Format: "csv", Key: []string{"id"}}}
	side := func(first byte) *compare.Side {
		s := world{}.side(t, plan, map[string]*events.Data{"one": {Outputs: []events.Result{{Role: "out", Digest: events.Digest{first}, Size: 25 << 20, Records: rows}}}})
		s.Artifacts = streams{rows}
		return s
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := runs(t, side(100), side(150), compare.Options{})
	runtime.ReadMemStats(&after)
	got := r.Stages[0].Outputs[0].Content
	if got.Partial || got.Table.Changed != 2 || got.Table.Added+got.Table.Removed != 0 || got.Table.Rows[1].Number != 300_000 {
		t.Errorf("got %+v", got.Table)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 32<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
}
