package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// classify gives the exit code of an error that brought none.
func classify(err error) int {
	var held *sqlite.HeldError
	switch {
	case errors.As(err, &held), errors.Is(err, trigger.ErrBusy):
		return exitBusy
	case errors.Is(err, storage.ErrNotFound):
		return exitNotFound
	case errors.Is(err, router.ErrEnded), errors.Is(err, storage.ErrConflict), errors.Is(err, os.ErrExist):
		return exitConflict
	}
	return exitInternal
}

// clean makes text from data safe for a terminal: control characters and what turns text around are shown, not obeyed.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0x2028, r == 0x2029, r == 0x200e, r == 0x200f:
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

var oneLine = strings.NewReplacer("\n", " ", "\t", " ")

func line(s string) string { return oneLine.Replace(clean(s)) }

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

// table prints columns as wide as their widest cell; a Chinese character takes two places.
func (a *app) table(head []string, rows [][]string) error {
	all := make([][]cell, 1, len(rows)+1)
	for _, text := range head {
		all[0] = append(all[0], cell{dim, line(text)})
	}
	for _, row := range rows {
		cells := make([]cell, len(row))
		for i, text := range row {
			cells[i] = a.cell(text)
		}
		all = append(all, cells)
	}
	widths := make([]int, len(head))
	for _, row := range all {
		for i, c := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(c.text))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var text strings.Builder
		for i, c := range row {
			text.WriteString(a.paint(c.style, c.text))
			if i < len(row)-1 {
				text.WriteString(strings.Repeat(" ", widths[i]+2-runewidth.StringWidth(c.text)))
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

// cell is a place in a table.
type cell struct{ style, text string }

// cell takes a painted text apart: the paint is ours, what it covers may be anything.
func (a *app) cell(text string) cell {
	if a.colored() {
		for _, style := range []string{dim, good, bad, warn, accent, bold} {
			if inner, ok := strings.CutPrefix(text, "\x1b["+style+"m"); ok {
				return cell{style, line(strings.TrimSuffix(inner, "\x1b[0m"))}
			}
		}
	}
	return cell{"", line(text)}
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
	if style == "" || text == "" || !a.colored() {
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
	case d < time.Minute-50*time.Millisecond:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// ago shows an instant as a distance from now. A clock that was set back makes nothing come from the future.
func (a *app) ago(ns int64) string {
	if ns == 0 {
		return ""
	}
	d := time.Since(time.Unix(0, ns))
	switch {
	case d < time.Second:
		return a.say.T("ago.now")
	case d >= 48*time.Hour:
		return a.say.T("ago.days", map[string]any{"Days": int(d / (24 * time.Hour))})
	case d >= time.Hour:
		return a.say.T("ago", map[string]any{"D": strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")})
	}
	return a.say.T("ago", map[string]any{"D": d.Truncate(time.Second).String()})
}
