package cmd

import (
	"strings"
	"time"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

// tree draws the stages of a run, each below the one of its needs that comes last in the plan. A chain without branches
// goes straight down, so that a long one does not wander off to the right.
type tree struct {
	app   *app
	run   *events.Run
	line  func(i, width int) string // of a stage
	all   bool                      // every stage; else many alike are folded into one line
	width int                       // of the names
	below [][]int
	rows  []string
}

// alike is how many leaves with one parent and one state are drawn; the rest is folded.
const alike = 12

// maxName is how many columns of names are aligned.
const maxName = 40

// treeLines gives the lines of a run's tree.
func (a *app) treeLines(v *view, all bool) []string {
	return a.tree(v.run, all, func(i, width int) string { return a.stageLine(v, i, width) })
}

// tree gives the lines of a tree with what line says of each stage.
func (a *app) tree(run *events.Run, all bool, line func(i, width int) string) []string {
	stages := run.Graph.Plan.Stages
	t := &tree{app: a, run: run, line: line, all: all, below: make([][]int, len(stages)+1)}
	for i := range stages {
		parent := parentOf(run.Graph, i)
		t.below[parent] = append(t.below[parent], i)
		t.width = max(t.width, min(maxName, screen.StringWidth(stages[i].Name)))
	}
	t.draw(t.below[len(stages)], "")
	return t.rows
}

// parentOf gives the need that comes last in the plan, or the number of stages when there is none.
func parentOf(g *events.Graph, i int) int {
	parent := -1
	for _, need := range g.Plan.Stages[i].Needs {
		if n, ok := g.Index(need); ok {
			parent = max(parent, n)
		}
	}
	if parent < 0 {
		return len(g.Plan.Stages)
	}
	return parent
}

func (t *tree) draw(children []int, indent string) {
	shown, folded := t.fold(children)
	for n, i := range shown {
		last := n == len(shown)-1 && len(folded) == 0
		for len(shown) == 1 && last && len(t.below[i]) == 1 { // a chain
			t.rows = append(t.rows, indent+"├─ "+t.line(i, t.width))
			i = t.below[i][0]
		}
		branch, deeper := "├─ ", "│  "
		if last {
			branch, deeper = "└─ ", "   "
		}
		t.rows = append(t.rows, indent+branch+t.line(i, t.width))
		t.draw(t.below[i], indent+deeper)
	}
	for n, f := range folded {
		branch := "├─ "
		if n == len(folded)-1 {
			branch = "└─ "
		}
		t.rows = append(t.rows, indent+branch+t.app.say.T("more.alike", lang.Data{"N": f.count})+"  "+t.app.state(f.state))
	}
}

type alikes struct {
	state events.State
	count int
}

// fold leaves out leaves that look like many others.
func (t *tree) fold(children []int) (shown []int, folded []alikes) {
	var seen [events.Skipped + 1]int
	for _, i := range children {
		s := t.run.Stages[i].State
		if !t.all && len(t.below[i]) == 0 {
			if seen[s]++; seen[s] > alike {
				continue
			}
		}
		shown = append(shown, i)
	}
	for s, n := range seen {
		if n > alike {
			folded = append(folded, alikes{events.State(s), n - alike})
		}
	}
	return shown, folded
}

// stageLine gives one stage: name, state, time, and why it stands where it does.
func (a *app) stageLine(v *view, i, width int) string {
	s := v.stage(i)
	st := &v.run.Stages[i]
	parts := []string{screen.FillRight(line(s.Stage), width), a.state(st.State)}
	if took := stageSpan(st); took != "" {
		parts = append(parts, a.paint(dim, took))
	}
	if s.Attempt > 1 {
		parts = append(parts, a.say.T("attempt", lang.Data{"Number": s.Attempt}))
	}
	switch {
	case st.State == events.Pending && st.Waits == "retry":
		parts = append(parts, a.say.T("waits.retry_in", lang.Data{"In": short(max(0, time.Until(time.Unix(0, st.Due)))),
			"Class": a.paint(bad, s.Class), "Reason": line(s.Reason)}))
	case st.State == events.Pending && s.WaitsFor != "":
		parts = append(parts, a.say.T("waits", lang.Data{"For": a.say.T("waits." + s.WaitsFor)}))
	case st.State != events.Completed && s.Class != "":
		parts = append(parts, a.paint(bad, s.Class)+": "+line(s.Reason))
	case st.State != events.Completed && s.Reason != "":
		parts = append(parts, line(s.Reason))
	}
	for _, o := range v.run.Graph.Plan.Stages[i].Outputs {
		if out, ok := s.Outputs[o.Role]; ok && out.Records != nil {
			parts = append(parts, a.say.T("records", lang.Data{"Role": o.Role, "N": *out.Records}))
		}
	}
	return strings.Join(parts, "  ")
}

// stageSpan gives how long the last attempt took, or has taken; nothing before the first and while the next is waited for.
func stageSpan(s *events.Stand) string {
	switch {
	case s.Started == 0:
		return ""
	case s.State == events.Running:
		return span(s.Started, time.Now().UnixNano())
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
