package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/apollo-11/apollo/handlers/trigger"
)

// StartRequest asks for a run of a pipeline that the server knows by name, or of the plan that comes with it.
type StartRequest struct {
	Pipeline  string            `json:"pipeline,omitempty" doc:"name of a pipeline that the server has loaded"`
	Plan      json.RawMessage   `json:"plan,omitempty" doc:"a frozen plan of the run's own, instead of the server's"`
	Params    map[string]string `json:"params,omitempty" doc:"parameters as text, as on the command line"`
	Key       string            `json:"key,omitempty" doc:"idempotency key: the same key is one run"`
	Input     []byte            `json:"input,omitempty" doc:"what trigger.file or trigger.body stands for, in base64"`
	InputName string            `json:"input_name,omitempty" doc:"name of the input as a file"`
	Sample    int               `json:"sample,omitempty" minimum:"0" doc:"the input is cut to this many records, and the run is marked; 0 leaves it whole"`
	AsOf      time.Time         `json:"as_of,omitzero" required:"false" doc:"the run's time for its stages; without it, that of its creation"`
	NoCache   bool              `json:"no_cache,omitempty" doc:"no stage takes over the result of another run"`
	Seed      uint64            `json:"seed,omitempty" doc:"of the run: its stages derive theirs from it; without it, from the run's id"`
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

// Status says who answers.
type Status struct {
	PID     int    `json:"pid"`
	Kind    string `json:"kind" enum:"serve,run" doc:"a server, or a run that shares its engine"`
	Address string `json:"address" doc:"where webhooks are taken; empty when they are not"`
	Version string `json:"version"`
	Ready   bool   `json:"ready" doc:"deliveries are taken"`
}

// Position is how far the log goes.
type Position struct {
	Position int64 `json:"position"`
}

// Log says how far the log goes and when it grows.
type Log interface {
	Head() int64
	Wake() (signal <-chan struct{}, stop func())
}

// Options are what the API is made of.
type Options struct {
	Control Control
	Log     Log
	Status  func() Status
	Import  Importer        // nil takes no files
	Done    <-chan struct{} // closed when the process is about to end: nobody waits any longer
}

// Control is what the API asks of the engine behind it.
type Control interface {
	StartRun(ctx context.Context, r StartRequest) (trigger.Receipt, error)
	Steering
	Verifications
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

// maxBody bounds a request: a plan embeds its scripts and contracts, and an input may come with it.
const maxBody = 64 << 20

// API gives the handler of the control API, with its OpenAPI 3.1 document at /api/v1/openapi.json.
func API(o Options) http.Handler {
	mux := http.NewServeMux()
	config := huma.DefaultConfig("Apollo-11", "v1")
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "/api/v1/openapi", "", "/api/v1/schemas"
	config.CreateHooks = nil // no $schema links: answers are exactly their fields
	api := humago.New(mux, config)
	huma.Register(api, huma.Operation{OperationID: "start-run", Method: http.MethodPost, Path: "/api/v1/runs", DefaultStatus: http.StatusAccepted,
		MaxBodyBytes: maxBody, Summary: "Start a run", Description: "Returns once the run is durable."}, o.start)
	o.registerSteering(api)
	o.registerVerifications(api)
	huma.Register(api, huma.Operation{OperationID: "wait", Method: http.MethodGet, Path: "/api/v1/position",
		Summary: "Wait until the log grows", Description: "Answers once the log goes past `after`, or when the wait is over."}, o.wait)
	huma.Register(api, huma.Operation{OperationID: "status", Method: http.MethodGet, Path: "/api/v1/status", Summary: "Say who answers"},
		func(context.Context, *struct{}) (*body[Status], error) { return &body[Status]{o.Status()}, nil })
	o.registerImport(mux, api)
	return mux
}

type body[T any] struct{ Body T }

func (o Options) start(ctx context.Context, in *body[StartRequest]) (*body[StartAnswer], error) {
	r, err := o.Control.StartRun(ctx, in.Body)
	if err != nil {
		return nil, problem(err)
	}
	return &body[StartAnswer]{answerOf(r)}, nil
}

func answerOf(r trigger.Receipt) StartAnswer {
	return StartAnswer{Delivery: r.Delivery.String(), Run: r.Run.String(), Fate: r.Fate, DuplicateOf: r.DuplicateOf.String(), Code: r.Code, Reason: r.Reason}
}

func (o Options) wait(ctx context.Context, in *struct {
	After int64 `query:"after" doc:"answer once the log goes further than this"`
	Wait  int   `query:"wait" minimum:"0" maximum:"60" doc:"seconds to wait at most"`
},
) (*body[Position], error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(in.Wait)*time.Second)
	defer cancel()
	signal, stop := o.Log.Wake()
	defer stop()
	for o.Log.Head() <= in.After {
		select {
		case <-signal:
			continue
		case <-ctx.Done():
		case <-o.Done:
		}
		break
	}
	return &body[Position]{Position{o.Log.Head()}}, nil
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
