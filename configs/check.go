package configs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// checker gathers the problems of one definition.
type checker struct {
	file       string
	subject    string // what the file holds, for messages; empty is a pipeline
	dir        string // where files beside the definition are looked up
	options    Options
	lines      []string
	problems   Problems
	duplicates []duplicate
	settings   map[string]*jsonschema.Schema // of plug-ins, compiled at first use
}

// maxProblems bounds a report: past it a person reads no further.
const maxProblems = 1000

func (c *checker) report(line, col int, code, message, expected, hint string) {
	c.add(SeverityError, line, col, code, message, expected, hint)
}

func (c *checker) warn(line, col int, code, message, expected, hint string) {
	c.add(SeverityWarning, line, col, code, message, expected, hint)
}

func (c *checker) add(severity string, line, col int, code, message, expected, hint string) {
	if len(c.problems) >= maxProblems {
		return
	}
	c.problems = append(c.problems, Problem{File: c.file, Line: line, Col: col, Code: code, Severity: severity,
		Message: masked(message), Expected: masked(expected), Hint: masked(hint), Snippet: snippet(c.lines, line, col)})
}

// at reports a problem at a node.
func (c *checker) at(n *node, code, message, expected, hint string) {
	c.report(n.line, n.col, code, message, expected, hint)
}

// check compares a node with its specification; where names it for people, as `stages.clean.timeout`.
func (c *checker) check(n *node, s *spec, where string) {
	switch s.form {
	case choiceForm:
		c.checkChoice(n, s, where)
	case anyForm:
		c.checkJSON(n, true)
	case listForm:
		if c.kind(n, s, where) {
			for i, item := range n.items {
				c.check(item, s.each, where+"["+strconv.Itoa(i)+"]")
			}
		}
	case dictForm:
		c.checkDict(n, s, where)
	case schemaForm:
		if c.kind(n, s, where) {
			c.checkJSON(n, false)
		}
	case objectForm:
		c.checkObject(n, s, where)
	default:
		if c.kind(n, s, where) {
			c.checkScalar(n, s, where)
		}
	}
}

// kind reports a node that is a map where text is due, and the like.
func (c *checker) kind(n *node, s *spec, where string) bool {
	if n.kind == s.kindOf() && !n.isNull() {
		return true
	}
	c.at(n, "E_TYPE", where+" is "+n.what(), s.expects(), s.typeHint(n))
	return false
}

func (s *spec) expects() string {
	names := map[form]string{textForm: "text", nameForm: "a name", valueForm: "text or ${{ expression }}", scriptForm: "the text of a script",
		fileForm: "a file's path", conditionForm: "an expression", integerForm: "a whole number", numberForm: "a number", booleanForm: "true or false",
		durationForm: "a duration, as 90s", sizeForm: "a size, as 256Mi", rateForm: "a bandwidth, as 2Mbps", schemaForm: "a JSON Schema (a map)",
		listForm: "a list", dictForm: "a map", objectForm: "a map"}
	if len(s.enum) > 0 {
		return "one of " + strings.Join(s.enum, ", ")
	}
	if s.form == objectForm {
		return "a map with " + strings.Join(first(s.names(), 6), ", ")
	}
	return names[s.form]
}

func first(names []string, n int) []string {
	if len(names) > n {
		return append(slices.Clone(names[:n]), "…")
	}
	return names
}

func (s *spec) typeHint(n *node) string {
	switch {
	case s.form == listForm && n.kind == scalarNode && !n.isNull():
		if n.surprise() != "" {
			return "put it in brackets; and quote it where text is meant: YAML reads " + n.text + " as a " + n.surprise()
		}
		return "put it in brackets: [" + shortened(n.text) + "]"
	case n.kind == scalarNode && n.plain != "" && n.plain != "string" && n.plain != "null":
		return "quote it where text is meant"
	case n.kind == mapNode && s.kindOf() == scalarNode:
		return "quote it if it begins with a brace"
	}
	return ""
}

