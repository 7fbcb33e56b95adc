package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// portion is how many stages are parsed at once: the parser recurses once for each key of a block map and copies the
// keys it has at each, so 10,000 in one go take a hundred times as long as in portions.
const portion = 100

// parseTree turns guarded tokens into nodes. It gives nil when the file can't be read as one YAML document.
func (c *checker) parseTree(tokens token.Tokens) *node {
	rest, portions := splitStages(tokens)
	root := c.parseMap(rest)
	if root == nil || len(portions) == 0 {
		return root
	}
	stages := &node{kind: mapNode, line: portions[0][0].Position.Line, col: portions[0][0].Position.Column}
	var values []*ast.MappingValueNode
	for _, tokens := range portions {
		body := c.parseTokens(tokens)
		m, ok := body.(*ast.MappingNode)
		if body == nil || !ok {
			return nil
		}
		values = append(values, m.Values...)
	}
	c.convertMap(stages, values)
	for i, e := range root.entries {
		if e.key.text == "stages" {
			root.entries[i].value = stages
		}
	}
	return root
}

func (c *checker) parseMap(tokens token.Tokens) *node {
	body := c.parseTokens(tokens)
	if body == nil {
		if len(c.problems) == 0 {
			c.refuseEmpty(1, 1, "the file holds no pipeline")
		}
		return nil
	}
	return c.convert(body)
}

// parseTokens gives the one value that the tokens hold, or nil.
func (c *checker) parseTokens(tokens token.Tokens) ast.Node {
	var file *ast.File
	err := shielded(func() (err error) {
		file, err = parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
		return err
	})
	if err != nil {
		c.syntaxError(err)
		return nil
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body != nil {
			body = d.Body
		}
	}
	return body
}

// shielded turns a panic inside a library into an error: a definition from outside must not stop the server.
func shielded(call func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the parser gave up: %v", r)
		}
	}()
	return call()
}

func (c *checker) syntaxError(err error) {
	line, col, message := 1, 1, "this can't be read as YAML"
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok { // its Error draws the source, which is slow and which Text does better
		message = syntax.Message
		if syntax.Token != nil {
			line, col = syntax.Token.Position.Line, max(1, syntax.Token.Position.Column)
		}
	}
	hint := ""
	if line <= len(c.lines) && strings.Contains(c.lines[line-1], "${{") {
		hint = "quote it: \"${{ … }}\""
	}
	c.report(line, col, "E_YAML_SYNTAX", printable(message), "well-formed YAML", hint)
}

// splitStages takes the entries of a long block map under the top-level key stages out of the token stream, in
// portions. A file with few stages stays whole.
func splitStages(tokens token.Tokens) (rest token.Tokens, portions []token.Tokens) {
	first, last, starts := stageTokens(tokens)
	if len(starts) <= portion {
		return tokens, nil
	}
	for i := 0; i < len(starts); i += portion {
		end := last
		if i+portion < len(starts) {
			end = starts[i+portion]
		}
		portions = append(portions, unlinked(tokens[starts[i]:end]))
	}
	rest = append(append(token.Tokens{}, tokens[:first]...), tokens[last:]...)
	for i, t := range rest {
		t.Prev, t.Next = nil, nil
		if i > 0 {
			t.Prev, rest[i-1].Next = rest[i-1], t
		}
	}
	return rest, portions
}

// unlinked cuts a run of tokens out of its chain.
func unlinked(tokens token.Tokens) token.Tokens {
	tokens[0].Prev, tokens[len(tokens)-1].Next = nil, nil
	return tokens
}

// stageTokens finds the value of the top-level key stages, tokens first to last, and where each of its keys stands.
func stageTokens(tokens token.Tokens) (first, last int, starts []int) {
	brackets, top, column := 0, 0, 0
	for i, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		default:
		}
		if brackets > 0 || i+1 >= len(tokens) || tokens[i+1].Type != token.MappingValueType {
			continue
		}
		at := t.Position.Column
		switch {
		case top == 0:
			top = at
			fallthrough
		case at == top:
			if first > 0 {
				return first, i, starts
			}
			if t.Value == "stages" {
				first = i + 2
			}
		case first > 0 && column == 0:
			if i < first || !onlyComments(tokens[first:i]) {
				return 0, 0, nil
			}
			column = at
			fallthrough
		case first > 0 && at == column:
			starts = append(starts, i)
		}
	}
	return first, len(tokens), starts
}

func onlyComments(tokens token.Tokens) bool {
	return !slices.ContainsFunc(tokens, func(t *token.Token) bool { return t.Type != token.CommentType })
}
