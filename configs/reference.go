package configs

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// reference is one use of another stage's output in an expression.
type reference struct {
	stage, role string
	field       string // what is read of it, as records; "" is the whole
	at          int    // character offset in the written source
}

// analysis is what an expression's tree says without any types.
type analysis struct {
	source     string // what is compiled: the written source with dashed names in brackets
	shifts     []shift
	roots      map[string]int // names read from the environment, and where first
	references []reference
	loose      int      // offset of a `stages` that names no output; -1 is none
	path       bool     // the whole expression is one path
	chain      []string // the path's names, when path
}

// exprError is a fault at a character offset of the written source.
type exprError struct {
	code, message, hint string
	at                  int
}

func (e *exprError) Error() string { return e.code + ": " + e.message }

// analyse parses an expression and refuses what is too large or too costly before it is compiled.
func analyse(src string) (*analysis, error) {
	if len(src) > maxExpression {
		return nil, &exprError{code: "E_EXPR_COST", message: fmt.Sprintf("the expression has %d bytes, and at most %d are allowed", len(src), maxExpression)}
	}
	a := &analysis{roots: map[string]int{}, loose: -1}
	a.source, a.shifts = bracketNames(src)
	tree, err := parseSource(a.source)
	if err != nil {
		return nil, a.located(err)
	}
	v := &referenceVisitor{analysis: a, declared: map[string]bool{}}
	ast.Walk(&tree.Node, v)
	for name := range v.declared {
		delete(a.roots, name)
	}
	if v.named < v.seen {
		a.loose = v.stages
	}
	a.chain = pathOf(tree.Node)
	a.path = len(a.chain) > 0
	if cost := costOf(tree.Node); cost > maxExprCost {
		return nil, &exprError{code: "E_EXPR_COST", message: fmt.Sprintf("the expression may take about %.0g steps, and at most %d are allowed", cost, maxExprCost),
			hint: "lists whose length is not known count as 100 items; nest fewer loops"}
	}
	return a, nil
}

func parseSource(source string) (tree *parser.Tree, err error) {
	config := conf.CreateNew()
	config.MaxNodes = maxExprNodes
	for name := range config.Builtins {
		config.Disabled[name] = true
	}
	for _, name := range builtins {
		delete(config.Disabled, name)
	}
	for name := range config.Disabled {
		delete(config.Builtins, name)
	}
	err = shielded(func() (err error) {
		tree, err = parser.ParseWithConfig(source, config)
		return err
	})
	return tree, err
}

// located turns an error of the expression library into an exprError at its place.
func (a *analysis) located(err error) *exprError {
	out := &exprError{code: "E_EXPR", message: err.Error()}
	if at, ok := errors.AsType[*file.Error](err); ok {
		out.message, out.at = at.Message, writtenOffset(at.From, a.shifts)
	}
	if strings.Contains(out.message, "exceeds maximum allowed nodes") {
		out.code, out.message, out.at = "E_EXPR_COST", fmt.Sprintf("the expression has more than %d parts", maxExprNodes), 0
	}
	return out
}

type referenceVisitor struct {
	*analysis
	seen, named, stages int
	declared            map[string]bool
}

// Visit is called for the inside before the outside.
func (v *referenceVisitor) Visit(n *ast.Node) {
	switch t := (*n).(type) {
	case *ast.IdentifierNode:
		at := writtenOffset(t.Location().From, v.shifts)
		if _, known := v.roots[t.Value]; !known {
			v.roots[t.Value] = at
		}
		if t.Value == "stages" {
			v.seen++
			v.stages = at
		}
	case *ast.VariableDeclaratorNode:
		v.declared[t.Name] = true
	case *ast.CallNode:
		if id, ok := t.Callee.(*ast.IdentifierNode); ok {
			v.roots[id.Value] = writtenOffset(id.Location().From, v.shifts)
		}
	case *ast.MemberNode:
		v.member(t)
	}
}

func (v *referenceVisitor) member(t *ast.MemberNode) {
	chain := pathOf(t)
	if len(chain) == 3 && chain[0] == "stages" && stageFacts[chain[2]] != nil {
		v.named++
		v.references = append(v.references, reference{stage: chain[1], field: chain[2], at: v.stages})
	}
	if len(chain) < 4 || chain[0] != "stages" || chain[2] != "outputs" {
		return
	}
	switch len(chain) {
	case 4:
		v.named++
		v.references = append(v.references, reference{stage: chain[1], role: chain[3], at: v.stages})
	case 5:
		v.references[len(v.references)-1].field = chain[4]
	}
}

// Paths gives the paths that an expression reads, as stages.clean.outputs.n, each once and as long as it stands there. An
// expression that does not compile has none.
func Paths(src string) []string {
	source, _ := bracketNames(src)
	tree, err := parseSource(source)
	if err != nil {
		return nil
	}
	v := &pathVisitor{paths: map[string]int{}, declared: map[string]bool{}}
	ast.Walk(&tree.Node, v)
	var paths []string
	for _, path := range sortedKeys(v.paths) {
		if root := path[:len(path)-len(strings.TrimLeft(path, nameBytes))]; v.paths[path] > 0 && !v.declared[root] {
			paths = append(paths, path)
		}
	}
	return paths
}

