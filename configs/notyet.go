package configs

import (
	"slices"

	"github.com/apollo-11/apollo/events"
)

// runsNow are the executors that this version can run.
var runsNow = []string{"shell", "python", "container", "task"}

// NotYet gives what a plan asks for that is right and that this version can't run. It is the one list of such things:
// a part is taken out here when it is built. Validation lets them pass; starting a run does not.
func NotYet(p *events.Plan) []Problem {
	var out []Problem
	no := func(what string) {
		out = append(out, Problem{Code: "E_NOT_YET", Severity: SeverityError, Message: what + " can't be run by this version yet",
			Expected: "what this version runs", Hint: "it is read and checked already"})
	}
	for _, t := range p.Triggers {
		if slices.Contains([]string{"cron", "pipeline", "event"}, t.Kind) {
			no("the trigger " + t.Kind)
		}
	}
	if p.Concurrency != nil {
		no("concurrency")
	}
	if p.Deadline != 0 {
		no("deadline")
	}
	for i := range p.Stages {
		s := &p.Stages[i]
		for _, what := range notYetOf(s) {
			no(what + " of the stage " + s.Name)
		}
	}
	return out
}

func notYetOf(s *events.Stage) []string {
	var out []string
	for _, part := range []struct {
		used bool
		what string
	}{
		{!slices.Contains(runsNow, s.Executor), "the executor " + s.Executor},
		{len(s.Prefers) > 0, "prefers"}, {s.When != "", "when"}, {s.Always, "always"}, {s.Foreach != "", "foreach"},
		{len(s.Gate) > 0, "gate"}, {len(s.Reconcile) > 0, "reconcile"}, {s.Resources != nil, "resources"},
		{s.Isolation == "enforce", "isolation: enforce"}, {s.Network == "none" && s.Executor != "container", "network: none"},
	} {
		if part.used {
			out = append(out, part.what)
		}
	}
	return out
}
