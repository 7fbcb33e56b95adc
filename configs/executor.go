package configs

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// buildExecutor finds the one executor of a stage and makes its settings.
func (b *builder) buildExecutor(s *stageInfo) {
	var found []entry
	for _, e := range s.body.entries {
		if slices.Contains(executorKeys(), e.key.text) || b.options.plugin(e.key.text) != nil {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		b.at(s.key, "E_EXECUTOR", "the stage "+s.name+" does not say what carries it out", "one of "+strings.Join(executorKeys(), ", "), "")
		return
	}
	for _, extra := range found[1:] {
		b.at(extra.key, "E_EXECUTOR", "the stage "+s.name+" has "+found[0].key.text+" and "+extra.key.text, "exactly one executor", "make two stages of it")
	}
	key, value := found[0].key.text, found[0].value
	s.out.Executor = key
	switch key {
	case "run", "shell":
		s.out.Executor = "shell"
		s.out.With = b.shellSettings(value)
	case "pipeline":
		s.out.With = encoded(b.childSettings(s, value))
	case "python":
		s.out.With = b.pythonSettings(s, value)
	case "http":
		s.out.With = b.settings(s, key, value)
		b.checkHTTP(s, value)
	case "container":
		b.checkContainer(value)
		s.out.With = b.settings(s, key, value)
	default:
		s.out.With = b.settings(s, key, value)
		if p := b.options.plugin(key); p != nil {
			s.out.Pin = p.Pin
		}
	}
}

// scriptSettings is what the executors of scripts get: the text itself, so that the plan needs no file beside it. Which
// program reads a shell script is said by the script's own first line.
type scriptSettings struct {
	Script       string   `json:"script"`
	Interpreter  string   `json:"interpreter,omitempty"` // python only: the one asked for
	Args         []string `json:"args,omitempty"`
	Requirements string   `json:"requirements,omitempty"` // the file's text
}

func (b *builder) shellSettings(n *node) json.RawMessage {
	script, ok := scriptSettings{Script: n.text}, n.kind == scalarNode
	if n.kind == mapNode {
		script, ok = b.scriptFile(n.get("script"), shellTemplate.MatchString)
	} else if ok {
		b.checkScript(n, n.text, true, shellTemplate)
	}
	if !ok {
		return nil
	}
	program := programOf(interpreter(script.Script))
	if program == "" {
		program = "sh"
	}
	b.checkProgram(n, program)
	return encoded(script)
}

// scriptFile reads a script beside the definition.
func (b *builder) scriptFile(n *node, shell func(string) bool) (scriptSettings, bool) {
	if n == nil || n.kind != scalarNode || n.text == "" {
		return scriptSettings{}, false
	}
	content, ok := b.readCompanion(n)
	if !ok {
		return scriptSettings{}, false
	}
	template := pythonTemplate
	if shell != nil {
		template = shellTemplate
	}
	b.checkScript(n, string(content), false, template)
	return scriptSettings{Script: string(content)}, true
}

func (b *builder) pythonSettings(s *stageInfo, n *node) json.RawMessage {
	if n.kind == scalarNode {
		b.checkScript(n, n.text, true, pythonTemplate)
		b.checkProgram(n, "python3")
		return encoded(scriptSettings{Script: n.text})
	}
	script, ok := b.scriptFile(n.get("script"), nil)
	script.Args, script.Interpreter = texts(n.get("args")), n.str("interpreter")
	if args := n.get("args"); args != nil {
		b.expressionsIn(s, args)
	}
	if file := n.get("requirements"); file != nil && file.kind == scalarNode {
		if content, read := b.readCompanion(file); read {
			b.checkLock(file, string(content))
			script.Requirements = string(content)
		}
	}
	program := script.Interpreter
	if program == "" {
		program = "python3"
	}
	b.checkProgram(n, program)
	if !ok {
		return nil
	}
	return encoded(script)
}

func encoded(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic("configs: texts can't be encoded: " + err.Error())
	}
	return b
}

// shorthand is the key under which an executor's settings hold what its scalar form says.
var shorthand = map[string]string{"task": "name", "approval": "message"}

// settings makes the settings of every other executor: the map as it stands, with texts as texts.
func (b *builder) settings(s *stageInfo, executor string, n *node) json.RawMessage {
	b.expressionsIn(s, n)
	name := n
	if n.kind == mapNode {
		name = n.get("name")
	}
	if executor == "task" && name != nil && b.options.Tasks != nil && !slices.Contains(b.options.Tasks, name.text) {
		b.at(name, "E_REF", "there is no task "+shortened(name.text), "a registered task", didYouMean(name.text, b.options.Tasks))
	}
	if short, ok := shorthand[executor]; ok && n.kind == scalarNode {
		return encoded(map[string]string{short: n.text})
	}
	var out bytes.Buffer
	var form *spec
	if f := stageLanguage.field(executor); f != nil {
		form = f.spec
	}
	n.writeAs(&out, form)
	raw, err := canonicalJSON(out.Bytes())
	if err != nil {
		return nil
	}
	return raw
}

// expressionsIn compiles every ${{ }} in an executor's settings.
func (b *builder) expressionsIn(s *stageInfo, n *node) {
	for _, e := range n.entries {
		b.expressionsIn(s, e.value)
	}
	for _, item := range n.items {
		b.expressionsIn(s, item)
	}
	if n.kind == scalarNode {
		b.text(s, n)
	}
}

var stageLanguage = stageSpec()

// writeAs writes a node as JSON. Where its specification says text, a number is the text that it was written as; a size
// becomes its bytes.
func (n *node) writeAs(out *bytes.Buffer, s *spec) {
	if s != nil && s.form == choiceForm {
		for _, option := range s.or {
			if option.kindOf() == n.kind {
				s = option
			}
		}
	}
	switch {
	case n.kind == scalarNode && s != nil && (s.form == valueForm || s.form == textForm || s.form == nameForm):
		writeText(out, n.text)
	case n.kind == scalarNode && s != nil && s.form == sizeForm:
		out.WriteString(strconv.FormatInt(sizeOf(n), 10))
	case n.kind == scalarNode:
		n.writeScalar(out)
	case n.kind == listNode:
		out.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				out.WriteByte(',')
			}
			item.writeAs(out, s.inner(""))
		}
		out.WriteByte(']')
	default:
		out.WriteByte('{')
		for i, e := range n.entries {
			if i > 0 {
				out.WriteByte(',')
			}
			writeText(out, e.key.text)
			out.WriteByte(':')
			e.value.writeAs(out, s.inner(e.key.text))
		}
		out.WriteByte('}')
	}
}

// inner gives the specification of what stands under a key, or of a list's items; nil is any JSON.
func (s *spec) inner(key string) *spec {
	switch {
	case s == nil:
		return nil
	case s.each != nil:
		return s.each
	case s.form == objectForm:
		if f := s.field(key); f != nil {
			return f.spec
		}
	}
	return nil
}
