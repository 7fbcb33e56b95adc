package architecture_test

import (
	"slices"
	"strings"
)

// layers is the import direction: a package may import its own layer and those before it, never one that comes after.
var layers = []string{"events", "configs", "storage", "handlers", "router", "cmd"}

func directionRule() rule {
	return rule{
		name:  "imports go one way: " + strings.Join(layers, " -> "),
		check: checkDirection,
		breaks: []fixture{
			{
				name: "left imports right",
				files: map[string]string{
					"events/a.go":        `package events; import _ "github.com/apollo-11/apollo/configs"`,
					"storage/s/a.go":     `package s; import _ "github.com/apollo-11/apollo/handlers/stage"`,
					"handlers/h/a.go":    `package h; import _ "github.com/apollo-11/apollo/router"`,
					"router/a_test.go":   `package router; import _ "github.com/apollo-11/apollo/cmd/apollo/demo"`,
					"cmd/apollo/main.go": `package main; import _ "github.com/apollo-11/apollo/router"`,  // allowed
					"handlers/x/a.go":    `package x; import _ "github.com/apollo-11/apollo/handlers/y"`, // allowed
				},
				want: []string{
					"events/a.go:1: events may not import configs",
					"storage/s/a.go:1: storage may not import handlers",
					"handlers/h/a.go:1: handlers may not import router",
					"router/a_test.go:1: router may not import cmd",
				},
			},
			{
				name: "outside the layers",
				files: map[string]string{
					"docs/a.go":   `package docs; import _ "github.com/apollo-11/apollo/events"`,
					"events/a.go": `package events; import _ "github.com/apollo-11/apollo/docs"`,
				},
				want: []string{
					"docs/a.go:1: Go code belongs in one of events, configs, storage, handlers, router, cmd",
					"events/a.go:1: events may not import docs",
				},
			},
		},
	}
}

func checkDirection(t tree) []string {
	var problems []string
	for _, s := range t.sources {
		own, _, _ := strings.Cut(s.path, "/")
		level := slices.Index(layers, own)
		if level < 0 {
			problems = append(problems, t.at(s.file, "Go code belongs in one of %s", strings.Join(layers, ", ")))
			continue
		}
		for _, spec := range s.file.Imports {
			rest, ours := strings.CutPrefix(imported(spec), modulePath+"/")
			other, _, _ := strings.Cut(rest, "/")
			if ours && !slices.Contains(layers[:level+1], other) {
				problems = append(problems, t.at(spec, "%s may not import %s", own, other))
			}
		}
	}
	return problems
}
