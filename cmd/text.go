package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

func line(s string) string { return strings.ReplaceAll(clean(s), "\n", " ") }

// list prints rows as a table, as one JSON array, or as a JSON object a line.
func list[T any](a *app, rows []T, head []string, cells func(T) []string) error {
	switch a.output {
	case "json":
		if rows == nil {
			rows = []T{}
		}
		return writeJSON(a.out, rows, true)
	case "jsonl":
		for _, r := range rows {
			if err := writeJSON(a.out, r, false); err != nil {
				return err
			}
		}
		return nil
	}
	table := make([][]string, len(rows))
	for i, r := range rows {
		table[i] = cells(r)
	}
	return a.table(head, table)
}

func writeJSON(w io.Writer, v any, indent bool) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if indent {
		e.SetIndent("", "  ")
	}
	return e.Encode(v)
}

// screen measures text as terminals draw it: characters of ambiguous width, as icons and lines are, take one place
// whatever the locale says; a Chinese character takes two.
var screen = &runewidth.Condition{StrictEmojiNeutral: true}

// table prints columns as wide as their widest cell; a Chinese character takes two places.
func (a *app) table(head []string, rows [][]string) error {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], screen.StringWidth(line(cell)))
		}
	}
	var b strings.Builder
	for n, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			text := line(cell)
			if i < len(row)-1 {
				text = screen.FillRight(text, widths[i]+2)
			}
			if n == 0 {
				text = a.paint(dim, text)
			}
			b.WriteString(text)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// The colours, by what they mean.
const (
	dim    = "2"
	good   = "32"
	bad    = "31"
	warn   = "33"
	accent = "36"
	bold   = "1"
)

// paint colours text for a terminal, or not at all.
func (a *app) paint(style, text string) string {
	if !a.colored() || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

func (a *app) colored() bool {
	switch a.color {
	case "always":
		return true
	case "never":
		return false
	}
	return a.env("NO_COLOR") == "" && a.env("TERM") != "dumb" && isTerminal(a.out)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// state gives icon and word of a state: never the colour alone.
func (a *app) state(s events.State) string {
	icon, style := "○", dim
	switch s {
	case events.None, events.Pending:
	case events.Running:
		icon, style = "●", accent
	case events.Completed:
		icon, style = "✔", good
	case events.Failed:
		icon, style = "✖", bad
	case events.Cancelled:
		icon, style = "⊘", warn
	case events.Skipped:
		icon = "–"
	}
	return a.paint(style, icon+" "+a.say.T("state."+s.String()))
}

func stamp(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}

// span shows a duration as a person reads it; it is never negative.
func span(from, to int64) string {
	if from == 0 {
		return ""
	}
	return short(time.Duration(max(0, to-from)))
}

func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// ago shows an instant as people say it; after a week as a date and time, UTC.
func (a *app) ago(ns int64) string {
	if ns == 0 {
		return ""
	}
	d := max(0, time.Since(time.Unix(0, ns)))
	for _, unit := range []struct {
		below, one time.Duration
		id         string
	}{
		{time.Minute, time.Second, "ago.seconds"}, {time.Hour, time.Minute, "ago.minutes"},
		{24 * time.Hour, time.Hour, "ago.hours"}, {7 * 24 * time.Hour, 24 * time.Hour, "ago.days"},
	} {
		if d < unit.below {
			return a.say.T(unit.id, lang.Data{"N": int(d / unit.one)})
		}
	}
	return time.Unix(0, ns).UTC().Format("2006-01-02 15:04")
}
