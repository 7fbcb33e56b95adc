package architecture_test

import (
	"go/ast"
	"slices"
	"strings"
)

// library keeps one technology inside the packages that are there to hold it, in tests too.
type library struct {
	name  string
	roots []string // import paths; what lies under them is meant too
	homes func(dir, importPath string) bool
}

// libraries are the technologies that have a home. Measuring against peers needs the peers' own libraries, so the benchmark is
// exempt from all of them.
func libraries() []library {
	return []library{
		{
			name:  "SQL",
			roots: []string{"database/sql", "github.com/mattn/go-sqlite3", "github.com/lib/pq", "github.com/jackc/pgx", "github.com/pressly/goose"},
			homes: func(dir, _ string) bool { return isStore(dir) },
		},
		{
			name:  "Watermill",
			roots: []string{watermill, watermill + "-sql"},
			homes: func(dir, importPath string) bool {
				return isStore(dir) || within(dir, "router") || (within(dir, "handlers") || dir == "storage") && importPath == watermill+"/message"
			},
		},
	}
}

const watermill = "github.com/ThreeDotsLabs/watermill"

// isStore reports whether dir is a store. The contract that the stores meet, storage itself, speaks no SQL.
func isStore(dir string) bool { return strings.HasPrefix(dir, "storage/") }

// isBenchmark reports whether dir measures Apollo or its peers.
func isBenchmark(dir string) bool {
	return within(dir, "cmd") && slices.ContainsFunc(strings.Split(dir, "/"), func(name string) bool {
		return name == "bench" || name == "peer" || name == "peers"
	})
}

func librariesRule() rule {
	return rule{
		name:  "SQL and Watermill stay at home",
		check: checkLibraries,
		breaks: []fixture{
			{
				name: "SQL",
				files: map[string]string{
					"storage/a.go":              `package storage; import _ "database/sql"`,
					"router/a_test.go":          `package router; import (_ "database/sql/driver"; _ "github.com/mattn/go-sqlite3")`,
					"cmd/apollo/main.go":        `package main; import _ "github.com/jackc/pgx/v5/stdlib"`,
					"cmd/apollo/bench/peers.go": `package bench; import _ "database/sql"`,         // allowed
					"storage/sqlite/a.go":       `package sqlite; import _ "database/sql"`,        // allowed
					"storage/sqlite/a_test.go":  `package sqlite; import _ "database/sql/driver"`, // allowed
				},
				want: []string{
					"storage/a.go:1: SQL has no place in storage: database/sql",
					"router/a_test.go:1: SQL has no place in router: database/sql/driver",
					"router/a_test.go:1: SQL has no place in router: github.com/mattn/go-sqlite3",
					"cmd/apollo/main.go:1: SQL has no place in cmd/apollo: github.com/jackc/pgx/v5/stdlib",
				},
			},
			{
				name: "Watermill",
				files: map[string]string{
					"configs/a.go":          `package configs; import _ "github.com/ThreeDotsLabs/watermill/message"`,
					"cmd/apollo/main.go":    `package main; import _ "github.com/ThreeDotsLabs/watermill"`,
					"handlers/h/a.go":       `package h; import _ "github.com/ThreeDotsLabs/watermill/message/router/middleware"`,
					"storage/a.go":          `package storage; import _ "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"`,
					"storage/ok.go":         `package storage; import _ "github.com/ThreeDotsLabs/watermill/message"`,         // allowed: the contract
					"handlers/h/ok.go":      `package h; import _ "github.com/ThreeDotsLabs/watermill/message"`,               // allowed
					"router/a.go":           `package router; import _ "github.com/ThreeDotsLabs/watermill"`,                  // allowed
					"storage/postgres/a.go": `package postgres; import _ "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"`, // allowed
				},
				want: []string{
					"configs/a.go:1: Watermill has no place in configs: github.com/ThreeDotsLabs/watermill/message",
					"cmd/apollo/main.go:1: Watermill has no place in cmd/apollo: github.com/ThreeDotsLabs/watermill",
					"handlers/h/a.go:1: Watermill has no place in handlers/h: github.com/ThreeDotsLabs/watermill/message/router/middleware",
					"storage/a.go:1: Watermill has no place in storage: github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql",
				},
			},
		},
	}
}

func checkLibraries(t tree) []string {
	var problems []string
	for _, s := range t.sources {
		for _, spec := range s.file.Imports {
			p := imported(spec)
			for _, l := range libraries() {
				known := slices.ContainsFunc(l.roots, func(root string) bool { return within(p, root) })
				if known && !l.homes(s.pkg(), p) && !isBenchmark(s.pkg()) {
					problems = append(problems, t.at(spec, "%s has no place in %s: %s", l.name, s.pkg(), p))
				}
			}
		}
	}
	return problems
}

// environment are the names, by package, that read the environment of the process or change it.
var environment = map[string][]string{
	"os":      {"*", "Clearenv", "Environ", "ExpandEnv", "Getenv", "LookupEnv", "Setenv", "Unsetenv", "UserCacheDir", "UserConfigDir", "UserHomeDir"},
	"syscall": {"*", "Clearenv", "Environ", "Getenv", "Setenv", "Unsetenv"},
}

func environmentRule() rule {
	return rule{
		name:  "only cmd reads the environment",
		check: checkEnvironment,
		breaks: []fixture{{
			name: "readers",
			files: map[string]string{
				"configs/a.go":       "package configs\nimport \"os\"\nvar a = os.Getenv(\"A\")\nvar read = os.LookupEnv\nvar ok = os.Args",
				"handlers/h/a.go":    "package h\nimport sys \"syscall\"\nvar a = sys.Environ()",
				"router/a.go":        "package router\nimport . \"os\"\nvar a = Getenv(\"A\")",
				"cmd/apollo/main.go": "package main\nimport \"os\"\nvar a = os.Getenv(\"A\")",      // allowed
				"router/a_test.go":   "package router\nimport \"os\"\nvar a = os.Getenv(\"LONG\")", // allowed
			},
			want: []string{
				"configs/a.go:3: configs may not use os.Getenv",
				"configs/a.go:4: configs may not use os.LookupEnv",
				"handlers/h/a.go:3: handlers/h may not use syscall.Environ",
				"router/a.go:2: router may not use os.*",
			},
		}},
	}
}

func checkEnvironment(t tree) []string {
	var problems []string
	for _, s := range t.sources {
		if s.test || within(s.path, "cmd") {
			continue
		}
		for importPath, names := range environment {
			s.uses(importPath, func(at ast.Node, name string) {
				if slices.Contains(names, name) {
					problems = append(problems, t.at(at, "%s may not use %s.%s", s.pkg(), importPath, name))
				}
			})
		}
	}
	return problems
}
