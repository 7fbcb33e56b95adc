package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

var english = message.NewPrinter(language.English)

// check compares a decoded value with the schema and adds what it finds.
func (c *Contract) check(r *Report, v any) {
	if c == nil {
		return
	}
	if err := c.validate(v); err != nil {
		flatten(r, err, v)
	}
}

// validate gives the library's errors, or nil.
func (c *Contract) validate(v any) *jsonschema.ValidationError {
	bad, _ := errors.AsType[*jsonschema.ValidationError](c.schema.Validate(v)) // it promises no other type
	return bad
}

// finding is one leaf of the library's tree of errors. Its violation is made only if the report keeps it.
type finding struct {
	at   []string // where in the value
	rule string
	err  *jsonschema.ValidationError
	name string // the property that is missing or too many
}

// flatten adds the leaves in the order of their places, whatever order the library's maps gave them.
func flatten(r *Report, err *jsonschema.ValidationError, v any) {
	for _, f := range findings(err) {
		r.add(func() Violation { return f.violation(v) })
	}
}

func findings(err *jsonschema.ValidationError) []finding {
	var all []finding
	collect(err, &all)
	slices.SortStableFunc(all, func(a, b finding) int {
		if order := slices.CompareFunc(a.at, b.at, compareToken); order != 0 {
			return order
		}
		return strings.Compare(a.rule, b.rule)
	})
	return all
}

// compareToken puts the index 2 before 10.
func compareToken(a, b string) int {
	m, errA := strconv.Atoi(a)
	n, errB := strconv.Atoi(b)
	if errA == nil && errB == nil && m != n {
		return m - n
	}
	return strings.Compare(a, b)
}

func collect(err *jsonschema.ValidationError, all *[]finding) {
	switch k := err.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		for _, cause := range err.Causes {
			collect(cause, all)
		}
	case *kind.Required:
		for _, name := range k.Missing {
			*all = append(*all, finding{at: below(err, name), rule: "required", err: err, name: name})
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			*all = append(*all, finding{at: below(err, name), rule: "additionalProperties", err: err, name: name})
		}
	default:
		*all = append(*all, finding{at: err.InstanceLocation, rule: keyword(err.ErrorKind), err: err})
	}
}

func below(err *jsonschema.ValidationError, name string) []string {
	return append(slices.Clip(slices.Clone(err.InstanceLocation)), name)
}

// keyword gives the schema's word for a rule.
func keyword(k jsonschema.ErrorKind) string {
	if path := k.KeywordPath(); len(path) > 0 {
		return path[0]
	}
	name := reflect.TypeOf(k).Elem().Name()
	return strings.ToLower(name[:1]) + name[1:]
}

func (f finding) violation(root any) Violation {
	var pointer strings.Builder
	for _, t := range f.at {
		pointer.WriteByte('/')
		pointer.WriteString(shorten(escapePointer(t)))
	}
	v := Violation{Pointer: pointer.String(), Rule: f.rule, Expected: expected(f.err.ErrorKind), Actual: "nothing"}
	if value, ok := locate(root, f.at); ok {
		v.Actual, v.Type = display(value), typeName(value)
	}
	return v
}

func locate(v any, path []string) (any, bool) {
	for _, t := range path {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[t]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(t)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// expected says what a rule wants. The words are also those of the direct checks.
func expected(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return expectType(k.Want)
	case *kind.Enum:
		return expectEnum(k.Want)
	case *kind.Const:
		return display(k.Want)
	case *kind.Required:
		return "a value"
	case *kind.AdditionalProperties, *kind.FalseSchema:
		return "nothing here"
	case *kind.Minimum:
		return "at least " + ratText(k.Want)
	case *kind.Maximum:
		return "at most " + ratText(k.Want)
	case *kind.ExclusiveMinimum:
		return "more than " + ratText(k.Want)
	case *kind.ExclusiveMaximum:
		return "less than " + ratText(k.Want)
	case *kind.MultipleOf:
		return "a multiple of " + ratText(k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("at most %d characters", k.Want)
	case *kind.Pattern:
		return "the pattern " + shorten(k.Want)
	case *kind.Format:
		if k.Want == "regex" && k.Err != nil {
			return shorten("a regular expression; " + k.Err.Error())
		}
		return "the format " + shorten(k.Want)
	}
	return shorten(k.LocalizedString(english))
}

func expectType(want []string) string { return strings.Join(want, " or ") }

func expectEnum(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = display(v)
	}
	return shorten(strings.Join(texts, " or "))
}

// display writes a value for a message. Arrays and objects are described: they may be large.
func display(v any) string {
	switch v := v.(type) {
	case string:
		return `"` + shorten(v) + `"`
	case []any:
		return fmt.Sprintf("an array of %d", len(v))
	case map[string]any:
		return fmt.Sprintf("an object of %d", len(v))
	case nil:
		return "null"
	}
	return shorten(fmt.Sprint(v))
}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if isInteger(string(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}
