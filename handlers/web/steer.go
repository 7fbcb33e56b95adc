package web

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/storage"
)

// By says who wants something done with a run, and why. In the API the actor is the system's user at the other end of
// the socket, never what a request says.
type By struct{ Actor, Reason string }

// Place names a stage of a run, or with a number from 1 an instance of a foreach stage.
type Place struct {
	Stage string
	Item  int
}

// RerunRequest asks for a new run on an ended run's plan and delivery.
type RerunRequest struct {
	From    string            `json:"from,omitempty" doc:"stage from which everything runs anew; what completed before it is taken over. Without it all runs anew"`
	Params  map[string]string `json:"params,omitempty" doc:"parameters as text; the others are those of the ended run"`
	Key     string            `json:"key,omitempty" doc:"idempotency key: the same key is one run"`
	NoCache bool              `json:"no_cache,omitempty" doc:"no stage takes over the result of another run"`
	Reason  string            `json:"reason,omitempty" maxLength:"500" doc:"why, in one sentence"`

	Input     []byte `json:"input,omitempty" doc:"instead of the file or body that was delivered, in base64; it keeps the delivered name"`
	Empty     bool   `json:"empty_input,omitempty" doc:"the input is there and has no bytes"`
	InputName string `json:"input_name,omitempty" doc:"name of the input as a file, when the run was given none"`
	Actor     string `json:"-"` // in the API, the user at the other end of the socket
}

// Answer is what a person says to a stage that waits for one.
type Answer struct {
	By
	Approve bool
	Fields  map[string]string // of the form, as text
}

// Approval is a stage that waits for a person.
type Approval struct {
	Run       string                     `json:"run"`
	Pipeline  string                     `json:"pipeline"`
	Stage     string                     `json:"stage"`
	Item      *int                       `json:"item" doc:"number of a foreach stage's instance, from 1"`
	Message   string                     `json:"message" doc:"what is asked"`
	Approvers []string                   `json:"approvers" doc:"who may answer; empty is anybody who can reach this API"`
	Form      map[string]json.RawMessage `json:"form,omitempty" doc:"JSON Schema of each field that an approval fills in"`
	Since     string                     `json:"since"`
	Due       string                     `json:"due" doc:"when it is too late; empty is never"`
}

// Label names the stage, or its instance with the number.
func (a *Approval) Label() string {
	if a.Item == nil {
		return a.Stage
	}
	return a.Stage + "#" + strconv.Itoa(*a.Item)
}

// Steering is what people do with runs that exist.
type Steering interface {
	CancelRun(ctx context.Context, run events.ID, by By) error
	// ResumeRun continues a failed run; the gates of the stages that are named are opened.
	ResumeRun(ctx context.Context, run events.ID, by By, open ...Place) error
	RerunRun(ctx context.Context, run events.ID, r RerunRequest) (trigger.Receipt, error)
	AnswerStage(ctx context.Context, run events.ID, at Place, a Answer) error
	Approvals(ctx context.Context, p storage.Page) ([]Approval, error)
}

// Why is the body of a request that needs no more.
type Why struct {
	Reason string `json:"reason,omitempty" maxLength:"500" doc:"why, in one sentence"`
}

// AnswerRequest is the body of an approval.
type AnswerRequest struct {
	Reason string            `json:"reason,omitempty" maxLength:"500" doc:"why, in one sentence"`
	Fields map[string]string `json:"fields,omitempty" doc:"of the form, as text: JSON where a field is no text"`
}

// reasoned is a request on a run that only says why.
type reasoned struct {
	Run  string `path:"run" doc:"run id"`
	Body Why
}

// AtStage is a request on a stage of a run.
type AtStage struct {
	Run   string `path:"run" doc:"run id"`
	Stage string `path:"stage" doc:"name of the stage"`
	Item  int    `query:"item" minimum:"0" doc:"number of a foreach stage's instance, from 1"`
}

func (p *AtStage) place() Place { return Place{Stage: p.Stage, Item: p.Item} }

