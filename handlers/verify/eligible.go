package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// skip says why a stage is not executed again; empty when it is.
func (t *target) skip(o *Options) string {
	st := t.stage
	switch {
	case t.stand.State == events.Failed:
		return "it failed: only a result that was completed can be verified"
	case st.Executor == "approval":
		return "a person has answered"
	case st.Executor == "pipeline":
		return "it started another run" + t.child() + ", which is verified by itself"
	case st.Same != nil && !*st.Same:
		return "the pipeline says deterministic: false"
	case st.Executor == "http" && !safe(st.With):
		return "its request may change something elsewhere"
	case (st.Executor == "http" || st.Network == "allow") && !o.Network:
		return "it uses the network; --network verifies it too"
	case plugin(st) && st.Same == nil:
		return "the plug-in " + st.Executor + " carries it out, and the pipeline does not say deterministic: true"
	}
	return ""
}

func (t *target) child() string {
	for _, pin := range t.stand.Last.Pins {
		if pin.Name == "run" {
			return " " + pin.Value
		}
	}
	return ""
}

// safe reports whether a request only reads.
func safe(with json.RawMessage) bool {
	var settings struct {
		Method string `json:"method"`
	}
	if json.Unmarshal(with, &settings) != nil {
		return false
	}
	return slices.Contains([]string{"", http.MethodGet, http.MethodHead}, strings.ToUpper(settings.Method))
}

// missing says what of the recorded attempt cannot be had any more: empty when its pins can be rebuilt. files is how many
// files its inputs are.
func (t *target) missing(ctx context.Context, v *trials) (why string, listed int) {
	for i := range t.stage.Inputs {
		if in := &t.stage.Inputs[i]; in.File != "" && t.attempt.Given[in.Role].Digest.IsZero() {
			return fmt.Sprintf("what the input %s was is not recorded", in.Role), 0
		}
	}
	rebuilt, failure := v.steps().Rebuild(ctx, t.attempt)
	if failure != nil {
		return failure.Reason, 0
	}
	for role, list := range rebuilt.Files {
		for _, d := range list {
			if !v.o.Artifacts.Has(d) {
				return fmt.Sprintf("the artifact %s of the input %s is not there", d, role), rebuilt.Listed
			}
		}
	}
	if !rebuilt.Described {
		return "", rebuilt.Listed // the first execution tells
	}
	return t.changed(v, rebuilt.Pins, rebuilt.Definition), rebuilt.Listed
}

// changed says in what pins differ from those of the recorded attempt; empty when they do not, or when it has none.
func (t *target) changed(v *trials, pins, definition []byte) string {
	last := t.stand.Last
	key := last.StageKey()
	if key.IsZero() || len(pins) == 0 || events.DigestOf(pins) == key {
		return ""
	}
	before := pinsOf(last, v.o.Artifacts)
	if before == nil {
		return fmt.Sprintf("the pins of the attempt, %s, are not there", last.PinnedAt)
	}
	var was, is events.Pins
	if json.Unmarshal(before, &was) != nil || json.Unmarshal(pins, &is) != nil {
		return "the pins of the attempt cannot be read"
	}
	if was.Definition != is.Definition {
		old, err := content(v.o.Artifacts, was.Definition)
		if err != nil {
			return fmt.Sprintf("the definition of the stage, %s, is not there", was.Definition)
		}
		return definitionChange(old, definition)
	}
	if t.run.Imported > 0 {
		is.Secrets = was.Secrets // each data directory tells secrets apart in its own way
	}
	return fieldChange("", asMap(was), asMap(is))
}

// definitionChange names the first field in which two definitions differ, and of the tool chain the tool.
func definitionChange(old, now []byte) string {
	var was, is events.Definition
	if json.Unmarshal(old, &was) != nil || json.Unmarshal(now, &is) != nil {
		return "the definition of the stage cannot be read"
	}
	for _, tool := range was.Toolchain {
		i := slices.IndexFunc(is.Toolchain, func(p events.Pair) bool { return p.Name == tool.Name })
		if i < 0 {
			return fmt.Sprintf("%s was %s and is not there now", tool.Name, tool.Value)
		}
		if is.Toolchain[i].Value != tool.Value {
			return fmt.Sprintf("%s was %s and is %s now", tool.Name, tool.Value, is.Toolchain[i].Value)
		}
	}
	return fieldChange("", asMap(was), asMap(is))
}

func asMap(document any) (m map[string]any) {
	b, err := json.Marshal(document)
	if err == nil {
		_ = json.Unmarshal(b, &m) // it was made as an object
	}
	return m
}

// fieldChange names the first field, by name, that has another value.
func fieldChange(path string, was, is map[string]any) string {
	var names []string
	for _, m := range []map[string]any{was, is} {
		for name := range m {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		a, b := was[name], is[name]
		inner, one := a.(map[string]any)
		other, both := b.(map[string]any)
		if one && both {
			if found := fieldChange(path+name+".", inner, other); found != "" {
				return found
			}
			continue
		}
		if x, y := text(a), text(b); x != y {
			return fmt.Sprintf("%s%s was %s and is %s now", path, name, x, y)
		}
	}
	return ""
}

const longest = 200 // bytes of a value in a reason

func text(v any) string {
	if v == nil {
		return "nothing"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > longest {
		return string(b[:longest]) + "…"
	}
	return string(b)
}
