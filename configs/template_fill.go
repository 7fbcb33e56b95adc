package configs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Filled is a file that a template makes. Its path is relative to the definition, whose own path is empty.
type Filled struct {
	Path    string
	Content []byte
}

// Fill gives the definition and its companions, the definition last. values are those of Values. Comments stay. The result
// is read again and compared with the template's tree, value by value: a value that would come out as anything else than
// itself is a problem (E_TEMPLATE), never a file. Whether the pipeline as a whole is right is for Parse to say.
func (t *Template) Fill(name string, values map[string]json.RawMessage) ([]Filled, Problems) {
	f := &filler{Template: t, values: map[string]any{nameBlank: name}}
	for blank, raw := range values {
		f.values[blank], _ = decodeJSON(raw) // Values has read it
	}
	f.starts = lineStarts(t.text)
	f.edit(t.root)
	text := f.apply()
	if f.fault == "" {
		f.fault = f.differs(text)
	}
	if f.fault != "" {
		return nil, Problems{{File: t.shown, Code: "E_TEMPLATE", Severity: SeverityError, Message: masked(f.fault), Expected: "a template whose blanks stay single values",
			Hint: "write the blank as a whole value, an optional one on a line of its own"}}
	}
	var out []Filled
	for _, path := range t.beside {
		content, err := fs.ReadFile(t.files, path)
		if err != nil {
			return nil, Problems{{File: t.shown, Code: "E_FILE", Severity: SeverityError, Message: "the file " + path + " can't be read: " + reasonOf(err), Expected: "a readable file"}}
		}
		out = append(out, Filled{path, content})
	}
	return append(out, Filled{"", []byte(text)}), nil
}

// filler edits the text of a template at the places of its blanks.
type filler struct {
	*Template
	values map[string]any
	starts []int // byte offset of each line
	edits  []textEdit
	fault  string
}

// textEdit replaces bytes.
type textEdit struct {
	span
	with string
}

func lineStarts(text string) []int {
	starts := []int{0}
	for i := range len(text) {
		if text[i] == '\n' {
			starts = append(starts, i+1)
		}
	}
	return append(starts, len(text))
}

func (f *filler) offset(line, col int) int {
	return f.starts[line-1] + byteOffset(f.lines[line-1], col-1)
}

// gone reports whether nothing of a value is left: it is a blank without a value, or a map or list of nothing else.
func (f *filler) gone(n *node) bool {
	switch n.kind {
	case scalarNode:
		name, ok := blankOf(n)
		return ok && f.values[name] == nil
	case mapNode:
		for _, e := range n.entries {
			if !f.gone(e.value) {
				return false
			}
		}
		return len(n.entries) > 0
	default:
		for _, item := range n.items {
			if !f.gone(item) {
				return false
			}
		}
		return len(n.items) > 0
	}
}

// edit replaces the blanks below a node that stays, and takes out what does not.
func (f *filler) edit(n *node) {
	if name, ok := blankOf(n); ok {
		from := f.offset(n.line, n.col)
		f.replace(from, f.mark(from, name), yamlText(f.values[name]))
		return
	}
	var children []child
	for _, e := range n.entries {
		children = append(children, child{e.key, e.value})
	}
	for _, item := range n.items {
		children = append(children, child{item, item})
	}
	kept := false
	for i, c := range children {
		if !f.gone(c.value) {
			kept = true
			f.edit(c.value)
			continue
		}
		if at := f.text[f.offset(n.line, n.col):]; strings.HasPrefix(at, "{") || strings.HasPrefix(at, "[") {
			f.removeInline(children, i, kept)
		} else {
			f.removeLines(n, c)
		}
	}
}

// child is a child of a node: where it begins, and its value.
type child struct{ begin, value *node }

// mark gives the end of the blank that begins at a byte, with its quotes.
func (f *filler) mark(from int, name string) int {
	mark := "<<" + name + ">>"
	for _, written := range []string{mark, `"` + mark + `"`, "'" + mark + "'"} {
		if strings.HasPrefix(f.text[from:], written) {
			return from + len(written)
		}
	}
	f.failf("the blank %s is written in a way that can't be replaced", mark)
	return from
}

func (f *filler) failf(format string, args ...any) {
	f.fault = cmp.Or(f.fault, fmt.Sprintf(format, args...))
}

func (f *filler) replace(from, to int, with string) {
	f.edits = append(f.edits, textEdit{span{from, to}, with})
}

// removeInline takes a child out of {…} or […], with one comma.
func (f *filler) removeInline(children []child, i int, kept bool) {
	from := f.offset(children[i].begin.line, children[i].begin.col)
	switch {
	case kept:
		before := strings.TrimRight(f.text[:from], " \t\r\n")
		if !strings.HasSuffix(before, ",") {
			f.failf("line %d can't be taken out", children[i].begin.line)
			return
		}
		f.replace(len(before)-1, f.endOf(children[i].value), "")
	case i+1 < len(children):
		f.replace(from, f.offset(children[i+1].begin.line, children[i+1].begin.col), "")
	default:
		f.failf("line %d can't be taken out", children[i].begin.line)
	}
}

