package compare

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
)

// Table is what differs between two tables. With a key, rows are matched by it, else by all that is in them; of the rest, rows
// that stand in one place on both sides are said to have changed.
type Table struct {
	Key         []string `json:"key,omitempty"`
	NewColumns  []string `json:"columns_added,omitempty"`
	GoneColumns []string `json:"columns_removed,omitempty"`
	Added       int      `json:"added"`
	Removed     int      `json:"removed"`
	Changed     int      `json:"changed"`
	Rows        []Row    `json:"rows"`
	More        int      `json:"more,omitempty"`    // rows that differ and are not given
	Partial     bool     `json:"partial,omitempty"` // only the beginning was compared: a row that is missing may come later
}

// Row is a row that differs. Number counts the rows below the header from 1, on the side that has it, else in a.
type Row struct {
	Change string  `json:"change"` // added, removed, changed
	Number int64   `json:"row"`
	Key    []Field `json:"key,omitempty"`
	Cells  []Field `json:"cells"`
}

// joinBudget bounds the bytes of rows that wait for their like on the other side: tables that are nearly in one order are
// compared whole, however long they are.
const joinBudget = 64 << 20

// join matches the rows of two streams.
type join struct {
	t       *Table
	columns []string // that both have; nil: each row's own
	limit   int
	waiting [2]map[string][]*row
	bytes   int64
	budget  int64
}

// table compares two tables in one pass over each.
func (c *comparison) table(format string, key []string, x, y io.Reader) (*Table, error) {
	return compareTables(format, key, c.o.Limit, joinBudget, c.ctx.Err, x, y)
}

func compareTables(format string, key []string, limit int, budget int64, cancelled func() error, x, y io.Reader) (*Table, error) {
	a, err := openRecords(format, x)
	if err != nil {
		return nil, err
	}
	b, err := openRecords(format, y)
	if err != nil {
		return nil, err
	}
	j := &join{t: &Table{Rows: []Row{}}, limit: limit, budget: budget, waiting: [2]map[string][]*row{{}, {}}}
	j.heads(a.columns(), b.columns())
	if j.columns == nil || !slices.ContainsFunc(key, func(k string) bool { return !slices.Contains(j.columns, k) }) {
		j.t.Key = key
	}
	if err := j.run(cancelled, a, b); err != nil {
		return nil, err
	}
	j.rest()
	return j.t, nil
}

// heads finds the columns that both have.
func (j *join) heads(a, b []string) {
	for _, name := range a {
		if slices.Contains(b, name) {
			j.columns = append(j.columns, name)
		} else {
			j.t.GoneColumns = append(j.t.GoneColumns, name)
		}
	}
	for _, name := range b {
		if !slices.Contains(a, name) {
			j.t.NewColumns = append(j.t.NewColumns, name)
		}
	}
}

// run reads both sides in step until both end, or too much waits.
func (j *join) run(cancelled func() error, a, b records) error {
	sides, ended := [2]records{a, b}, [2]bool{}
	for !ended[0] || !ended[1] {
		for side, from := range sides {
			if ended[side] {
				continue
			}
			r, err := from.next()
			if errors.Is(err, io.EOF) {
				ended[side] = true
				continue
			}
			if err != nil {
				return err
			}
			if r.number%1024 == 0 {
				if err := cancelled(); err != nil {
					return err
				}
			}
			j.take(side, r)
		}
		if j.bytes > j.budget {
			j.t.Partial = true
			return nil
		}
	}
	return nil
}

// take matches a row with one that waits on the other side, or lets it wait.
func (j *join) take(side int, r *row) {
	key := j.keyOf(r)
	other := j.waiting[1-side][key]
	if len(other) == 0 {
		j.waiting[side][key] = append(j.waiting[side][key], r)
		j.bytes += r.size()
		return
	}
	like := other[0]
	j.bytes -= like.size()
	if len(other) == 1 {
		delete(j.waiting[1-side], key)
	} else {
		j.waiting[1-side][key] = other[1:]
	}
	if side == 0 {
		r, like = like, r
	}
	if cells := j.cells(like, r); len(cells) > 0 {
		j.changed(like, r, cells)
	}
}

