package cmd

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// printChecks shows every condition of a run as it was evaluated: what it says, whether it holds, and what it read.
func (a *app) printChecks(v *view) error {
	var b strings.Builder
	b.WriteString(a.runLine(v) + "\n")
	n := 0
	for _, i := range v.byStage() {
		if len(v.checks[i]) == 0 {
			continue
		}
		n++
		fmt.Fprintf(&b, "%s  %s\n", a.paint(bold, line(v.label(i))), a.state(v.run.Stages[i].State))
		for _, c := range v.checks[i] {
			b.WriteString(a.check(&c))
		}
	}
	if n == 0 {
		b.WriteString(a.say.T("checks.none") + "\n")
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

func (a *app) check(c *events.Check) string {
	mark := a.paint(good, "✔ "+a.say.T("check.holds"))
	switch {
	case c.Error != "":
		mark = a.paint(bad, "✖ "+a.say.T("check.broken")) + ": " + line(c.Error)
	case !c.Holds && (c.Kind == "when" || c.Level == "warning"):
		mark = a.paint(warn, "– "+a.say.T("check.fails"))
	case !c.Holds:
		mark = a.paint(bad, "✖ "+a.say.T("check.fails"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  %s %s  %s\n", screen.FillRight(c.Kind, 10), line(c.Expr), mark)
	var inputs map[string]json.RawMessage
	_ = json.Unmarshal(c.Inputs, &inputs) // what cannot be read has nothing to show
	for _, path := range slices.Sorted(maps.Keys(inputs)) {
		fmt.Fprintf(&b, "             %s\n", a.paint(dim, line(path+" = "+string(inputs[path]))))
	}
	return b.String()
}
