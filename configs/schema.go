package configs

import (
	"encoding/json"
	"strings"
)

const draft = "https://json-schema.org/draft/2020-12/schema"

// Schema gives the language as a JSON Schema (draft 2020-12), for editors. It says no more than one value can show by
// itself: names that refer to others, cycles and expressions are checked by Parse only.
func Schema() ([]byte, error) {
	s := language.schema()
	s["$schema"] = draft
	s["title"] = "Apollo pipeline"
	return json.MarshalIndent(s, "", "  ")
}

// schema renders one specification.
func (s *spec) schema() map[string]any {
	out := map[string]any{}
	if s.doc != "" {
		out["description"] = s.doc
	}
	switch s.form {
	case choiceForm:
		options := make([]any, len(s.or))
		for i, option := range s.or {
			options[i] = option.schema()
		}
		out["anyOf"] = options
	case listForm:
		out["type"], out["items"] = "array", s.each.schema()
	case dictForm:
		s.dictSchema(out)
	case objectForm:
		s.objectSchema(out)
	case schemaForm:
		out["type"], out["$ref"] = "object", draft
	default:
		s.scalarSchema(out)
	}
	return out
}

func (s *spec) dictSchema(out map[string]any) {
	out["type"], out["additionalProperties"] = "object", s.each.schema()
	switch {
	case s.envNames:
		out["propertyNames"] = map[string]any{"pattern": variableName.String(), "not": map[string]any{"pattern": takenVariable.String()}}
	case !s.anyKeys:
		out["propertyNames"] = map[string]any{"pattern": NamePattern}
	}
}

func (s *spec) objectSchema(out map[string]any) {
	properties, required := map[string]any{}, []string{}
	for _, f := range s.fields {
		p := f.spec.schema()
		if f.fallback != "" {
			p["description"] = strings.TrimSpace(f.spec.doc + " Default: " + f.fallback + ".")
		}
		properties[f.name] = p
		if f.required {
			required = append(required, f.name)
		}
	}
	if s.schemaKeys {
		for _, keyword := range schemaKeywords {
			properties[keyword] = true
		}
	}
	out["type"], out["properties"] = "object", properties
	if len(required) > 0 {
		out["required"] = required
	}
	if s.one {
		out["minProperties"], out["maxProperties"] = 1, 1
	}
	// A plugin's name is a key of a stage, so an unknown key can't be refused here; Parse knows the plugins.
	out["additionalProperties"] = s.executors
}

func (s *spec) scalarSchema(out map[string]any) {
	switch s.form {
	case anyForm:
	case integerForm:
		out["type"], out["minimum"], out["maximum"] = "integer", s.min, s.max
	case numberForm:
		out["type"], out["minimum"], out["maximum"] = "number", s.min, s.max
	case booleanForm:
		out["type"] = "boolean"
	case valueForm:
		out["type"] = []string{"string", "integer", "boolean"}
	case nameForm:
		out["type"], out["pattern"] = "string", NamePattern
	case durationForm:
		out["type"], out["pattern"] = "string", `^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$`
	case sizeForm:
		out["type"], out["pattern"] = []string{"string", "integer"}, sizeText.String()
	case rateForm:
		out["type"], out["pattern"] = "string", rateText.String()
	default:
		out["type"] = "string"
		if len(s.enum) > 0 {
			out["enum"] = s.enum
		}
	}
}
