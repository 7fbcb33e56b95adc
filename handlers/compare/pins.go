package compare

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// groups says which group the parts of a document belong to, in the order in which people are told: what names a cause first,
// what differs between any two runs last. What is not named here is of the definition.
var groups = []struct{ part, group string }{
	{"definition", "definition"},
	{"with", "command"},
	{"command", "command"},
	{"files", "command"},
	{"params", "params"},
	{"item", "inputs"},
	{"number", "inputs"},
	{"inputs", "inputs"},
	{"env", "env"},
	{"secrets", "env"},
	{"umask", "env"},
	{"executor", "executor"},
	{"toolchain", "executor"},
	{"platform", "executor"},
	{"time", timeGroup},
	{"seed", timeGroup},
}

const timeGroup = "time"

// keyed gives what the results of the stage may depend on and what differs of that.
func (c *comparison) keyed(p couple) (fields []Field, pinned bool) {
	x, y := c.a.Run.Stages[p.a].Last, c.b.Run.Stages[p.b].Last
	pinned = x != nil && y != nil && !x.StageKey().IsZero() && !y.StageKey().IsZero()
	if pinned && x.StageKey() == y.StageKey() {
		return nil, true
	}
	var a, b map[string]any
	if pinned {
		a, b = c.a.pinned(x), c.b.pinned(y)
		if a == nil || b == nil {
			return []Field{{Group: "definition", Field: "pins", A: x.StageKey().String(), B: y.StageKey().String()}}, true
		}
		c.define(a, b)
	} else {
		a, b = c.a.unpinned(p.a), c.b.unpinned(p.b)
		c.shared(a, b, p)
	}
	return fieldsOf(changes(a, b)), pinned
}

// fieldsOf sorts changes into their groups.
func fieldsOf(all []change) (fields []Field) {
	slices.SortStableFunc(all, func(x, y change) int { return rank(x.path[0]) - rank(y.path[0]) })
	for i := range all {
		at := &all[i]
		if at.path[0] == "inputs" && len(at.path) > 2 && (at.path[2] == "digest" || at.path[2] == "value") {
			at.path = append(at.path[:2], at.path[3:]...)
		}
		fields = append(fields, at.field(groups[rank(at.path[0])].group, ""))
	}
	return fields
}

// rank gives the place among the groups; what a newer build pins is of the definition.
func rank(part string) int {
	return max(0, slices.IndexFunc(groups, func(g struct{ part, group string }) bool { return g.part == part }))
}

// pinned decodes the pins document of the event that ended a stage; nil when it cannot be had.
func (h *half) pinned(d *events.Data) map[string]any {
	v := decoded(d.Pinned)
	if len(d.Pinned) == 0 {
		v = h.document(d.PinnedAt)
	}
	document, _ := v.(map[string]any)
	if document == nil {
		return nil
	}
	copied := make(map[string]any, len(document))
	maps.Copy(copied, document) // its parts are shared with nobody who changes them
	delete(copied, "schema")
	copied["inputs"] = inputsByRole(copied["inputs"])
	return copied
}

// define puts the parts of the definitions into the pins. One that cannot be had is compared by its digest.
func (c *comparison) define(a, b map[string]any) {
	var x, y events.Digest
	text := func(v any) []byte { s, _ := v.(string); return []byte(s) }
	_, _ = x.UnmarshalText(text(a["definition"])), y.UnmarshalText(text(b["definition"]))
	if x == y {
		delete(a, "definition")
		delete(b, "definition")
		return
	}
	first, _ := c.a.document(x).(map[string]any)
	second, _ := c.b.document(y).(map[string]any)
	if first == nil || second == nil {
		return
	}
	spread(a, first)
	spread(b, second)
}

// spread puts a definition's parts beside those of the pins.
func spread(into, definition map[string]any) {
	rest := map[string]any{}
	for key, value := range definition {
		switch key {
		case "with": // the pins have it where expressions stand in it
			if _, valued := into[key]; valued {
				rest[key] = value
			} else {
				into[key] = value
			}
		case "files", "executor", "platform", "umask":
			into[key] = value
		case "command":
			into[key] = commandLine(value)
		case "toolchain":
			into[key] = byKey(value, "name", "value")
		case "env":
			env, _ := into["env"].(map[string]any)
			both := map[string]any{}
			for _, vars := range []any{value, any(env)} {
				m, _ := vars.(map[string]any)
				maps.Copy(both, m)
			}
			into["env"] = both
		case "inputs", "outputs":
			rest[key] = byKey(value, "role", "")
		case "stage":
		default:
			rest[key] = value
		}
	}
	into["definition"] = rest
}

// commandLine makes an argv one text.
func commandLine(v any) any {
	list, _ := v.([]any)
	words := make([]string, len(list))
	for i, word := range list {
		words[i], _ = word.(string)
	}
	return strings.Join(words, " ")
}

