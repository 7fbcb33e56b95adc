package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// Approvals carries out stages that ask a person. The stage waits in line, and holds nothing, until somebody has answered
// or its time-out has passed; only then does an attempt begin, which says what the answer means.
type Approvals struct{}

// ApprovalSettings are what a stage asks.
type ApprovalSettings struct {
	Message   string                     `json:"message"`
	Approvers []string                   `json:"approvers,omitempty"`  // names of the system's users; empty is anybody who may control the engine
	Form      map[string]json.RawMessage `json:"form,omitempty"`       // JSON Schema of each field; with a default it may be left out
	OnTimeout string                     `json:"on_timeout,omitempty"` // fail, approve, reject
}

// Spec implements Executor.
func (Approvals) Spec() Spec {
	return Spec{Name: "approval", Doc: "Waits for a person.", With: json.RawMessage(
		`{"type":"object","additionalProperties":false,"required":["message"],"properties":{"message":{"type":"string"},
"approvers":{"type":"array","items":{"type":"string"}},"form":{"type":"object"},"on_timeout":{"enum":["fail","approve","reject"]}}}`)}
}

// Execute implements Executor. The form's fields become values under their names, and approved_by and reason beside.
func (Approvals) Execute(_ context.Context, c *Call) (*Result, *events.Failure) {
	result := &Result{Values: map[string]json.RawMessage{}}
	var settings ApprovalSettings
	if failure := decodeSettings(c.With, &settings); failure != nil {
		return result, failure
	}
	if c.Answer == nil {
		return settings.timedOut(c, result)
	}
	who := c.Answer.Actor
	if !c.Approved {
		return result, rejected(who, c.Answer.Reason)
	}
	if err := json.Unmarshal(orEmpty(c.Answer.Answer), &result.Values); err != nil {
		return result, systemFailure("read the answer", err)
	}
	result.Values["approved_by"], result.Values["reason"] = textJSON(who), textJSON(c.Answer.Reason)
	return result, nil
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

func textJSON(text string) json.RawMessage {
	b, _ := json.Marshal(text) //nolint:errchkjson // text always has a JSON form
	return b
}

func rejected(who, reason string) *events.Failure {
	f := &events.Failure{Class: events.GateRejected, Expected: "an approval", Actual: "rejected by " + who, Reason: who + " rejected it"}
	if reason != "" {
		f.Reason += ": " + reason
	}
	return f
}

// timedOut says what it means that nobody answered.
func (s ApprovalSettings) timedOut(c *Call, result *Result) (*Result, *events.Failure) {
	within := fmt.Sprintf("nobody answered within %s", c.Timeout)
	switch s.OnTimeout {
	case "approve":
		form, err := s.Fill(nil)
		if err == nil {
			err = json.Unmarshal(form, &result.Values)
		}
		if err != nil {
			return result, &events.Failure{Class: events.Timeout, Expected: "an answer", Reason: within + ", and the form has fields without a default"}
		}
		result.Values["approved_by"], result.Values["reason"] = textJSON(""), textJSON(within)
		return result, nil
	case "reject":
		return result, &events.Failure{Class: events.GateRejected, Expected: "an approval", Actual: "no answer", Reason: within + ", which counts as no"}
	}
	return result, &events.Failure{Class: events.Timeout, Expected: "an answer", Actual: "none", Reason: within}
}

// What is wrong with an answer.
var (
	ErrApprover = errors.New("E_APPROVER: not among the approvers")
	ErrForm     = errors.New("E_FORM")
)

// ReadApproval reads what a stage asks.
func ReadApproval(s *events.Stage) (ApprovalSettings, error) {
	var settings ApprovalSettings
	if failure := decodeSettings(s.With, &settings); failure != nil {
		return settings, failure
	}
	return settings, nil
}

// Allows says whether a person may answer.
func (s ApprovalSettings) Allows(actor string) error {
	if len(s.Approvers) > 0 && !slices.Contains(s.Approvers, actor) {
		return fmt.Errorf("%w: %s; it is for %s to answer", ErrApprover, actor, strings.Join(s.Approvers, ", "))
	}
	return nil
}

// Fill checks the fields of a form against their schemas and puts in the defaults; it gives an object.
func (s ApprovalSettings) Fill(given map[string]json.RawMessage) (json.RawMessage, error) {
	resolved, problems := configs.ResolveParams(&events.Plan{Params: s.Form}, given)
	if len(problems) > 0 {
		texts := make([]string, len(problems))
		for i := range problems {
			texts[i] = strings.ReplaceAll(problems[i].Message, "parameter", "field")
		}
		return nil, fmt.Errorf("%w: %s", ErrForm, strings.Join(texts, "; "))
	}
	return json.Marshal(resolved)
}
