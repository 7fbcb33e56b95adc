package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxPattern bounds a regular expression in a schema, in bytes.
const maxPattern = 1 << 10

// schemaFault is one thing wrong in a schema: the path of keys to it, and what.
type schemaFault struct {
	path          []string
	message, hint string
}

var errNoReference = errors.New("a schema stands in one piece: references to other files or addresses are not followed")

// noLoader refuses every reference that leaves the schema.
type noLoader struct{}

func (noLoader) Load(string) (any, error) { return nil, errNoReference }

const schemaURL = "apollo:///schema.json"

// CompileSchema compiles a JSON Schema (draft 2020-12 unless it says another), with formats asserted and without
// following references to other files or addresses.
func CompileSchema(raw json.RawMessage) (*jsonschema.Schema, error) {
	doc, err := decodeJSON(raw)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	return compileSchema(doc)
}

func compileSchema(doc any) (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat()
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	s, err := c.Compile(schemaURL)
	if err != nil {
		return nil, fmt.Errorf("compile schema: %w", err)
	}
	return s, nil
}

// lintSchema finds what no data could ever meet, besides what the draft itself forbids.
func lintSchema(doc any) []schemaFault {
	var faults []schemaFault
	lintBounds(doc, nil, &faults)
	if len(faults) > 0 {
		return faults
	}
	if _, err := compileSchema(doc); err != nil {
		return []schemaFault{compileFault(err)}
	}
	return nil
}

func compileFault(err error) schemaFault {
	if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		if detail, ok := errors.AsType[*jsonschema.ValidationError](invalid.Err); ok {
			leaf := deepest(detail)
			return schemaFault{path: leaf.InstanceLocation, message: leafMessage(leaf)}
		}
	}
	if bad, ok := errors.AsType[*jsonschema.InvalidRegexError](err); ok {
		return schemaFault{message: "the pattern " + strconv.Quote(shortened(bad.Regex)) + " is no regular expression"}
	}
	if errors.Is(err, errNoReference) || strings.Contains(err.Error(), errNoReference.Error()) {
		return schemaFault{message: errNoReference.Error()}
	}
	return schemaFault{message: strings.ReplaceAll(err.Error(), schemaURL, "the schema")}
}

func deepest(e *jsonschema.ValidationError) *jsonschema.ValidationError {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	return e
}

// leafMessage is the last line of the library's text: what is wrong, without the place.
func leafMessage(e *jsonschema.ValidationError) string {
	text := e.Error()
	text = text[strings.LastIndex(text, "\n")+1:]
	if _, after, found := strings.Cut(text, "': "); found {
		return after
	}
	return strings.TrimPrefix(text, "- ")
}

var boundPairs = [][2]string{{"minimum", "maximum"}, {"minimum", "exclusiveMaximum"}, {"exclusiveMinimum", "maximum"}, {"exclusiveMinimum", "exclusiveMaximum"}, {"minLength", "maxLength"},
	{"minItems", "maxItems"}, {"minProperties", "maxProperties"}, {"minContains", "maxContains"}}

func lintBounds(doc any, path []string, faults *[]schemaFault) {
	switch v := doc.(type) {
	case map[string]any:
		lintKeywords(v, path, faults)
		for _, k := range sortedKeys(v) {
			if !slices.Contains([]string{"enum", "const", "default", "examples"}, k) {
				lintBounds(v[k], append(slices.Clone(path), k), faults)
			}
		}
	case []any:
		for i, item := range v {
			lintBounds(item, append(slices.Clone(path), strconv.Itoa(i)), faults)
		}
	}
}

func lintKeywords(m map[string]any, path []string, faults *[]schemaFault) {
	fault := func(key, format string, args ...any) {
		*faults = append(*faults, schemaFault{path: append(slices.Clone(path), key), message: fmt.Sprintf(format, args...)})
	}
	for _, pair := range boundPairs {
		low, okLow := asFloat(m[pair[0]])
		high, okHigh := asFloat(m[pair[1]])
		if okLow && okHigh && low > high {
			fault(pair[0], "%s %v is above %s %v", pair[0], m[pair[0]], pair[1], m[pair[1]])
		}
	}
	if list, ok := m["enum"].([]any); ok && len(list) == 0 {
		fault("enum", "the enum is empty")
	}
	if pattern, ok := m["pattern"].(string); ok {
		if len(pattern) > maxPattern {
			fault("pattern", "the pattern has %d bytes, and at most %d are allowed", len(pattern), maxPattern)
		} else if _, err := regexp.Compile(pattern); err != nil {
			fault("pattern", "the pattern is no regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
}

func asFloat(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

// follow walks from a node along the keys of a JSON path as far as it goes.
func (n *node) follow(path []string) *node {
	for _, step := range path {
		next := n.get(step)
		if i, err := strconv.Atoi(step); err == nil && n.kind == listNode && i < len(n.items) {
			next = n.items[i]
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// schema lints a JSON Schema that stands in the definition and gives it as canonical JSON, or nil.
func (c *checker) schema(n *node) json.RawMessage {
	if n == nil || n.kind != mapNode {
		return nil
	}
	raw, err := canonicalJSON(n.encodeJSON())
	if err != nil {
		return nil
	}
	doc, _ := decodeJSON(raw)
	faults := lintSchema(doc)
	for _, f := range faults {
		c.at(n.follow(f.path), "E_CONTRACT", f.message, "a JSON Schema (draft 2020-12)", f.hint)
	}
	if len(faults) > 0 {
		return nil
	}
	return raw
}

// violation says in one sentence how a value breaks a schema, or "".
func violation(schema *jsonschema.Schema, raw json.RawMessage) string {
	v, err := decodeJSON(raw)
	if err != nil {
		return "it is not JSON: " + err.Error()
	}
	if err := schema.Validate(v); err != nil {
		if detail, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
			leaf := deepest(detail)
			if len(leaf.InstanceLocation) > 0 {
				return "at /" + strings.Join(leaf.InstanceLocation, "/") + ": " + leafMessage(leaf)
			}
			return leafMessage(leaf)
		}
		return err.Error()
	}
	return ""
}
