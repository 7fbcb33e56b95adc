package cmd

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
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
		g, err = storage.ReadGraph(ctx, s, row.Plan)
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