func (o Options) registerSteering(api huma.API) {
	post := func(id, path, summary, description string) huma.Operation {
		return huma.Operation{OperationID: id, Method: http.MethodPost, Path: "/api/v1/runs/{run}" + path, DefaultStatus: http.StatusAccepted,
			Summary: summary, Description: description}
	}
	huma.Register(api, post("cancel-run", "/cancel", "Cancel a run", "Returns once the wish is durable; the stages end afterwards."), o.cancel)
	huma.Register(api, post("resume-run", "/resume", "Continue a failed run", "On the plan that it began with; what has completed is not done again."), o.resume)
	rerun := post("rerun", "/rerun", "Start a new run on an ended run's plan and delivery",
		"With its logical time and seed. What completed before the stage `from` is taken over. Returns once the new run is durable.")
	rerun.MaxBodyBytes = maxBody
	huma.Register(api, rerun, o.rerun)
	huma.Register(api, post("approve-stage", "/stages/{stage}/approve", "Approve a stage that waits for a person",
		"Who answers is the user at the other end of the socket. 403 when that is none of the approvers, 422 when the form is not filled in, 409 when the stage does not wait."), o.approve)
	huma.Register(api, post("reject-stage", "/stages/{stage}/reject", "Reject a stage that waits for a person", "The stage fails with gate_rejected."), o.reject)
	huma.Register(api, post("open-gate", "/stages/{stage}/open-gate", "Let a stage pass the gate that rejected it",
		"Continues the failed run; the outputs that the gate rejected are the stage's. 409 when no gate has."), o.openGate)
	huma.Register(api, huma.Operation{OperationID: "list-approvals", Method: http.MethodGet, Path: "/api/v1/approvals",
		Summary: "List the stages that wait for a person", Description: "Those of runs that have not ended, the oldest run first."}, o.approvals)
}

func (o Options) cancel(ctx context.Context, in *reasoned) (*struct{}, error) {
	id, err := runOf(in.Run)
	if err != nil {
		return nil, err
	}
	return nil, problem(o.Control.CancelRun(ctx, id, By{Peer(ctx), in.Body.Reason}))
}

func (o Options) resume(ctx context.Context, in *reasoned) (*struct{}, error) {
	id, err := runOf(in.Run)
	if err != nil {
		return nil, err
	}
	return nil, problem(o.Control.ResumeRun(ctx, id, By{Peer(ctx), in.Body.Reason}))
}

func (o Options) rerun(ctx context.Context, in *struct {
	Run  string `path:"run" doc:"run id"`
	Body RerunRequest
},
) (*body[StartAnswer], error) {
	id, err := runOf(in.Run)
	if err != nil {
		return nil, err
	}
	in.Body.Actor = Peer(ctx)
	r, err := o.Control.RerunRun(ctx, id, in.Body)
	if err != nil {
		return nil, problem(err)
	}
	return &body[StartAnswer]{answerOf(r)}, nil
}

func (o Options) approve(ctx context.Context, in *struct {
	AtStage
	Body AnswerRequest
},
) (*struct{}, error) {
	return o.answer(ctx, &in.AtStage, Answer{By: By{Peer(ctx), in.Body.Reason}, Approve: true, Fields: in.Body.Fields})
}

func (o Options) reject(ctx context.Context, in *struct {
	AtStage
	Body Why
},
) (*struct{}, error) {
	return o.answer(ctx, &in.AtStage, Answer{By: By{Peer(ctx), in.Body.Reason}})
}

func (o Options) answer(ctx context.Context, at *AtStage, a Answer) (*struct{}, error) {
	id, err := runOf(at.Run)
	if err != nil {
		return nil, err
	}
	return nil, problem(o.Control.AnswerStage(ctx, id, at.place(), a))
}

func (o Options) openGate(ctx context.Context, in *struct {
	AtStage
	Body Why
},
) (*struct{}, error) {
	id, err := runOf(in.Run)
	if err != nil {
		return nil, err
	}
	return nil, problem(o.Control.ResumeRun(ctx, id, By{Peer(ctx), in.Body.Reason}, in.place()))
}

func (o Options) approvals(ctx context.Context, in *struct {
	Limit int    `query:"limit" minimum:"1" maximum:"10000" default:"50" doc:"stages; the list ends with the run that reaches it"`
	After string `query:"after" doc:"only of runs younger than the one with this id"`
},
) (*body[[]Approval], error) {
	p := storage.Page{Limit: in.Limit}
	if in.After != "" {
		var err error
		if p.After, err = runOf(in.After); err != nil {
			return nil, err
		}
	}
	all, err := o.Control.Approvals(ctx, p)
	if err != nil {
		return nil, problem(err)
	}
	if all == nil {
		all = []Approval{}
	}
	return &body[[]Approval]{all}, nil
}

func runOf(text string) (events.ID, error) {
	id, err := events.ParseID(text)
	if err != nil {
		return id, huma.Error400BadRequest("E_RUN_ID: " + err.Error())
	}
	return id, nil
}
