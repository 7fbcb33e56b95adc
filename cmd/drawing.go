package cmd

import (
	"fmt"
	"strings"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// manner says how a stage of a plan goes, besides what it needs: what it prefers, its condition, its items, whom it asks,
// its gates.
func (a *app) manner(s *events.Stage) (parts []string) {
	if len(s.Prefers) > 0 {
		parts = append(parts, a.paint(dim, "⇠ "+strings.Join(s.Prefers, ", ")))
	}
	for _, said := range settled(s) {
		parts = append(parts, a.paint(accent, said.what)+" "+line(said.text))
	}
	return parts
}

type said struct{ what, text string }

// settled gives what decides on a stage, in the words of its definition.
func settled(s *events.Stage) (all []said) {
	if s.Foreach != "" {
		all = append(all, said{"foreach", s.Foreach})
	}
	if s.When != "" {
		all = append(all, said{"when", s.When})
	}
	if s.Always {
		all = append(all, said{"always", ""})
	}
	if s.Executor == "approval" {
		asked, _ := executor.ReadApproval(s) // what cannot be read fails its attempt
		all = append(all, said{"approval", strings.Join(asked.Approvers, ", ")})
	}
	for _, g := range s.Gate {
		all = append(all, said{"gate", g.Check})
	}
	return all
}

// language is how a graph is drawn for a program.
type language struct {
	head, end        string
	node, asks, each string // a stage; one that asks a person; one with an instance per item
	strong, weak     string
	newline          string
	escape           *strings.Replacer
}

var languages = map[string]language{
	"dot": {
		head: "digraph {\n  rankdir=LR\n  node [shape=box]\n", end: "}\n",
		node: "  s%d [label=\"%s\"]\n", asks: "  s%d [label=\"%s\" shape=hexagon]\n", each: "  s%d [label=\"%s\" peripheries=2]\n",
		strong: "  s%d -> s%d\n", weak: "  s%d -> s%d [style=dashed]\n",
		newline: `\n`, escape: strings.NewReplacer(`\`, `\\`, `"`, `\"`),
	},
	"mermaid": {
		head: "flowchart LR\n",
		node: "  s%d[\"%s\"]\n", asks: "  s%d{{\"%s\"}}\n", each: "  s%d[[\"%s\"]]\n",
		strong: "  s%d --> s%d\n", weak: "  s%d -.-> s%d\n",
		newline: "<br>", escape: strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "`", "#96;"),
	},
}

// drawing gives the stages, what they need and, dashed, what they prefer in the language of Graphviz or of Mermaid. Ids
// are numbers: a name may be a word of the language.
func drawing(p *events.Plan, format string) string {
	l := languages[format]
	index := make(map[string]int, len(p.Stages))
	for i := range p.Stages {
		index[p.Stages[i].Name] = i
	}
	var b strings.Builder
	b.WriteString(l.head)
	for i := range p.Stages {
		fmt.Fprintf(&b, l.shape(&p.Stages[i]), i, l.label(&p.Stages[i]))
	}
	for i := range p.Stages {
		for _, need := range p.Stages[i].Needs {
			fmt.Fprintf(&b, l.strong, index[need], i)
		}
		for _, wish := range p.Stages[i].Prefers {
			fmt.Fprintf(&b, l.weak, index[wish], i)
		}
	}
	return b.String() + l.end
}

func (l *language) shape(s *events.Stage) string {
	switch {
	case s.Executor == "approval":
		return l.asks
	case s.Foreach != "":
		return l.each
	}
	return l.node
}

func (l *language) label(s *events.Stage) string {
	lines := []string{l.escape.Replace(s.Name)}
	for _, said := range settled(s) {
		lines = append(lines, l.escape.Replace(strings.TrimSpace(said.what+" "+line(said.text))))
	}
	return strings.Join(lines, l.newline)
}
