package configs

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// The bounds of a definition. The YAML parser's time and stack grow with the square of the keys of one map, and its
// memory with the depth; stages, of which there may be many, are parsed in portions.
const (
	MaxFileSize = 256 << 10 // bytes
	MaxDepth    = 64        // maps and lists inside each other
	MaxStages   = 10_000
	maxKeys     = 1000 // of any other map
)

// guard refuses what must not reach the parser, and gives the tokens of what may.
func (c *checker) guard(src []byte) (token.Tokens, bool) {
	if len(src) > MaxFileSize {
		c.refuseSize(int64(len(src)))
		return nil, false
	}
	if !c.guardEncoding(src) {
		return nil, false
	}
	text := strings.TrimPrefix(string(src), "\ufeff")
	c.lines = sourceLines(text)
	if strings.TrimSpace(text) == "" {
		c.refuseEmpty(1, 1, "the file is empty")
		return nil, false
	}
	var tokens token.Tokens
	if err := shielded(func() error { tokens = lexer.Tokenize(text); return nil }); err != nil {
		c.syntaxError(err)
		return nil, false
	}
	return tokens, c.guardTokens(tokens)
}

func (c *checker) refuseEmpty(line, col int, what string) {
	if c.subject != "" {
		c.report(line, col, "E_REQUIRED", "the file is empty", c.subject, "")
		return
	}
	c.report(line, col, "E_PIPE_EMPTY", what, "a map with name: and stages:", "apollo init writes a first pipeline")
}

func (c *checker) refuseSize(size int64) {
	c.report(0, 0, "E_SIZE", fmt.Sprintf("the file has %d bytes", size), fmt.Sprintf("at most %d bytes", MaxFileSize),
		"split the pipeline, or move scripts and data into files of their own")
}

func (c *checker) guardEncoding(src []byte) bool {
	for _, bom := range []struct{ mark, name string }{{"\xff\xfe", "UTF-16 (little-endian)"}, {"\xfe\xff", "UTF-16 (big-endian)"}} {
		if bytes.HasPrefix(src, []byte(bom.mark)) {
			c.report(0, 0, "E_ENCODING", "the file is "+bom.name+" from byte offset 0", "UTF-8", "save it as UTF-8")
			return false
		}
	}
	line, col := 1, 1
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && size == 1 || r < 0x20 && r != '\n' && r != '\r' && r != '\t' || r == 0x7f {
			what := fmt.Sprintf("byte 0x%02x at byte offset %d", src[i], i)
			c.lines = sourceLines(strings.ToValidUTF8(string(src), "\ufffd"))
			c.report(line, col, "E_ENCODING", what+" is not text in UTF-8", "UTF-8 without control characters", "save the file as UTF-8")
			return false
		}
		if i += size; r == '\n' {
			line, col = line+1, 1
		} else if r != '\ufeff' {
			col++
		}
	}
	return true
}

// nesting follows how deep the tokens are: open brackets, and the columns of the block maps and lists around them.
type nesting struct {
	brackets int
	columns  []int
	keys     map[int]int // keys seen of the open block map at each column
	top      string      // the last key of the outermost map
}

func (g *nesting) enter(column int) {
	if g.brackets > 0 {
		return
	}
	for len(g.columns) > 0 && g.columns[len(g.columns)-1] >= column {
		if top := g.columns[len(g.columns)-1]; top > column {
			delete(g.keys, top)
		}
		g.columns = g.columns[:len(g.columns)-1]
	}
	g.columns = append(g.columns, column)
}

func (g *nesting) depth() int { return g.brackets + len(g.columns) }

