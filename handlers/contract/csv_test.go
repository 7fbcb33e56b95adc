package contract

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// facts are what another program measured about the files.
type facts struct {
	Files map[string]struct {
		Bytes     int64  `json:"bytes"`
		BOM       string `json:"bom"`
		UTF8      bool   `json:"utf8"`
		CR        int    `json:"cr"`
		NUL       int    `json:"nul"`
		Records   *int64 `json:"records_comma"`
		MinFields int    `json:"fields_min"`
		MaxFields int    `json:"fields_max"`
	} `json:"files"`
}

func readFacts(tb testing.TB) facts {
	tb.Helper()
	var f facts
	text, err := os.ReadFile("testdata/facts.json")
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// TestRealFiles reads every file under testdata without a contract. What the facts say settles what must be refused and
// how many rows there are; testdata/outcomes.txt holds the exact answers.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	known := readFacts(t)
	var outcomes strings.Builder
	readable := 0
	err := filepath.WalkDir("testdata/files", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		format := strings.TrimPrefix(filepath.Ext(path), ".")
		if strings.HasPrefix(format, "csv") {
			format = "csv"
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		r, err := Check(t.Context(), format, nil, f)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		fact := known.Files[strings.TrimPrefix(path, "testdata/")]
		if r.OK() && r.Bytes != fact.Bytes {
			t.Errorf("%s: %d bytes, the facts say %d", path, r.Bytes, fact.Bytes)
		}
		ragged := fact.Records != nil && fact.MinFields != fact.MaxFields
		if bad := !fact.UTF8 || fact.NUL > 0 || format == "csv" && (ragged || fact.CR > 0); bad && r.OK() && format != "parquet" {
			t.Errorf("%s: accepted, but the facts say %+v", path, fact)
		}
		if fact.Records != nil && r.OK() {
			readable++
			want(t, r.Records, *fact.Records-1)
		}
		fmt.Fprintf(&outcomes, "%s: %d records", strings.TrimPrefix(path, "testdata/files/"), r.Records)
		for i, v := range r.Violations[:min(2, len(r.Violations))] {
			fmt.Fprintf(&outcomes, "%s %s", []string{"; " + fmt.Sprint(r.Total) + ":", ","}[i], v)
		}
		outcomes.WriteByte('\n')
		return nil
	})
	want(t, err, nil)
	if readable < 30 {
		t.Errorf("only %d files were compared with the facts", readable)
	}
	golden(t, "testdata/outcomes.txt", outcomes.String())
}

func golden(tb testing.TB, name, got string) {
	tb.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	want(tb, err, nil)
	want(tb, got, string(text))
}

func TestCSVText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ data, found string }{
		{"a,b\n1,2\n", "1"}, {"a,b\r\n1,2\r\n", "1"}, {"a,b\n1,2", "1"}, {"\ufeffa,b\n1,2\n", "1"}, {"a\n\n\n1\n\n", "1"},
		{"a,b\n\"1\n2\",\"x\"\"y\"\n3,4\n", "2"}, {"a,b\n\"1\r\n2\",3\n", "1"}, {"a\n", "0"}, {"a", "0"}, {"姓名\n王\n", "1"},
		{"", "E_CSV 1:1"}, {"\ufeff", "E_CSV 1:1"}, {"\n\n", "E_CSV 1:1"},
		{"a,\n1,2\n", "E_CSV 1:3"}, {"a, \n1,2\n", "E_CSV 1:3"}, {"a,b,a\n1,2,3\n", "E_CSV 1:5"}, {"\"a\",a\n", "E_CSV 1:5"},
		{"a,b\n1\n", "E_CSV 2:1"}, {"a,b\n1,2\n\n1,2,3\n", "E_CSV 4:1"},
		{"a,b\n1,x\"y\n", "E_CSV 2:4"}, {"a,b\n1,\"x\"y\n", "E_CSV 2:5"}, {"a,b\n1,\"x\n", "E_CSV 2:6"},
		{"a,b\n1,\x002\n", "E_CSV 2:3"}, {"a\n1\r2\n", "E_CSV 2:2"}, {"a\r1\r2\r", "E_CSV 1:2"}, {"a\n1\r\r\n2\n", "E_CSV 2:2"}, {"a\n1\r", "E_CSV 2:2"},
		{"a\n\xff\n", "E_CSV 2:1"}, {"a\n中\xe4\xb8\n", "E_CSV 2:4"}, {"a\n中\xe4", "E_CSV 2:4"}, {"a\n\xed\xa0\x80\n", "E_CSV 2:1"},
		{"\xff\xfea\x00", "E_CSV 1:1"}, {"\x1f\x8b\x08\x00", "E_CSV 1:1"}, {"PK\x03\x04xx", "E_CSV 1:1"},
	} {
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "eof": iotest.DataErrReader,
		} {
			var none *Contract
			r, err := none.CheckCSV(t.Context(), wrap(strings.NewReader(c.data)))
			want(t, err, nil)
			found := fmt.Sprint(r.Records)
			if !r.OK() {
				found = r.Violations[0].Rule + " " + r.Violations[0].Pointer
			}
			if found != c.found {
				t.Errorf("%q (%s): %s, want %s", c.data, name, found, c.found)
			}
		}
	}
}

