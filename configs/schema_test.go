package configs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compiledLanguage(t *testing.T) *jsonschema.Schema {
	t.Helper()
	raw, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	s, err := CompileSchema(raw)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asData reads YAML as an editor would see it.
func asData(t *testing.T, src []byte) json.RawMessage {
	t.Helper()
	c := &checker{}
	tokens, ok := c.guard(src)
	if !ok {
		t.Fatal(c.problems)
	}
	return c.parseTree(tokens).encodeJSON()
}

func TestExamplesMeetTheSchema(t *testing.T) {
	t.Parallel()
	schema := compiledLanguage(t)
	examples, _ := filepath.Glob("examples/*/pipeline.yaml")
	for _, path := range append(examples, "testdata/language/orders.yaml") {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := violation(schema, asData(t, src)); wrong != "" {
			t.Errorf("%s: %s", path, wrong)
		}
	}
}

// allKeys lists every key of a specification with the words before it.
func (s *spec) allKeys(where string, visit func(where string, f field)) {
	for _, f := range s.fields {
		visit(where, f)
		f.spec.allKeys(where+"/"+f.name, visit)
	}
	for _, option := range s.or {
		option.allKeys(where, visit)
	}
	if s.each != nil {
		s.each.allKeys(where+"/*", visit)
	}
}

// schemaKeys lists every key of a rendered schema in the same way.
func renderedKeys(s map[string]any, where string, visit func(string)) {
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		visit(where + "/" + name)
		if inner, ok := p.(map[string]any); ok {
			renderedKeys(inner, where+"/"+name, visit)
		}
	}
	options, _ := s["anyOf"].([]any)
	for _, option := range options {
		renderedKeys(option.(map[string]any), where, visit)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := s[key].(map[string]any); ok {
			renderedKeys(inner, where+"/*", visit)
		}
	}
}

func TestSchemaAndParserKnowTheSameKeys(t *testing.T) {
	t.Parallel()
	parser := map[string]bool{}
	language.allKeys("", func(where string, f field) {
		parser[where+"/"+f.name] = true
		if f.spec.doc == "" {
			t.Errorf("%s/%s has no documentation", where, f.name)
		}
	})
	raw, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var rendered map[string]any
	if err := json.Unmarshal(raw, &rendered); err != nil {
		t.Fatal(err)
	}
	schema := map[string]bool{}
	renderedKeys(rendered, "", func(path string) { schema[path] = true })
	for path := range parser {
		if !schema[path] {
			t.Errorf("the parser takes %s, the schema does not", path)
		}
	}
	for path := range schema {
		keyword := filepath.Dir(path) == "/stages/*/outputs/*" && slices.Contains(schemaKeywords, filepath.Base(path))
		if !parser[path] && !keyword {
			t.Errorf("the schema has %s, the parser does not take it", path)
		}
	}
}

// TestEveryKeyIsAccepted writes each key of the language once and sees that none is called unknown, and that each one
// misspelt is.
func TestEveryKeyIsAccepted(t *testing.T) {
	t.Parallel()
	language.allKeys("", func(where string, f field) {
		c := &checker{file: "p.yaml"}
		owner := ownerOf(language, where, f.name)
		if owner == nil {
			t.Fatalf("%s has no owner", where)
		}
		c.checkObject(&node{kind: mapNode, entries: []entry{{&node{text: f.name}, &node{kind: f.spec.kindOf(), text: "x"}}}}, owner, where)
		c.checkObject(&node{kind: mapNode, entries: []entry{{&node{text: f.name + "q"}, &node{text: "x"}}}}, owner, where)
		unknown := 0
		for _, p := range c.problems {
			if p.Code == "E_FIELD" {
				unknown++
			}
		}
		if unknown != 1 {
			t.Errorf("%s/%s: %v", where, f.name, c.problems)
		}
	})
}

func ownerOf(s *spec, where, name string) *spec {
	var found *spec
	var walk func(s *spec, at string)
	walk = func(s *spec, at string) {
		if at == where && s.field(name) != nil {
			found = s
		}
		for _, f := range s.fields {
			walk(f.spec, at+"/"+f.name)
		}
		for _, option := range s.or {
			walk(option, at)
		}
		if s.each != nil {
			walk(s.each, at+"/*")
		}
	}
	walk(s, "")
	return found
}
