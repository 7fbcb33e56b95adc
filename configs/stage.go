package configs

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/types"

	"github.com/apollo-11/apollo/events"
)

// stageInfo is a stage while it is checked.
type stageInfo struct {
	index          int // by declaration
	name           string
	key, body      *node
	needs, prefers []*stageInfo
	outputs        map[string]outputInfo
	inputs         types.Map // by role, as the stage's own conditions see them
	reads          map[string]bool
	out            events.Stage
}

// outputInfo is what other stages' expressions need to know of an output.
type outputInfo struct {
	file   bool
	dir    bool
	format string
	typ    types.Type // of one instance
}

func (b *builder) collectStages(n *node) {
	b.byName = map[string]*stageInfo{}
	if n == nil || n.kind != mapNode {
		return
	}
	if len(n.entries) == 0 {
		b.at(n, "E_REQUIRED", "the pipeline has no stages", "at least one stage", "")
	}
	if len(n.entries) > MaxStages {
		b.at(n, "E_SIZE", fmt.Sprintf("the pipeline has %d stages", len(n.entries)), fmt.Sprintf("at most %d", MaxStages), "")
		return
	}
	folded := make(map[string]*node, len(n.entries))
	for _, e := range n.entries {
		lower := strings.ToLower(e.key.text)
		if first := folded[lower]; first != nil {
			b.at(e.key, "E_DUP_STAGE", "the stage "+e.key.text+" differs from "+first.text+" in line "+strconv.Itoa(first.line)+" by case only",
				"one stage a name", "")
			continue
		}
		folded[lower] = e.key
		if e.value.kind != mapNode {
			continue
		}
		s := &stageInfo{index: len(b.stages), name: e.key.text, key: e.key, body: e.value, reads: map[string]bool{}}
		b.collectOutputs(s)
		b.stages = append(b.stages, s)
		b.byName[s.name] = s
	}
}

func (b *builder) collectOutputs(s *stageInfo) {
	s.outputs = map[string]outputInfo{}
	n := s.body.get("outputs")
	if n == nil || n.kind != mapNode {
		return
	}
	for _, e := range n.entries {
		if e.value.kind != mapNode {
			continue
		}
		out := b.output(e.key.text, e.value)
		s.out.Outputs = append(s.out.Outputs, out)
		info := outputInfo{file: out.Path != "", dir: isDirectory(out.Path), format: out.Format, typ: fileType}
		if !info.file {
			info.typ = rawSchemaType(out.Schema)
		}
		s.outputs[e.key.text] = info
	}
	b.checkOverlaps(n)
	slices.SortFunc(s.out.Outputs, func(a, b events.Output) int { return strings.Compare(a.Role, b.Role) })
}

func (b *builder) output(role string, n *node) events.Output {
	out := events.Output{Role: role, Path: n.str("path"), Format: formatOf(n), Contract: n.str("contract"), Optional: boolOf(n.get("optional"))}
	if p := n.get("path"); p != nil && p.kind == scalarNode {
		b.checkOutputPath(p)
		if schema := slices.IndexFunc(n.entries, isSchemaKey); schema >= 0 {
			b.at(n.entries[schema].key, "E_FIELD", "a file has no "+n.entries[schema].key.text, "a contract", "write a contract, or leave path out for a small value")
		}
		switch {
		case isDirectory(out.Path):
			b.refuseChecks(n, "the output "+role)
			out.Format, out.Contract = "", ""
		case out.Format == "" && out.Contract != "":
			out.Format = formatByName(out.Path)
		}
	} else {
		if format := n.get("format"); format != nil {
			b.at(format, "E_FIELD", "a small value has no format", "path: for a file", "")
		}
		out.Schema = b.schema(valueSchema(n))
	}
	b.checkContractRef(n.get("contract"), out.Format, out.Path != "" && !isDirectory(out.Path))
	b.outputKey(&out, n.get("key"))
	return out
}

func isSchemaKey(e entry) bool {
	return e.key.text == "schema" || slices.Contains(schemaKeywords, e.key.text)
}

