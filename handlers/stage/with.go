package stage

import (
	"bytes"
	"encoding/json"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// hasExpression is quick: most settings have none.
func hasExpression(with json.RawMessage) bool { return bytes.Contains(with, []byte("${{")) }

// prepareWith puts values in the place of the expressions in the executor's settings. A script is text of its own, in
// which no expression can stand.
func (w *work) prepareWith(e *evaluation) *events.Failure {
	if !hasExpression(w.Stage.With) {
		return nil
	}
	settings, err := decodeNumbers(w.Stage.With)
	if err != nil {
		return cannot(e.ctx, "read the settings", err)
	}
	resolved, f := e.resolve(settings, "/with", true)
	if f != nil {
		return f
	}
	if w.call.With, err = json.Marshal(resolved); err != nil {
		return &events.Failure{Class: events.BadInput, Pointer: "/with", Reason: "a setting is no value: " + err.Error()}
	}
	return nil
}

// literal are the settings that are never expressions: programs, and a child pipeline's frozen plan.
var literal = map[string]bool{"script": true, "plan": true, "requirements": true}

func (e *evaluation) resolve(v any, pointer string, top bool) (any, *events.Failure) {
	switch v := v.(type) {
	case string:
		src, ok := configs.Expression(v)
		if !ok {
			return v, nil
		}
		value, f := e.eval(src)
		if f != nil {
			f.Pointer = pointer
		}
		return value, f
	case []any:
		for i := range v {
			one, f := e.resolve(v[i], pointer, false)
			if f != nil {
				return nil, f
			}
			v[i] = one
		}
	case map[string]any:
		for key := range v {
			if top && literal[key] {
				continue
			}
			one, f := e.resolve(v[key], pointer+"/"+key, false)
			if f != nil {
				return nil, f
			}
			v[key] = one
		}
	}
	return v, nil
}
