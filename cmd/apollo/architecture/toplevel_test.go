package architecture_test

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// topLevel is everything that may stand at the root of the repository, besides names that start with a dot.
var topLevel = []string{
	"cmd", "configs", "docs", "events", "handlers", "router", "storage",
	"go.mod", "go.sum", "Makefile",
	"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md",
}

func topLevelRule() rule {
	return rule{
		name:  "top level is fixed",
		check: checkTopLevel,
		breaks: []fixture{
			{
				name: "stranger",
				files: map[string]string{
					"go.mod": "", "events/doc.go": "package events", ".github/x.yml": "", // allowed
					"pkg/x.go": "package pkg", "notes.txt": "",
				},
				want: []string{"notes.txt: not allowed at the top level", "pkg: not allowed at the top level"},
			},
			{
				name: "ignored by git",
				files: map[string]string{
					".gitignore": "# built\n/bin/\n/data\n*.test\n", "bin/apollo": "", "data/x": "", "x.test": "", "binary": "",
				},
				want: []string{"binary: not allowed at the top level"},
			},
		},
	}
}

func checkTopLevel(t tree) []string {
	entries, err := fs.ReadDir(t.root, ".")
	if err != nil {
		return []string{err.Error()}
	}
	ignored := ignoredPatterns(t.root)
	var problems []string
	for _, entry := range entries {
		name := entry.Name()
		isIgnored := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
		if name[0] != '.' && !slices.Contains(topLevel, name) && !slices.ContainsFunc(ignored, isIgnored) {
			problems = append(problems, fmt.Sprintf("%s: not allowed at the top level", name))
		}
	}
	return problems
}

// ignoredPatterns reads the patterns of .gitignore that can match at the top level, so that a built binary or a data
// directory in a working copy is no problem. Negation is not understood: it would only make the rule stricter.
func ignoredPatterns(root fs.FS) []string {
	text, err := fs.ReadFile(root, ".gitignore")
	if err != nil {
		return nil
	}
	var patterns []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line[0] != '!' {
			patterns = append(patterns, strings.Trim(line, "/"))
		}
	}
	return patterns
}