// TestRaggedRowsAreAllCounted: they do not end the check.
func TestRaggedRowsAreAllCounted(t *testing.T) {
	t.Parallel()
	r := check(t, "csv", "", "a,b\n"+strings.Repeat("1\n1,2\n", 150))
	want(t, r.Records, int64(300))
	want(t, r.Total, int64(150))
	want(t, len(r.Violations), MaxKept)
	want(t, r.Violations[1], Violation{Row: 4, Line: 4, Pointer: "4:1", Rule: "E_CSV", Expected: "2 fields as in the header", Actual: "1 fields"})
}

// endless gives a header and then one line that never ends.
type endless struct{ head *strings.Reader }

func (e endless) Read(p []byte) (int, error) {
	if e.head.Len() > 0 {
		return e.head.Read(p)
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestEndlessLine(t *testing.T) {
	t.Parallel()
	for _, quote := range []string{"", `"`} {
		var none *Contract
		r, err := none.checkCSV(t.Context(), endless{strings.NewReader("a,b\n1,2\n3," + quote)}, ',', 1<<20)
		want(t, err, nil)
		want(t, r.Total, int64(1))
		want(t, r.Violations[0].Rule, CodeCSV)
		want(t, r.Violations[0].Line, 3)
		want(t, strings.Contains(r.Violations[0].Actual, "longer than 1048576 bytes"), true)
		if r.Bytes > 2<<20 {
			t.Errorf("%d bytes were read", r.Bytes)
		}
	}
	// A long record below the cap, with line breaks, is fine; so is a file that is longer than the cap.
	data := "id,blob\n1,\"" + strings.Repeat("a,b,c\r\n", 150000) + "\"\n2,x\n"
	want(t, check(t, "csv", "", data).Records, int64(2))
	var none *Contract
	r, err := none.checkCSV(t.Context(), strings.NewReader("a\n"+strings.Repeat("0123456789\n", 100000)), ',', 100)
	want(t, err, nil)
	want(t, r.Records, int64(100000))
}

// generated is a CSV file of any size that is never in memory.
type generated struct {
	rows, at int
	buffer   []byte
}

func (g *generated) Read(p []byte) (int, error) {
	for len(g.buffer) < len(p) && g.at <= g.rows {
		if g.at == 0 {
			g.buffer = append(g.buffer, "id,name,price,kind,day\n"...)
		} else {
			g.buffer = fmt.Appendf(g.buffer, "%d,name %d,%d.5,%s,2026-01-%02d\n", g.at, g.at%1000, g.at%500, []string{"a", "b", "c"}[g.at%3], g.at%28+1)
		}
		g.at++
	}
	n := copy(p, g.buffer)
	g.buffer = append(g.buffer[:0], g.buffer[n:]...)
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

const five = `{"type":"object","required":["id","name","price"],"additionalProperties":false,"properties":{
	"id":{"type":"integer","minimum":1},"name":{"type":"string","minLength":1,"maxLength":40},"price":{"type":"number","minimum":0,"maximum":1000},
	"kind":{"enum":["a","b","c"]},"day":{"type":"string","pattern":"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}}}`

// TestConstantMemory reads 7 MB and looks at the heap on the way.
func TestConstantMemory(t *testing.T) { //nolint:paralleltest // it measures the heap
	measure := func(rows int) uint64 {
		var peak uint64
		probe := &probed{r: &generated{rows: rows}, every: 1 << 20, look: func() {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}}
		r, err := mustCompile(t, five).CheckCSV(context.Background(), probe)
		want(t, err, nil)
		want(t, r.Records, int64(rows))
		return peak
	}
	small, large := measure(20_000), measure(200_000)
	if large > small+1<<20 {
		t.Errorf("the heap grew from %d to %d bytes", small, large)
	}
}

type probed struct {
	r       io.Reader
	n, next int
	every   int
	look    func()
}

func (p *probed) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if p.n += n; p.n >= p.next {
		p.next += p.every
		p.look()
	}
	return n, err
}

// FuzzCheckCSV: whatever comes in, the check ends, counts within the file and agrees with encoding/csv on good files.
func FuzzCheckCSV(f *testing.F) {
	for _, seed := range []string{"a,b\n1,2\n", "a\r\n\"x\r\ny\"\r\n", "\ufeffa\n\"\"\"\"\n", "a\n1\r2", "a,a\n"} {
		f.Add([]byte(seed))
	}
	c := mustCompile(f, five)
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := c.CheckCSV(context.Background(), strings.NewReader(string(data)))
		if err != nil || r.Records > int64(len(data)) || int64(len(r.Violations)) > r.Total {
			t.Fatalf("%+v %v", r, err)
		}
		var none *Contract
		if r, _ = none.CheckCSV(context.Background(), strings.NewReader(string(data))); r.OK() {
			rows, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(string(data), "\ufeff"))).ReadAll()
			if err != nil || int64(len(rows)) != r.Records+1 {
				t.Fatalf("%d rows, but encoding/csv gives %d, %v", r.Records, len(rows), err)
			}
		}
	})
}

