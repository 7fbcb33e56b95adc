package configs

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
)

var placeholder = regexp.MustCompile(`^<<([a-z0-9][a-z0-9_-]{0,127})>>$`)

// blankOf gives the blank that a value stands for.
func blankOf(n *node) (string, bool) {
	if n.kind != scalarNode || n.block {
		return "", false
	}
	m := placeholder.FindStringSubmatch(n.text)
	if m == nil {
		return "", false
	}
	return m[1], true
}

func (t *Template) names() []string {
	names := []string{nameBlank}
	for _, b := range t.Blanks {
		names = append(names, b.Name)
	}
	return names
}

// holds gives the first blank whose mark stands inside a text.
func (t *Template) holds(text string) string {
	if strings.Contains(text, "<<") {
		for _, name := range t.names() {
			if strings.Contains(text, "<<"+name+">>") {
				return name
			}
		}
	}
	return ""
}

// walk finds every blank and refuses those where a value could become more than a value.
func (r *templateReader) walk(n *node, s *spec) {
	if s != nil && s.form == choiceForm {
		for _, option := range s.or {
			if option.kindOf() == n.kind {
				s = option
				break
			}
		}
	}
	for _, e := range n.entries {
		if name := r.template.holds(e.key.text); name != "" {
			r.at(e.key, "E_TEMPLATE", "the blank <<"+name+">> stands in a key", "a blank as a whole value", "")
		}
		r.walk(e.value, s.inner(e.key.text))
	}
	for _, item := range n.items {
		r.walk(item, s.inner(""))
	}
	if n.kind == scalarNode {
		r.place(n, s)
	}
}

// place judges a blank by where it stands; what is no blank passes.
func (r *templateReader) place(n *node, s *spec) {
	name, whole := blankOf(n)
	inside := r.template.holds(n.text)
	script := s != nil && s.form == scriptForm
	switch {
	case script && (whole && slices.Contains(r.template.names(), name) || inside != ""):
		line, col := r.inside(n, "<<"+inside, 0)
		r.report(line, col, "E_TEMPLATE_IN_SHELL", "the script holds the blank <<"+inside+">>", "a script without blanks",
			"make it the default of a parameter, or a value of env:, and read it as \"$NAME\"")
	case script:
	case whole && !slices.Contains(r.template.names(), name):
		r.at(n, "E_REF", "there is no blank "+name, "one of "+strings.Join(r.template.names(), ", "), didYouMean(name, r.template.names()))
	case !whole && inside != "":
		r.at(n, "E_TEMPLATE", "the blank <<"+inside+">> is mixed with other text", "a blank as a whole value", "build the text from parameters, in an expression or in the script")
	case !whole:
	case s != nil && s.form == conditionForm:
		r.at(n, "E_TEMPLATE", "the blank <<"+name+">> would become part of an expression", "an expression without blanks", "make it the default of a parameter and write params."+name)
	case s != nil && (s.form == objectForm || s.form == dictForm && s.each.form == objectForm):
		r.at(n, "E_TEMPLATE", "the blank <<"+name+">> would become part of the pipeline's structure", "a blank as a value", "")
	default:
		r.used[name] = true
	}
}

// Values checks what the blanks are filled with and adds the defaults; every problem comes at once. A value is JSON.
func (t *Template) Values(given map[string]json.RawMessage) (map[string]json.RawMessage, Problems) {
	var problems Problems
	report := func(message, expected, hint string) {
		problems = append(problems, Problem{File: t.shown, Code: "E_BLANK", Severity: SeverityError, Message: masked(message), Expected: expected, Hint: hint})
	}
	known := t.names()[1:]
	for _, name := range sortedKeys(given) {
		if !slices.Contains(known, name) {
			report("the template "+t.Name+" has no blank "+shortened(name), "one of "+strings.Join(known, ", "), didYouMean(name, known))
		}
	}
	values := map[string]json.RawMessage{}
	for _, b := range t.Blanks {
		value, ok := given[b.Name]
		switch {
		case !ok && b.Required:
			report("the blank "+b.Name+" has no value", orSchema(b), "--set "+b.Name+"=…")
			continue
		case !ok:
			value = b.Default
		}
		if wrong := b.Wrong(value); wrong != "" {
			report("the blank "+b.Name+" breaks its schema: "+wrong, orSchema(b), "")
			continue
		}
		values[b.Name], _ = canonicalJSON(value) // Wrong has read it
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return values, nil
}

// orSchema says what a value must be: in words where the author found some.
func orSchema(b Blank) string {
	if b.Title.English != "" {
		return b.Title.English + " (" + string(b.Schema) + ")"
	}
	return string(b.Schema)
}

// Wrong says in one sentence why a value can't fill the blank, or nothing.
func (b *Blank) Wrong(value json.RawMessage) string {
	schema, err := CompileSchema(b.Schema)
	if err != nil {
		return err.Error()
	}
	if wrong := violation(schema, value); wrong != "" {
		return wrong
	}
	if v, err := decodeJSON(value); err == nil && holdsExpression(v) {
		return "it holds ${{, and a blank's value is data, never an expression"
	}
	return ""
}

func holdsExpression(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, "${{")
	case []any:
		return slices.ContainsFunc(v, holdsExpression)
	case map[string]any:
		for key, item := range v {
			if strings.Contains(key, "${{") || holdsExpression(item) {
				return true
			}
		}
	}
	return false
}

// FromText reads a value given as text, as on a command line: text for a blank that takes text, JSON for any other.
func (t *Template) FromText(name, text string) json.RawMessage {
	i := slices.IndexFunc(t.Blanks, func(b Blank) bool { return b.Name == name })
	if i < 0 {
		return encoded(text) // Values reports it
	}
	var s struct {
		Type any `json:"type"`
	}
	_ = json.Unmarshal(t.Blanks[i].Schema, &s) // a schema without a type takes anything
	if types, several := s.Type.([]any); several && text != "null" {
		if rest := slices.DeleteFunc(slices.Clone(types), func(t any) bool { return t == "null" }); len(rest) == 1 && rest[0] == "string" {
			return encoded(text)
		}
	}
	return ParamFromText(&events.Plan{Params: map[string]json.RawMessage{name: t.Blanks[i].Schema}}, name, text)
}
