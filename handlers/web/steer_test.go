package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage"
)

// steered is what the engine was asked to do with a run.
type steered struct {
	did    string
	run    events.ID
	by     web.By
	at     []web.Place
	again  web.RerunRequest
	answer web.Answer
	page   storage.Page
	waits  []web.Approval

	verified web.Verification
}

func (c *control) CancelRun(_ context.Context, run events.ID, by web.By) error {
	c.did, c.run, c.by = "cancel", run, by
	return c.err
}

func (c *control) ResumeRun(_ context.Context, run events.ID, by web.By, open ...web.Place) error {
	c.did, c.run, c.by, c.at = "resume", run, by, open
	return c.err
}

func (c *control) RerunRun(_ context.Context, run events.ID, r web.RerunRequest) (trigger.Receipt, error) {
	c.did, c.run, c.again = "rerun", run, r
	return c.receipt, c.err
}

func (c *control) AnswerStage(_ context.Context, run events.ID, at web.Place, a web.Answer) error {
	c.did, c.run, c.at, c.answer = "answer", run, []web.Place{at}, a
	return c.err
}

func (c *control) RecordVerification(_ context.Context, run events.ID, by web.By, v web.Verification) error {
	c.did, c.run, c.by, c.verified = "verify", run, by, v
	return c.err
}

func (c *control) Approvals(_ context.Context, p storage.Page) ([]web.Approval, error) {
	c.page = p
	return c.waits, c.err
}

func TestSteeringHandsOverEverything(t *testing.T) {
	t.Parallel()
	run := "/runs/" + runID.String()
	for path, c := range map[string]struct {
		body string
		want steered
	}{
		run + "/resume": {`{"reason":"disk was full"}`, steered{did: "resume", by: web.By{Reason: "disk was full"}}},
		run + "/rerun": {`{"from":"clean","params":{"a":"1"},"key":"k","reason":"why","input":"Ynl0ZXM=","input_name":"n"}`, steered{did: "rerun",
			again: web.RerunRequest{From: "clean", Params: map[string]string{"a": "1"}, Key: "k", Reason: "why", Input: []byte("bytes"), InputName: "n"}}},
		run + "/verifications": {`{"verdict":"differs","first_diverging":"a","factor":"time","stages":[{"stage":"a","verdict":"depends_on","factor":"time","times":9,"evidence":"aGk="}]}`,
			steered{did: "verify", verified: web.Verification{Verdict: "differs", Diverging: "a", Factor: "time",
				Stages: []web.StageVerification{{Stage: "a", Verdict: "depends_on", Factor: "time", Times: 9, Evidence: []byte("hi")}}}}},
		run + "/stages/ask/approve": {`{"reason":"ok","fields":{"v":"2"}}`,
			steered{did: "answer", at: []web.Place{{Stage: "ask"}}, answer: web.Answer{By: web.By{Reason: "ok"}, Approve: true, Fields: map[string]string{"v": "2"}}}},
		run + "/stages/ask/reject?item=3": {`{"reason":"no"}`, steered{did: "answer", at: []web.Place{{Stage: "ask", Item: 3}}, answer: web.Answer{By: web.By{Reason: "no"}}}},
		run + "/stages/load/open-gate":    {`{"reason":"test data"}`, steered{did: "resume", by: web.By{Reason: "test data"}, at: []web.Place{{Stage: "load"}}}},
		run + "/stages/a/approve?item=2":  {`{}`, steered{did: "answer", at: []web.Place{{Stage: "a", Item: 2}}, answer: web.Answer{Approve: true}}},
	} {
		e := &control{receipt: trigger.Receipt{Run: runID, Fate: "run"}}
		c.want.run = runID
		if status, body := call(t, api(e, &growing{}, nil), "POST", path, c.body); status != http.StatusAccepted || !reflect.DeepEqual(e.steered, c.want) {
			t.Errorf("%s: %d %s: asked %+v, want %+v", path, status, body, e.steered, c.want)
		}
	}
}

