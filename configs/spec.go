package configs

import "slices"

// form is how a value is written. The checker and the JSON Schema both follow it.
type form uint8

const (
	anyForm       form = iota // any JSON value; strings may be one ${{ expression }}
	textForm                  // text, never an expression
	nameForm                  // an identifier, NamePattern
	valueForm                 // text, a number or a boolean whose text is kept, or one ${{ expression }}
	scriptForm                // text of a script
	fileForm                  // a path of a file beside the definition
	conditionForm             // a bare expression
	integerForm
	numberForm
	booleanForm
	durationForm
	sizeForm
	rateForm
	schemaForm // a JSON Schema
	listForm   // a list of each
	dictForm   // a map with free keys, of each
	objectForm // a map with the keys in fields
	choiceForm // the first of or whose node kind fits
)

// spec is the one specification of a value: what it may be, and what it means. Checking, the JSON Schema for editors
// and the documentation of the language all come from it.
type spec struct {
	form       form
	doc        string
	fields     []field  // objectForm
	each       *spec    // listForm, dictForm
	or         []*spec  // choiceForm: at most one scalar, one list, one map
	enum       []string // textForm
	min, max   float64  // integerForm, numberForm
	zero       bool     // durationForm: 0 is allowed
	one        bool     // objectForm: exactly one of the fields
	schemaKeys bool     // objectForm: the keywords of JSON Schema are allowed besides
	executors  bool     // objectForm: a plugin's name is a key, and exactly one executor's
	envNames   bool     // dictForm: keys are names of environment variables
	anyKeys    bool     // dictForm: keys are free text
}

// field is one key of an objectForm.
type field struct {
	name     string
	required bool
	fallback string // the default, as it would be written
	spec     *spec
}

func (s *spec) field(name string) *field {
	if i := slices.IndexFunc(s.fields, func(f field) bool { return f.name == name }); i >= 0 {
		return &s.fields[i]
	}
	return nil
}

func (s *spec) names() []string {
	names := make([]string, len(s.fields))
	for i, f := range s.fields {
		names[i] = f.name
	}
	return names
}

// kindOf says which kind of node a spec's value is.
func (s *spec) kindOf() kind {
	switch s.form {
	case listForm:
		return listNode
	case dictForm, objectForm, schemaForm:
		return mapNode
	default:
		return scalarNode
	}
}

func key(name string, s *spec) field  { return field{name: name, spec: s} }
func must(name string, s *spec) field { return field{name: name, required: true, spec: s} }
func preset(name, fallback string, s *spec) field {
	return field{name: name, fallback: fallback, spec: s}
}

func as(f form, doc string) *spec            { return &spec{form: f, doc: doc} }
func oneOf(doc string, enum ...string) *spec { return &spec{form: textForm, doc: doc, enum: enum} }
func object(doc string, fields ...field) *spec {
	return &spec{form: objectForm, doc: doc, fields: fields}
}
func list(doc string, each *spec) *spec    { return &spec{form: listForm, doc: doc, each: each} }
func dict(doc string, each *spec) *spec    { return &spec{form: dictForm, doc: doc, each: each} }
func choice(doc string, or ...*spec) *spec { return &spec{form: choiceForm, doc: doc, or: or} }
func number(f form, low, high float64, doc string) *spec {
	return &spec{form: f, min: low, max: high, doc: doc}
}
func from0(doc string) *spec { return &spec{form: durationForm, zero: true, doc: doc} }