// keyOf gives the text that like rows have in common.
func (j *join) keyOf(r *row) string {
	var b []byte
	add := func(text string) { b = append(append(strconv.AppendInt(b, int64(len(text)), 10), ':'), text...) }
	switch {
	case len(j.t.Key) > 0:
		for _, name := range j.t.Key {
			value, _ := r.cell(name)
			add(value)
		}
	case len(j.t.NewColumns)+len(j.t.GoneColumns) == 0:
		for _, value := range r.cells {
			add(value)
		}
	default:
		for _, name := range j.columns {
			value, _ := r.cell(name)
			add(value)
		}
	}
	return string(b)
}

// cells gives what differs between two rows, by column.
func (j *join) cells(a, b *row) (fields []Field) {
	if slices.Equal(a.columns, b.columns) && slices.Equal(a.cells, b.cells) {
		return nil
	}
	columns := j.columns
	if columns == nil {
		columns = slices.Compact(slices.Sorted(slices.Values(slices.Concat(a.columns, b.columns))))
	}
	for _, name := range columns {
		x, inA := a.cell(name)
		y, inB := b.cell(name)
		if x == y && inA == inB {
			continue
		}
		f := Field{Field: name, A: any(x), B: any(y)}
		if !inA {
			f.A = absent{}
		}
		if !inB {
			f.B = absent{}
		}
		fields = append(fields, f)
	}
	return fields
}

func (j *join) changed(a, b *row, cells []Field) {
	j.t.Changed++
	j.give(Row{Change: "changed", Number: a.number, Key: j.keyFields(b), Cells: cells})
}

func (j *join) give(r Row) {
	if len(j.t.Rows) < j.limit {
		j.t.Rows = append(j.t.Rows, r)
	} else {
		j.t.More++
	}
}

func (j *join) keyFields(r *row) (fields []Field) {
	for _, name := range j.t.Key {
		value, _ := r.cell(name)
		fields = append(fields, Field{Field: name, A: value, B: value})
	}
	return fields
}

// rest gives the rows that have found nothing like them.
func (j *join) rest() {
	gone, fresh := leftOver(j.waiting[0]), leftOver(j.waiting[1])
	if len(j.t.Key) == 0 && !j.t.Partial {
		gone, fresh = j.inPlace(gone, fresh)
	}
	for _, r := range gone {
		j.t.Removed++
		j.give(j.whole("removed", r))
	}
	for _, r := range fresh {
		j.t.Added++
		j.give(j.whole("added", r))
	}
}

// inPlace takes the rows that stand in one place on both sides for changed ones, and gives the others.
func (j *join) inPlace(gone, fresh []*row) (removed, added []*row) {
	for len(gone) > 0 && len(fresh) > 0 {
		switch a, b := gone[0], fresh[0]; cmp.Compare(a.number, b.number) {
		case -1:
			removed, gone = append(removed, a), gone[1:]
		case 1:
			added, fresh = append(added, b), fresh[1:]
		default:
			j.changed(a, b, j.cells(a, b))
			gone, fresh = gone[1:], fresh[1:]
		}
	}
	return append(removed, gone...), append(added, fresh...)
}

func leftOver(waiting map[string][]*row) (all []*row) {
	for _, list := range waiting {
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b *row) int { return cmp.Compare(a.number, b.number) })
	return all
}

// whole gives a row that only one side has.
func (j *join) whole(change string, r *row) Row {
	one := Row{Change: change, Number: r.number, Key: j.keyFields(r), Cells: []Field{}}
	for i, value := range r.cells {
		if i >= len(r.columns) {
			break
		}
		f := Field{Field: r.columns[i], A: any(value), B: any(absent{})}
		if change == "added" {
			f.A, f.B = f.B, f.A
		}
		one.Cells = append(one.Cells, f)
	}
	return one
}
