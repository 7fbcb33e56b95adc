package events

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// joinStates are what may have become of a parent, in the order of the table's columns.
var joinStates = []State{Completed, Failed, Skipped, Cancelled}

// join is one form of a stage D with two parents, and what becomes of it.
type join struct {
	a, b   string // needs or prefers
	always bool
	when   string // "", true, false
	// then says, for A completed, failed, skipped, cancelled, and in each of the four groups for B likewise, what becomes of
	// D: it runs (r), is skipped (s) or cancelled (c).
	then string
}

// joins is the truth about joins: the tests hold the scheduler against it, and docs/joins.md is made from it.
var joins = []join{
	{"needs", "needs", false, "", "rssc ssss ssss cssc"},
	{"needs", "needs", false, "true", "rssc ssss ssss cssc"},
	{"needs", "needs", false, "false", "sssc ssss ssss cssc"},
	{"needs", "needs", true, "", "rrrc rrrc rrrc cccc"},
	{"needs", "needs", true, "true", "rrrc rrrc rrrc cccc"},
	{"needs", "needs", true, "false", "sssc sssc sssc cccc"},

	{"needs", "prefers", false, "", "rrrc ssss ssss cccc"},
	{"needs", "prefers", false, "true", "rrrc ssss ssss cccc"},
	{"needs", "prefers", false, "false", "sssc ssss ssss cccc"},
	{"needs", "prefers", true, "", "rrrc rrrc rrrc cccc"},
	{"needs", "prefers", true, "true", "rrrc rrrc rrrc cccc"},
	{"needs", "prefers", true, "false", "sssc sssc sssc cccc"},

	{"prefers", "needs", false, "", "rssc rssc rssc cssc"},
	{"prefers", "needs", false, "true", "rssc rssc rssc cssc"},
	{"prefers", "needs", false, "false", "sssc sssc sssc cssc"},
	{"prefers", "needs", true, "", "rrrc rrrc rrrc cccc"},
	{"prefers", "needs", true, "true", "rrrc rrrc rrrc cccc"},
	{"prefers", "needs", true, "false", "sssc sssc sssc cccc"},

	{"prefers", "prefers", false, "", "rrrc rrrc rrrc cccc"},
	{"prefers", "prefers", false, "true", "rrrc rrrc rrrc cccc"},
	{"prefers", "prefers", false, "false", "sssc sssc sssc cccc"},
	{"prefers", "prefers", true, "", "rrrc rrrc rrrc cccc"},
	{"prefers", "prefers", true, "true", "rrrc rrrc rrrc cccc"},
	{"prefers", "prefers", true, "false", "sssc sssc sssc cccc"},
}

// outcome gives what the table says for the states of the parents.
func (j join) outcome(a, b State) string {
	return string(strings.ReplaceAll(j.then, " ", "")[slices.Index(joinStates, a)*len(joinStates)+slices.Index(joinStates, b)])
}

// TestCase_R9Table: every combination, under both orders in which the parents may end.
func TestCase_R9Table(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, j := range joins {
		form := fmt.Sprint(j.a, j.b, j.always, j.when)
		if seen[form] {
			t.Errorf("%s stands twice", form)
		}
		seen[form] = true
		for _, a := range joinStates {
			for _, b := range joinStates {
				for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
					got, s := j.try(t, a, b, order)
					if want := j.outcome(a, b); got != want {
						t.Errorf("D %s A, %s B, always %v, when %q: A %s, B %s, in the order %v: %s, the table says %s", j.a, j.b, j.always, j.when, a, b, order, got, want)
					}
					if _, m := s.replay(); m != nil || s.failure != nil || !s.run.State.Terminal() {
						t.Fatalf("run %s, %v, %v", s.run.State, m, s.failure)
					}
				}
			}
		}
	}
	if len(seen) != 2*2*2*3 {
		t.Errorf("%d forms", len(seen))
	}
}

// try brings the parents into their states and gives what becomes of D. A parent that is to be cancelled waits behind a
// stage that runs until then.
func (j join) try(t *testing.T, a, b State, order []string) (string, *sim) {
	t.Helper()
	states := map[string]State{"a": a, "b": b}
	d := Stage{Name: "d", Always: j.always}
	if j.when != "" {
		d.When = "x > 1"
	}
	stages := []Stage{{Name: "hold"}}
	for _, name := range []string{"a", "b"} {
		st := Stage{Name: name, MayFail: true, When: map[State]string{Skipped: "never"}[states[name]],
			Needs: map[State][]string{Cancelled: {"hold"}}[states[name]]}
		stages = append(stages, st)
		if edge := map[string]string{"a": j.a, "b": j.b}[name]; edge == "needs" {
			d.Needs = append(d.Needs, name)
		} else {
			d.Prefers = append(d.Prefers, name)
		}
	}
	g := mustGraph(t, append(stages, d)...)
	s := newSim(g)
	s.emit(RunCreated, Data{Plan: g.Digest})
	at := func(name string) int { i, _ := g.Index(name); return i }
	yes, no := func() bool { return true }, func() bool { return false }
	next := func() {
		for due := s.run.Decide(); len(due) > 0; due = s.run.Decide() {
			for _, one := range due {
				e := one.Event(s.run)
				switch {
				case one.Type != StageQueued:
					s.emit(e.Type, e.Data)
				case one.Stage == at("d") && j.when == "true":
					s.ready(one.Stage, e.Data, yes, yes)
				default: // no other condition holds
					s.ready(one.Stage, e.Data, yes, no)
				}
			}
		}
	}
	next()
	for _, name := range order {
		if i := at(name); s.run.Stages[i].State == Running {
			var f *Failure
			if states[name] == Failed {
				f = &Failure{Class: ExecFailed, Reason: "no"}
			}
			s.finish(i, f)
			next()
		}
	}
	if a == Cancelled || b == Cancelled {
		s.emit(RunCancelRequested, Data{Reason: "enough"})
		next()
	}
	for _, name := range []string{"hold", "d"} {
		if i := at(name); s.run.Stages[i].State == Running {
			var f *Failure
			if s.run.Cancelling() {
				f = &Failure{Class: Aborted, Reason: "cancelled"}
			}
			s.finish(i, f)
			next()
		}
	}
	for name, want := range states {
		if got := s.run.Stages[at(name)].State; got != want {
			t.Fatalf("%s is %s, and should be %s", name, got, want)
		}
	}
	return map[State]string{Completed: "r", Skipped: "s", Cancelled: "c"}[s.run.Stages[at("d")].State], s
}

