package compare

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// row is one record: cells by column. The number counts records, from 1.
type row struct {
	number  int64
	columns []string
	cells   []string
}

func (r *row) cell(column string) (string, bool) {
	if i := slices.Index(r.columns, column); i >= 0 && i < len(r.cells) {
		return r.cells[i], true
	}
	return "", false
}

func (r *row) size() (n int64) {
	for _, c := range r.cells {
		n += int64(len(c)) + 16
	}
	return n + 96
}

// records reads rows one after the other; io.EOF is their end. columns is nil where each row has its own.
type records interface {
	columns() []string
	next() (*row, error)
}

func openRecords(format string, r io.Reader) (records, error) {
	switch format {
	case "ndjson":
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 64<<10), maxRecord)
		return &objects{lines: lines}, nil
	case "tsv":
		return openTable(r, '\t')
	}
	return openTable(r, ',')
}

// maxRecord bounds one record, in bytes.
const maxRecord = 16 << 20

// table reads CSV or TSV with a header.
type table struct {
	rows   *csv.Reader
	guard  *guard
	header []string
	n      int64
}

func openTable(r io.Reader, comma rune) (*table, error) {
	t := &table{guard: &guard{r: r, left: maxRecord}}
	t.rows = csv.NewReader(t.guard)
	t.rows.Comma, t.rows.FieldsPerRecord = comma, -1
	var err error
	if t.header, err = t.rows.Read(); err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	if sorted := slices.Sorted(slices.Values(t.header)); len(slices.Compact(sorted)) < len(t.header) {
		return nil, fmt.Errorf("read the header: two columns have one name")
	}
	return t, nil
}

func (t *table) columns() []string { return t.header }

func (t *table) next() (*row, error) {
	t.guard.left = maxRecord
	cells, err := t.rows.Read()
	if err != nil {
		return nil, err
	}
	t.n++
	return &row{number: t.n, columns: t.header, cells: cells}, nil
}

// guard ends a record that has no end before it fills the memory.
type guard struct {
	r    io.Reader
	left int64
}

func (g *guard) Read(p []byte) (int, error) {
	if g.left <= 0 {
		return 0, fmt.Errorf("a record is longer than %d bytes", maxRecord)
	}
	n, err := g.r.Read(p)
	g.left -= int64(n)
	return n, err
}

// objects reads a JSON object a line. A cell is a field's JSON.
type objects struct {
	lines *bufio.Scanner
	n     int64
}

func (o *objects) columns() []string { return nil }

func (o *objects) next() (*row, error) {
	for o.lines.Scan() {
		if len(o.lines.Bytes()) == 0 {
			continue
		}
		o.n++
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(o.lines.Bytes(), &fields); err != nil {
			return nil, fmt.Errorf("line %d is no JSON object: %w", o.n, err)
		}
		r := &row{number: o.n, columns: slices.Sorted(maps.Keys(fields))}
		for _, name := range r.columns {
			r.cells = append(r.cells, string(fields[name]))
		}
		return r, nil
	}
	if err := o.lines.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}
