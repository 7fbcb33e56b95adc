package configs

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/expr-lang/expr/types"

	"github.com/apollo-11/apollo/events"
)

// builder makes the plan from checked nodes, and finds what a single key can't know.
type builder struct {
	*checker
	root      *node
	plan      *events.Plan
	params    types.Map
	contracts map[string]bool
	stages    []*stageInfo
	byName    map[string]*stageInfo
	ancestors []bitset // by stage index, when some expression asked; nil while there is a cycle
	cyclic    bool
}

func (b *builder) build() {
	b.plan = &events.Plan{Schema: events.PlanSchema, Pipeline: b.root.str("name"), Description: b.root.str("description")}
	b.buildParams(b.root.get("params"))
	b.buildContracts(b.root.get("contracts"))
	b.buildTriggers(b.root.get("on"))
	b.buildConcurrency(b.root.get("concurrency"))
	b.plan.Deadline = durationOf(b.root.get("deadline"), 0)
	b.plan.Priority = int(intOf(b.root.get("priority"), 0))
	b.collectStages(b.root.get("stages"))
	b.linkStages()
	for _, s := range b.stages {
		b.buildStage(s)
	}
	b.buildOutputs(b.root.get("outputs"))
	b.orderStages()
}

func (b *builder) buildParams(n *node) {
	b.params = types.Map{}
	if n == nil || n.kind != mapNode {
		return
	}
	taken := map[string]string{}
	for _, e := range n.entries {
		b.uniqueVariable(taken, e.key, "APOLLO_PARAM_")
		b.params[e.key.text] = types.Any
		if b.textDefault(e.value) {
			continue
		}
		raw := b.schema(e.value)
		if raw == nil {
			continue
		}
		b.params[e.key.text] = rawSchemaType(raw)
		if b.plan.Params == nil {
			b.plan.Params = map[string]json.RawMessage{}
		}
		b.plan.Params[e.key.text] = raw
		b.checkDefault(e.value, raw)
	}
}

// textDefault reports a default that is meant as text and that YAML takes for something else.
func (b *builder) textDefault(schema *node) bool {
	value := schema.get("default")
	if value == nil || schema.str("type") != "string" || value.kind != scalarNode || value.surprise() == "" {
		return false
	}
	b.at(value, "E_TYPE", "the default is text, and YAML readers take "+value.text+" for a "+value.surprise(), "text", "quote it")
	return true
}

func (b *builder) checkDefault(schema *node, raw json.RawMessage) {
	value := schema.get("default")
	if value == nil {
		return
	}
	compiled, err := CompileSchema(raw)
	if err != nil {
		return
	}
	if wrong := violation(compiled, value.encodeJSON()); wrong != "" {
		b.at(value, "E_DEFAULT", "the default breaks the parameter's own schema: "+wrong, "a default that the schema allows", "")
	}
}

// uniqueVariable reports two names that become one environment variable, as a-b and a_b do.
func (b *builder) uniqueVariable(taken map[string]string, key *node, prefix string) {
	variable := VariableName(prefix, key.text)
	if other, clash := taken[variable]; clash {
		b.at(key, "E_NAME", key.text+" and "+other+" both become "+variable, "names that differ in more than - and _", "")
	}
	taken[variable] = key.text
}

// VariableName gives the environment variable of a role or parameter: my-role with APOLLO_IN_ is APOLLO_IN_MY_ROLE.
func VariableName(prefix, name string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

func (b *builder) buildContracts(n *node) {
	b.contracts = map[string]bool{}
	if n == nil || n.kind != mapNode {
		return
	}
	b.plan.Contracts = map[string]events.Contract{}
	for _, e := range n.entries {
		b.contracts[e.key.text] = true
		raw := b.schema(e.value.get("schema"))
		if file := e.value.get("file"); file != nil && file.kind == scalarNode {
			raw = b.schemaFile(file)
		}
		b.plan.Contracts[e.key.text] = events.Contract{Schema: raw}
	}
}

// schemaFile reads and lints a JSON Schema beside the definition.
func (b *builder) schemaFile(n *node) json.RawMessage {
	content, ok := b.readCompanion(n)
	if !ok {
		return nil
	}
	raw, err := canonicalJSON(content)
	if err != nil {
		b.at(n, "E_CONTRACT", n.text+" is not JSON: "+err.Error(), "a JSON Schema (draft 2020-12)", "")
		return nil
	}
	doc, _ := decodeJSON(raw)
	if _, isMap := doc.(map[string]any); !isMap {
		b.at(n, "E_CONTRACT", n.text+" holds no schema", "a JSON object", "")
		return nil
	}
	faults := lintSchema(doc)
	for _, f := range faults {
		b.at(n, "E_CONTRACT", n.text+" at /"+strings.Join(f.path, "/")+": "+f.message, "a JSON Schema (draft 2020-12)", f.hint)
	}
	if len(faults) > 0 {
		return nil
	}
	return raw
}

func (b *builder) buildConcurrency(n *node) {
	if n == nil || n.kind != mapNode {
		return
	}
	if group := n.get("group"); group != nil && group.kind == scalarNode {
		if src, ok := embedded(group); ok {
			b.compile(src, types.Map{"params": b.params, "trigger": triggerType}, reflect.Invalid)
		} else if !namePattern.MatchString(group.text) {
			b.checkName(group, "concurrency.group")
		}
	}
	b.plan.Concurrency = &events.Concurrency{Group: textOr(n, "group", b.plan.Pipeline), Max: int(intOf(n.get("max"), 1)),
		Overflow: textOr(n, "overflow", "queue")}
}

// absolute puts a path below the definition's directory.
func (b *builder) absolute(path string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.dir, path)
	}
	return filepath.Clean(path)
}
