package architecture_test

import (
	"go/ast"
	"slices"
	"strings"
)

// impure are the standard packages through which I/O, a clock or chance would reach the core; what lies under them is meant
// too, besides harmless.
var (
	impure   = []string{"crypto/rand", "database", "io/ioutil", "log", "math/rand", "net", "os", "plugin", "syscall"}
	harmless = []string{"net/netip", "net/url"}
)

// clock are the names of package time that read the clock, wait for it, or read the machine's time zone.
var clock = []string{
	"*", "After", "AfterFunc", "LoadLocation", "Local", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until",
}

func pureEventsRule() rule {
	return rule{
		name:  "events is pure: standard library only, no I/O, no clock, no randomness",
		check: checkPureEvents,
		breaks: []fixture{
			{
				name: "imports",
				files: map[string]string{
					"events/a.go": "package events\nimport (\n_ \"os\"\n_ \"os/exec\"\n_ \"net\"\n_ \"math/rand/v2\"\n_ \"crypto/rand\"\n" +
						"_ \"github.com/google/uuid\"\n_ \"net/url\"\n_ \"crypto/sha256\"\n)",
					"events/sub/a.go":     `package sub; import _ "net/http"`,
					"events/own.go":       `package events; import _ "github.com/apollo-11/apollo/events/sub"`,          // allowed
					"events/a_test.go":    `package events; import (_ "os"; _ "pgregory.net/rapid")`,                    // allowed in tests
					"storage/sub/file.go": `package sub; import (_ "os"; _ "github.com/google/uuid"; _ "math/rand/v2")`, // not events
				},
				want: []string{
					"events/a.go:3: events may not import os",
					"events/a.go:4: events may not import os/exec",
					"events/a.go:5: events may not import net",
					"events/a.go:6: events may not import math/rand/v2",
					"events/a.go:7: events may not import crypto/rand",
					"events/a.go:8: events may not import github.com/google/uuid",
					"events/sub/a.go:1: events may not import net/http",
				},
			},
			{
				name: "clock",
				files: map[string]string{
					"events/a.go": "package events\nimport \"time\"\nvar now = time.Now\nfunc f(t time.Time) time.Duration {\nreturn time.Since(t)\n}",
					"events/b.go": "package events\nimport clock \"time\"\nvar b = clock.Now()",
					"events/c.go": "package events\nimport . \"time\"\nvar c = Now()",
					"events/d.go": "package events\nimport \"time\"\nvar d = time.Second\nfunc g(time interface{ Now() int }) int { return time.Now() }", // allowed
				},
				want: []string{
					"events/a.go:3: events may not use time.Now",
					"events/a.go:5: events may not use time.Since",
					"events/b.go:3: events may not use time.Now",
					"events/c.go:2: events may not use time.*",
				},
			},
		},
	}
}

func checkPureEvents(t tree) []string {
	var problems []string
	for _, s := range t.sources {
		if s.test || !within(s.path, "events") {
			continue
		}
		for _, spec := range s.file.Imports {
			if p := imported(spec); !pure(p) {
				problems = append(problems, t.at(spec, "events may not import %s", p))
			}
		}
		s.uses("time", func(at ast.Node, name string) {
			if slices.Contains(clock, name) {
				problems = append(problems, t.at(at, "events may not use time.%s", name))
			}
		})
	}
	return problems
}

func pure(importPath string) bool {
	if within(importPath, modulePath) {
		return true // the direction rule judges these
	}
	host, _, _ := strings.Cut(importPath, "/")
	if strings.Contains(host, ".") {
		return false // not the standard library
	}
	return slices.Contains(harmless, importPath) || !slices.ContainsFunc(impure, func(root string) bool { return within(importPath, root) })
}
