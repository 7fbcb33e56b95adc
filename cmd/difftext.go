package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/handlers/compare"
)

// diffText prints a comparison for people.
type diffText struct {
	*app
	strings.Builder
}

func (a *app) printDiff(r *compare.Result, sides [2]*compare.Side, o compare.Options) error {
	d := &diffText{app: a}
	for i, side := range sides {
		v := newView(side.Run, "")
		fmt.Fprintf(d, "%s  %s  %s\n", a.paint(bold, string("AB"[i])), a.runLine(v), a.paint(dim, stamp(side.Run.Created)))
	}
	switch {
	case r.Verdict == compare.Same:
		d.say("", good, "✔ ", "diff.same", lang.Data{"N": r.Same})
	case r.First == nil:
		d.say("", bad, "✖ ", "diff.differs")
	default:
		d.say("", bad, "✖ ", "diff.first", lang.Data{"Stage": *r.First})
	}
	d.fields("  ", "diff.runs", r.Run)
	var inherited, alike []string
	for i := range r.Stages {
		s := &r.Stages[i]
		first := r.First != nil && s.Label() == *r.First
		switch whole := o.All || o.Stage != "" || first; {
		case s.Verdict == compare.Inherited && !whole:
			inherited = append(inherited, s.Label())
		case s.SameResult && s.Verdict == compare.Different && !whole:
			alike = append(alike, s.Label())
		default:
			d.stage(s)
		}
	}
	d.folded("diff.same_result", alike)
	d.folded("diff.inherited", inherited)
	if r.Same > 0 && r.Verdict != compare.Same && o.Stage == "" {
		d.say("", dim, "", "diff.others", lang.Data{"N": r.Same})
	}
	_, err := io.WriteString(a.out, d.String())
	return err
}

// say prints one line of the catalogue.
func (d *diffText) say(indent, style, icon, id string, data ...lang.Data) {
	fmt.Fprintf(d, "%s%s\n", indent, d.paint(style, icon+line(d.app.say.T(id, data...))))
}

const foldedNames = 8

// folded names many stages in one line.
func (d *diffText) folded(id string, names []string) {
	if len(names) == 0 {
		return
	}
	text := strings.Join(names[:min(len(names), foldedNames)], ", ")
	if len(names) > foldedNames {
		text += ", …"
	}
	d.say("", dim, "", id, lang.Data{"N": len(names), "Stages": text})
}

func (d *diffText) stage(s *compare.Stage) {
	name := s.Label()
	if s.Value != nil {
		name += " " + cut(string(s.Value), 40)
	}
	fmt.Fprintf(d, "\n%s\n", d.paint(bold, line(name)))
	d.verdict(s)
	if s.Verdict != compare.OnlyA && s.Verdict != compare.OnlyB {
		d.fields("  ", "diff.status", s.Status)
	}
	if len(s.Outputs) > 0 {
		d.say("  ", "", "", "diff.outputs")
		for i := range s.Outputs {
			d.diffOutput(&s.Outputs[i])
		}
	}
	d.fields("  ", "diff.recorded", s.Recorded)
	if s.Accesses != nil {
		d.say("  ", "", "", "diff.accesses")
		for _, p := range s.Accesses.A {
			fmt.Fprintf(d, "    %s\n", d.paint(bad, "- "+line(p.Name+" "+p.Value)))
		}
		for _, p := range s.Accesses.B {
			fmt.Fprintf(d, "    %s\n", d.paint(good, "+ "+line(p.Name+" "+p.Value)))
		}
	}
}

func (d *diffText) verdict(s *compare.Stage) {
	switch s.Verdict {
	case compare.Same:
		d.say("  ", good, "✔ ", "diff.stage_same")
	case compare.OnlyA:
		d.say("  ", warn, "", "diff.only_a")
	case compare.OnlyB:
		d.say("  ", warn, "", "diff.only_b")
	case compare.Nondeterministic:
		if s.Pinned {
			d.say("  ", bad, "", "diff.nondeterministic")
			fmt.Fprintf(d, "  %s\n", d.paint(dim, s.KeyA))
		} else {
			d.say("  ", bad, "", "diff.nondeterministic_unpinned")
		}
	case compare.Inherited:
		d.say("  ", dim, "", "diff.inherits", lang.Data{"From": strings.Join(s.From, ", ")})
		d.because(s)
	default:
		id := "diff.because"
		if s.SameResult {
			id = "diff.other_pins"
		}
		d.say("  ", warn, "", id)
		d.because(s)
	}
}

// because lists what a stage differs for, by group.
func (d *diffText) because(s *compare.Stage) {
	group := ""
	for _, f := range s.Because {
		if f.Group != group && f.Group != "" {
			group = f.Group
			fmt.Fprintf(d, "    %s\n", d.paint(dim, d.app.say.T("diff.group."+group)))
		}
		d.field("      ", &f)
	}
	if !s.Pinned {
		d.say("    ", dim, "", "diff.no_pins")
	}
}

// fields lists what differs under a heading; nothing when nothing does.
func (d *diffText) fields(indent, heading string, fields []compare.Field) {
	if len(fields) == 0 {
		return
	}
	d.say(indent, dim, "", heading)
	for i := range fields {
		d.field(indent+"  ", &fields[i])
	}
}

const fieldWidth = 28

func (d *diffText) field(indent string, f *compare.Field) {
	name := screen.FillRight(line(f.Field), fieldWidth)
	if f.Text == "" {
		fmt.Fprintf(d, "%s%s %s → %s\n", indent, name, shown(f.A), shown(f.B))
		return
	}
	fmt.Fprintf(d, "%s%s\n", indent, strings.TrimRight(name, " "))
	d.unified(indent+"  ", f.Text)
}

const shownValue = 120 // places on the screen

// shown gives a value in one line: text as it is, the rest as JSON.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		if v == "" {
			return `""`
		}
		return cut(line(v), shownValue)
	case fmt.Stringer:
		return line(v.String())
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return cut(line(string(b)), shownValue)
}

// unified prints hunks in the usual colours.
func (d *diffText) unified(indent, text string) {
	for l := range strings.Lines(text) {
		l = strings.TrimSuffix(l, "\n")
		style := ""
		switch {
		case strings.HasPrefix(l, "-"):
			style = bad
		case strings.HasPrefix(l, "+"):
			style = good
		case strings.HasPrefix(l, "@@"):
			style = accent
		}
		fmt.Fprintf(d, "%s%s\n", indent, d.paint(style, clean(l)))
	}
}