// BenchmarkCheckCSV measures a contract of five properties beside a bare encoding/csv read of the same bytes.
func BenchmarkCheckCSV(b *testing.B) {
	content, err := io.ReadAll(&generated{rows: 100_000})
	if err != nil {
		b.Fatal(err)
	}
	data := string(content)
	c := mustCompile(b, five)
	run := func(name string, read func() int64) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if n := read(); n != 100_000 {
					b.Fatal(n)
				}
			}
		})
	}
	checked := func(c *Contract) func() int64 {
		return func() int64 {
			r, err := c.CheckCSV(context.Background(), strings.NewReader(data))
			if err != nil || !r.OK() {
				b.Fatal(r, err)
			}
			return r.Records
		}
	}
	run("encoding_csv", func() int64 {
		rows := csv.NewReader(strings.NewReader(data))
		rows.ReuseRecord = true
		n := int64(-1)
		for ; ; n++ {
			if _, err := rows.Read(); err != nil {
				return n
			}
		}
	})
	run("format_only", checked(nil))
	run("direct", checked(c))
	run("library", checked(byLibrary(c)))
}

func TestGuardOnRandomChunks(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		var data strings.Builder
		data.WriteString("h\n")
		for range random.IntN(60) {
			data.WriteString([]string{"a", "中", "😀", "é", "\n", "\r\n", "\r", "\x00", "\xe4", "\xf0\x9f"}[random.IntN(10-random.IntN(5))])
		}
		var none *Contract
		whole, err := none.CheckCSV(t.Context(), strings.NewReader(data.String()))
		want(t, err, nil)
		pieces, err := none.CheckCSV(t.Context(), &chopped{data: data.String(), random: random})
		want(t, err, nil)
		whole.Bytes, pieces.Bytes = 0, 0 // how far it had read when it gave up
		want(t, pieces, whole)
	}
}

type chopped struct {
	data   string
	random *rand.Rand
}

func (c *chopped) Read(p []byte) (int, error) {
	if c.data == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), 1+c.random.IntN(5))], c.data)
	c.data = c.data[n:]
	return n, nil
}
