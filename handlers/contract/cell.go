package contract

import (
	"encoding/json"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// typeSet is the set of JSON types that a schema allows for a cell.
type typeSet uint8

const (
	allowsNull typeSet = 1 << iota
	allowsBoolean
	allowsInteger
	allowsNumber
	allowsString
)

var typeNames = map[string]typeSet{"null": allowsNull, "boolean": allowsBoolean, "integer": allowsInteger,
	"number": allowsNumber, "string": allowsString}

// cellTypes gives the types of a property; of one without, those of the values that it allows; else text.
func cellTypes(s *jsonschema.Schema) typeSet {
	for range 16 { // a chain of references; longer ones are text
		if s == nil || s.Types != nil || s.Ref == nil {
			break
		}
		s = s.Ref
	}
	var set typeSet
	switch {
	case s == nil:
	case s.Types != nil:
		for _, name := range s.Types.ToStrings() {
			set |= typeNames[name]
		}
	default:
		for _, v := range values(s) {
			set |= typeNames[typeName(v)]
		}
	}
	if set == 0 {
		set = allowsString
	}
	return set
}

// values gives the closed list of values of a property, if it has one.
func values(s *jsonschema.Schema) []any {
	var all []any
	if s.Enum != nil {
		all = append(all, s.Enum.Values...)
	}
	if s.Const != nil {
		all = append(all, *s.Const)
	}
	return all
}

type emptyCell uint8

const (
	emptyAbsent emptyCell = iota
	emptyNull
	emptyText
)

// emptyRule says what an empty cell is: see the package's documentation.
func emptyRule(s *jsonschema.Schema) emptyCell {
	switch {
	case s == nil:
		return emptyAbsent
	case cellTypes(s)&allowsNull != 0:
		return emptyNull
	case s.MinLength != nil && *s.MinLength == 0, slices.Contains(values(s), any("")):
		return emptyText
	}
	return emptyAbsent
}

type cellKind uint8

const (
	isText cellKind = iota
	isNumeric
	isBool
)

// of says which of the allowed types a cell has: the narrowest that it can be read as. A number is written as in JSON
// (007 and +5 are text), a boolean true or false in lower case, in capitals or capitalised. What has none of the types is
// text, and breaks the rule "type".
func (set typeSet) of(cell string) cellKind {
	if set&(allowsInteger|allowsNumber) != 0 && isNumber(cell) &&
		(set&allowsNumber != 0 || set&allowsString == 0 || isInteger(cell)) {
		return isNumeric
	}
	if set&allowsBoolean != 0 && isBoolean(cell) {
		return isBool
	}
	return isText
}

func isBoolean(cell string) bool {
	switch cell {
	case "true", "false", "True", "False", "TRUE", "FALSE":
		return true
	}
	return false
}

func truth(cell string) bool { return cell[0] == 't' || cell[0] == 'T' }

// same reports whether a cell of a kind is one of a schema's scalar values.
func same(kind cellKind, cell string, v any) bool {
	switch v := v.(type) {
	case string:
		return kind == isText && v == cell
	case bool:
		return kind == isBool && v == truth(cell)
	case json.Number:
		return kind == isNumeric && rat(string(v)).Cmp(rat(cell)) == 0
	}
	return false
}
