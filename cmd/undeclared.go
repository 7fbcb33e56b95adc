package cmd

import (
	"fmt"
	"slices"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/handlers/executor"
)

// undeclaredLines say what stages used beside their declarations, and what to write so that they declare it. A stage
// that failed for that says so in its failure.
func (a *app) undeclaredLines(v *view) []string {
	var lines []string
	said := map[string]bool{}
	for i := range v.run.Stages {
		d := v.run.Stages[i].Last
		name := v.run.StageOf(i).Name
		if d == nil || said[name] { // one instance of many speaks for all
			continue
		}
		found := slices.Clone(d.Accesses)
		if len(found) == 0 {
			continue
		}
		said[name] = true
		if i := slices.Index(found, executor.Unobserved); i >= 0 {
			lines = append(lines, a.paint(warn, a.say.T("undeclared.unobserved", lang.Data{"Stage": name})))
			if found = slices.Delete(found, i, i+1); len(found) == 0 {
				continue
			}
		}
		lines = append(lines, a.paint(warn, a.say.T("undeclared.of", lang.Data{"Stage": name})))
		for n, p := range found {
			if n == maxShownAccesses {
				lines = append(lines, "  "+a.paint(dim, a.say.T("undeclared.more", lang.Data{"Count": len(found) - n})))
				break
			}
			lines = append(lines, fmt.Sprintf("  %-7s %s", p.Name, line(p.Value)))
		}
		if declare := executor.Declare(found); len(declare) > 0 {
			lines = append(lines, "  "+a.say.T("undeclared.paste"))
			for _, text := range declare {
				lines = append(lines, "    "+text)
			}
		}
	}
	return lines
}

// maxShownAccesses is how many accesses of a stage are shown to people; the JSON has all that were recorded.
const maxShownAccesses = 10
