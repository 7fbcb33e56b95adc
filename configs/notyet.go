package configs

import (
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
	return out
}