const joinsIntro = `A stage that has several parents has to know what to make of it when not all of them have completed. This page is the
whole truth about that: a test tries every combination below, under both orders in which the parents may end, and fails
when one comes to anything else.

- ` + "`needs`" + ` waits for the parent to **complete**. When it fails, is skipped or is cancelled instead, the stage is **skipped** at
  once, without waiting for its other parents. A failed parent with ` + "`may_fail: true`" + ` has failed all the same: it only lets
  the run complete.
- ` + "`needs`" + ` with ` + "`always: true`" + ` waits for the parents to **end**, however they end, and then the stage runs.
- ` + "`prefers`" + ` only lets the parent go first: once it is in line, has started or has ended, the stage need not wait any more.
  What becomes of the parent makes no difference.
- ` + "`when`" + ` is asked last, once the stage could run. When it is false the stage is **skipped**, and whoever needs it is skipped
  too. It never lets a stage run that could not run without it.
- A **cancelled** run cancels everything that is pending, ` + "`always`" + ` or not. A stage that was skipped before the cancel came
  stays skipped: in the table below, the other parent had ended by then.

Nothing is ever left over: at the end of a run every stage has completed, failed, been skipped or been cancelled.

## Recipes

| the stage below should run when | write |
|---|---|
| all its parents have completed (*all success*) | ` + "`needs: [a, b]`" + `, and nothing else |
| all have ended, and none above it has failed (*none failed*): skipped ones do not matter | ` + "`needs: [a, b]`, `always: true`, `when: run.state != \"failed\"`" + ` |
| all have ended, whatever became of them (*all done*) | ` + "`needs: [a, b]`, `always: true`" + ` |
| all have ended, and at least one above it has failed (*one failed*) | ` + "`needs: [a, b]`, `always: true`, `when: run.state == \"failed\"`" + ` |
| one of them in particular has failed | ` + "`needs: [a, b]`, `always: true`, `when: stages.a.state == \"failed\"`" + ` |

In a condition ` + "`run.state`" + ` is ` + "`failed`" + ` when a stage has failed that this one needs, directly or through others, and that has no
` + "`may_fail: true`" + `; else it is ` + "`completed`. `run.failed`" + ` lists all of those stages, with ` + "`may_fail`" + ` or without.

`

func joinsDoc() string {
	var b strings.Builder
	b.WriteString("# What becomes of a stage with several parents\n\n" + generatedNote + joinsIntro +
		"## The table\n\nD has the parents A and B; it **runs**, is *skipped*, or is cancelled.\n")
	words := map[string]string{"r": "**runs**", "s": "*skipped*", "c": "cancelled"}
	for _, edges := range [][2]string{{"needs", "needs"}, {"needs", "prefers"}, {"prefers", "prefers"}} {
		forms := slices.DeleteFunc(slices.Clone(joins), func(j join) bool { return j.a != edges[0] || j.b != edges[1] })
		if edges[0] == edges[1] {
			fmt.Fprintf(&b, "\n### D %s A and B\n\n| A | B |", edges[0])
		} else {
			fmt.Fprintf(&b, "\n### D %s A and %s B\n\n| A | B |", edges[0], edges[1])
		}
		rule := "\n|---|---|"
		for _, j := range forms {
			name := ""
			if j.always {
				name = "always"
			}
			if j.when != "" {
				name = strings.TrimSpace(name + " when " + j.when)
			}
			if name == "" {
				name = "plain"
			}
			fmt.Fprintf(&b, " %s |", name)
			rule += "---|"
		}
		b.WriteString(rule + "\n")
		for x, first := range joinStates {
			for y, second := range joinStates {
				if edges[0] == edges[1] && y < x {
					continue // the same, the other way round
				}
				fmt.Fprintf(&b, "| %s | %s |", first, second)
				for _, j := range forms {
					fmt.Fprintf(&b, " %s |", words[j.outcome(first, second)])
				}
				b.WriteString("\n")
			}
		}
	}
	return b.String()
}
