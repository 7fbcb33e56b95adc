package contract

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// table checks the rows below one header.
type table struct {
	contract *Contract
	columns  []column
	missing  []string       // required columns that the header lacks; reported once
	byName   map[string]int // index of a column
	row      row
}

// column is one field of the header and what the schema makes of it.
type column struct {
	name     string
	number   int // from 1
	extra    bool
	required bool
	types    typeSet
	empty    emptyCell
	direct   *property // nil when nothing needs to be checked, or when the library does it
}

// row is the current record.
type row struct {
	number int64 // the header is 1
	cells  []string
	reader *csv.Reader // knows the places of the cells
}

func newTable(c *Contract, header []string) *table {
	t := &table{contract: c, byName: map[string]int{}}
	for i, name := range header {
		col := column{name: name, number: i + 1}
		if c != nil {
			col.bind(c, name)
		}
		t.columns = append(t.columns, col)
		t.byName[name] = i
	}
	if c == nil {
		return t
	}
	for _, name := range c.schema.Required {
		if _, ok := t.byName[name]; !ok {
			t.missing = append(t.missing, name)
		}
	}
	slices.Sort(t.missing)
	return t
}

func (col *column) bind(c *Contract, name string) {
	s, extra := declared(c.schema, name)
	col.extra, col.direct = extra, c.direct[name]
	col.required = slices.Contains(c.schema.Required, name)
	col.types, col.empty = cellTypes(s), emptyRule(s)
}

// declared finds the schema of a property; extra says that the object may not have it.
func declared(s *jsonschema.Schema, name string) (property *jsonschema.Schema, extra bool) {
	if p := s.Properties[name]; p != nil {
		return p, false
	}
	var matches []*jsonschema.Schema
	for pattern, p := range s.PatternProperties {
		if pattern.MatchString(name) {
			matches = append(matches, p)
		}
	}
	if len(matches) > 0 {
		slices.SortFunc(matches, func(a, b *jsonschema.Schema) int { return compareToken(a.Location, b.Location) })
		return matches[0], false
	}
	switch more := s.AdditionalProperties.(type) {
	case bool:
		return nil, !more
	case *jsonschema.Schema:
		return more, false
	}
	return nil, false
}

// checkColumns reports what is wrong with the header itself, once and not for each row.
func (t *table) checkColumns(report *Report) {
	for _, col := range t.columns {
		if col.extra {
			report.add(func() Violation {
				return Violation{Row: 1, Line: 1, Column: shorten(col.name), Number: col.number, Pointer: "1:" + shorten(col.name),
					Rule: "additionalProperties", Expected: "no such column", Actual: shorten(col.name)}
			})
		}
	}
	for _, name := range t.missing {
		report.add(func() Violation {
			return Violation{Row: 1, Line: 1, Column: shorten(name), Pointer: "1:" + shorten(name), Rule: "required",
				Expected: "a column " + shorten(name), Actual: "nothing"}
		})
	}
}

// check compares the current row with the contract.
func (t *table) check(report *Report) {
	switch {
	case t.contract == nil:
	case t.contract.direct != nil:
		t.checkDirect(report)
	default:
		t.checkByLibrary(report)
	}
}

func (t *table) checkByLibrary(report *Report) {
	object := make(map[string]any, len(t.columns))
	for i := range t.columns {
		if col := &t.columns[i]; !col.extra {
			if value, ok := col.value(t.row.cells[i]); ok {
				object[col.name] = value
			}
		}
	}
	err := t.contract.validate(object)
	if err == nil {
		return
	}
	found := findings(err)
	slices.SortStableFunc(found, func(a, b finding) int { return t.order(a) - t.order(b) })
	for _, f := range found {
		if f.rule == "required" && len(f.at) == 1 && t.settled(f.name) {
			continue
		}
		report.add(func() Violation { return t.place(f.violation(object), f.at) })
	}
}

// settled says that the header has no such column, or one that may not be: that was reported for the header.
func (t *table) settled(name string) bool {
	i, ok := t.byName[name]
	return ok && t.columns[i].extra || slices.Contains(t.missing, name)
}

// order sorts findings by column; those of the whole row come first.
func (t *table) order(f finding) int {
	if len(f.at) == 0 {
		return 0
	}
	return t.byName[f.at[0]] + 1
}

// place turns a violation of the row's object into one of the file.
func (t *table) place(v Violation, at []string) Violation {
	i := 0
	v.Pointer = fmt.Sprintf("%d:", t.row.number)
	if len(at) > 0 {
		if found, ok := t.byName[at[0]]; ok {
			i = found
			v.Number = i + 1
		}
		v.Column = shorten(at[0])
		v.Pointer += v.Column
	}
	v.Row = t.row.number
	v.Line, _ = t.row.reader.FieldPos(i)
	v.Record = make(map[string]string, len(t.columns))
	for i, col := range t.columns {
		v.Record[shorten(col.name)] = shorten(t.row.cells[i])
	}
	return v
}

// value gives the JSON value of a cell, or false when it is absent.
func (col *column) value(cell string) (any, bool) {
	if cell == "" {
		switch col.empty {
		case emptyAbsent:
			return nil, false
		case emptyNull:
			return nil, true
		case emptyText:
			return "", true
		}
	}
	switch col.types.of(cell) {
	case isNumeric:
		return json.Number(cell), true
	case isBool:
		return truth(cell), true
	case isText:
	}
	return cell, true
}
