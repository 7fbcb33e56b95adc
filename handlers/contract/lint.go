package contract

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// lint refuses what no data can meet, in the schema and in all its parts.
func lint(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool) error {
	if s == nil || seen[s] {
		return nil
	}
	seen[s] = true
	if why := impossible(s); why != "" {
		_, at, _ := strings.Cut(s.Location, "#")
		return fmt.Errorf("at %q: %s", at, why)
	}
	for _, part := range parts(s) {
		if err := lint(part, seen); err != nil {
			return err
		}
	}
	return nil
}

func impossible(s *jsonschema.Schema) string {
	if s.Enum != nil && len(s.Enum.Values) == 0 {
		return "the enum is empty"
	}
	for _, p := range []struct {
		name     string
		min, max *int
	}{
		{"Length", s.MinLength, s.MaxLength}, {"Items", s.MinItems, s.MaxItems},
		{"Properties", s.MinProperties, s.MaxProperties}, {"Contains", s.MinContains, s.MaxContains},
	} {
		if p.min != nil && p.max != nil && *p.min > *p.max {
			return fmt.Sprintf("min%s %d is above max%s %d", p.name, *p.min, p.name, *p.max)
		}
	}
	for _, p := range []struct {
		low, high string
		min, max  *big.Rat
		equal     bool // may be equal
	}{
		{"minimum", "maximum", s.Minimum, s.Maximum, true}, {"minimum", "exclusiveMaximum", s.Minimum, s.ExclusiveMaximum, false},
		{"exclusiveMinimum", "maximum", s.ExclusiveMinimum, s.Maximum, false},
		{"exclusiveMinimum", "exclusiveMaximum", s.ExclusiveMinimum, s.ExclusiveMaximum, false},
	} {
		if p.min == nil || p.max == nil {
			continue
		}
		if sign := p.min.Cmp(p.max); sign > 0 || sign == 0 && !p.equal {
			return fmt.Sprintf("%s %s leaves nothing below %s %s", p.low, ratText(p.min), p.high, ratText(p.max))
		}
	}
	return ""
}

// parts gives the direct subschemas, those with a name in the order of names.
func parts(s *jsonschema.Schema) []*jsonschema.Schema {
	all := []*jsonschema.Schema{s.Ref, s.RecursiveRef, s.Not, s.If, s.Then, s.Else, s.PropertyNames, s.UnevaluatedProperties,
		s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema}
	if s.DynamicRef != nil {
		all = append(all, s.DynamicRef.Ref)
	}
	for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems} {
		all = append(all, list...)
	}
	for _, named := range []map[string]*jsonschema.Schema{s.Properties, s.DependentSchemas} {
		for _, name := range sortedKeys(named) {
			all = append(all, named[name])
		}
	}
	for _, p := range s.PatternProperties {
		all = append(all, p)
	}
	for _, mixed := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch mixed := mixed.(type) {
		case *jsonschema.Schema:
			all = append(all, mixed)
		case []*jsonschema.Schema:
			all = append(all, mixed...)
		}
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
