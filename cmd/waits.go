package cmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// waiting says what a pending stage waits for, with the numbers; empty when it waits for nothing.
func (a *app) waiting(v *view, i int) string {
	s := &v.run.Stages[i]
	if s.State != events.Pending || s.Waits == "" {
		return ""
	}
	switch s.Waits {
	case "retry":
		d := s.Last
		return a.say.T("waits.retry_in", lang.Data{"In": until(s.Due), "Class": a.paint(bad, string(d.Class)), "Reason": line(d.Reason)})
	case "delay":
		return a.say.T("waits.delay_in", lang.Data{"In": until(s.Due)})
	case waitsApproval:
		return a.waitingFor(v, i)
	case "dependency":
		if open := v.openNeeds(i); open != "" {
			return a.say.T("waits.stages", lang.Data{"For": open})
		}
	}
	return a.because(s.Waits, v.queued[i].reason)
}

// because says what a stage or run waits for and why.
func (a *app) because(waits, reason string) string {
	if reason == "" {
		return a.say.T("waits", lang.Data{"For": a.say.T("waits." + waits)})
	}
	return a.say.T("waits.because", lang.Data{"For": a.say.T("waits." + waits), "Why": line(reason)})
}

// waitingFor says who may answer a stage that waits for a person, what is asked, and until when.
func (a *app) waitingFor(v *view, i int) string {
	asked, err := executor.ReadApproval(v.run.StageOf(i))
	if err != nil {
		return a.because(waitsApproval, err.Error())
	}
	who := a.say.T("approval.anybody")
	if len(asked.Approvers) > 0 {
		who = strings.Join(asked.Approvers, ", ")
	}
	d := lang.Data{"Who": line(who), "Message": line(asked.Message)}
	if due := v.run.Stages[i].Due; due > 0 {
		d["In"] = until(due)
		return a.say.T("waits.approval_in", d)
	}
	return a.say.T("waits.approval_by", d)
}

func until(due int64) string { return short(max(0, time.Until(time.Unix(0, due)))) }

// manyNeeds is how many of the stages that are waited for are named.
const manyNeeds = 4

// openNeeds names the stages that a stage still waits for: first those that it needs, else those that it prefers.
func (v *view) openNeeds(i int) string {
	if v.run.Stages[i].Item > 0 {
		return ""
	}
	st := v.run.StageOf(i)
	open := v.stages(st.Needs, func(s *events.Stand) bool { return !s.State.Terminal() })
	if len(open) == 0 {
		open = v.stages(st.Prefers, func(s *events.Stand) bool { return s.State == events.Pending && !s.Queued })
	}
	if len(open) > manyNeeds {
		open = append(open[:manyNeeds:manyNeeds], fmt.Sprintf("… (%d)", len(open)))
	}
	return strings.Join(open, ", ")
}

func (v *view) stages(names []string, are func(*events.Stand) bool) (found []string) {
	for _, name := range names {
		if k, ok := v.run.Graph.Index(name); ok && are(&v.run.Stages[k]) {
			found = append(found, name)
		}
	}
	return found
}
