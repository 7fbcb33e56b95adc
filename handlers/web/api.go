package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
)

// StartRequest asks for a run of a pipeline that the server knows by name, or of a definition in a file.
type StartRequest struct {
	Pipeline string            `json:"pipeline,omitempty" doc:"name of a pipeline that the server has loaded"`
	File     string            `json:"file,omitempty" doc:"absolute path of a definition"`
	Params   map[string]string `json:"params,omitempty" doc:"parameters as text, as on the command line"`
	Key      string            `json:"key,omitempty" doc:"idempotency key: the same key is one run"`
}

// StartAnswer says what became of the request.
type StartAnswer struct {
	Delivery    string `json:"delivery"`
	Run         string `json:"run,omitempty"`
	Fate        string `json:"fate"`
	DuplicateOf string `json:"duplicate_of,omitempty"`
	Code        string `json:"code,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

// Control is what the API asks of the engine behind it.
type Control interface {
	StartRun(ctx context.Context, r StartRequest) (trigger.Receipt, error)
	CancelRun(ctx context.Context, run events.ID, reason string) error
	Ready() bool
}

// ErrStatus lets an error from Control choose its status.
type ErrStatus struct {
	Status int
	Err    error
}

// Error gives the text of the error inside.
func (e *ErrStatus) Error() string { return e.Err.Error() }

// Unwrap gives the error inside.
func (e *ErrStatus) Unwrap() error { return e.Err }

// API gives the handler of the control API, with its OpenAPI 3.1 document at /api/v1/openapi.json.
func API(c Control, version string) http.Handler {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Apollo-11", version)
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/api/v1/openapi", "", "/api/v1/schemas"
	config.CreateHooks = nil // no $schema links: answers are exactly their fields
	api := humago.New(mux, config)
	huma.Register(api, huma.Operation{OperationID: "start-run", Method: http.MethodPost, Path: "/api/v1/runs", DefaultStatus: http.StatusAccepted,
		Summary: "Start a run", Description: "Returns once the run is durable."}, func(ctx context.Context, in *struct{ Body StartRequest }) (*struct{ Body StartAnswer }, error) {
		r, err := c.StartRun(ctx, in.Body)
		if err != nil {
			return nil, problem(err)
		}
		return &struct{ Body StartAnswer }{StartAnswer{Delivery: r.Delivery.String(), Run: r.Run.String(), Fate: r.Fate,
			DuplicateOf: r.DuplicateOf.String(), Code: r.Code, Reason: r.Reason}}, nil
	})
	huma.Register(api, huma.Operation{OperationID: "cancel-run", Method: http.MethodPost, Path: "/api/v1/runs/{run}/cancel", DefaultStatus: http.StatusAccepted,
		Summary: "Cancel a run", Description: "Returns once the wish is durable; the stages end afterwards."}, func(ctx context.Context, in *struct {
		Run  string `path:"run" doc:"run id"`
		Body struct {
			Reason string `json:"reason,omitempty" maxLength:"500"`
		}
	},
	) (*struct{}, error) {
		id, err := events.ParseID(in.Run)
		if err != nil {
			return nil, huma.Error422UnprocessableEntity("E_RUN_ID: " + err.Error())
		}
		return nil, problem(c.CancelRun(ctx, id, in.Body.Reason))
	})
	return mux
}

// problem gives an error its status (RFC 9457).
func problem(err error) error {
	var s *ErrStatus
	switch {
	case err == nil:
		return nil
	case errors.As(err, &s):
		return huma.NewError(s.Status, err.Error())
	case errors.Is(err, trigger.ErrBusy):
		return huma.NewError(http.StatusTooManyRequests, err.Error())
	case errors.Is(err, trigger.ErrFull):
		return huma.NewError(http.StatusInsufficientStorage, err.Error())
	case errors.Is(err, trigger.ErrClosed):
		return huma.NewError(http.StatusServiceUnavailable, err.Error())
	}
	return huma.NewError(http.StatusInternalServerError, err.Error())
}

// Health serves /healthz (the process answers) and /readyz (deliveries are taken).
func Health(ready func() bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	return mux
}
