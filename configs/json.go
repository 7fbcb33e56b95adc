package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// schemaKeywords are the keywords of JSON Schema that may stand beside a value output's own keys.
var schemaKeywords = []string{"type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	"minLength", "maxLength", "pattern", "items", "minItems", "maxItems", "uniqueItems", "properties", "required", "additionalProperties",
	"title", "description", "default", "examples", "anyOf", "oneOf", "allOf", "not"}

// checkJSON wants a value that every reader takes for the same JSON.
func (c *checker) checkJSON(n *node, expressions bool) {
	for _, e := range n.entries {
		c.checkJSON(e.value, expressions)
	}
	for _, item := range n.items {
		c.checkJSON(item, expressions)
	}
	if n.kind != scalarNode {
		return
	}
	switch wrong := n.surprise(); {
	case wrong == "" || n.isNull() || n.plain == "boolean" && n.keepsText():
	case n.plain == "integer" && canonicalInteger.MatchString(n.text), n.plain == "float" && canonicalNumber.MatchString(n.text):
	default:
		c.at(n, "E_TYPE", "YAML readers take "+n.text+" for a "+wrong+" or for text", "a plain decimal number, true, false or text", "quote it where text is meant")
	}
	if expressions {
		c.checkAlone(n, "this")
	} else if strings.Contains(n.text, "${{") {
		c.at(n, "E_EXPR", "a schema can't hold an expression", "plain data", "")
	}
}

// encodeJSON gives a node as compact JSON, with the digits of its numbers as written and map keys in their order.
func (n *node) encodeJSON() json.RawMessage {
	var b bytes.Buffer
	n.writeJSON(&b)
	return b.Bytes()
}

func (n *node) writeJSON(b *bytes.Buffer) {
	switch n.kind {
	case mapNode:
		b.WriteByte('{')
		for i, e := range n.entries {
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, e.key.text)
			b.WriteByte(':')
			e.value.writeJSON(b)
		}
		b.WriteByte('}')
	case listNode:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.writeJSON(b)
		}
		b.WriteByte(']')
	default:
		n.writeScalar(b)
	}
}

func (n *node) writeScalar(b *bytes.Buffer) {
	switch {
	case n.isNull():
		b.WriteString("null")
	case n.plain == "boolean" && n.keepsText(), (n.plain == "integer" || n.plain == "float") && canonicalNumber.MatchString(n.text):
		b.WriteString(n.text)
	default:
		writeText(b, n.text)
	}
}

func writeText(b *bytes.Buffer, s string) {
	b.Write(encoded(s))
}

// canonicalJSON compacts JSON and sorts its keys; numbers keep their digits.
func canonicalJSON(raw []byte) (json.RawMessage, error) {
	v, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// decodeJSON reads exactly one JSON value; numbers stay json.Number.
func decodeJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("text after the JSON value")
	}
	return v, nil
}
