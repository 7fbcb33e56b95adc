package web

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/apollo-11/apollo/events"
)

// Verifications is where what verifications came to is kept.
type Verifications interface {
	// RecordVerification adds the verdicts of a verification to the log of the ended run.
	RecordVerification(ctx context.Context, run events.ID, by By, v Verification) error
}

// Verification is what executing the stages of a run again came to.
type Verification struct {
	Verdict   string              `json:"verdict" enum:"reproduced,differs,incomplete"`
	Diverging string              `json:"first_diverging,omitempty" doc:"label of the first stage that differs"`
	Factor    string              `json:"factor,omitempty" doc:"what that one depends on"`
	Reason    string              `json:"reason,omitempty" doc:"the verdicts, counted"`
	Machine   []byte              `json:"machine,omitempty" doc:"the document of the machine on which it was done, in base64"`
	Stages    []StageVerification `json:"stages"`
}

// StageVerification is the verdict on one completed stage, or instance of a foreach stage.
type StageVerification struct {
	Stage     string `json:"stage"`
	Item      int    `json:"item,omitempty" minimum:"0" doc:"number of a foreach stage's instance, from 1"`
	Attempt   int    `json:"attempt,omitempty" minimum:"0" doc:"that was repeated"`
	Verdict   string `json:"verdict" enum:"reproduced,nondeterministic,depends_on,not_verifiable,skipped"`
	Factor    string `json:"factor,omitempty" doc:"what the result depends on"`
	Reason    string `json:"reason,omitempty" doc:"one sentence"`
	Role      string `json:"output,omitempty" doc:"the first that differs"`
	Expected  string `json:"expected,omitempty" doc:"its recorded digest"`
	Actual    string `json:"actual,omitempty" doc:"its other digest"`
	Times     int    `json:"times,omitempty" minimum:"0" doc:"executions"`
	Isolation string `json:"isolation,omitempty" doc:"level that was reached"`
	Key       string `json:"key,omitempty" doc:"the stage key"`
	Finding   bool   `json:"finding,omitempty" doc:"one stage key has two results"`
	Evidence  []byte `json:"evidence,omitempty" doc:"what differs inside the output, in base64"`
}

func (o Options) registerVerifications(api huma.API) {
	huma.Register(api, huma.Operation{OperationID: "record-verification", Method: http.MethodPost, Path: "/api/v1/runs/{run}/verifications",
		DefaultStatus: http.StatusAccepted, MaxBodyBytes: maxBody, Summary: "Record what a verification of an ended run came to",
		Description: "Whoever has executed the stages again hands in the verdicts. Returns once they are durable. 409 when the run has not ended."}, o.verified)
}

func (o Options) verified(ctx context.Context, in *struct {
	Run  string `path:"run" doc:"run id"`
	Body Verification
},
) (*struct{}, error) {
	id, err := runOf(in.Run)
	if err != nil {
		return nil, err
	}
	return nil, problem(o.Control.RecordVerification(ctx, id, By{Actor: Peer(ctx)}, in.Body))
}
