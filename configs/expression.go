package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
)

// The bounds of one expression.
const (
	maxExpression = 4 << 10   // bytes of source
	maxExprNodes  = 300       // nodes of its tree
	maxExprCost   = 1_000_000 // steps through lists, and bytes of text put together per hundred
	assumedItems  = 100       // items of a list whose length is not known before a run
)

// ErrExprCost says that an evaluation was given up because it went over its bounds.
var ErrExprCost = errors.New("E_EXPR_COST: the expression takes too many steps")

// builtins are the functions of the expression language that are pure and bounded. What reads a clock, builds text
// without a bound, or reaches values by a computed name is not among them.
var builtins = []string{"all", "none", "any", "one", "filter", "map", "find", "findIndex", "findLast", "findLastIndex", "count", "sum",
	"sortBy", "len", "type", "abs", "ceil", "floor", "round", "int", "float", "string", "trim", "trimPrefix", "trimSuffix", "upper", "lower",
	"split", "join", "indexOf", "lastIndexOf", "hasPrefix", "hasSuffix", "max", "min", "mean", "median", "first", "last", "take", "keys",
	"values", "reverse", "uniq", "concat", "flatten", "sort"}

func pureOptions() []expr.Option {
	options := []expr.Option{expr.DisableAllBuiltins(), expr.MaxNodes(maxExprNodes)}
	for _, name := range builtins {
		options = append(options, expr.EnableBuiltin(name))
	}
	return options
}

// Expression gives the inside of a text that is one ${{ expression }} and nothing else.
func Expression(text string) (src string, ok bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "${{") || !strings.HasSuffix(text, "}}") || len(text) < 5 {
		return "", false
	}
	src = strings.TrimSpace(text[3 : len(text)-2])
	return src, !strings.Contains(src, "${{")
}

// Eval evaluates an expression (the inside of ${{ }}, or a condition) over recorded data. It is pure: the same source
// and data give the same value. Numbers in env may be json.Number; a path such as trigger.payload.id gives the number
// with the digits it came with, and in calculations whole numbers of up to 64 bits stay exact. An integer of more than
// 64 bits can only be passed on or turned to text; calculating with it is an error, never a rounded answer. Evaluation
// stops with ErrExprCost when it goes over its bounds.
func Eval(src string, env map[string]any) (any, error) {
	p, err := programs.get(src)
	if err != nil {
		return nil, err
	}
	for _, root := range p.roots {
		if _, known := env[root]; !known {
			return nil, fmt.Errorf("evaluate %q: unknown name %s", shortened(src), root)
		}
	}
	data := env
	if !p.path {
		data = make(map[string]any, len(p.roots)+1)
		for _, root := range p.roots {
			data[root] = calculable(env[root])
		}
		data[meterName] = new(meter)
	}
	out, err := p.run(data)
	if err != nil {
		if strings.Contains(err.Error(), "memory budget exceeded") {
			err = ErrExprCost
		}
		return nil, fmt.Errorf("evaluate %q: %w", shortened(src), err)
	}
	return out, nil
}

// EvalBool evaluates a condition; any value but true and false is an error.
func EvalBool(src string, env map[string]any) (bool, error) {
	v, err := Eval(src, env)
	if err != nil {
		return false, err
	}
	if b, ok := v.(bool); ok {
		return b, nil
	}
	return false, fmt.Errorf("evaluate %q: a condition gave %T, not true or false", shortened(src), v)
}

// FormatValue writes what an expression gave as the text that a stage receives: text as it is, numbers with their
// digits, true and false, nothing for null, lists and maps as compact JSON.
func FormatValue(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("format value: %w", err)
	}
	return string(b), nil
}

