package configs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
)

func TestIsolationKeys(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for text, want := range map[string]events.Stage{
		"":                                   {Isolation: "observe"},
		"isolation: off":                     {Isolation: "off"},
		"isolation: enforce":                 {Isolation: "enforce", Network: "none"},
		"isolation: enforce, network: allow": {Isolation: "enforce", Network: "allow"},
		"isolation: {mode: enforce, require: landlock, readable: [/opt/b, /opt/a, /opt/b]}": {Isolation: "enforce", Network: "none", Require: "landlock",
			Readable: []string{"/opt/a", "/opt/b"}},
		"isolation: {require: env}":                     {Isolation: "observe", Require: "env"},
		"deterministic: true, clock: fixed":             {Isolation: "observe", Same: &yes, Clock: "fixed"},
		"deterministic: false, clock: run":              {Isolation: "observe", Same: &no},
		"compare: {ignore: [b, a, b], normalise: sort}": {Isolation: "observe", Compare: &events.Compare{Ignore: []string{"a", "b"}, Normalise: "sort"}},
		"compare: {}": {Isolation: "observe"},
	} {
		if text != "" {
			text = ", " + text
		}
		p, problems := Parse("p.yaml", []byte("name: x\nstages: {s: {run: x, outputs: {a: {path: a}, b: {path: b}}"+text+"}}\n"), "", Options{})
		if p == nil || len(problems) > 0 {
			t.Fatalf("%s: %v", text, problems)
		}
		s := p.Plan().Stages[0]
		got := events.Stage{Isolation: s.Isolation, Require: s.Require, Readable: s.Readable, Network: s.Network, Clock: s.Clock, Same: s.Same, Compare: s.Compare}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for text, code := range map[string]string{
		"isolation: strict":                    "E_VALUE",
		"isolation: {mode: strict}":            "E_VALUE",
		"isolation: {require: seccomp}":        "E_VALUE",
		"isolation: {readable: [opt]}":         "E_PATH",
		"isolation: {readable: [/]}":           "E_PATH",
		"isolation: {readable: [/opt/../etc]}": "E_PATH",
		"isolation: {level: landlock}":         "E_FIELD",
		"deterministic: maybe":                 "E_TYPE",
		"clock: utc":                           "E_VALUE",
		"compare: {ignore: [c]}":               "E_REF",
	} {
		_, problems := Parse("p.yaml", []byte("name: x\nstages: {s: {run: x, outputs: {a: {path: a}}, "+text+"}}\n"), "", Options{})
		if len(problems) != 1 || problems[0].Code != code {
			t.Errorf("%s: %v, want %s", text, problems, code)
		}
	}
}
