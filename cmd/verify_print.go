package cmd

import (
	"fmt"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/verify"
)

// verifyProgress says how far a verification is, on standard error: one line in its place on a terminal, a line for each
// stage elsewhere.
type verifyProgress struct {
	a    *app
	run  string
	live bool
	done int
}

func (a *app) verifyProgress(r *events.Run) *verifyProgress {
	p := &verifyProgress{a: a, run: r.ID.String(), live: a.output == "text" && isTerminal(a.err) && a.env("TERM") != "dumb"}
	p.draw("")
	return p
}

func (p *verifyProgress) each(s *verify.Stage) {
	p.done++
	if p.live {
		p.draw(s.Label())
	} else if p.a.output == "text" {
		p.a.put(p.a.verdictLine(s, 0))
	}
}

func (p *verifyProgress) draw(last string) {
	if p.live {
		fmt.Fprintf(p.a.err, "\r\x1b[K%s", line(p.a.say.T("verify.progress", lang.Data{"Run": p.run, "N": p.done, "Last": last})))
	}
}

func (p *verifyProgress) end() {
	if p.live {
		fmt.Fprint(p.a.err, "\r\x1b[K")
	}
}

var verdictMarks = map[string][2]string{verify.Reproduced: {"✔", good}, verify.Nondeterministic: {"✖", bad}, verify.DependsOn: {"✖", bad},
	verify.NotVerifiable: {"?", warn}, verify.Skipped: {"-", warn}, verify.Differs: {"✖", bad}, verify.Incomplete: {"?", warn}}

func (a *app) verdict(name string) string {
	mark := verdictMarks[name]
	return a.paint(mark[1], mark[0]+" "+a.say.T("verdict."+name))
}

// verdictLine says what became of a stage.
func (a *app) verdictLine(s *verify.Stage, width int) string {
	parts := []string{screen.FillRight(line(s.Label()), width), a.verdict(s.Verdict)}
	if s.Factor != "" {
		parts = append(parts, a.paint(bold, s.Factor))
	}
	switch {
	case s.Verdict == verify.Reproduced:
		parts = append(parts, a.paint(dim, s.Isolation))
	case s.Verdict != verify.DependsOn:
		parts = append(parts, a.paint(dim, line(s.Reason)))
	}
	return strings.TrimRight(strings.Join(parts, "  "), " ")
}

// printReport shows what came of a verification: what differs first, with its evidence, then every stage.
func (a *app) printReport(r *verify.Report) error {
	if a.output != "text" {
		return writeJSON(a.out, reportJSON(r), a.output == "json")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", r.Run, a.verdict(r.Verdict), a.paint(dim, a.counts(r)))
	if r.Diverging != "" {
		fmt.Fprintf(&b, "  %s\n", a.say.T("verify.first", lang.Data{"Stage": r.Diverging}))
	}
	width := 0
	for _, s := range r.Stages {
		width = max(width, min(widestLabel, screen.StringWidth(s.Label())))
	}
	for _, s := range r.Stages {
		fmt.Fprintf(&b, "  %s\n", a.verdictLine(s, width))
		a.divergence(&b, s)
	}
	if len(r.NotPerturbed) > 0 {
		fmt.Fprintf(&b, "  %s\n", a.paint(warn, a.say.T("verify.not_perturbed", lang.Data{"Factors": strings.Join(r.NotPerturbed, ", ")})))
	}
	if len(r.Stages) == 0 {
		fmt.Fprintf(&b, "  %s\n", a.say.T("verify.nothing"))
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

const shownDiffLines = 12

// divergence shows the output that differs.
func (a *app) divergence(b *strings.Builder, s *verify.Stage) {
	if !s.Diverges() {
		return
	}
	if s.Role != "" {
		fmt.Fprintf(b, "      %s\n", line(a.say.T("verify.output", lang.Data{"Role": s.Role, "Expected": s.Expected, "Actual": s.Actual})))
	} else if s.Actual != "" {
		fmt.Fprintf(b, "      %s\n", line(s.Actual))
	}
	for _, name := range mends(s) {
		fmt.Fprintf(b, "      %s\n", a.paint(accent, a.say.T("mend."+name)))
	}
	lines := strings.Split(strings.TrimRight(string(s.Evidence), "\n"), "\n")
	for i, l := range lines {
		if i == shownDiffLines && len(lines) > i+1 {
			fmt.Fprintf(b, "      %s\n", a.paint(dim, a.say.T("more.lines", lang.Data{"N": len(lines) - i})))
			break
		}
		if l != "" {
			fmt.Fprintf(b, "      %s\n", a.paint(dim, line(l)))
		}
	}
	if s.Kept != "" {
		fmt.Fprintf(b, "      %s\n", a.say.T("verify.kept", lang.Data{"Dir": s.Kept}))
	}
}

// mends names what there is advice on.
func mends(s *verify.Stage) []string {
	if s.Verdict == verify.Nondeterministic {
		return []string{verify.Nondeterministic}
	}
	return strings.FieldsFunc(s.Factor, func(r rune) bool { return r == ',' || r == '+' })
}

// counts says how many stages have which verdict.
func (a *app) counts(r *verify.Report) string {
	var parts []string
	for _, verdict := range verdicts {
		if n := r.Count(verdict); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, a.say.T("verdict."+verdict)))
		}
	}
	return strings.Join(parts, ", ")
}