// calculable turns json.Number, however deep, into int or float64. Integers of more than 64 bits stay as they are.
func calculable(v any) any {
	switch v := v.(type) {
	case json.Number:
		return number64(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = calculable(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = calculable(item)
		}
		return out
	}
	return v
}

func number64(n json.Number) any {
	if !strings.ContainsAny(n.String(), ".eE") {
		if i, err := strconv.Atoi(n.String()); err == nil {
			return i
		}
		return n
	}
	if f, err := n.Float64(); err == nil {
		return f
	}
	return n
}

// program is an expression compiled for evaluation.
type program struct {
	code  *vm.Program
	roots []string // names it reads from the environment
	path  bool     // it only walks a path: values come out as they are
}

func (p *program) run(env map[string]any) (any, error) {
	machine := vm.VM{MemoryBudget: maxExprCost}
	return machine.Run(p.code, env)
}

const (
	meterName  = "__meter"
	chargeName = "__charge"
)

// meter counts what one evaluation costs.
type meter struct{ cost int }

func charge(args ...any) (any, error) {
	m, ok := args[0].(*meter)
	if !ok || len(args) != 2 {
		return nil, errors.New("no meter")
	}
	value := args[1]
	m.cost++
	if s, ok := value.(string); ok {
		m.cost += len(s) / 100
	}
	if m.cost > maxExprCost {
		return nil, ErrExprCost
	}
	return value, nil
}

// metering wraps the body of each loop and each sum in charge.
type metering struct{}

func (metering) Visit(n *ast.Node) {
	switch t := (*n).(type) {
	case *ast.PredicateNode:
		t.Node = charged(t.Node)
	case *ast.BinaryNode:
		if t.Operator == "+" {
			*n = charged(t)
		}
	}
}

func charged(n ast.Node) ast.Node {
	call := &ast.CallNode{Callee: &ast.IdentifierNode{Value: chargeName}, Arguments: []ast.Node{&ast.IdentifierNode{Value: meterName}, n}}
	call.SetLocation(n.Location())
	return call
}

// programCache keeps compiled expressions; when full it starts anew.
type programCache struct {
	mu   sync.RWMutex
	byID map[string]*program
}

const maxPrograms = 4096

var programs = &programCache{byID: map[string]*program{}}

func (c *programCache) get(src string) (*program, error) {
	c.mu.RLock()
	p := c.byID[src]
	c.mu.RUnlock()
	if p != nil {
		return p, nil
	}
	p, err := compileProgram(src)
	if err != nil {
		return nil, fmt.Errorf("compile %q: %w", shortened(src), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byID) >= maxPrograms {
		clear(c.byID)
	}
	c.byID[src] = p
	return p, nil
}

func compileProgram(src string) (*program, error) {
	a, err := analyse(src)
	if err != nil {
		return nil, err
	}
	options := pureOptions()
	if !a.path {
		options = append(options, expr.Patch(metering{}), expr.Function(chargeName, charge))
	}
	var code *vm.Program
	err = shielded(func() (err error) {
		code, err = expr.Compile(a.source, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &program{code: code, roots: sortedKeys(a.roots), path: a.path}, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// shift says that the compiled source is longer than the written one by extra characters from at on.
type shift struct{ at, extra int }

// bracketNames writes stages.my-stage.outputs as stages["my-stage"].outputs, since a dash would be a minus, so that a
// stage is named in expressions as everywhere else. Text in quotes stays as it is.
func bracketNames(src string) (string, []shift) {
	var b strings.Builder
	var shifts []shift
	for i := 0; i < len(src); {
		if end := quotedEnd(src, i); end > i {
			b.WriteString(src[i:end])
			i = end
			continue
		}
		if name, ok := dashedStage(src, i); ok {
			at := utf8.RuneCountInString(b.String()) + len("stages")
			shifts = append(shifts, shift{at, 2}, shift{at + len(name) + 3, 1})
			b.WriteString(`stages["` + name + `"]`)
			i += len("stages.") + len(name)
			continue
		}
		b.WriteByte(src[i])
		i++
	}
	return b.String(), shifts
}

func quotedEnd(src string, i int) int {
	q := src[i]
	if q != '"' && q != '\'' && q != '`' {
		return i
	}
	for j := i + 1; j < len(src); j++ {
		switch {
		case src[j] == '\\' && q != '`':
			j++
		case src[j] == q:
			return j + 1
		}
	}
	return len(src)
}

// dashedStage finds stages.<name>.outputs at i, where the name can't stand as an identifier.
func dashedStage(src string, i int) (string, bool) {
	if !strings.HasPrefix(src[i:], "stages.") || i > 0 && (isNameByte(src[i-1]) || src[i-1] == '.') {
		return "", false
	}
	rest := src[i+len("stages."):]
	n := 0
	for n < len(rest) && isNameByte(rest[n]) {
		n++
	}
	name := rest[:n]
	if !namePattern.MatchString(name) || !strings.HasPrefix(rest[n:], ".") || !slices.Contains(afterStage, leadingName(rest[n+1:])) {
		return "", false
	}
	return name, strings.Contains(name, "-") || name[0] >= '0' && name[0] <= '9'
}

// afterStage is what may follow the name of a stage.
var afterStage = []string{"outputs", "state", "class", "reason", "duration_ms"}

func leadingName(s string) string {
	n := 0
	for n < len(s) && isNameByte(s[n]) {
		n++
	}
	return s[:n]
}

func isNameByte(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// writtenOffset maps a character offset in the compiled source back to the source as written.
func writtenOffset(offset int, shifts []shift) int {
	back := 0
	for _, s := range shifts {
		if offset > s.at {
			back += s.extra
		}
	}
	return max(0, offset-back)
}
