package configs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/types"

	"github.com/apollo-11/apollo/events"
)

// maxDepth is how many pipelines may run each other: that of the executor's, said at validation already.
const maxDepth = 10

// childSettings makes the settings of a stage that runs another pipeline: that pipeline is frozen into them, so that a run
// needs no file beside its plan and goes on with what it began with.
func (b *builder) childSettings(s *stageInfo, n *node) map[string]any {
	b.expressionsIn(s, n)
	name, params := n, (*node)(nil)
	if n.kind == mapNode {
		name, params = n.get("name"), n.get("params")
	}
	settings := map[string]any{}
	if name == nil || name.kind != scalarNode {
		return settings
	}
	settings["name"] = name.text
	given := map[string]any{}
	if params != nil && params.kind == mapNode {
		for _, e := range params.entries {
			given[e.key.text] = e.value.encodeJSON()
		}
		settings["params"] = given
	}
	child := b.child(name)
	if child == nil {
		return settings
	}
	settings["plan"] = child
	b.checkChildParams(child, n, params)
	b.checkChildOutputs(s, child, name)
	return settings
}

// child loads the pipeline that a stage names.
func (b *builder) child(name *node) *events.Plan {
	if name.text == b.plan.Pipeline {
		b.at(name, "E_TRIGGER_LOOP", "the pipeline starts itself", "another pipeline", "")
		return nil
	}
	file := findPipeline(b.dir, name.text)
	if file == "" {
		b.at(name, "E_REF", "there is no pipeline "+shortened(name.text), "the name of a pipeline beside this one, as "+name.text+".yaml", "")
		return nil
	}
	for i, above := range b.options.above {
		if above == name.text {
			circle := append(append([]string{}, b.options.above[i:]...), b.plan.Pipeline, name.text)
			b.at(name, "E_TRIGGER_LOOP", "pipelines run each other in a circle: "+strings.Join(circle, " → "), "pipelines without a circle", "")
			return nil
		}
	}
	if len(b.options.above) >= maxDepth {
		b.at(name, "E_DEPTH", "pipelines run each other "+strconv.Itoa(maxDepth+1)+" deep", "at most "+strconv.Itoa(maxDepth), "")
		return nil
	}
	o := b.options
	o.above = append(append([]string{}, o.above...), b.plan.Pipeline)
	p, problems := LoadFile(file, o)
	if p == nil {
		first := problems[0]
		for _, found := range problems {
			if isError(found) {
				first = found
				break
			}
		}
		b.at(name, first.Code, "the pipeline "+name.text+" has an error: "+filepath.Base(first.File)+":"+strconv.Itoa(first.Line)+": "+first.Message, first.Expected, first.Hint)
		return nil
	}
	return p.Plan()
}

var nameLine = regexp.MustCompile(`(?m)^name:[ \t]+["']?([a-z0-9][a-z0-9_-]*)["']?[ \t]*(#.*)?$`)

// findPipeline looks for the definition with the name: by the file's name first, then by the name that a file beside gives
// itself.
func findPipeline(dir, name string) string {
	if !namePattern.MatchString(name) {
		return ""
	}
	for _, try := range []string{name + ".yaml", name + ".yml", filepath.Join(name, "pipeline.yaml"), filepath.Join("..", name, "pipeline.yaml")} {
		if path := filepath.Join(dir, try); named(path, name) {
			return path
		}
	}
	for _, beside := range []string{dir, filepath.Dir(dir)} {
		entries, err := os.ReadDir(beside)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if path := definition(beside, e); path != "" && named(path, name) {
				return path
			}
		}
	}
	return ""
}

// named reports whether a file calls itself by the name; it is read as a pipeline only then.
func named(path, name string) bool {
	content, err := readDefinition(path)
	if err != nil {
		return false
	}
	found := nameLine.FindSubmatch(content)
	return found != nil && string(found[1]) == name
}

// checkChildParams holds the parameters that are literals against the child's schemas, and finds the missing ones.
func (b *builder) checkChildParams(child *events.Plan, stage, params *node) {
	given := map[string]bool{}
	if params != nil {
		for _, e := range params.entries {
			given[e.key.text] = true
			schema, known := child.Params[e.key.text]
			if !known {
				b.at(e.key, "E_PARAM", "the pipeline "+child.Pipeline+" has no parameter "+shortened(e.key.text), "one of "+strings.Join(sortedKeys(child.Params), ", "),
					didYouMean(e.key.text, sortedKeys(child.Params)))
				continue
			}
			if _, isExpression := Expression(e.value.text); isExpression && e.value.kind == scalarNode {
				continue
			}
			if compiled, err := CompileSchema(schema); err == nil {
				if wrong := violation(compiled, e.value.encodeJSON()); wrong != "" {
					b.at(e.value, "E_PARAM", "the parameter "+e.key.text+" breaks its schema in "+child.Pipeline+": "+wrong, "a value that the schema allows", "")
				}
			}
		}
	}
	for _, name := range sortedKeys(child.Params) {
		if !given[name] && defaultOf(child.Params[name]) == nil {
			b.at(stage, "E_PARAM", "the parameter "+name+" of the pipeline "+child.Pipeline+" has no value", "params: {"+name+": ...}, since it has no default", "")
		}
	}
}

// checkChildOutputs finds outputs that the stage declares and the child does not give.
func (b *builder) checkChildOutputs(s *stageInfo, child *events.Plan, at *node) {
	gives := map[string]bool{}
	for _, o := range child.Outputs {
		gives[o.Role] = true
	}
	for _, o := range s.out.Outputs {
		if !gives[o.Role] && !o.Optional {
			b.at(at, "E_REF", "the pipeline "+child.Pipeline+" gives no output "+o.Role, "one of "+strings.Join(sortedKeys(gives), ", "),
				"outputs: at the top of "+child.Pipeline+" says what it gives")
		}
	}
}

// buildOutputs compiles what a run gives to the stage that started it: expressions over the outputs of any of its stages.
func (b *builder) buildOutputs(n *node) {
	if n == nil || n.kind != mapNode {
		return
	}
	all := &stageInfo{name: "outputs", key: n, body: n, reads: map[string]bool{}}
	all.needs = append(all.needs, b.stages...)
	for _, e := range n.entries {
		if e.value.kind != scalarNode {
			continue
		}
		src, ok := embedded(e.value)
		if !ok {
			b.at(e.value, "E_EXPR", "the output "+e.key.text+" is no expression", "one ${{ expression }}, as ${{ stages.a.outputs.b }}", "")
			continue
		}
		if b.expression(all, src, types.Map{"params": b.params, "trigger": triggerType, "stages": types.Map{}}, 0) != nil {
			b.plan.Outputs = append(b.plan.Outputs, events.PlanOutput{Role: e.key.text, From: src.text})
		}
	}
}
