package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// errGone says that the process that holds the data directory does not answer: it has ended, or is about to.
var errGone = errors.New("the process that holds the data directory does not answer")

// remote talks to the process that holds the data directory, and reads the store beside it.
type remote struct {
	dir      string
	client   *http.Client
	store    *sqlite.Store // nil until it is needed
	position int64         // of the log, as far as it is known
	gap      time.Duration // least time between two questions
	asked    time.Time
}

func dialServer(dir string) *remote {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		path, done, err := shortPath(dir)
		if err != nil {
			return nil, err
		}
		defer done()
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &remote{dir: dir, client: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dial}}}
}

// StartRun asks for a run.
func (r *remote) StartRun(ctx context.Context, req web.StartRequest) (trigger.Receipt, error) {
	return r.receipt(ctx, "/runs", req)
}

func (r *remote) receipt(ctx context.Context, path string, req any) (trigger.Receipt, error) {
	var a web.StartAnswer
	if err := r.call(ctx, http.MethodPost, path, req, &a); err != nil {
		return trigger.Receipt{}, err
	}
	receipt := trigger.Receipt{Fate: a.Fate, Code: a.Code, Reason: a.Reason}
	return receipt, errors.Join(receipt.Delivery.UnmarshalText([]byte(a.Delivery)), receipt.Run.UnmarshalText([]byte(a.Run)),
		receipt.DuplicateOf.UnmarshalText([]byte(a.DuplicateOf)))
}

// CancelRun implements web.Steering.
func (r *remote) CancelRun(ctx context.Context, run events.ID, by web.By) error {
	return r.call(ctx, http.MethodPost, "/runs/"+run.String()+"/cancel", web.Why{Reason: by.Reason}, nil)
}

// ResumeRun implements web.Steering. At most one gate is opened with it.
func (r *remote) ResumeRun(ctx context.Context, run events.ID, by web.By, open ...web.Place) error {
	path := "/runs/" + run.String() + "/resume"
	if len(open) > 0 {
		path = placePath(run, open[0], "open-gate")
	}
	return r.call(ctx, http.MethodPost, path, web.Why{Reason: by.Reason}, nil)
}

// RerunRun implements web.Steering.
func (r *remote) RerunRun(ctx context.Context, run events.ID, req web.RerunRequest) (trigger.Receipt, error) {
	return r.receipt(ctx, "/runs/"+run.String()+"/rerun", req)
}

// AnswerStage implements web.Steering. Who answers is found out at the other end.
func (r *remote) AnswerStage(ctx context.Context, run events.ID, at web.Place, a web.Answer) error {
	if a.Approve {
		return r.call(ctx, http.MethodPost, placePath(run, at, "approve"), web.AnswerRequest{Reason: a.Reason, Fields: a.Fields}, nil)
	}
	return r.call(ctx, http.MethodPost, placePath(run, at, "reject"), web.Why{Reason: a.Reason}, nil)
}

// Approvals implements web.Steering.
func (r *remote) Approvals(ctx context.Context, p storage.Page) (all []web.Approval, err error) {
	query := url.Values{"limit": {strconv.Itoa(p.Limit)}}
	if !p.After.IsZero() {
		query.Set("after", p.After.String())
	}
	return all, r.call(ctx, http.MethodGet, "/approvals?"+query.Encode(), nil, &all)
}

// RecordVerification implements web.Verifications.
func (r *remote) RecordVerification(ctx context.Context, run events.ID, _ web.By, v web.Verification) error {
	return r.call(ctx, http.MethodPost, "/runs/"+run.String()+"/verifications", v, nil)
}

func placePath(run events.ID, at web.Place, what string) string {
	path := "/runs/" + run.String() + "/stages/" + url.PathEscape(at.Stage) + "/" + what
	if at.Item > 0 {
		path += "?item=" + strconv.Itoa(at.Item)
	}
	return path
}

// status asks who answers.
func (r *remote) status(ctx context.Context) (s web.Status, err error) {
	return s, r.call(ctx, http.MethodGet, "/status", nil, &s)
}

const (
	maxGap  = 200 * time.Millisecond // between two questions about a log that grows all the time
	maxWait = 30                     // seconds that a question may wait for its answer
)

// wait returns when the log may have grown. A log that grows all the time is asked about less and less often.
func (r *remote) wait(ctx context.Context) error {
	if err := pause(ctx, r.gap-time.Since(r.asked)); err != nil {
		return err
	}
	r.gap, r.asked = min(maxGap, max(5*time.Millisecond, 2*r.gap)), time.Now()
	var p web.Position
	err := r.call(ctx, http.MethodGet, fmt.Sprintf("/position?after=%d&wait=%d", r.position, maxWait), nil, &p)
	r.position = max(r.position, p.Position)
	return err
}

func (r *remote) reader() *sqlite.Store { return r.store }

// leave lets go of the connection and the store.
func (r *remote) leave(context.Context) error {
	r.client.CloseIdleConnections()
	if r.store == nil {
		return nil
	}
	return r.store.Close()
}

// exitOfStatus maps what the other process answers to exit codes.
var exitOfStatus = map[int]int{http.StatusForbidden: exitAuth, http.StatusNotFound: exitNotFound, http.StatusConflict: exitConflict, http.StatusUnprocessableEntity: exitUsage,
	http.StatusTooManyRequests: exitBusy}

// call asks the API. errGone says that nobody answers, or that who answers is stopping: nothing was done.
func (r *remote) call(ctx context.Context, method, path string, body, into any) error {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://apollo/api/v1"+path, content)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return r.do(ctx, r.client, req, into)
}

// ImportBundle hands over the bytes of a file that runs were exported to. It takes as long as it takes.
func (r *remote) ImportBundle(ctx context.Context, name string, file io.Reader) (*bundle.Imported, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://apollo/api/v1/bundles?name="+url.QueryEscape(name), file)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/zip")
	patient := *r.client
	patient.Timeout = 0
	done := new(bundle.Imported)
	return done, r.do(ctx, &patient, req, done)
}

func (r *remote) do(ctx context.Context, client *http.Client, req *http.Request, into any) error {
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w: %w", errGone, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return answered(resp)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

// answered turns an RFC 9457 answer into the error that it was made of.
func answered(resp *http.Response) error {
	var p struct {
		Detail string `json:"detail"`
		Errors []struct {
			Message  string `json:"message"`
			Location string `json:"location"`
		} `json:"errors"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&p) // without it, the status says what it can
	for _, e := range p.Errors {
		p.Detail += "; " + e.Location + ": " + e.Message
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		return fmt.Errorf("%w: %s", errGone, p.Detail)
	}
	exit, known := exitOfStatus[resp.StatusCode]
	if !known {
		exit = exitInternal
	}
	if strings.Contains(p.Detail, "E_PLAN") || strings.Contains(p.Detail, "E_NOT_YET") || resp.StatusCode == http.StatusUnprocessableEntity && strings.Contains(p.Detail, "_BUNDLE_") {
		exit = exitInvalid
	}
	return &exitError{exit, "", errors.New(orText(p.Detail, resp.Status))}
}

// pause waits, unless the context ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
