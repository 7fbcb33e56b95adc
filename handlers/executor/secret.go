package executor

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// setting is a line that gives a value a name: NAME=value as in a file of settings, or name: value.
var setting = regexp.MustCompile(`^(?:export\s+)?["']?[\w.-]+["']?\s*(?:=|:\s)\s*(.+)$`)

// partsOf gives every text that is masked for a secret: the whole, each of its lines, the value of a line that names one,
// and when the secret is a JSON document each of its values, in whatever layout it is printed again.
func partsOf(secret string) []string {
	parts := append(linesOf(secret), secret)
	var document any
	dec := json.NewDecoder(strings.NewReader(secret))
	dec.UseNumber()
	if dec.Decode(&document) == nil {
		parts = appendLeaves(parts, document)
	}
	for _, line := range linesOf(secret) {
		if m := setting.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			parts = append(parts, unquoted(m[1]))
		}
	}
	for i, text := range parts {
		parts[i] = strings.TrimSpace(text)
	}
	return slices.DeleteFunc(parts, func(text string) bool { return len(text) < minSecret || ordinary[strings.ToLower(text)] })
}

// ordinary are values that are no secret, and would be found everywhere.
var ordinary = map[string]bool{"true": true, "false": true, "null": true, "none": true}

func linesOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
}

func unquoted(text string) string {
	if n := len(text); n > 1 && (text[0] == '"' || text[0] == '\'') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// appendLeaves adds the texts in a JSON value as they are, line by line, and as JSON writes them. Short numbers are ports
// and counts.
func appendLeaves(parts []string, value any) []string {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			parts = appendLeaves(parts, member)
		}
	case []any:
		for _, element := range v {
			parts = appendLeaves(parts, element)
		}
	case json.Number:
		if len(v) >= minRevealed {
			parts = append(parts, v.String())
		}
	case string:
		parts = append(append(parts, linesOf(v)...), v)
		for _, html := range []bool{false, true} {
			var written bytes.Buffer
			enc := json.NewEncoder(&written)
			enc.SetEscapeHTML(html)
			if err := enc.Encode(v); err == nil {
				parts = append(parts, unquoted(strings.TrimSpace(written.String())))
			}
		}
	}
	return parts
}

// minRevealed is the shortest part of a secret that no output may hold. A shorter one may be there by chance.
const minRevealed = 8

// Revealed finds a small output that holds a secret: outputs are events, which everybody who sees a run can read. Nil is
// none.
func Revealed(secrets map[string]string, values map[string]json.RawMessage) *events.Failure {
	for name, secret := range secrets {
		parts := slices.DeleteFunc(partsOf(secret), func(text string) bool { return len(text) < minRevealed })
		for role, raw := range values {
			var value any
			dec := json.NewDecoder(bytes.NewReader(raw))
			dec.UseNumber()
			if dec.Decode(&value) == nil && holds(value, parts) {
				return &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + role, Expected: "no secret", Actual: "a part of " + name,
					Reason: "E_SECRET_OUTPUT: the output " + role + " holds the secret " + name + " or a part of it; whoever needs it declares it in secrets"}
			}
		}
	}
	return nil
}

func holds(value any, parts []string) bool {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			if holds(key, parts) || holds(member, parts) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, func(element any) bool { return holds(element, parts) })
	case json.Number:
		return holds(v.String(), parts)
	case string:
		return slices.ContainsFunc(parts, func(text string) bool { return strings.Contains(v, text) })
	}
	return false
}
