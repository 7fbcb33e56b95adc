package cmd

import (
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/apollo-11/apollo/events"
)

// treeLines draws a run's stages, each with what became of it.
func (a *app) treeLines(v *view) []string {
	return drawTree(v.run.Graph, func(i int, label string, width int) string { return a.stageLine(v, i, label, width) })
}

// planLines draws a plan's stages.
func (a *app) planLines(g *events.Graph) []string {
	return drawTree(g, func(i int, label string, width int) string {
		if needs := a.needs(g, i); needs != "" {
			return runewidth.FillRight(label, width) + needs
		}
		return label
	})
}

// drawTree draws stages: a chain goes straight down with ↓, stages side by side are branches. A stage with several needs
// stands below the stage where their ways part, or at the left, and names them.
func drawTree(g *events.Graph, line func(i int, label string, width int) string) []string {
	t := newTree(g)
	for _, i := range t.roots {
		t.draw(i, "", "", "")
	}
	width := 0
	for _, r := range t.rows {
		width = max(width, min(widestLabel, runewidth.StringWidth(r.label)))
	}
	lines := make([]string, len(t.rows))
	for n, r := range t.rows {
		lines[n] = line(r.stage, r.label, width)
	}
	return lines
}

// needs names what a stage needs when the tree does not say it.
func (a *app) needs(g *events.Graph, i int) string {
	needs := g.Plan.Stages[i].Needs
	if len(needs) < 2 {
		return ""
	}
	return "  " + a.paint(dim, "← "+strings.Join(needs, ", "))
}

const widestLabel = 60 // cells: what is longer pushes its own state to the right, not everybody's

// tree is the stages of a plan, each below one other.
type tree struct {
	graph    *events.Graph
	path     [][]int // of each stage: what it stands below, from the root, and itself
	roots    []int
	children [][]int
	rows     []treeRow
}

type treeRow struct {
	stage int
	label string
}

func newTree(g *events.Graph) *tree {
	n := len(g.Plan.Stages)
	t := &tree{graph: g, path: make([][]int, n), children: make([][]int, n)}
	for i := range n {
		above := t.above(i)
		t.path[i] = append(slices.Clip(above), i)
		if len(above) == 0 {
			t.roots = append(t.roots, i)
		} else {
			parent := above[len(above)-1]
			t.children[parent] = append(t.children[parent], i)
		}
	}
	return t
}

// above gives the path that leads to all needs of a stage: to the last of them when the others stand above it, else to
// where their ways part.
func (t *tree) above(i int) (shared []int) {
	parted := false
	for n, need := range t.graph.Plan.Stages[i].Needs {
		k, _ := t.graph.Index(need)
		path, same := t.path[k], 0
		for same < min(len(path), len(shared)) && path[same] == shared[same] {
			same++
		}
		switch {
		case n == 0 || same == len(shared) && !parted:
			shared = path
		case same < min(len(path), len(shared)) || parted:
			parted, shared = true, shared[:same]
		}
	}
	return shared
}

// draw adds a stage and what stands below it.
func (t *tree) draw(i int, indent, arm, below string) {
	t.rows = append(t.rows, treeRow{i, indent + arm + t.graph.Plan.Stages[i].Name})
	indent += below
	if kids := t.children[i]; len(kids) == 1 {
		t.draw(kids[0], indent, "↓ ", "")
	} else {
		for n, kid := range kids {
			if n == len(kids)-1 {
				t.draw(kid, indent, "└─ ", "   ")
			} else {
				t.draw(kid, indent, "├─ ", "│  ")
			}
		}
	}
}

// stageLine puts what is known of a stage behind its place in the tree.
func (a *app) stageLine(v *view, i int, label string, width int) string {
	s := v.stage(i)
	st := &v.run.Stages[i]
	var text strings.Builder
	text.WriteString(runewidth.FillRight(label, width) + "  " + a.state(st.State))
	if st.Started > 0 {
		end := st.Ended
		if st.State == events.Running {
			end = time.Now().UnixNano()
		}
		if end > 0 {
			text.WriteString("  " + a.paint(dim, span(st.Started, end)))
		}
	}
	text.WriteString(a.needs(v.run.Graph, i))
	if s.Attempt > 1 {
		text.WriteString("  " + a.say.T("attempt", map[string]any{"Number": s.Attempt}))
	}
	if s.WaitsFor != "" && st.State == events.Pending {
		text.WriteString("  " + a.say.T("waits", map[string]any{"For": a.say.T("waits." + s.WaitsFor)}))
	}
	if s.Class != "" && st.State != events.Completed {
		text.WriteString("  " + a.paint(bad, s.Class))
	}
	if s.Reason != "" && st.State != events.Completed {
		text.WriteString(": " + line(s.Reason))
	}
	for _, o := range v.run.Graph.Plan.Stages[i].Outputs {
		if out, ok := s.Outputs[o.Role]; ok && out.Records != nil {
			text.WriteString("  " + a.say.T("records", map[string]any{"Role": o.Role, "Count": *out.Records}))
		}
	}
	return text.String()
}
