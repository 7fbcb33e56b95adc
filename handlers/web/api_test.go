package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/handlers/web"
)

// control is an engine that answers as it is told.
type control struct {
	receipt trigger.Receipt
	err     error
	asked   web.StartRequest
	steered
}

func (c *control) StartRun(_ context.Context, r web.StartRequest) (trigger.Receipt, error) {
	c.asked = r
	return c.receipt, c.err
}

func (c *control) Ready() bool { return true }

// growing is a log that grows when it is told to.
type growing struct {
	head atomic.Int64
	wake chan struct{}
}

func (g *growing) Head() int64                     { return g.head.Load() }
func (g *growing) Wake() (<-chan struct{}, func()) { return g.wake, func() {} }

var runID = events.ID{1, 2, 3}

func api(c *control, g *growing, done <-chan struct{}) http.Handler {
	return web.API(web.Options{Control: c, Log: g, Done: done, Status: func() web.Status {
		return web.Status{PID: 7, Kind: "serve", Address: "127.0.0.1:1", Version: "devel", Ready: true}
	}})
}

func call(t *testing.T, h http.Handler, method, path, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "http://apollo/api/v1"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func TestStartHandsOverEverything(t *testing.T) {
	t.Parallel()
	c := &control{receipt: trigger.Receipt{Delivery: events.ID{9}, Run: runID, Fate: "run"}}
	status, body := call(t, api(c, &growing{}, nil), "POST", "/runs",
		`{"pipeline":"p","plan":{"pipeline":"p","stages":[]},"params":{"a":"1"},"key":"k","input":"aGk=","input_name":"hi.txt"}`)
	if status != http.StatusAccepted {
		t.Fatalf("%d %s", status, body)
	}
	var answer web.StartAnswer
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Run != runID.String() || answer.Fate != "run" {
		t.Errorf("%s: %v", body, err)
	}
	if c.asked.Params["a"] != "1" || c.asked.Key != "k" || string(c.asked.Input) != "hi" || c.asked.InputName != "hi.txt" || !strings.Contains(string(c.asked.Plan), `"stages"`) {
		t.Errorf("asked %+v", c.asked)
	}
}

// Every kind of error has its status, and its text comes through as RFC 9457.
func TestErrorsHaveTheirStatus(t *testing.T) {
	t.Parallel()
	for want, err := range map[int]error{
		http.StatusTooManyRequests:     trigger.ErrBusy,
		http.StatusInsufficientStorage: fmt.Errorf("put: %w", trigger.ErrFull),
		http.StatusServiceUnavailable:  trigger.ErrClosed,
		http.StatusConflict:            &web.ErrStatus{Status: http.StatusConflict, Err: errors.New("E_RUN_ENDED: over")},
		http.StatusInternalServerError: errors.New("E_INTERNAL: something"),
	} {
		c := &control{err: err}
		status, body := call(t, api(c, &growing{}, nil), "POST", "/runs", `{"pipeline":"p"}`)
		var problem struct {
			Status int
			Detail string
		}
		if bad := json.Unmarshal([]byte(body), &problem); bad != nil || status != want || problem.Status != want || problem.Detail != err.Error() {
			t.Errorf("%v: %d %s", err, status, body)
		}
	}
}

func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	h := api(&control{}, &growing{}, nil)
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/runs", `{"pipelin":"p"}`, http.StatusUnprocessableEntity},
		{"POST", "/runs", `{`, http.StatusBadRequest},
		{"POST", "/runs/../cancel", `{}`, http.StatusTemporaryRedirect},
		{"POST", "/runs/nope/cancel", `{}`, http.StatusBadRequest},
		{"GET", "/position?wait=1000", "", http.StatusUnprocessableEntity},
		{"GET", "/runs", "", http.StatusMethodNotAllowed},
		{"GET", "/nothing", "", http.StatusNotFound},
	} {
		if status, body := call(t, h, c.method, c.path, c.body); status != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, status, c.want, body)
		}
	}
}

func TestCancelAndStatus(t *testing.T) {
	t.Parallel()
	c := &control{}
	h := api(c, &growing{}, nil)
	if status, body := call(t, h, "POST", "/runs/"+runID.String()+"/cancel", `{"reason":"enough"}`); status != http.StatusAccepted || c.run != runID || c.by.Reason != "enough" {
		t.Errorf("%d %s, asked for %s because %q", status, body, c.run, c.by.Reason)
	}
	if status, body := call(t, h, "GET", "/status", ""); status != http.StatusOK || strings.TrimSpace(body) != `{"pid":7,"kind":"serve","address":"127.0.0.1:1","version":"devel","ready":true}` {
		t.Errorf("%d %s", status, body)
	}
}

// A question about the log is answered when it grows, when the time is over, or when the process ends: whatever is first.
func TestWaitAnswersWhenTheLogGrows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after time.Duration
		do    func(g *growing, done chan struct{})
		took  time.Duration
		want  string
	}{
		"growth":  {time.Second, func(g *growing, _ chan struct{}) { g.head.Store(6); g.wake <- struct{}{} }, time.Second, "6"},
		"waking":  {time.Second, func(g *growing, _ chan struct{}) { g.wake <- struct{}{} }, 10 * time.Second, "5"},
		"nothing": {0, func(*growing, chan struct{}) {}, 10 * time.Second, "5"},
		"the end": {2 * time.Second, func(_ *growing, done chan struct{}) { close(done) }, 2 * time.Second, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, done := &growing{wake: make(chan struct{}, 1)}, make(chan struct{})
				g.head.Store(5)
				h := api(&control{}, g, done)
				begin := time.Now()
				time.AfterFunc(c.after, func() { c.do(g, done) })
				status, body := call(t, h, "GET", "/position?after=5&wait=10", "")
				if got := strings.TrimSpace(body); status != http.StatusOK || got != `{"position":`+c.want+`}` || time.Since(begin) != c.took {
					t.Errorf("%d %s after %s, want %s", status, got, time.Since(begin), c.took)
				}
			})
		})
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	h := web.Health(ready.Load)
	ask := func(method, path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w.Code
	}
	if ask("GET", "/healthz") != http.StatusOK || ask("GET", "/readyz") != http.StatusServiceUnavailable {
		t.Error("a process that is not ready is alive and not ready")
	}
	ready.Store(true)
	if ask("GET", "/readyz") != http.StatusOK {
		t.Error("a ready process is ready")
	}
	for _, path := range []string{"/", "/x/healthz", "/healthz/", "/api/v1/status", "/readyz/../healthz"} {
		if got := ask("GET", path); got == http.StatusOK {
			t.Errorf("%s: %d", path, got)
		}
	}
	if got := ask("POST", "/healthz"); got != http.StatusMethodNotAllowed {
		t.Errorf("POST /healthz: %d", got)
	}
}

// The description is OpenAPI 3.1 and names every operation.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	_, body := call(t, api(&control{}, &growing{}, nil), "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string
		Paths   map[string]any
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") || len(doc.Paths) != 11 {
		t.Errorf("OpenAPI %s with %d paths: %s", doc.OpenAPI, len(doc.Paths), body)
	}
}