// Nobody can say in a request who he is.
func TestActorIsNoFieldOfARequest(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/cancel", "/resume", "/stages/a/approve", "/stages/a/reject", "/stages/a/open-gate"} {
		for _, body := range []string{`{"actor":"root"}`, `{"by":"root"}`} {
			c := &control{}
			if status, answer := call(t, api(c, &growing{}, nil), "POST", "/runs/"+runID.String()+path, body); status != http.StatusUnprocessableEntity || c.did != "" {
				t.Errorf("%s %s: %d %s, did %q", path, body, status, answer, c.did)
			}
		}
	}
}

func TestSteeringIsChecked(t *testing.T) {
	t.Parallel()
	run := "/runs/" + runID.String()
	for path, want := range map[string]int{
		"/runs/nope/resume": http.StatusBadRequest, "/runs/nope/rerun": http.StatusBadRequest, "/runs/nope/stages/a/approve": http.StatusBadRequest,
		"/runs/nope/stages/a/open-gate": http.StatusBadRequest, run + "/stages/a/approve?item=-1": http.StatusUnprocessableEntity,
		run + "/stages/a/reject?item=x": http.StatusUnprocessableEntity,
	} {
		c := &control{}
		if status, body := call(t, api(c, &growing{}, nil), "POST", path, `{}`); status != want || c.did != "" {
			t.Errorf("%s: %d, want %d: %s", path, status, want, body)
		}
	}
	for path, want := range map[string]int{"/approvals?limit=0": http.StatusUnprocessableEntity, "/approvals?after=x": http.StatusBadRequest} {
		if status, body := call(t, api(&control{}, &growing{}, nil), "GET", path, ""); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, body)
		}
	}
	c := &control{err: &web.ErrStatus{Status: http.StatusForbidden, Err: errors.New("E_APPROVER: not you")}}
	if status, body := call(t, api(c, &growing{}, nil), "POST", run+"/stages/a/approve", `{}`); status != http.StatusForbidden || !strings.Contains(body, "E_APPROVER") {
		t.Errorf("%d %s", status, body)
	}
}

func TestApprovalsAreListed(t *testing.T) {
	t.Parallel()
	three := 3
	c := &control{steered: steered{waits: []web.Approval{{Run: "r", Pipeline: "p", Stage: "ask", Item: &three, Message: "Release?", Approvers: []string{"ann"},
		Form: map[string]json.RawMessage{"v": json.RawMessage(`{"type":"string"}`)}, Since: "2026-01-01T00:00:00Z"}}}}
	want := `[{"run":"r","pipeline":"p","stage":"ask","item":3,"message":"Release?","approvers":["ann"],"form":{"v":{"type":"string"}},"since":"2026-01-01T00:00:00Z","due":""}]`
	if status, body := call(t, api(c, &growing{}, nil), "GET", "/approvals?limit=7&after="+runID.String(), ""); status != http.StatusOK || strings.TrimSpace(body) != want {
		t.Errorf("%d %s\nwant %s", status, body, want)
	}
	if c.page != (storage.Page{After: runID, Limit: 7}) {
		t.Errorf("asked for %+v", c.page)
	}
	if got := c.waits[0].Label(); got != "ask#3" {
		t.Errorf("label %s", got)
	}
	if _, body := call(t, api(&control{}, &growing{}, nil), "GET", "/approvals", ""); strings.TrimSpace(body) != "[]" {
		t.Errorf("nothing is %s", body)
	}
}

// Who is at the other end of a unix socket is what the kernel says; of any other connection nobody knows.
func TestPeerIsWhoConnected(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &control{}
	server := &http.Server{Handler: api(c, &growing{}, nil), ConnContext: web.WithPeer}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.Addr().String())
	}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://apollo/api/v1/runs/"+runID.String()+"/cancel", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if me := web.UserName(os.Geteuid()); resp.StatusCode != http.StatusAccepted || c.by.Actor != me {
		t.Errorf("%s: the actor is %q, want %q", resp.Status, c.by.Actor, me)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if got := web.Peer(web.WithPeer(t.Context(), a)); got != "" {
		t.Errorf("at the other end of a pipe is %q", got)
	}
}

func TestUserNames(t *testing.T) {
	t.Parallel()
	if u, err := user.Current(); err == nil {
		if got := web.UserName(os.Getuid()); got != u.Username {
			t.Errorf("%q, want %q", got, u.Username)
		}
	}
	if got := web.UserName(987654); got != "uid:987654" {
		t.Errorf("a uid without a name is %q", got)
	}
}
