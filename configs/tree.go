package configs

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

type kind uint8

const (
	scalarNode kind = iota
	mapNode
	listNode
)

// node is one value of a definition with its place.
type node struct {
	kind      kind
	line, col int
	text      string // a scalar, decoded
	plain     string // for a scalar without quotes: what YAML takes it for (string, integer, float, boolean, null)
	block     bool   // a scalar in | or > form
	entries   []entry
	items     []*node
}

// entry is one key of a map and its value.
type entry struct{ key, value *node }

// get gives the value under a key, or nil. It is for maps with few keys.
func (n *node) get(key string) *node {
	if n == nil || n.kind != mapNode {
		return nil
	}
	for _, e := range n.entries {
		if e.key.text == key {
			return e.value
		}
	}
	return nil
}

// str gives the text under a key, or "".
func (n *node) str(key string) string {
	if v := n.get(key); v != nil && v.kind == scalarNode {
		return v.text
	}
	return ""
}

func (n *node) isNull() bool { return n.kind == scalarNode && n.plain == "null" }

func (n *node) what() string {
	switch {
	case n.kind == mapNode:
		return "a map"
	case n.kind == listNode:
		return "a list"
	case n.isNull():
		return "nothing"
	case n.plain == "" || n.plain == "string":
		return "text " + strconv.Quote(shortened(n.text))
	}
	return "the " + n.plain + " " + shortened(n.text)
}

// shortened is for messages: no secret in it, whole or cut off, and at most 60 characters.
func shortened(s string) string {
	s = masked(s)
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

func (c *checker) convert(n ast.Node) *node {
	out := &node{}
	out.line, out.col = place(n)
	switch n := n.(type) {
	case *ast.MappingNode:
		c.convertMap(out, n.Values)
	case *ast.MappingValueNode:
		c.convertMap(out, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		out.kind = listNode
		for _, v := range n.Values {
			out.items = append(out.items, c.convert(v))
		}
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode, *ast.DirectiveNode:
		c.refuseIndirection(out.line, out.col, n.GetToken().Value)
	default:
		c.convertScalar(out, n)
	}
	return out
}

func (c *checker) convertScalar(out *node, n ast.Node) {
	tk := n.GetToken()
	out.text = tk.Value
	switch n := n.(type) {
	case *ast.LiteralNode:
		out.text, out.block = n.Value.Value, true
	case *ast.StringNode:
		if tk.Type == token.DoubleQuoteType || tk.Type == token.SingleQuoteType {
			break
		}
		if out.plain = "string"; exponentNumber.MatchString(out.text) {
			out.plain = "float" // the parser takes 1e9, which YAML calls a number, for text
		}
	case *ast.NullNode:
		out.plain = "null"
	case *ast.BoolNode:
		out.plain = "boolean"
	case *ast.IntegerNode:
		out.plain = "integer"
	default:
		out.plain = "float"
	}
}

func (c *checker) convertMap(out *node, values []*ast.MappingValueNode) {
	out.kind = mapNode
	seen := make(map[string]*node, len(values))
	for i, v := range values {
		key := &node{text: v.Key.GetToken().Value}
		key.line, key.col = place(v.Key)
		if i == 0 && (out.line == 0 || !isFlow(out, key)) {
			out.line, out.col = key.line, key.col
		}
		if !c.plainKey(v.Key, key) {
			continue
		}
		value := c.convert(v.Value)
		if first := seen[key.text]; first != nil {
			c.duplicates = append(c.duplicates, duplicate{owner: out, first: first, again: key})
			continue
		}
		seen[key.text] = key
		out.entries = append(out.entries, entry{key, value})
	}
}

// isFlow reports whether the map's own token, a brace, stands before its first key.
func isFlow(m, key *node) bool { return m.line < key.line || m.line == key.line && m.col < key.col }

func (c *checker) plainKey(n ast.MapKeyNode, key *node) bool {
	switch n.(type) {
	case *ast.MergeKeyNode, *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		c.refuseIndirection(key.line, key.col, key.text)
		return false
	}
	return true
}

func place(n ast.Node) (line, col int) {
	p := n.GetToken().Position
	return p.Line, max(1, p.Column)
}

// duplicate is a key that stands twice in one map; its code depends on the map, so it is judged when that is known.
type duplicate struct {
	owner        *node
	first, again *node
}

var (
	canonicalInteger = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	canonicalNumber  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	exponentNumber   = regexp.MustCompile(`^[-+]?[0-9]+[eE][+-]?[0-9]+$`)
	surprisingWord   = regexp.MustCompile(`^(?i:yes|no|on|off)$`)
	bareDate         = regexp.MustCompile(`^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?$`)
	sexagesimal      = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+$`)
	numberLike       = regexp.MustCompile(`^[-+]?[0-9][0-9_]*(\.[0-9_]*)?$`)
)

// surprise says what another YAML reader would make of a plain scalar that is meant as text, or "".
func (n *node) surprise() string {
	if n.plain == "" {
		return ""
	}
	switch {
	case n.plain == "null":
		return "missing value"
	case n.plain == "integer" || n.plain == "float":
		return "number"
	case n.plain != "string":
		return n.plain
	case surprisingWord.MatchString(n.text):
		return "boolean"
	case bareDate.MatchString(n.text):
		return "date"
	case sexagesimal.MatchString(n.text), numberLike.MatchString(n.text):
		return "number"
	}
	return ""
}

// keepsText reports whether a plain scalar reads the same as text and as its value, as 8080 and true do.
func (n *node) keepsText() bool {
	switch n.plain {
	case "", "string":
		return n.surprise() == ""
	case "integer":
		return canonicalInteger.MatchString(n.text)
	case "boolean":
		return n.text == "true" || n.text == "false"
	}
	return false
}

// sourceLines splits a file into lines without their ends.
func sourceLines(src string) []string { return strings.Split(src, "\n") }

// reportDuplicates reports keys that stand twice; between stages that has a code of its own.
func (c *checker) reportDuplicates(root *node) {
	stages := root.get("stages")
	for _, d := range c.duplicates {
		code, what := "E_YAML_DUP", "the key "
		if d.owner == stages {
			code, what = "E_DUP_STAGE", "the stage "
		}
		c.at(d.again, code, what+strconv.Quote(shortened(d.again.text))+" stands twice: in line "+strconv.Itoa(d.first.line)+
			" and in line "+strconv.Itoa(d.again.line), "each key once", "")
	}
}
