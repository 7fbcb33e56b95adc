package configs

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/types"

	"github.com/apollo-11/apollo/events"
)

func (b *builder) buildForeach(s *stageInfo) {
	n := s.body.get("foreach")
	if n == nil || n.kind != scalarNode {
		return
	}
	b.expression(s, bare(n), b.dataScope(s), reflect.Slice)
	s.out.Foreach = n.text
	if s.out.Always {
		b.at(n, "E_VALUE", "the stage "+s.name+" has foreach and always", "one of the two", "let a stage with always: true give the list, and another one run for each item")
	}
}

func (b *builder) buildInputs(s *stageInfo) {
	s.inputs = types.Map{}
	n := s.body.get("inputs")
	if n == nil || n.kind != mapNode {
		return
	}
	taken := map[string]string{}
	for _, e := range n.entries {
		b.uniqueVariable(taken, e.key, "APOLLO_IN_")
		in := events.Input{Role: e.key.text}
		from := e.value
		if e.value.kind == mapNode {
			in.Format, in.Contract, from = formatOf(e.value), e.value.str("contract"), e.value.get("from")
		}
		s.inputs[in.Role] = types.Any
		switch {
		case e.value.kind == mapNode && (from == nil || e.value.get("file") != nil):
			b.machineInput(s, &in, e.value)
		case from != nil && from.kind == scalarNode:
			b.inputSource(s, &in, from)
		}
		b.checkContractRef(e.value.get("contract"), in.Format, !b.refuseDirectory(s, &in, e.value))
		s.out.Inputs = append(s.out.Inputs, in)
	}
	slices.SortFunc(s.out.Inputs, func(a, b events.Input) int { return strings.Compare(a.Role, b.Role) })
}

// inputSource resolves where an input comes from. An input that is a whole output takes its format from there.
func (b *builder) inputSource(s *stageInfo, in *events.Input, from *node) {
	in.From = from.text
	src, ok := embedded(from)
	if !ok {
		s.inputs[in.Role] = types.String
		return
	}
	in.From, in.Expr = src.text, true
	a := b.expression(s, src, b.dataScope(s), reflect.Invalid)
	if a == nil {
		return
	}
	if wholeFile(a.chain) {
		s.inputs[in.Role] = fileType
	}
	if !a.path || len(a.references) != 1 || a.references[0].field != "" {
		return
	}
	r := a.references[0]
	output := b.byName[r.stage].outputs[r.role]
	if s.inputs[in.Role] = output.typ; b.byName[r.stage].body.get("foreach") != nil {
		s.inputs[in.Role] = types.Array(output.typ)
	}
	if in.Format == "" && output.file {
		in.Format = output.format
		if in.Format == "" && in.Contract != "" {
			in.Format = formatByName(b.byName[r.stage].pathOf(r.role))
		}
	}
}

// formatOf gives a declared format; bytes is none.
func formatOf(n *node) string {
	if format := n.str("format"); format != "bytes" {
		return format
	}
	return ""
}

func (s *stageInfo) pathOf(role string) string {
	for _, o := range s.out.Outputs {
		if o.Role == role {
			return o.Path
		}
	}
	return ""
}

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	// takenVariable are names that change how programs load and run code, and those that Apollo sets itself.
	takenVariable = regexp.MustCompile(`^(LD_.*|DYLD_.*|PATH|BASH_ENV|ENV|IFS|SHELLOPTS|BASHOPTS|PS4|PYTHON.*|NODE_OPTIONS|PERL5.*|RUBYOPT|RUBYLIB|APOLLO_.*)$`)
)

func (c *checker) checkEnvName(n *node) {
	if !variableName.MatchString(n.text) {
		c.at(n, "E_ENV_NAME", strconv.Quote(shortened(n.text))+" is no name of an environment variable", "letters, digits and _, with no digit first", "")
	} else if takenVariable.MatchString(strings.ToUpper(n.text)) {
		c.at(n, "E_ENV_NAME", "the environment variable "+n.text+" may not be set: it changes how programs are found or run", "another name", "")
	}
}

