package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage"
)

// pinsJSON is what the result of an attempt depends on. The stage key is the SHA-256 of the bytes of document.
type pinsJSON struct {
	Stage      string             `json:"stage"`
	Item       *int               `json:"item"`
	Attempt    int                `json:"attempt"`
	State      string             `json:"state"`
	Key        string             `json:"stage_key"`
	Cached     string             `json:"cached_from,omitempty"`
	Shared     bool               `json:"shared"` // other runs may take the result over
	Isolation  string             `json:"isolation,omitempty"`
	Document   string             `json:"document"` // exactly as it is stored
	Pins       *events.Pins       `json:"pins"`
	Definition *events.Definition `json:"definition"` // null: the artifact is not there
	Machine    *events.Machine    `json:"machine"`    // no part of the key
}

// printPins prints the pins of every attempt, or of those of one stage or instance.
func (a *app) printPins(ctx context.Context, s storage.Store, id events.ID, of string) error {
	files, closeFiles, err := a.stored()
	if err != nil {
		return err
	}
	defer closeFiles() //nolint:errcheck // it was only read
	v, err := openView(ctx, s, id, a.logsDir())
	if err != nil {
		return err
	}
	var list []pinsJSON
	var failed error
	err = v.advance(ctx, s, func(e *events.Event) {
		if e.Type.Entity() != "stage" || e.Data.StageKey().IsZero() || e.Type == events.StageIrreproducibleFound || failed != nil {
			return
		}
		var one pinsJSON
		if one, failed = pinsOf(files, e); failed == nil {
			list = append(list, one)
		}
	})
	if err == nil {
		err = failed
	}
	if err == nil {
		err = a.mustHave(v, of)
	}
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(p pinsJSON) bool { return of != "" && p.Stage != of && p.label() != of })
	if len(list) == 0 && a.output == "text" {
		a.tell("pins.none")
		return nil
	}
	if a.output == "json" {
		return writeJSON(a.out, append([]pinsJSON{}, list...), true)
	}
	if a.output == "jsonl" {
		for i := range list {
			if err := writeJSON(a.out, list[i], false); err != nil {
				return err
			}
		}
		return nil
	}
	var b strings.Builder
	for i := range list {
		a.pinsText(&b, &list[i])
	}
	_, err = fmt.Fprint(a.out, b.String())
	return err
}

func (p *pinsJSON) label() string {
	at := web.Place{Stage: p.Stage}
	if p.Item != nil {
		at.Item = *p.Item
	}
	return labelOf(at)
}

// pinsOf expands the pins document of the event that ended an attempt.
func pinsOf(files fileSource, e *events.Event) (pinsJSON, error) {
	d := &e.Data
	p := pinsJSON{Stage: d.Stage, Attempt: d.Attempt, State: outcomeOf(e.Type, d).State, Key: d.StageKey().String(), Shared: d.Shared == 1, Isolation: d.Isolation}
	if d.Item > 0 {
		p.Item = &d.Item
	}
	if !d.Cached.IsZero() {
		p.Cached = d.Cached.String()
	}
	document, err := pinned(files, d)
	if err != nil {
		return p, fmt.Errorf("read the pins of %s: %w", p.label(), err)
	}
	if key := events.DigestOf(document); key != d.StageKey() {
		return p, fmt.Errorf("the pins of %s: %w: their bytes have the digest %s", p.label(), storage.ErrCorrupt, key)
	}
	p.Document, p.Pins = string(document), new(events.Pins)
	if err := json.Unmarshal(document, p.Pins); err != nil {
		return p, fmt.Errorf("read the pins of %s: %w", p.label(), err)
	}
	p.Definition = expand[events.Definition](files, p.Pins.Definition)
	p.Machine = expand[events.Machine](files, d.Machine)
	return p, nil
}

// expand reads a document of the artifacts; nil when it is not there.
func expand[T any](files fileSource, d events.Digest) *T {
	if d.IsZero() {
		return nil
	}
	b, err := readArtifact(files, d)
	document := new(T)
	if err != nil || json.Unmarshal(b, document) != nil {
		return nil
	}
	return document
}