// byKey makes a list of named objects an object, so that they are matched by their names; value is the field that each stands
// for, empty is all of it.
func byKey(v any, key, value string) any {
	list, _ := v.([]any)
	object := map[string]any{}
	for _, one := range list {
		entry, _ := one.(map[string]any)
		name, _ := entry[key].(string)
		object[name] = entry
		if value != "" {
			object[name] = entry[value]
		}
	}
	return object
}

// inputsByRole leaves out the sizes, which follow from the digests.
func inputsByRole(v any) any {
	roles, _ := byKey(v, "role", "").(map[string]any)
	for role, one := range roles {
		entry, _ := one.(map[string]any)
		slim := map[string]any{}
		for key, value := range entry {
			if key != "size" && key != "role" {
				slim[key] = value
			}
		}
		roles[role] = slim
	}
	return roles
}

// unpinned makes up what a pins document would say, from the plan and the log: enough to tell what a person has changed.
func (h *half) unpinned(i int) map[string]any {
	st := h.Run.StageOf(i)
	inputs, env := map[string]any{}, map[string]any{}
	for k := range st.Inputs {
		inputs[st.Inputs[k].Role] = map[string]any{"value": h.input(&st.Inputs[k])}
	}
	for name, text := range st.Env {
		env[name] = text
	}
	secrets := map[string]any{}
	for name, ref := range st.Secrets {
		secrets[name] = ref
	}
	document := map[string]any{"with": decoded(st.With), "executor": st.Executor, "inputs": inputs, "env": env, "secrets": secrets,
		"time": instant(h.Run.Logical), "seed": seed(h.Run.Seed)}
	if s := &h.Run.Stages[i]; s.Item > 0 {
		document["item"], document["number"] = decoded(h.value(i)), json.Number((&events.Stage{}).Label(int(s.Item))[1:])
	}
	return document
}

// shared adds what the stages of a run have in common, where the runs differ in it. Parameters that are alike have been left out.
func (c *comparison) shared(a, b map[string]any, p couple) {
	a["params"], b["params"] = c.a.params, c.b.params
	if c.a.Run.Graph.Digest != c.b.Run.Graph.Digest {
		a["definition"], b["definition"] = definitionOf(c.a.Run.StageOf(p.a)), definitionOf(c.b.Run.StageOf(p.b))
	}
}

// definitionOf gives what a plan says of a stage that its results may depend on.
func definitionOf(st *events.Stage) any {
	definition := *st
	definition.With, definition.Env, definition.Secrets, definition.Executor = nil, nil, nil, ""
	definition.Needs, definition.Prefers, definition.Reads, definition.Timeout, definition.Grace, definition.Retry = nil, nil, nil, 0, 0, nil
	b, err := json.Marshal(&definition)
	if err != nil {
		return err.Error()
	}
	rest, _ := decoded(b).(map[string]any)
	rest["inputs"], rest["outputs"] = byKey(rest["inputs"], "role", ""), byKey(rest["outputs"], "role", "")
	return rest
}

var (
	stageRef  = regexp.MustCompile(`\bstages(?:\.([a-z0-9_-]+)|\[["']([^"']+)["']\])`)
	outputRef = regexp.MustCompile(`^\s*stages\.([a-z0-9_-]+)\.outputs\.([A-Za-z0-9_-]+)\s*$`)
)

// input gives what an input stands for, as far as the log says it.
func (h *half) input(in *events.Input) string {
	if !in.Expr {
		return in.From
	}
	if m := outputRef.FindStringSubmatch(in.From); m != nil {
		return h.output(m[1], m[2])
	}
	var parts []string
	if strings.Contains(in.From, "trigger") {
		parts = append(parts, h.delivered())
	}
	for _, name := range refs(in.From) {
		if i, ok := h.Run.Find(name, 0); ok && h.Run.Stages[i].Last != nil {
			for _, o := range h.Run.Stages[i].Last.Outputs {
				parts = append(parts, o.Role+"="+o.Digest.String())
			}
		}
	}
	if len(parts) == 0 {
		return in.From
	}
	return strings.Join(parts, " ")
}

func (h *half) output(stage, role string) string {
	i, ok := h.Run.Find(stage, 0)
	if !ok || h.Run.Stages[i].Last == nil {
		return ""
	}
	var all []string
	for _, k := range append([]int{i}, numbers(h, i)...) {
		if last := h.Run.Stages[k].Last; last != nil {
			for _, o := range last.Outputs {
				if o.Role == role {
					all = append(all, o.Digest.String())
				}
			}
		}
	}
	return strings.Join(all, " ")
}

// refs names the stages that an expression reads.
func refs(expression string) (names []string) {
	for _, m := range stageRef.FindAllStringSubmatch(expression, -1) {
		names = append(names, m[1]+m[2])
	}
	return names
}
