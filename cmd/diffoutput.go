package cmd

import (
	"fmt"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/handlers/compare"
)

// diffOutput prints one output that differs.
func (d *diffText) diffOutput(o *compare.Output) {
	name := line(o.Role)
	if o.Ignored {
		name += " (" + d.app.say.T("diff.ignored") + ")"
	}
	fmt.Fprintf(d, "    %s\n      A %s\n      B %s\n", name, d.blob(o.A), d.blob(o.B))
	if o.Content != nil {
		d.content("      ", o.Content)
	}
}

func (d *diffText) blob(b *compare.Blob) string {
	if b == nil {
		return "–"
	}
	parts := []string{b.Digest, bytesText(b.Size)}
	if b.Records != nil {
		parts = append(parts, d.app.say.T("diff.records", lang.Data{"N": *b.Records}))
	}
	return line(strings.Join(append(parts, b.Name), "  "))
}

func bytesText(n int64) string { return fmt.Sprintf("%d B", n) }

func (d *diffText) content(indent string, c *compare.Content) {
	if c.Table != nil {
		d.rows(indent, c.Table)
	}
	for i := range c.Changes {
		d.field(indent, &c.Changes[i])
	}
	for i := range c.Files {
		f := &c.Files[i]
		icon := map[string]string{"added": "+ ", "removed": "- "}[f.Change]
		fmt.Fprintf(d, "%s%s\n", indent, d.paint(styleOf(f.Change), line(orText(icon, "~ ")+f.Path)))
		if f.Content != nil {
			d.content(indent+"    ", f.Content)
		}
	}
	if c.Offset != nil {
		d.say(indent, "", "", "diff.offset", lang.Data{"Offset": *c.Offset})
	}
	d.unified(indent, c.Text)
	if c.More > 0 {
		d.say(indent, dim, "", "diff.more", lang.Data{"Left": c.More})
	}
	if c.Partial {
		d.say(indent, warn, "", "diff.partial")
	}
	if c.Note != "" {
		fmt.Fprintf(d, "%s%s\n", indent, d.paint(warn, line(c.Note)))
	}
}

func styleOf(change string) string {
	switch change {
	case "added":
		return good
	case "removed":
		return bad
	}
	return warn
}

// rows prints the rows of a table that differ, one a line.
func (d *diffText) rows(indent string, t *compare.Table) {
	d.say(indent, "", "", "diff.table", lang.Data{"Added": t.Added, "Removed": t.Removed, "Changed": t.Changed})
	for _, columns := range []struct {
		id   string
		list []string
	}{{"diff.columns_added", t.NewColumns}, {"diff.columns_removed", t.GoneColumns}} {
		if len(columns.list) > 0 {
			d.say(indent, "", "", columns.id, lang.Data{"Columns": strings.Join(columns.list, ", ")})
		}
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		icon := map[string]string{"added": "+", "removed": "-", "changed": "~"}[r.Change]
		name := d.app.say.T("diff.row", lang.Data{"Row": r.Number})
		if len(r.Key) > 0 {
			keys := make([]string, len(r.Key))
			for k, f := range r.Key {
				keys[k] = f.Field + "=" + shown(f.A)
			}
			name = strings.Join(keys, " ")
		}
		fmt.Fprintf(d, "%s%s  %s\n", indent, d.paint(styleOf(r.Change), line(icon+" "+name)), cells(r))
	}
	if t.More > 0 {
		d.say(indent, dim, "", "diff.more", lang.Data{"Left": t.More})
	}
}

func cells(r *compare.Row) string {
	parts := make([]string, 0, len(r.Cells))
	for _, f := range r.Cells {
		switch r.Change {
		case "added":
			parts = append(parts, f.Field+"="+shown(f.B))
		case "removed":
			parts = append(parts, f.Field+"="+shown(f.A))
		default:
			parts = append(parts, f.Field+": "+shown(f.A)+" → "+shown(f.B))
		}
	}
	return cut(line(strings.Join(parts, "  ")), 2*shownValue)
}