// guardTokens reads the token stream once, so that depth, indirections and tabs are known before a tree is built.
func (c *checker) guardTokens(tokens token.Tokens) bool {
	before := len(c.problems)
	g := &nesting{keys: map[int]int{}}
	documents, content, last := 1, false, 0
	for i, t := range tokens {
		line, col := t.Position.Line, max(1, t.Position.Column)
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			g.brackets++
		case token.SequenceEndType, token.MappingEndType:
			g.brackets = max(0, g.brackets-1)
		case token.SequenceEntryType:
			g.enter(col)
		case token.MappingValueType:
			g.enterKey(tokens, i)
		case token.DocumentHeaderType:
			if content || documents > 1 {
				c.report(line, col, "E_YAML_MULTI", "a second document begins here", "one pipeline a file", "move it into a file of its own")
				return false
			}
			documents++
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType:
			c.refuseIndirection(line, col, t.Value)
		case token.MappingKeyType:
			c.report(line, col, "E_YAML_SYNTAX", "a key in the explicit form `? key`", "key: value", "text that begins with ? must be quoted")
			return false
		case token.InvalidType:
			c.invalidToken(t)
			return false
		default:
		}
		content = content || t.Type != token.DocumentHeaderType && t.Type != token.CommentType && t.Type != token.DirectiveType
		if g.brackets == 0 && line > last && c.tabbed(line) {
			return false
		}
		last = line
		if !c.guardBounds(g, line, col) {
			return false
		}
	}
	return len(c.problems) == before
}

// tabbed reports a tab before the first token of a line.
func (c *checker) tabbed(line int) bool {
	if line > len(c.lines) {
		return false
	}
	blanks := len(c.lines[line-1]) - len(strings.TrimLeft(c.lines[line-1], " "))
	if !strings.HasPrefix(c.lines[line-1][blanks:], "\t") {
		return false
	}
	c.report(line, blanks+1, "E_YAML_SYNTAX", "a tab in the indentation", "well-formed YAML", "indent with spaces")
	return true
}

func (c *checker) guardBounds(g *nesting, line, col int) bool {
	if g.depth() > MaxDepth {
		c.report(line, col, "E_YAML_DEPTH", fmt.Sprintf("maps and lists are nested more than %d deep", MaxDepth),
			fmt.Sprintf("at most %d levels", MaxDepth), "")
		return false
	}
	if len(g.columns) == 0 {
		return true
	}
	allowed := maxKeys
	if len(g.columns) == 2 && g.top == "stages" {
		allowed = MaxStages
	}
	if g.keys[g.columns[len(g.columns)-1]] > allowed {
		c.report(line, col, "E_SIZE", fmt.Sprintf("a map has more than %d keys", allowed), fmt.Sprintf("at most %d stages, and %d keys of any other map", MaxStages, maxKeys), "")
		return false
	}
	return true
}

// enterKey counts the key before the colon at i.
func (g *nesting) enterKey(tokens token.Tokens, i int) {
	if i == 0 || g.brackets > 0 {
		return
	}
	column := max(1, tokens[i-1].Position.Column)
	g.enter(column)
	g.keys[column]++
	if len(g.columns) == 1 {
		g.top = tokens[i-1].Value
	}
}

func (c *checker) refuseIndirection(line, col int, text string) {
	sign, hint := "a YAML tag, alias or merge key", "write the value out; text that begins with & * or ! must be quoted"
	switch {
	case strings.HasPrefix(text, "&"):
		sign = "a YAML anchor (&)"
	case strings.HasPrefix(text, "*"):
		sign = "a YAML alias (*)"
	case strings.HasPrefix(text, "!"):
		sign = "a YAML tag (" + shortened(text) + ")"
	case text == "<<":
		sign, hint = "a YAML merge key (<<)", "write the keys out"
	case strings.HasPrefix(text, "%"):
		sign, hint = "a YAML directive (%)", "leave it out"
	}
	c.report(line, col, "E_YAML_ALIAS", sign+" is not allowed", "each value written where it is used", hint)
}

func (c *checker) invalidToken(t *token.Token) {
	line, col := t.Position.Line, max(1, t.Position.Column)
	message := "this can't be read as YAML"
	if t.Error != "" {
		message = printable(t.Error)
	}
	if strings.Contains(t.Origin, "\t") && c.tabbed(line) {
		return
	}
	c.report(line, col, "E_YAML_SYNTAX", message, "well-formed YAML", "")
}