// pinsText prints the pins of an attempt, grouped.
func (a *app) pinsText(b *strings.Builder, p *pinsJSON) {
	state, _ := events.ParseState(p.State) // it was written by this process
	fmt.Fprintf(b, "%s  %s  %s\n", a.paint(bold, line(p.label())), a.say.T("attempt", lang.Data{"Number": p.Attempt}), a.state(state))
	g := group{app: a, b: b}
	g.row("pins.key", p.Key)
	if p.Cached != "" {
		g.row("pins.origin", a.say.T("stage.cached", lang.Data{"Run": p.Cached}))
	}
	g.definition(p.Pins.Definition, p.Definition)
	if p.Pins.Item != nil {
		g.row("pins.item", fmt.Sprintf("#%d %s", p.Pins.Number, p.Pins.Item))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Pins.Params)) {
		g.row("pins.params", name+" = "+string(p.Pins.Params[name]))
	}
	if p.Pins.With != nil {
		g.row("pins.with", string(p.Pins.With))
	}
	for _, in := range p.Pins.Inputs {
		if in.Kind == "value" {
			g.row("pins.inputs", in.Role+" = "+string(in.Value))
		} else {
			g.row("pins.inputs", strings.TrimSpace(fmt.Sprintf("%s: %s %s %d B %s", in.Role, in.Kind, in.Digest, in.Size, in.Name)))
		}
	}
	g.env(p)
	g.row("pins.time", p.Pins.Time)
	g.row("pins.seed", fmt.Sprint(p.Pins.Seed))
	if m := p.Machine; m != nil {
		g.row("pins.machine", strings.Join(slices.DeleteFunc([]string{m.Hostname, m.Platform, m.Kernel, m.CPU, fmt.Sprintf("%d CPU", m.CPUs), "apollo " + m.Apollo, m.Go,
			fmt.Sprintf("uid %d", m.UID), p.Isolation}, func(s string) bool { return s == "" }), ", "))
	}
}

// group prints rows; the name of a group stands before its first.
type group struct {
	app  *app
	b    *strings.Builder
	last string
}

const (
	pinsColumn = 18  // cells of the names
	pinsValue  = 160 // of a value
)

func (g *group) row(id, value string) {
	name := ""
	if g.last != id {
		name, g.last = g.app.say.T(id), id
	}
	fmt.Fprintf(g.b, "  %s %s\n", g.app.paint(dim, screen.FillRight(name, pinsColumn)), cut(line(value), pinsValue))
}

func (g *group) definition(digest events.Digest, d *events.Definition) {
	g.row("pins.definition", digest.String())
	if d == nil {
		g.row("pins.definition", g.app.say.T("pins.gone"))
		return
	}
	g.row("pins.definition", strings.Join(slices.DeleteFunc([]string{d.Executor, d.Platform, named("network", d.Network), named("isolation", d.Isolation),
		named("cpu", number(d.CPU))}, func(s string) bool { return s == "" }), ", "))
	if len(d.With) > 0 {
		g.row("pins.definition", string(d.With))
	}
	if len(d.Command) > 0 {
		words := make([]string, len(d.Command))
		for i, word := range d.Command {
			words[i] = (quoter{}).quote(word)
		}
		g.row("pins.command", strings.Join(words, " "))
	}
	for _, path := range slices.Sorted(maps.Keys(d.Files)) {
		g.row("pins.command", path+"  "+d.Files[path])
	}
	for _, tool := range d.Toolchain {
		g.row("pins.toolchain", tool.Name+" "+tool.Value)
	}
}

func (g *group) env(p *pinsJSON) {
	all := map[string]string{}
	if p.Definition != nil {
		maps.Copy(all, p.Definition.Env)
		if p.Definition.Umask != "" {
			all["umask"] = p.Definition.Umask
		}
	}
	maps.Copy(all, p.Pins.Env)
	for name, hmac := range p.Pins.Secrets {
		all[name] = g.app.say.T("pins.secret", lang.Data{"HMAC": hmac[:min(16, len(hmac))]})
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		g.row("pins.env", name+"="+all[name])
	}
}

func named(name, value string) string {
	if value == "" {
		return ""
	}
	return name + " " + value
}

func number(f float64) string {
	if f == 0 {
		return ""
	}
	return fmt.Sprint(f)
}

// findingJSON is a second, different result for one stage key.
type findingJSON struct {
	Stage    string `json:"stage"`
	Item     int    `json:"item,omitempty"`
	Attempt  int    `json:"attempt"`
	Role     string `json:"role"`
	Recorded string `json:"recorded"` // digest in the other run
	Found    string `json:"found"`    // digest in this one
	Other    string `json:"other_run"`
	Key      string `json:"stage_key"`
}

// findings gives what was irreproducible of a run, in the order in which it was found.
func (v *view) findings() (list []findingJSON) {
	for _, d := range v.found {
		list = append(list, findingJSON{d.Stage, d.Item, d.Attempt, d.Role, d.Expected, d.Actual, d.Run.String(), d.StageKey().String()})
	}
	return list
}

// findingLines says what was irreproducible, for the head of a run.
func (a *app) findingLines(v *view) (lines []string) {
	for _, f := range v.findings() {
		lines = append(lines, a.paint(bad, "≠ ")+line(a.say.T("finding", lang.Data{"Stage": labelOf(web.Place{Stage: f.Stage, Item: f.Item}), "Role": f.Role, "Recorded": f.Recorded,
			"Found": f.Found, "Run": f.Other})))
	}
	return lines
}