const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

type pathVisitor struct {
	paths    map[string]int // how often each stands there by itself
	declared map[string]bool
}

// Visit is called for the inside before the outside: a longer path takes the place of what it begins with.
func (v *pathVisitor) Visit(n *ast.Node) {
	switch t := (*n).(type) {
	case *ast.IdentifierNode:
		v.paths[t.Value]++
	case *ast.VariableDeclaratorNode:
		v.declared[t.Name] = true
	case *ast.CallNode:
		if id, ok := t.Callee.(*ast.IdentifierNode); ok {
			v.paths[id.Value]--
		}
	case *ast.MemberNode:
		if chain := pathOf(t); chain != nil {
			v.paths[pathText(chain[:len(chain)-1])]--
			v.paths[pathText(chain)]++
		}
	}
}

// pathText writes a path so that it can be evaluated again.
func pathText(chain []string) string {
	var b strings.Builder
	for i, name := range chain {
		switch {
		case i == 0:
			b.WriteString(name)
		case variableName.MatchString(name):
			b.WriteString("." + name)
		case strings.Trim(name, "-0123456789") == "":
			b.WriteString("[" + name + "]")
		default:
			b.WriteString("[" + strconv.Quote(name) + "]")
		}
	}
	return b.String()
}

// pathOf gives the names of a.b["c"].d, or nil when the node is anything else.
func pathOf(n ast.Node) []string {
	switch t := n.(type) {
	case *ast.ChainNode:
		return pathOf(t.Node)
	case *ast.IdentifierNode:
		return []string{t.Value}
	case *ast.MemberNode:
		base := pathOf(t.Node)
		if base == nil {
			return nil
		}
		switch p := t.Property.(type) {
		case *ast.StringNode:
			return append(base, p.Value)
		case *ast.IntegerNode:
			return append(base, fmt.Sprint(p.Value))
		case *ast.UnaryNode:
			if i, ok := p.Node.(*ast.IntegerNode); ok && p.Operator == "-" {
				return append(base, fmt.Sprint(-i.Value))
			}
		}
	}
	return nil
}

// costOf estimates the steps of an evaluation: a loop costs its list's length times its body.
func costOf(n ast.Node) float64 {
	switch t := n.(type) {
	case *ast.BuiltinNode:
		return builtinCost(t)
	case *ast.PredicateNode:
		return costOf(t.Node)
	case *ast.UnaryNode:
		return 1 + costOf(t.Node)
	case *ast.BinaryNode:
		if t.Operator == ".." {
			return 1 + itemsOf(t)
		}
		return 1 + costOf(t.Left) + costOf(t.Right)
	case *ast.ChainNode:
		return costOf(t.Node)
	case *ast.MemberNode:
		return 1 + costOf(t.Node) + costOf(t.Property)
	case *ast.SliceNode:
		return 1 + costOf(t.Node)
	case *ast.CallNode:
		return 1 + costsOf(t.Arguments)
	case *ast.ConditionalNode:
		return 1 + costOf(t.Cond) + max(costOf(t.Exp1), costOf(t.Exp2))
	case *ast.VariableDeclaratorNode:
		return 1 + costOf(t.Value) + costOf(t.Expr)
	case *ast.SequenceNode:
		return costsOf(t.Nodes)
	case *ast.ArrayNode:
		return 1 + costsOf(t.Nodes)
	case *ast.MapNode:
		return 1 + costsOf(t.Pairs)
	case *ast.PairNode:
		return costOf(t.Key) + costOf(t.Value)
	}
	return 1
}

func costsOf(nodes []ast.Node) float64 {
	total := 0.0
	for _, n := range nodes {
		total += costOf(n)
	}
	return total
}

func builtinCost(t *ast.BuiltinNode) float64 {
	if len(t.Arguments) == 0 {
		return 1
	}
	items, total := itemsOf(t.Arguments[0]), 1+costOf(t.Arguments[0])
	for _, argument := range t.Arguments[1:] {
		if _, loop := argument.(*ast.PredicateNode); loop {
			total += items * costOf(argument)
		} else {
			total += costOf(argument)
		}
	}
	return total
}

// itemsOf estimates how many items a list has.
func itemsOf(n ast.Node) float64 {
	switch t := n.(type) {
	case *ast.BinaryNode:
		if from, ok := t.Left.(*ast.IntegerNode); ok && t.Operator == ".." {
			if to, ok := t.Right.(*ast.IntegerNode); ok {
				return math.Max(0, float64(to.Value)-float64(from.Value)+1)
			}
		}
	case *ast.ArrayNode:
		return float64(len(t.Nodes))
	case *ast.BuiltinNode:
		if len(t.Arguments) > 0 {
			return itemsOf(t.Arguments[0])
		}
	}
	return assumedItems
}
