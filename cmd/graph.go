package cmd

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) graphCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "graph NAME|FILE|RUN", Args: a.arguments(1, 1), ValidArgsFunction: a.completePipelines}, "graph")
	c.Flags().StringP("output", "o", "text", "flag.graph_output") // stands before the shared flag: it has more choices
	c.RunE = func(c *cobra.Command, args []string) error {
		format := c.Flag("output").Value.String()
		if !slices.Contains([]string{"text", "json", "jsonl", "dot", "mermaid"}, format) {
			return a.choice("--output", format, "text, json, dot, mermaid")
		}
		g, err := a.graphOf(c.Context(), args[0])
		if err != nil {
			return err
		}
		return a.printGraph(g, format)
	}
	return c
}

// graphOf takes a run's own plan when the name means a run, else the definition as it is now.
func (a *app) graphOf(ctx context.Context, name string) (*events.Graph, error) {
	file, missing := a.pipelineFile(name)
	if missing == nil {
		p, problems := configs.LoadFile(file, a.checkOptions())
		if problems.HasErrors() {
			return nil, &exitError{exitInvalid, "", problems.Err()}
		}
		return events.NewGraph(p.Plan(), events.Digest{})
	}
	var g *events.Graph
	err := a.reading(ctx, func(s *sqlite.Store) error {
		id, err := a.findRun(ctx, s, name)
		if err != nil {
			return err
		}
		row, err := s.Run(ctx, id)
		if err != nil {
			return err
		}
		g, err = loadGraph(ctx, s, row.Plan)
		return err
	})
	if err != nil {
		return nil, missing
	}
	return g, nil
}

func (a *app) printGraph(g *events.Graph, format string) error {
	switch format {
	case "json", "jsonl":
		return writeJSON(a.out, g.Plan, format == "json")
	case "dot", "mermaid":
		_, err := io.WriteString(a.out, drawing(g.Plan, format))
		return err
	}
	_, err := io.WriteString(a.out, strings.Join(a.planLines(g), "\n")+"\n")
	return err
}

// drawing gives the stages and their needs in the language of Graphviz or of Mermaid. Ids are numbers: a name may be a
// word of the language.
func drawing(p *events.Plan, format string) string {
	index := make(map[string]int, len(p.Stages))
	for i := range p.Stages {
		index[p.Stages[i].Name] = i
	}
	head, node, arrow, end := "flowchart LR\n", "  s%d[\"%s\"]\n", "  s%d --> s%d\n", ""
	if format == "dot" {
		head, node, arrow, end = "digraph {\n  rankdir=LR\n  node [shape=box]\n", "  s%d [label=\"%s\"]\n", "  s%d -> s%d\n", "}\n"
	}
	var b strings.Builder
	b.WriteString(head)
	for i := range p.Stages {
		fmt.Fprintf(&b, node, i, p.Stages[i].Name)
	}
	for i := range p.Stages {
		for _, need := range p.Stages[i].Needs {
			fmt.Fprintf(&b, arrow, index[need], i)
		}
	}
	return b.String() + end
}
