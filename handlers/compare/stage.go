package compare

import (
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// stage judges one stage.
func (c *comparison) stage(p couple) Stage {
	s := Stage{Stage: p.name, Because: []Field{}}
	if p.a >= 0 {
		s.Item, s.Value = item(c.a, p.a)
	}
	if p.b >= 0 {
		at, value := item(c.b, p.b)
		switch {
		case s.Item == nil:
			s.Item, s.Value = at, value
		case at != nil && *at != *s.Item:
			s.ItemB = at
		}
	}
	if p.a < 0 || p.b < 0 {
		c.oneSided(&s, p)
	} else {
		c.both(&s, p)
	}
	if s.dirty {
		c.dirty[s.Stage] = true
	}
	return s
}

func item(h *half, i int) (number *int, value []byte) {
	s := &h.Run.Stages[i]
	if s.Item == 0 {
		return nil, nil
	}
	n := int(s.Item)
	return &n, h.value(i)
}

// oneSided is a stage that only one run has, or an instance: that follows from the items, which a stage above may have made.
func (c *comparison) oneSided(s *Stage, p couple) {
	s.Verdict, s.counts, s.dirty = OnlyA, true, true
	f := Field{Group: "definition", Field: "stage", A: any(s.Label()), B: any(absent{})}
	h, i := c.a, p.a
	if p.a < 0 {
		s.Verdict, f.A, f.B = OnlyB, absent{}, s.Label()
		h, i = c.b, p.b
	}
	if s.Item != nil {
		f.Group, f.Field = "inputs", "item"
		if f.A == any(s.Label()) {
			f.A = decoded(s.Value)
		} else {
			f.B = decoded(s.Value)
		}
		s.From = c.among(refs(h.Run.StageOf(i).Foreach))
	}
	s.Because = []Field{f}
}

// both judges a stage that both runs have.
func (c *comparison) both(s *Stage, p couple) {
	x, y := &c.a.Run.Stages[p.a], &c.b.Run.Stages[p.b]
	outcome := c.status(s, x, y)
	outputs := c.outputsDiffer(s, p)
	s.SameResult = !outcome && !outputs
	var fields []Field
	fields, s.Pinned = c.keyed(p)
	if s.Pinned {
		s.KeyA, s.KeyB = x.Last.StageKey().String(), y.Last.StageKey().String()
	}
	s.Because = append(s.Because, fields...)
	own, timed := c.sift(s, p, fields)
	s.dirty = !s.SameResult
	switch ran := executed(x) && executed(y); {
	case s.SameResult && len(own) == 0:
		s.Verdict, s.From = Same, nil
		return
	case !ran && !s.SameResult && len(c.above(p)) > 0:
		s.Verdict, s.From = Inherited, c.above(p)
	case !ran && !s.SameResult:
		s.Verdict, s.Because = Different, append(s.Because, s.Status...)
	case len(own) == 0 && x.Item == 0 && x.First > 0 && c.dirty[s.Stage]:
		s.Verdict, s.From = Inherited, []string{s.Stage} // from its instances
	case len(own) == 0 && len(s.From) > 0, len(s.From) > 0 && c.explained(own):
		s.Verdict = Inherited
	case len(own) == 0 && !timed:
		s.Verdict = c.unexplained(s, x, y)
	default:
		s.Verdict = Different
	}
	s.counts = true
	if s.dirty {
		c.remember(own)
	}
}

// unexplained is a stage of which all is the same but the results. That its worker died, or somebody stopped it, is nobody's
// nondeterminism.
func (c *comparison) unexplained(s *Stage, x, y *events.Stand) string {
	for _, stand := range []*events.Stand{x, y} {
		if stand.Last != nil && slices.Contains([]events.Class{events.Lost, events.Aborted, events.System}, stand.Last.Class) {
			s.Because = append(s.Because, s.Status...)
			return Different
		}
	}
	return Nondeterministic
}

// executed reports whether an attempt of the stage has ended by itself.
func executed(s *events.Stand) bool { return s.State == events.Completed || s.State == events.Failed }

// status compares how the stage stands. The reason is shown and does not count: it may name a path or a process.
func (c *comparison) status(s *Stage, x, y *events.Stand) bool {
	add := func(name, a, b string) bool {
		if a != b {
			s.Status = append(s.Status, Field{Field: name, A: a, B: b})
		}
		return a != b
	}
	state := add("state", x.State.String(), y.State.String())
	var a, b events.Data
	if x.Last != nil {
		a = *x.Last
	}
	if y.Last != nil {
		b = *y.Last
	}
	class := add("class", string(a.Class), string(b.Class))
	add("reason", a.Reason, b.Reason)
	return state || class
}

// outputsDiffer lists the outputs that differ and reports whether any of them counts.
func (c *comparison) outputsDiffer(s *Stage, p couple) (differ bool) {
	x, y := results(c.a, p.a), results(c.b, p.b)
	ignored := append(ignoredRoles(c.a, p.a), ignoredRoles(c.b, p.b)...)
	for _, role := range roles(x, y) {
		a, b := find(x, role), find(y, role)
		if a != nil && b != nil && a.Digest == b.Digest {
			continue
		}
		o := Output{Role: role, Ignored: slices.Contains(ignored, role), A: blob(a), B: blob(b)}
		differ = differ || !o.Ignored
		s.Outputs = append(s.Outputs, o)
	}
	return differ
}

func results(h *half, i int) []events.Result {
	if last := h.Run.Stages[i].Last; last != nil {
		return last.Outputs
	}
	return nil
}

func ignoredRoles(h *half, i int) []string {
	if compare := h.Run.StageOf(i).Compare; compare != nil {
		return compare.Ignore
	}
	return nil
}

func roles(x, y []events.Result) (all []string) {
	for _, o := range slices.Concat(x, y) {
		all = append(all, o.Role)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func find(list []events.Result, role string) *events.Result {
	for i := range list {
		if list[i].Role == role {
			return &list[i]
		}
	}
	return nil
}

func blob(r *events.Result) *Blob {
	if r == nil {
		return nil
	}
	b := &Blob{Digest: r.Digest.String(), Size: r.Size, Name: r.Name, Value: r.Value}
	if r.Records >= 0 {
		b.Records = &r.Records
	}
	return b
}

// sift parts what differs: what the stage has of its own, what it has from stages above (From names them), and whether its
// time or seed is another. A difference that comes from an output that may differ is none.
func (c *comparison) sift(s *Stage, p couple, fields []Field) (own []Field, timed bool) {
	for _, f := range fields {
		if f.Group == timeGroup {
			timed = true
			continue
		}
		sources, ignored := c.sources(p, f)
		from := c.among(sources)
		switch {
		case len(from) > 0:
			s.From = append(s.From, from...)
		case ignored:
		default:
			own = append(own, f)
		}
	}
	slices.Sort(s.From)
	s.From = slices.Compact(s.From)
	return own, timed
}

// sources names the stages that the value of a field comes from, and says whether it is an output that may differ.
func (c *comparison) sources(p couple, f Field) (names []string, ignored bool) {
	part, rest, _ := strings.Cut(f.Field, ".")
	name, _, _ := strings.Cut(rest, ".")
	for _, at := range []struct {
		h *half
		i int
	}{{c.a, p.a}, {c.b, p.b}} {
		st := at.h.Run.StageOf(at.i)
		switch part {
		case "item", "number":
			names = append(names, refs(st.Foreach)...)
		case "env":
			names = append(names, refs(st.Env[name])...)
		case "with":
			names = append(names, refs(string(st.With))...)
		case "inputs":
			for _, in := range st.Inputs {
				if in.Role != name || !in.Expr {
					continue
				}
				names = append(names, refs(in.From)...)
				if m := outputRef.FindStringSubmatch(in.From); m != nil {
					if k, ok := at.h.Run.Find(m[1], 0); ok {
						ignored = ignored || slices.Contains(ignoredRoles(at.h, k), m[2])
					}
				}
			}
		}
	}
	return names, ignored
}

// among gives those of the stages whose results differ.
func (c *comparison) among(names []string) (differ []string) {
	for _, name := range names {
		if c.dirty[name] && !slices.Contains(differ, name) {
			differ = append(differ, name)
		}
	}
	return differ
}

// above names the stages with other results that this one needs, or for a foreach stage its own instances.
func (c *comparison) above(p couple) []string {
	names := slices.Concat(c.a.Run.StageOf(p.a).Needs, c.b.Run.StageOf(p.b).Needs)
	if s := &c.a.Run.Stages[p.a]; s.Item == 0 && s.First > 0 {
		names = append(names, p.name)
	}
	return c.among(names)
}

// explained reports whether the fields are parameters that a stage above differs for already: every stage is given them.
func (c *comparison) explained(fields []Field) bool {
	for _, f := range fields {
		if !c.params[f.Field] {
			return false
		}
	}
	return true
}

func (c *comparison) remember(fields []Field) {
	for _, f := range fields {
		if f.Group == "params" {
			c.params[f.Field] = true
		}
	}
}