// endOf gives the end of an inline value of which nothing is left: it holds nothing but blanks and brackets.
func (f *filler) endOf(n *node) int {
	from := f.offset(n.line, n.col)
	if name, ok := blankOf(n); ok {
		return f.mark(from, name)
	}
	depth := 0
	for i := from; i < len(f.text); i++ {
		switch f.text[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	f.failf("line %d can't be taken out", n.line)
	return from
}

// removeLines takes a child out of a block: its lines, and the comment right above it.
func (f *filler) removeLines(n *node, c child) {
	line, col := c.begin.line, c.begin.col
	lead := string([]rune(f.lines[line-1])[:col-1])
	dash := n.kind == listNode
	if dash {
		lead, col = strings.TrimSuffix(strings.TrimRight(lead, " "), "-"), n.col
	}
	if strings.TrimSpace(lead) != "" || dash && len(lead) != col-1 {
		f.failf("line %d holds more than the optional blank that is to be left out", line)
		return
	}
	from, to := line-1, line // lines from 0; to is the one behind
	for next := to; next < len(f.lines); next++ {
		text := strings.TrimRight(f.lines[next], " \r")
		indent := len(text) - len(strings.TrimLeft(text, " "))
		if text == "" {
			continue
		}
		item := !dash && c.value.kind == listNode && indent == col-1 && strings.HasPrefix(text[indent:], "-")
		if indent < col && !item {
			break
		}
		to = next + 1
	}
	for from > 0 && strings.HasPrefix(f.lines[from-1], lead+"#") && f.header.to <= from-1 {
		from--
	}
	f.replace(f.starts[from], f.starts[min(to, len(f.starts)-1)], "")
}

// apply makes the text: edits in their order, and no header.
func (f *filler) apply() string {
	f.replace(f.starts[f.header.from], f.starts[min(f.header.to, len(f.starts)-1)], "")
	slices.SortFunc(f.edits, func(a, b textEdit) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var b strings.Builder
	at := 0
	for _, e := range f.edits {
		if e.from < at {
			f.failf("two blanks overlap at byte %d", e.from)
			return ""
		}
		b.WriteString(f.text[at:e.from] + e.with)
		at = e.to
	}
	b.WriteString(f.text[at:])
	return strings.TrimLeft(b.String(), "\r\n")
}

// differs reads the text and says where it is not the template's tree with the values in it.
func (f *filler) differs(text string) string {
	c := &checker{file: f.shown}
	tokens, ok := c.guard([]byte(text))
	c.checkSecrets()
	var got *node
	if ok {
		got = c.parseTree(tokens)
	}
	if got == nil || c.problems.HasErrors() || len(c.duplicates) > 0 {
		return "the filled template can't be read: " + c.problems.Error()
	}
	want, err := decodeJSON(f.write(new(bytes.Buffer), f.root).Bytes())
	if err != nil {
		return "the filled template can't be compared: " + err.Error()
	}
	have, err := decodeJSON(got.encodeJSON())
	if err != nil || !reflect.DeepEqual(have, want) {
		return "a value would come out as something else in the filled template"
	}
	return ""
}

// write gives the tree with the values in it as JSON.
func (f *filler) write(b *bytes.Buffer, n *node) *bytes.Buffer {
	if name, ok := blankOf(n); ok {
		b.Write(encoded(f.values[name]))
		return b
	}
	comma := func(i int) {
		if i > 0 {
			b.WriteByte(',')
		}
	}
	switch n.kind {
	case mapNode:
		b.WriteByte('{')
		for i, e := range slices.DeleteFunc(slices.Clone(n.entries), func(e entry) bool { return f.gone(e.value) }) {
			comma(i)
			writeText(b, e.key.text)
			b.WriteByte(':')
			f.write(b, e.value)
		}
		b.WriteByte('}')
	case listNode:
		b.WriteByte('[')
		for i, item := range slices.DeleteFunc(slices.Clone(n.items), f.gone) {
			comma(i)
			f.write(b, item)
		}
		b.WriteByte(']')
	default:
		n.writeScalar(b)
	}
	return b
}

// plainWord is text that no YAML reader takes for anything else, but for the words in yamlWords.
var (
	plainWord = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)
	yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
)

// yamlText writes a value as YAML in one line: text between double quotes, unless it is a plain word.
func yamlText(v any) string {
	switch v := v.(type) {
	case string:
		if plainWord.MatchString(v) && !slices.Contains(yamlWords, v) {
			return v
		}
		return quoted(v)
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			items[i] = yamlText(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var items []string
		for _, key := range sortedKeys(v) {
			items = append(items, quoted(key)+": "+yamlText(v[key]))
		}
		return "{" + strings.Join(items, ", ") + "}"
	}
	return string(encoded(v)) // a number with its digits, true, false, null
}

// quoted writes text between double quotes, with what a reader could take for a line's end or not see written as \u.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == utf8.RuneError:
			b.WriteString(`\u` + fmt.Sprintf("%04x", r))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
