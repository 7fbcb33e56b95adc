package configs

import (
	"encoding/json"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// ResolveParams checks the parameters of a run against their schemas and fills in the defaults.
func ResolveParams(plan *events.Plan, given map[string]json.RawMessage) (map[string]json.RawMessage, Problems) {
	var problems Problems
	report := func(message, expected, hint string) {
		problems = append(problems, Problem{Code: "E_PARAM", Severity: SeverityError, Message: masked(message), Expected: expected, Hint: hint})
	}
	for _, name := range sortedKeys(given) {
		if _, known := plan.Params[name]; !known {
			report("the pipeline has no parameter "+shortened(name), "one of "+strings.Join(sortedKeys(plan.Params), ", "), didYouMean(name, sortedKeys(plan.Params)))
		}
	}
	resolved := map[string]json.RawMessage{}
	for _, name := range sortedKeys(plan.Params) {
		value, ok := given[name]
		if !ok {
			if value = defaultOf(plan.Params[name]); value == nil {
				report("the parameter "+name+" has no value", "a value, since it has no default", "")
				continue
			}
		}
		schema, err := CompileSchema(plan.Params[name])
		if err != nil {
			report("the schema of the parameter "+name+" can't be read: "+err.Error(), "a JSON Schema", "")
			continue
		}
		if wrong := violation(schema, value); wrong != "" {
			report("the parameter "+name+" breaks its schema: "+wrong, "a value that the schema allows", "")
			continue
		}
		if resolved[name], err = canonicalJSON(value); err != nil {
			report("the parameter "+name+" is not JSON: "+err.Error(), "one JSON value", "")
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return resolved, nil
}

func defaultOf(schema json.RawMessage) json.RawMessage {
	var s struct {
		Default json.RawMessage `json:"default"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil
	}
	return s.Default
}

// ParamFromText reads a parameter given as text, as on a command line: text for a parameter of type string, JSON for
// any other, and text again where it is no JSON.
func ParamFromText(plan *events.Plan, name, text string) json.RawMessage {
	var s struct {
		Type any `json:"type"`
	}
	_ = json.Unmarshal(plan.Params[name], &s) // an unknown parameter is reported by ResolveParams
	if s.Type != "string" {
		if raw, err := canonicalJSON([]byte(text)); err == nil {
			return raw
		}
	}
	return encoded(text)
}
