package contract

import (
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// property holds the checks of one column of a simple schema. They give what the library would give, without building
// an object for each row.
type property struct {
	schema *jsonschema.Schema
	typed  bool // the schema names types
	types  typeSet
	enum   []any
	texts  map[string]bool // the enum, when it has only texts
	limits []limit
}

// limit is a bound on numbers, in the order of the rules' names.
type limit struct {
	*bound
	rule   string
	breaks func(sign int) bool
	kind   jsonschema.ErrorKind
}

// What a simple schema may use, besides annotations. Any other keyword sends the whole schema to the library.
var (
	annotations    = []string{"DraftVersion", "Location", "ID", "Title", "Description", "Default", "Comment", "ReadOnly", "WriteOnly", "Examples", "Deprecated"}
	simpleObject   = append([]string{"Types", "Properties", "Required", "AdditionalProperties"}, annotations...)
	simpleProperty = append([]string{"Types", "Enum", "Format", "Minimum", "Maximum", "ExclusiveMinimum", "ExclusiveMaximum",
		"MinLength", "MaxLength", "Pattern"}, annotations...)
)

// simple gives the direct checks of a schema of rows, or nil when it is not simple.
func simple(s *jsonschema.Schema) map[string]*property {
	if !only(s, simpleObject) || s.Types != nil && !reflect.DeepEqual(s.Types.ToStrings(), []string{"object"}) {
		return nil
	}
	if _, isSchema := s.AdditionalProperties.(*jsonschema.Schema); isSchema {
		return nil
	}
	all := map[string]*property{}
	for name, p := range s.Properties {
		switch {
		case p.Bool != nil && *p.Bool: // {} or true
		case only(p, simpleProperty):
			all[name] = newProperty(p)
		default:
			return nil
		}
	}
	return all
}

// only reports whether a schema sets no exported field besides the named ones: a keyword that the library learns
// later is then not simple by itself.
func only(s *jsonschema.Schema, allowed []string) bool {
	v := reflect.ValueOf(*s)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		known := false
		for _, name := range allowed {
			known = known || name == f.Name
		}
		if f.IsExported() && !known && !v.Field(i).IsZero() {
			return false
		}
	}
	return true
}

func newProperty(s *jsonschema.Schema) *property {
	p := &property{schema: s}
	if s.Types != nil {
		p.typed = true
		for _, name := range s.Types.ToStrings() {
			p.types |= typeNames[name]
		}
	}
	if s.Enum != nil {
		p.enum, p.texts = s.Enum.Values, map[string]bool{}
		for _, v := range p.enum {
			if text, ok := v.(string); ok && p.texts != nil {
				p.texts[text] = true
			} else {
				p.texts = nil
			}
		}
	}
	for _, l := range []limit{
		{newBound(s.ExclusiveMaximum), "exclusiveMaximum", func(sign int) bool { return sign >= 0 }, &kind.ExclusiveMaximum{Want: s.ExclusiveMaximum}},
		{newBound(s.ExclusiveMinimum), "exclusiveMinimum", func(sign int) bool { return sign <= 0 }, &kind.ExclusiveMinimum{Want: s.ExclusiveMinimum}},
		{newBound(s.Maximum), "maximum", func(sign int) bool { return sign > 0 }, &kind.Maximum{Want: s.Maximum}},
		{newBound(s.Minimum), "minimum", func(sign int) bool { return sign < 0 }, &kind.Minimum{Want: s.Minimum}},
	} {
		if l.bound != nil {
			p.limits = append(p.limits, l)
		}
	}
	return p
}

// checkDirect compares the current row with a simple schema.
func (t *table) checkDirect(report *Report) {
	for i := range t.columns {
		col, cell := &t.columns[i], t.row.cells[i]
		switch {
		case col.extra:
		case cell == "" && col.empty == emptyAbsent:
			if col.required {
				t.breaks(report, col, cell, &kind.Required{})
			}
		case col.direct == nil:
		default:
			t.checkCell(report, col, cell)
		}
	}
}

// checkCell follows the library's order: a wrong type, value or format ends the checks of a cell.
func (t *table) checkCell(report *Report, col *column, cell string) {
	p, null := col.direct, cell == "" && col.empty == emptyNull
	k := isText
	if !null {
		k = col.types.of(cell)
	}
	switch {
	case p.typed && !p.allows(k, cell, null):
		t.breaks(report, col, cell, &kind.Type{Want: p.schema.Types.ToStrings()})
	case p.enum != nil && !p.listed(k, cell, null):
		t.breaks(report, col, cell, &kind.Enum{Want: p.enum})
	case p.schema.Format != nil && p.wrongFormat(col, cell):
		t.breaks(report, col, cell, &kind.Format{Want: p.schema.Format.Name})
	case null:
	case k == isText:
		t.checkText(report, col, cell)
	case k == isNumeric && len(p.limits) > 0:
		near, _ := strconv.ParseFloat(cell, 64) // isNumber has seen it
		for _, l := range p.limits {
			if l.breaks(l.compare(cell, near)) {
				t.breaks(report, col, cell, l.kind)
			}
		}
	}
}

func (p *property) allows(k cellKind, cell string, null bool) bool {
	switch {
	case null:
		return p.types&allowsNull != 0
	case k == isBool:
		return p.types&allowsBoolean != 0
	case k == isText:
		return p.types&allowsString != 0
	}
	return p.types&allowsNumber != 0 || p.types&allowsInteger != 0 && isInteger(cell)
}

func (p *property) listed(k cellKind, cell string, null bool) bool {
	if p.texts != nil {
		return !null && k == isText && p.texts[cell]
	}
	for _, v := range p.enum {
		if null && v == nil || !null && same(k, cell, v) {
			return true
		}
	}
	return false
}

func (p *property) wrongFormat(col *column, cell string) bool {
	v, _ := col.value(cell)
	return p.schema.Format.Validate(v) != nil
}

func (t *table) checkText(report *Report, col *column, cell string) {
	s := col.direct.schema
	if s.MaxLength != nil || s.MinLength != nil {
		length := utf8.RuneCountInString(cell)
		if s.MaxLength != nil && length > *s.MaxLength {
			t.breaks(report, col, cell, &kind.MaxLength{Want: *s.MaxLength})
		}
		if s.MinLength != nil && length < *s.MinLength {
			t.breaks(report, col, cell, &kind.MinLength{Want: *s.MinLength})
		}
	}
	if s.Pattern != nil && !s.Pattern.MatchString(cell) {
		t.breaks(report, col, cell, &kind.Pattern{Want: s.Pattern.String()})
	}
}

// breaks adds a violation; what it needs is made only if the report keeps it.
func (t *table) breaks(report *Report, col *column, cell string, k jsonschema.ErrorKind) {
	report.add(func() Violation {
		v := Violation{Rule: keyword(k), Expected: expected(k), Actual: "nothing"}
		if value, present := col.value(cell); present {
			v.Actual, v.Type = display(value), typeName(value)
		}
		return t.place(v, []string{col.name})
	})
}
