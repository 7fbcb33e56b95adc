package configs

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/types"
)

// fileType is what an expression sees of a file: its facts, never its bytes.
var fileType = types.Map{"digest": types.String, "size": types.Int, "records": types.Int, "path": types.String, "name": types.String}

// triggerType is what an expression sees of what started the run.
var triggerType = types.Map{"body": fileType, "payload": types.Any, "file": fileType,
	"headers": types.Map{types.Extra: types.String}, "time": types.String, "delivery": types.String}

// runType is what an expression sees of its run: facts of the stages that its own stage needs, directly or through others.
var runType = types.Map{"id": types.String, "pipeline": types.String, "created": types.String, "state": types.String,
	"failed": types.Array(types.String), "duration_ms": types.Int}

// stageFacts is what an expression sees of a stage beside its outputs.
var stageFacts = types.Map{"state": types.String, "class": types.String, "reason": types.String, "duration_ms": types.Int}

// metricsType is what a gate sees of the attempt's work.
var metricsType = types.Map{"duration_ms": types.Int, "cpu_ms": types.Int, "max_rss": types.Int, "read": types.Int, "written": types.Int,
	"stdout": types.Int, "stderr": types.Int}

// eventType is what the condition of an event trigger sees.
var eventType = types.Map{"id": types.String, "source": types.String, "type": types.String, "subject": types.String, "time": types.String,
	"runid": types.String, "sequence": types.Int, "attempt": types.Int, "data": types.Any}

// schemaType gives the type of data that meets a JSON Schema; what the schema leaves open is any.
func schemaType(schema any) types.Type {
	m, ok := schema.(map[string]any)
	if !ok {
		return types.Any
	}
	switch m["type"] {
	case "string":
		return types.String
	case "boolean":
		return types.Bool
	case "integer":
		return types.Int
	case "number":
		return types.Float64
	case "array":
		return types.Array(schemaType(m["items"]))
	case "object":
		return objectType(m)
	}
	return types.Any
}

func objectType(m map[string]any) types.Type {
	out := types.Map{}
	properties, _ := m["properties"].(map[string]any)
	for name, s := range properties {
		out[name] = schemaType(s)
	}
	if closed, ok := m["additionalProperties"].(bool); !ok || closed {
		out[types.Extra] = types.Any
	}
	return out
}

func rawSchemaType(raw json.RawMessage) types.Type {
	v, err := decodeJSON(raw)
	if err != nil {
		return types.Any
	}
	return schemaType(v)
}

// source is an expression and where it stands: from character at of a node's text.
type source struct {
	node *node
	text string
	at   int
}

// bare is a condition, which is written without ${{ }}.
func bare(n *node) source { return source{n, n.text, 0} }

// embedded is the inside of ${{ }}.
func embedded(n *node) (source, bool) {
	src, ok := Expression(n.text)
	if !ok {
		return source{}, false
	}
	before := strings.Index(n.text, "${{") + 3
	before += strings.Index(n.text[before:], src)
	return source{n, src, utf8.RuneCountInString(n.text[:before])}, true
}

// fault reports a problem at a character of an expression.
func (c *checker) fault(s source, at int, code, message, expected, hint string) {
	line, col := c.locate(s.node, s.at+at)
	c.report(line, col, code, message, expected, hint)
}

// inside finds where a part of a node's text stands in the file, counted from a character of the text on.
func (c *checker) inside(n *node, part string, from int) (line, col int) {
	runes := []rune(n.text)
	i := strings.Index(string(runes[min(from, len(runes)):]), part)
	if i < 0 {
		return n.line, n.col
	}
	return c.locate(n, from+utf8.RuneCountInString(string(runes[from:])[:i]))
}

// locate finds the place in the file of a character of a node's text. Where the text is folded or escaped, that is the
// node's own place.
func (c *checker) locate(n *node, offset int) (line, col int) {
	runes := []rune(n.text)
	offset = min(offset, len(runes))
	before := string(runes[:offset])
	rows, row := strings.Count(before, "\n"), before[strings.LastIndex(before, "\n")+1:]
	whole := strings.Split(n.text, "\n")[rows]
	line, col = n.line, n.col
	if n.block {
		line, col = n.line+1+rows, 1
	}
	if line > len(c.lines) {
		return n.line, n.col
	}
	raw := []rune(c.lines[line-1])
	start := min(col-1, len(raw))
	i := strings.Index(string(raw[start:]), whole)
	if i < 0 || rows > 0 && !n.block {
		return n.line, n.col
	}
	return line, start + utf8.RuneCountInString(string(raw[start:])[:i]) + utf8.RuneCountInString(row) + 1
}

// compile checks an expression against the names and types of its scope, and reports what is wrong at its place.
func (c *checker) compile(s source, scope types.Map, want reflect.Kind) {
	a, err := analyse(s.text)
	if err != nil {
		c.exprFault(s, err)
		return
	}
	c.compileAnalysed(s, a, scope, want)
}

func (c *checker) compileAnalysed(s source, a *analysis, scope types.Map, want reflect.Kind) bool {
	for _, root := range sortedKeys(a.roots) {
		if _, known := scope[root]; !known && !slices.Contains(builtins, root) {
			c.fault(s, a.roots[root], "E_EXPR", "unknown name "+root, "one of "+strings.Join(sortedKeys(scope), ", "),
				didYouMean(root, append(sortedKeys(scope), builtins...)))
			return false
		}
	}
	options := append(pureOptions(), expr.Env(scope))
	if want != reflect.Invalid {
		options = append(options, expr.AsKind(want))
	}
	err := shielded(func() error { _, err := expr.Compile(a.source, options...); return err })
	if err != nil {
		c.compileFault(s, a, err)
		return false
	}
	return true
}

func (c *checker) exprFault(s source, err error) {
	if e, ok := errors.AsType[*exprError](err); ok {
		hint := e.hint
		if hint == "" {
			hint = c.commentHint(s)
		}
		c.fault(s, e.at, e.code, e.message, "", hint)
	}
}

// commentHint sees an expression that YAML cut short at a blank and #.
func (c *checker) commentHint(s source) string {
	if n := s.node; n.plain == "string" && n.line <= len(c.lines) {
		if _, rest, found := strings.Cut(c.lines[n.line-1], n.text); found && strings.HasPrefix(rest, " #") {
			return "YAML takes a blank and # for a comment: quote the expression"
		}
	}
	return ""
}

func (c *checker) compileFault(s source, a *analysis, err error) {
	if _, ok := errors.AsType[*file.Error](err); ok {
		e := a.located(err)
		c.fault(s, e.at, e.code, e.message, "", fieldHint(e.message))
		return
	}
	c.fault(s, 0, "E_EXPR", "the expression gives another type: "+err.Error(), "a yes or no, as a > b (foreach: a list)", "")
}

// fieldHint explains the faults that people meet most.
func fieldHint(message string) string {
	switch {
	case strings.Contains(message, "unknown field"):
		return "a file has digest, size, records, path and name"
	case strings.HasPrefix(message, "unexpected token"), strings.HasPrefix(message, "unclosed"):
		return "the syntax is that of expr-lang: a > 1 and b in [" + strconv.Quote("x") + "]"
	}
	return ""
}
