package configs

import (
	"encoding/json"
	"slices"

	"github.com/apollo-11/apollo/events"
)

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
	notYetStages(p, no)
	return out
}

// notYetStages looks at the stages of a plan, and of the pipelines that they run: whose triggers do not matter.
func notYetStages(p *events.Plan, no func(what string)) {
	for i := range p.Stages {
		s := &p.Stages[i]
		for _, what := range notYetOf(s) {
			no(what + " of the stage " + s.Name)
		}
		var child struct {
			Plan *events.Plan `json:"plan"`
		}
		if s.Executor == "pipeline" && json.Unmarshal(s.With, &child) == nil && child.Plan != nil {
			notYetStages(child.Plan, no)
		}
	}
}

func notYetOf(s *events.Stage) []string {
	var out []string
	for _, part := range []struct {
		used bool
		what string
	}{
		{s.Isolation == "enforce", "isolation: enforce"}, {s.Network == "none" && s.Executor != "container", "network: none"},
	} {
		if part.used {
			out = append(out, part.what)
		}
	}
	return out
}
