package cmd

import (
	"slices"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

// alike is how many leaves with one parent and one state are drawn; the rest is folded into one line.
const alike = 12

// treeLines draws a run's stages, each with what became of it: all of them, or without most of those that are alike.
func (a *app) treeLines(v *view, all bool) []string {
	alikes := alike
	if all {
		alikes = len(v.run.Stages)
	}
	state := func(i int) events.State { return v.run.Stages[i].State }
	return drawTree(v.run.Graph, alikes, state, func(r treeRow, width int) []string {
		if r.more > 0 {
			return []string{r.label + a.paint(dim, a.say.T("more.alike", lang.Data{"N": r.more})) + "  " + a.state(state(r.stage))}
		}
		return append([]string{a.stageLine(v, r.stage, r.label, width)}, a.itemLines(v, r.stage, below(r.label, v.label(r.stage)), all)...)
	})
}

// planLines draws a plan's stages.
func (a *app) planLines(g *events.Graph) []string {
	return drawTree(g, len(g.Plan.Stages), func(int) events.State { return events.None }, func(r treeRow, width int) []string {
		parts := []string{screen.FillRight(r.label, width)}
		for _, said := range append([]string{strings.TrimSpace(a.needs(g, r.stage))}, a.manner(&g.Plan.Stages[r.stage])...) {
			if said != "" {
				parts = append(parts, said)
			}
		}
		return []string{strings.TrimRight(strings.Join(parts, "  "), " ")}
	})
}

// drawTree draws stages: a chain goes straight down with ↓, stages side by side are branches. A stage with several needs
// stands below the stage where their ways part, or at the left, and names them.
func drawTree(g *events.Graph, alikes int, state func(i int) events.State, draw func(r treeRow, width int) []string) []string {
	t := newTree(g)
	t.alikes, t.state = alikes, state
	roots, folded := t.fold(t.roots)
	for _, i := range roots {
		t.draw(i, "", "", "")
	}
	t.rows = append(t.rows, folded...)
	width := 0
	for _, r := range t.rows {
		width = max(width, min(widestLabel, screen.StringWidth(r.label)))
	}
	var lines []string
	for _, r := range t.rows {
		lines = append(lines, draw(r, width)...)
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
	alikes   int
	state    func(i int) events.State
}

// treeRow is a line: a stage, or how many more there are that are like it.
type treeRow struct {
	stage int
	label string
	more  int
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
	t.rows = append(t.rows, treeRow{stage: i, label: indent + arm + t.graph.Plan.Stages[i].Name})
	indent += below
	kids, folded := t.fold(t.children[i])
	switch {
	case len(kids) == 1 && len(folded) == 0:
		t.draw(kids[0], indent, "↓ ", "")
		return
	case len(kids) == 0:
		return
	}
	for n, kid := range kids {
		if n == len(kids)-1 && len(folded) == 0 {
			t.draw(kid, indent, "└─ ", "   ")
		} else {
			t.draw(kid, indent, "├─ ", "│  ")
		}
	}
	for n, row := range folded {
		row.label = indent + "├─ "
		if n == len(folded)-1 {
			row.label = indent + "└─ "
		}
		t.rows = append(t.rows, row)
	}
}

// fold leaves out leaves that look like many others, and says how many of each kind.
func (t *tree) fold(stages []int) (shown []int, folded []treeRow) {
	var seen [events.Skipped + 1]int
	for _, i := range stages {
		s := t.state(i)
		if len(t.children[i]) > 0 {
			shown = append(shown, i)
			continue
		}
		switch seen[s]++; {
		case seen[s] <= t.alikes:
			shown = append(shown, i)
		case seen[s] == t.alikes+1:
			folded = append(folded, treeRow{stage: i, more: 1})
		default:
			for n := range folded {
				if t.state(folded[n].stage) == s {
					folded[n].more++
				}
			}
		}
	}
	return shown, folded
}

// stageLine puts what is known of a stage behind its place in the tree.
func (a *app) stageLine(v *view, i int, label string, width int) string {
	s := v.stage(i)
	st := &v.run.Stages[i]
	parts := []string{screen.FillRight(line(label), width), a.state(st.State)}
	if took := v.stageSpan(st); took != "" {
		parts = append(parts, a.paint(dim, took))
	}
	if st.First > 0 && st.Item == 0 {
		parts = append(parts, a.itemsDone(v, i))
	}
	if st.Item == 0 && width > 0 {
		if needs := a.needs(v.run.Graph, i); needs != "" {
			parts = append(parts, strings.TrimSpace(needs))
		}
	}
	if s.Attempt > 1 {
		parts = append(parts, a.say.T("attempt", lang.Data{"Number": s.Attempt}))
	}
	waits := a.waiting(v, i)
	switch {
	case waits != "":
		parts = append(parts, waits)
	case st.State != events.Completed && s.Class != "":
		parts = append(parts, a.paint(bad, s.Class)+": "+line(s.Reason))
	case st.State != events.Completed && s.Reason != "":
		parts = append(parts, line(s.Reason))
	}
	for _, o := range v.run.StageOf(i).Outputs {
		if out, ok := s.Outputs[o.Role]; ok && out.Records != nil {
			parts = append(parts, a.say.T("records", lang.Data{"Role": o.Role, "N": *out.Records}))
		}
	}
	parts = append(parts, a.how(&s)...)
	if said := a.badge(v, i); said != "" {
		parts = append(parts, said)
	}
	return strings.Join(parts, "  ")
}

// how says what is unusual about how a stage came to its end: another run, a person, an earlier run.
func (a *app) how(s *stageJSON) (parts []string) {
	if s.Child != "" {
		parts = append(parts, a.say.T("stage.child", lang.Data{"Run": s.Child}))
	}
	if s.Answer != nil && s.Answer.Approved {
		parts = append(parts, a.say.T("stage.approved", lang.Data{"By": line(s.Answer.By)}))
	}
	if s.OpenedBy != "" {
		parts = append(parts, a.say.T("stage.opened", lang.Data{"By": line(s.OpenedBy)}))
	}
	if s.Cached != "" {
		parts = append(parts, a.paint(dim, a.say.T("stage.cached", lang.Data{"Run": s.Cached})))
	}
	if s.Reused {
		parts = append(parts, a.paint(dim, a.say.T("stage.reused")))
	}
	return parts
}

// stageSpan gives how long the last attempt took, or has taken; nothing before the first and while the next is waited for.
func (v *view) stageSpan(s *events.Stand) string {
	switch {
	case s.Started == 0:
		return ""
	case s.State == events.Running:
		return span(s.Started, v.now())
	case s.Ended == 0:
		return ""
	}
	return span(s.Started, s.Ended)
}

// cut shortens a line that may be coloured to a number of columns, and shows that it did.
func cut(text string, width int) string {
	if screen.StringWidth(sgr.ReplaceAllString(text, "")) <= width {
		return text
	}
	var b strings.Builder
	used := 0
	for text != "" {
		if at := sgr.FindStringIndex(text); at != nil && at[0] == 0 {
			b.WriteString(text[:at[1]])
			text = text[at[1]:]
			continue
		}
		r := []rune(text[:min(len(text), 8)])[0]
		if used += screen.RuneWidth(r); used > width-1 {
			break
		}
		b.WriteRune(r)
		text = text[len(string(r)):]
	}
	b.WriteString("…")
	if sgr.MatchString(b.String()) {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}