func (c *checker) checkChoice(n *node, s *spec, where string) {
	for _, option := range s.or {
		if option.kindOf() == n.kind && !n.isNull() {
			c.check(n, option, where)
			return
		}
	}
	expected := make([]string, len(s.or))
	for i, option := range s.or {
		expected[i] = option.expects()
	}
	c.at(n, "E_TYPE", where+" is "+n.what(), strings.Join(expected, ", or "), "")
}

func (c *checker) checkDict(n *node, s *spec, where string) {
	if !c.kind(n, s, where) {
		return
	}
	for _, e := range n.entries {
		switch {
		case s.envNames:
			c.checkEnvName(e.key)
		case !s.anyKeys:
			c.checkName(e.key, where)
		}
		c.check(e.value, s.each, where+"."+e.key.text)
	}
}

func (c *checker) checkObject(n *node, s *spec, where string) {
	if !c.kind(n, s, where) {
		return
	}
	for _, e := range n.entries {
		name := e.key.text
		switch f := s.field(name); {
		case f != nil:
			c.check(e.value, f.spec, joined(where, name))
		case s.executors && c.options.plugin(name) != nil:
			c.checkPlugin(e)
		case s.schemaKeys && slices.Contains(schemaKeywords, name):
			c.checkJSON(e.value, false)
		default:
			c.unknownKey(e.key, s, where)
		}
	}
	for _, f := range s.fields {
		if f.required && n.get(f.name) == nil {
			c.at(n, "E_REQUIRED", c.phrase(where)+" has no "+f.name, f.name+": "+f.spec.expects(), "")
		}
	}
	if s.one && len(n.entries) != 1 {
		c.at(n, "E_ONE", fmt.Sprintf("%s has %d of the keys %s", where, len(n.entries), strings.Join(s.names(), ", ")), "exactly one", "")
	}
}

func joined(where, name string) string {
	if where == "" {
		return name
	}
	return where + "." + name
}

func (c *checker) phrase(where string) string {
	return cmp.Or(where, c.subject, "the pipeline")
}

func (c *checker) unknownKey(k *node, s *spec, where string) {
	known := s.names()
	if s.executors {
		known = append(known, c.options.pluginNames()...)
	}
	hint := didYouMean(k.text, known)
	if hint == "" && c.subject == "" {
		hint = didYouMean(strings.ToLower(k.text), append(known, language.names()...))
	}
	c.at(k, "E_FIELD", "unknown key "+strconv.Quote(shortened(k.text))+" in "+c.phrase(where), "one of "+strings.Join(known, ", "), hint)
}

func (c *checker) checkName(n *node, where string) {
	if !namePattern.MatchString(n.text) {
		c.at(n, "E_NAME", "the name "+strconv.Quote(shortened(n.text))+" in "+where+" is not allowed",
			"1 to 128 of a-z 0-9 _ - with a letter or digit first", didYouMeanName(n.text))
	} else if n.surprise() != "" && n.surprise() != "number" {
		c.at(n, "E_TYPE", "YAML readers take the name "+n.text+" for a "+n.surprise(), "text", "quote it")
	}
}

func didYouMeanName(s string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == ' ' || r == '/' || r == '.':
			return '-'
		}
		return -1
	}, s)
	if clean = strings.Trim(clean, "-_"); clean != "" && clean != s && namePattern.MatchString(clean) {
		return "use " + clean
	}
	return ""
}

func (c *checker) checkScalar(n *node, s *spec, where string) {
	switch s.form {
	case nameForm:
		c.checkName(n, where)
	case valueForm:
		c.checkValue(n, where)
	case textForm, fileForm, conditionForm, scriptForm:
		c.checkText(n, s, where)
	case integerForm, numberForm:
		c.checkNumber(n, s, where)
	case booleanForm:
		if n.plain != "boolean" {
			c.at(n, "E_TYPE", where+" is "+n.what(), "true or false", "")
		}
	case durationForm:
		c.checkDuration(n, s, where)
	case sizeForm, rateForm:
		c.checkAmount(n, s, where)
	default: // the other forms are no scalars
	}
}