func (b *builder) buildVariables(s *stageInfo) {
	if n := s.body.get("env"); n != nil && n.kind == mapNode && len(n.entries) > 0 {
		s.out.Env = map[string]string{}
		for _, e := range n.entries {
			s.out.Env[e.key.text] = e.value.text
			if e.value.kind == scalarNode {
				b.text(s, e.value)
			}
		}
	}
	n := s.body.get("secrets")
	if n == nil || n.kind != mapNode || len(n.entries) == 0 {
		return
	}
	s.out.Secrets = map[string]string{}
	for _, e := range n.entries {
		s.out.Secrets[e.key.text] = e.value.text
		b.checkSecretRef(e.value)
		if _, both := s.out.Env[e.key.text]; both {
			b.at(e.key, "E_ENV_NAME", e.key.text+" stands in env and in secrets", "one of the two", "")
		}
	}
}

// text compiles an expression whose value becomes text or JSON: any value will do but a whole file.
func (b *builder) text(s *stageInfo, n *node) {
	src, ok := embedded(n)
	if !ok {
		return
	}
	a := b.expression(s, src, b.dataScope(s), reflect.Invalid)
	if a == nil || !a.path {
		return
	}
	whole := len(a.references) == 1 && a.references[0].field == "" && b.byName[a.references[0].stage].outputs[a.references[0].role].file
	if whole || wholeFile(a.chain) {
		b.fault(src, 0, "E_EXPR", "this is a whole file, and a file is no text", "one of its fields, as .digest, or an input",
			"declare it under inputs: the script finds its path in $APOLLO_IN_<ROLE>")
	}
}

// wholeFile reports whether a path is what a trigger brought as a file.
func wholeFile(chain []string) bool {
	return len(chain) == 2 && chain[0] == "trigger" && (chain[1] == "file" || chain[1] == "body")
}

// buildConditions compiles when, reconcile and gate.
func (b *builder) buildConditions(s *stageInfo) {
	if n := s.body.get("when"); n != nil && n.kind == scalarNode {
		s.out.When = n.text
		if a := b.condition(s, n, b.dataScope(s)); a != nil {
			_, s.out.WhenItem = a.roots["item"]
		}
	}
	outputs := types.Map{}
	for role, o := range s.outputs {
		outputs[role] = o.typ
	}
	if n := s.body.get("reconcile"); n != nil {
		for _, item := range n.items {
			s.out.Reconcile = append(s.out.Reconcile, events.Reconcile{From: item.str("from"), To: item.str("to"), Expect: item.str("expect"),
				Level: textOr(item, "level", "error")})
			scope := types.Map{"from": b.side(s, item.get("from"), outputs), "to": b.side(s, item.get("to"), outputs), "params": b.params}
			b.condition(s, item.get("expect"), scope)
		}
	}
	if n := s.body.get("gate"); n != nil {
		for _, item := range n.items {
			s.out.Gate = append(s.out.Gate, events.Gate{Check: item.str("check"), Message: item.str("message")})
			scope := b.dataScope(s)
			scope["inputs"], scope["outputs"], scope["metrics"] = s.inputs, outputs, metricsType
			b.condition(s, item.get("check"), scope)
		}
	}
}

// condition compiles a yes-or-no expression, which is written without ${{ }}.
func (b *builder) condition(s *stageInfo, n *node, scope types.Map) *analysis {
	if n == nil || n.kind != scalarNode || strings.TrimSpace(n.text) == "" {
		return nil
	}
	return b.expression(s, bare(n), scope, reflect.Bool)
}

// side resolves one side of a reconciliation.
func (b *builder) side(s *stageInfo, n *node, outputs types.Map) types.Type {
	if n == nil || n.kind != scalarNode {
		return types.Any
	}
	group, role, _ := strings.Cut(n.text, ".")
	known := map[string]types.Map{"inputs": s.inputs, "outputs": outputs}[group]
	if known == nil {
		b.at(n, "E_REF", "a reconciliation compares inputs and outputs, not "+strconv.Quote(shortened(n.text)), "inputs.<role> or outputs.<role>", "")
		return types.Any
	}
	t := known[role]
	if t == nil {
		b.at(n, "E_REF", "the stage "+s.name+" has no "+n.text, "one of "+strings.Join(sortedKeys(known), ", "), didYouMean(role, sortedKeys(known)))
		return types.Any
	}
	return t
}