// valueSchema is the schema of a small value: what stands under schema:, else the keywords beside.
func valueSchema(n *node) *node {
	if whole := n.get("schema"); whole != nil {
		return whole
	}
	out := &node{kind: mapNode, line: n.line, col: n.col}
	for _, e := range n.entries {
		if isSchemaKey(e) {
			out.entries = append(out.entries, e)
		}
	}
	return out
}

func formatByName(name string) string {
	switch strings.ToLower(path.Ext(name)) {
	case ".csv":
		return "csv"
	case ".tsv":
		return "tsv"
	case ".json":
		return "json"
	case ".jsonl", ".ndjson":
		return "ndjson"
	}
	return ""
}

func (b *builder) checkOutputPath(n *node) {
	p := strings.TrimSuffix(n.text, "/") // one at its end makes it a directory
	switch {
	case p == "" || path.IsAbs(p) || path.Clean(p) != p || p == "." || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsAny(p, "\\\x00"):
		b.at(n, "E_PATH", "the output path "+strconv.Quote(shortened(p))+" is not below the stage's out directory", "a relative path without . and ..", "")
	case strings.ContainsAny(p, "*?["):
		b.at(n, "E_PATH", "the output path "+strconv.Quote(shortened(p))+" has wildcards", "the name of one file", "")
	}
}

func (b *builder) checkContractRef(n *node, format string, file bool) {
	if n == nil || n.kind != scalarNode {
		return
	}
	if !b.contracts[n.text] {
		b.at(n, "E_REF", "there is no contract "+n.text, "a name under contracts:", didYouMean(n.text, sortedKeys(b.contracts)))
	} else if file && format == "" {
		b.at(n, "E_CONTRACT", "the contract "+n.text+" has no format to be checked on", "format: csv, tsv, json or ndjson", "")
	}
}

func (b *builder) buildStage(s *stageInfo) {
	s.out.Name = s.name
	s.out.Needs, s.out.Prefers = namesOf(s.needs), namesOf(s.prefers)
	s.out.Always, s.out.MayFail = boolOf(s.body.get("always")), boolOf(s.body.get("may_fail"))
	b.buildForeach(s)
	b.buildExecutor(s)
	defaults := b.defaultsOf(s.out.Executor)
	s.out.Timeout = durationOf(s.body.get("timeout"), defaults.timeout)
	s.out.Grace = durationOf(s.body.get("grace"), 0)
	s.out.Delay = durationOf(s.body.get("delay"), 0)
	if retry := s.body.get("retry"); retry != nil && s.out.Executor == "approval" {
		b.at(retry, "E_VALUE", "the stage "+s.name+" asks a person, and is not tried again", "no retry", "apollo resume asks once more")
	}
	b.buildIsolation(s, defaults)
	b.buildInputs(s)
	b.buildVariables(s)
	b.buildRetry(s, defaults)
	b.buildResources(s)
	b.buildConditions(s)
	s.out.Reads = sortedKeys(s.reads)
}