func (c *checker) checkText(n *node, s *spec, where string) {
	if len(s.enum) > 0 && !slices.Contains(s.enum, n.text) {
		c.at(n, "E_VALUE", where+" is "+strconv.Quote(shortened(n.text)), s.expects(), didYouMean(n.text, s.enum))
		return
	}
	if wrong := n.surprise(); wrong != "" && s.form != conditionForm && len(s.enum) == 0 {
		c.at(n, "E_TYPE", where+" is text, and YAML readers take "+n.text+" for a "+wrong, "text", "quote it")
		return
	}
	if s.form == textForm && strings.Contains(n.text, "${{") {
		c.at(n, "E_EXPR", where+" can't hold an expression", "plain text", "expressions stand in inputs, env and with")
	}
	if s.form != textForm && strings.TrimSpace(n.text) == "" {
		c.at(n, "E_VALUE", where+" is empty", s.expects(), "")
	}
}

// checkValue wants text that no YAML reader changes. Its expression, if it is one, is compiled later.
func (c *checker) checkValue(n *node, where string) {
	if !n.keepsText() {
		c.at(n, "E_TYPE", where+" is text, and YAML readers take "+n.text+" for a "+n.surprise(), "text", "quote it")
	}
	c.checkAlone(n, where)
}

// checkAlone refuses ${{ }} inside other text.
func (c *checker) checkAlone(n *node, where string) {
	if _, alone := Expression(n.text); !alone && strings.Contains(n.text, "${{") {
		line, col := c.inside(n, "${{", 0)
		c.report(line, col, "E_EXPR", where+" mixes ${{ }} with other text", "one ${{ expression }} alone",
			`build the text inside it, as ${{ "a-" + params.b }}`)
	}
}

func (c *checker) checkNumber(n *node, s *spec, where string) {
	whole := s.form == integerForm
	f, err := strconv.ParseFloat(n.text, 64)
	if n.plain != "integer" && n.plain != "float" || err != nil || !canonicalNumber.MatchString(n.text) {
		c.at(n, "E_TYPE", where+" is "+n.what(), s.expects(), "")
		return
	}
	if f < s.min || f > s.max || whole && f != math.Trunc(f) {
		c.at(n, "E_RANGE", where+" is "+n.text, fmt.Sprintf("%s from %s to %s", s.expects(), plainNumber(s.min), plainNumber(s.max)), "")
	} else if whole && !canonicalInteger.MatchString(n.text) {
		c.at(n, "E_TYPE", where+" is "+n.text, "a whole number in plain digits", "write "+plainNumber(f))
	}
}

func plainNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func (c *checker) checkDuration(n *node, s *spec, where string) {
	if n.plain == "integer" && strings.Trim(n.text, "-0") == "" && !s.zero || strings.HasPrefix(n.text, "-") && n.plain != "string" {
		c.at(n, "E_RANGE", where+" is "+n.text, "a duration above 0", "")
		return
	}
	d, hint, err := parseDuration(n.text)
	switch {
	case errors.Is(err, errRange):
		c.at(n, "E_RANGE", where+" is "+n.text, "a duration above 0", hint)
	case err != nil:
		c.at(n, "E_DURATION", where+" is "+strconv.Quote(shortened(n.text))+", not a duration", "Go's syntax, as 90s or 1h30m", hint)
	case d < 0 || d == 0 && !s.zero:
		c.at(n, "E_RANGE", where+" is "+n.text, "a duration above 0", "")
	}
}

func (c *checker) checkAmount(n *node, s *spec, where string) {
	parse, hint := parseSize, "use 512, 10M, 256Mi or 1Gi"
	if s.form == rateForm {
		parse, hint = parseRate, "use kbps, Mbps or Gbps"
	}
	amount, err := parse(n.text)
	switch {
	case errors.Is(err, errRange) || err == nil && amount == 0 || strings.HasPrefix(n.text, "-"):
		c.at(n, "E_RANGE", where+" is "+n.text, s.expects(), hint)
	case err != nil:
		c.at(n, "E_SIZE_UNIT", where+" is "+strconv.Quote(shortened(n.text)), s.expects(), hint)
	}
}
