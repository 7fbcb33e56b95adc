package cmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

// itemLines draws the instances of a foreach stage below its line, those that need a look first. When there are many, it
// draws only those that failed or are running, and counts the others.
func (a *app) itemLines(v *view, i int, indent string, all bool) (lines []string) {
	s := &v.run.Stages[i]
	if s.First == 0 || s.Item > 0 {
		return nil
	}
	places := make([]int, s.Count)
	for k := range places {
		places[k] = int(s.First) + k
	}
	rank := func(k int) int { return itemRank(&v.run.Stages[k]) }
	slices.SortStableFunc(places, func(x, y int) int { return cmp.Compare(rank(x), rank(y)) })
	shown := len(places)
	if shown > alike && !all {
		shown = 0
		for shown < alike && rank(places[shown]) <= rankRunning {
			shown++
		}
	}
	width := 0
	for _, k := range places[:shown] {
		width = max(width, screen.StringWidth(v.itemLabel(k)))
	}
	for _, k := range places[:shown] {
		lines = append(lines, indent+a.stageLine(v, k, v.itemLabel(k), width))
	}
	if rest := places[shown:]; len(rest) > 0 {
		lines = append(lines, indent+a.paint(dim, a.say.T("more.items", lang.Data{"N": len(rest)}))+"  "+a.counted(v, rest))
	}
	return lines
}

const rankRunning = 1 // those up to it need a look

func itemRank(s *events.Stand) int {
	switch s.State {
	case events.Failed:
		return 0
	case events.Running:
		return rankRunning
	case events.Pending:
		if s.Attempt > 0 {
			return rankRunning + 1
		}
		return rankRunning + 2
	case events.Cancelled:
		return rankRunning + 3
	default:
		return rankRunning + 4
	}
}

// itemLabel names an instance by its number and, when it is small, its item.
func (v *view) itemLabel(k int) string {
	label := fmt.Sprintf("#%d", v.run.Stages[k].Item)
	if value := v.item(k); len(value) > 0 && len(value) <= widestItem {
		label += " " + line(string(value))
	}
	return label
}

const widestItem = 40 // bytes of JSON: a longer item is left out of the tree

// counted says how many instances there are of each state.
func (a *app) counted(v *view, places []int) string {
	var n [events.Skipped + 1]int
	for _, k := range places {
		n[v.run.Stages[k].State]++
	}
	var parts []string
	for s, count := range n {
		if count > 0 {
			parts = append(parts, fmt.Sprintf("%s ×%d", a.state(events.State(s)), count))
		}
	}
	return strings.Join(parts, "  ")
}

// itemsDone sums up a foreach stage: "3 of 10 done, 1 failed".
func (a *app) itemsDone(v *view, i int) string {
	s := &v.run.Stages[i]
	done, failed := 0, 0
	for k := s.First; k < s.First+s.Count; k++ {
		switch one := &v.run.Stages[k]; {
		case one.State == events.Failed:
			failed++
			done++
		case one.State.Terminal():
			done++
		}
	}
	if failed > 0 {
		return a.say.T("items.failed", lang.Data{"Done": done, "All": s.Count, "Failed": failed})
	}
	return a.say.T("items.done", lang.Data{"Done": done, "All": s.Count})
}

// below turns the place of a stage in the tree into the indent of what stands under it.
func below(label, name string) string {
	arms := strings.NewReplacer("├─ ", "│  ", "└─ ", "   ", "↓ ", "  ")
	return arms.Replace(strings.TrimSuffix(label, name)) + "  "
}