func namesOf(stages []*stageInfo) []string {
	var names []string
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// dataScope is what every expression of a stage may read; stages is added for what the expression names.
func (b *builder) dataScope(s *stageInfo) types.Map {
	scope := types.Map{"params": b.params, "trigger": triggerType, "stages": types.Map{}, "run": runType}
	if s.out.Foreach != "" {
		scope["item"] = types.Any
	}
	return scope
}

// expression compiles one expression of a stage, and records which stages it reads.
func (b *builder) expression(s *stageInfo, src source, scope types.Map, want reflect.Kind) *analysis {
	a, err := analyse(src.text)
	if err != nil {
		b.exprFault(src, err)
		return nil
	}
	stages, ok := b.resolveReferences(s, src, a)
	if !ok {
		return nil
	}
	if scope["stages"] != nil {
		scope["stages"] = stages
	}
	if _, ok := a.roots["run"]; ok && scope["run"] != nil {
		s.out.Facts = true
	}
	if !b.compileAnalysed(src, a, scope, want) {
		return nil
	}
	return a
}

func (b *builder) resolveReferences(s *stageInfo, src source, a *analysis) (types.Map, bool) {
	stages, outputs, ok := types.Map{}, map[string]types.Map{}, true
	if a.loose >= 0 {
		b.fault(src, a.loose, "E_EXPR", "stages is read by the name of an output only", "stages.<stage>.outputs.<role>", "")
		ok = false
	}
	for _, r := range a.references {
		info, found := b.resolveReference(s, src, r)
		if !found {
			ok = false
			continue
		}
		s.reads[r.stage] = true
		if outputs[r.stage] == nil {
			outputs[r.stage] = types.Map{}
			facts := maps.Clone(stageFacts)
			facts["outputs"] = outputs[r.stage]
			stages[r.stage] = facts
		}
		if r.role != "" {
			outputs[r.stage][r.role] = info
		}
	}
	return stages, ok
}

func (b *builder) resolveReference(s *stageInfo, src source, r reference) (types.Type, bool) {
	target := b.byName[r.stage]
	if target == nil {
		b.fault(src, r.at, "E_REF", "there is no stage "+r.stage, "a stage of this pipeline", didYouMean(r.stage, sortedKeys(b.byName)))
		return nil, false
	}
	output, found := target.outputs[r.role]
	switch {
	case target == s:
		b.fault(src, r.at, "E_IMPLICIT_DEP", s.name+" reads its own output "+cmp.Or(r.role, r.field), "an output of an earlier stage", "")
	case !b.reaches(s, target) && slices.Contains(s.prefers, target):
		b.fault(src, r.at, "E_IMPLICIT_DEP", "data can't cross the weak edge from "+r.stage+" to "+s.name, "a strong need",
			"move "+r.stage+" from prefers to needs")
	case !b.reaches(s, target):
		b.fault(src, r.at, "E_IMPLICIT_DEP", s.name+" reads an output of "+r.stage+" without needing it", "the stage among needs, or reachable through them",
			"add "+r.stage+" to needs of "+s.name)
	case r.role == "":
		return nil, true
	case !found:
		b.fault(src, r.at, "E_REF", "the stage "+r.stage+" has no output "+r.role, "one of "+strings.Join(sortedKeys(target.outputs), ", "),
			dashHint(r, target))
	default:
		if target.body.get("foreach") != nil {
			return types.Array(output.typ), true
		}
		return output.typ, true
	}
	return nil, false
}

// dashHint sees outputs.a-b, which is a subtraction.
func dashHint(r reference, target *stageInfo) string {
	for _, role := range sortedKeys(target.outputs) {
		if strings.HasPrefix(role, r.role+"-") {
			return `a role with a dash is written stages.` + r.stage + `.outputs["` + role + `"]`
		}
	}
	return didYouMean(r.role, sortedKeys(target.outputs))
}

var retryOn = regexp.MustCompile(`^(exit:([1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])|http:([1-5][0-9][0-9]|[1-5]xx|connect))$`)

func (b *builder) buildRetry(s *stageInfo, defaults workDefaults) {
	n := s.body.get("retry")
	if n == nil || n.kind != mapNode {
		return
	}
	interval := durationOf(n.get("interval"), defaults.interval)
	s.out.Retry = &events.Retry{Max: int(intOf(n.get("max"), 0)), Interval: interval, Backoff: floatOf(n.get("backoff"), 1),
		MaxInterval: durationOf(n.get("max_interval"), max(interval, defaults.maxInterval)), Jitter: floatOf(n.get("jitter"), 0), On: texts(n.get("on"))}
	if longest := n.get("max_interval"); longest != nil && s.out.Retry.MaxInterval < interval {
		b.at(longest, "E_RANGE", "max_interval is shorter than interval", "at least "+DurationText(interval), "")
	}
	var known []string
	for _, class := range events.Classes() {
		if class != events.Aborted {
			known = append(known, string(class))
		}
	}
	if on := n.get("on"); on != nil {
		for _, item := range on.items {
			if item.kind == scalarNode && !slices.Contains(known, item.text) && !retryOn.MatchString(item.text) {
				b.at(item, "E_VALUE", "retry.on has "+strconv.Quote(shortened(item.text)), "exit:<1 to 255>, http:<100 to 599>, http:5xx, http:connect, or one of "+strings.Join(known, ", "),
					didYouMean(item.text, known))
			}
		}
	}
}
