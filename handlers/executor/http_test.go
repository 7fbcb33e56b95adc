package executor

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
)

// newHTTPForTest makes the executor and closes its idle connections at the end.
func newHTTPForTest(t *testing.T, allow ...string) *HTTP {
	t.Helper()
	h := NewHTTP(Settings{HTTPAllow: allow, Version: "v1.2.3"})
	t.Cleanup(h.transport.CloseIdleConnections)
	return h
}

// httpServer starts a server and the executor that may reach it and nothing else.
func httpServer(t *testing.T, handle http.HandlerFunc) (*httptest.Server, *HTTP) {
	t.Helper()
	srv := httptest.NewServer(handle)
	t.Cleanup(srv.Close)
	return srv, newHTTPForTest(t, srv.Listener.Addr().String())
}

// httpCall gives the call of a stage; %s in the settings is the address.
func httpCall(t *testing.T, settings, address string, change ...func(*Call)) *Call {
	t.Helper()
	c := newCall(t, "-")
	c.With = json.RawMessage(strings.ReplaceAll(settings, "%s", address))
	if !json.Valid(c.With) {
		t.Fatalf("no JSON: %s", c.With)
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func outputs(list ...events.Output) func(*Call) { return func(c *Call) { c.Outputs = list } }

func withSecrets(pairs map[string]string) func(*Call) { return func(c *Call) { c.Secrets = pairs } }

var (
	fileOutput = events.Output{Role: "data", Path: "sub/data.bin"}
	bodyOutput = events.Output{Role: "body"}
)

// seen is a request as it came to a server.
type seen struct {
	Line, Body string
	Header     map[string]string
}

func recordRequest(into *seen, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	*into = seen{Line: r.Method + " " + r.RequestURI, Body: string(body), Header: map[string]string{}}
	for name := range r.Header {
		into.Header[name] = r.Header.Get(name)
	}
	into.Header["Content-Length"] = fmt.Sprint(r.ContentLength)
	w.WriteHeader(http.StatusNoContent)
}

func TestHTTPSendsWhatTheStageSays(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "orders.csv")
	if err := os.WriteFile(file, []byte("id\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	give := func(c *Call) {
		c.Inputs = map[string]Input{"orders": {Path: file}, "n": {Value: []byte("7")}}
		c.Secrets = map[string]string{"TOKEN": "s3cr3t-t0ken", "PW": "pass word"}
	}
	const key = "01000000-0000-0000-0000-000000000000/fetch"
	for name, c := range map[string]struct {
		with string
		want seen
	}{
		"least": {`{"url":"%s/a"}`, seen{"GET /a", "", map[string]string{"Content-Length": "0"}}},
		"query": {`{"url":"%s/?b=2&a=%20","query":{"z":3,"t":"a b&c","none":null,"list":[1,2]}}`,
			seen{"GET /?b=2&a=%20&list=%5B1%2C2%5D&t=a+b%26c&z=3", "", map[string]string{"Content-Length": "0"}}},
		"headers": {`{"url":"%s/","headers":{"x-n":1.50,"X-Yes":true,"X-None":null,"User-Agent":"mine","Accept-Encoding":"identity"}}`,
			seen{"GET /", "", map[string]string{"Content-Length": "0", "X-N": "1.50", "X-Yes": "true", "User-Agent": "mine", "Accept-Encoding": "identity"}}},
		"text": {`{"method":"POST","url":"%s/","body":"a=b\nc"}`,
			seen{"POST /", "a=b\nc", map[string]string{"Content-Length": "5", "Content-Type": "text/plain; charset=utf-8", "Idempotency-Key": key}}},
		"JSON": {`{"method":"PUT","url":"%s/","body":{"n":9007199254740993,"t":[null]}}`,
			seen{"PUT /", `{"n":9007199254740993,"t":[null]}`, map[string]string{"Content-Length": "33", "Content-Type": "application/json", "Idempotency-Key": key}}},
		"own kind and key": {`{"method":"PATCH","url":"%s/","body":[],"headers":{"content-type":"application/json-patch+json","IDEMPOTENCY-KEY":"k"}}`,
			seen{"PATCH /", `[]`, map[string]string{"Content-Length": "2", "Content-Type": "application/json-patch+json", "Idempotency-Key": "k"}}},
		"DELETE": {`{"method":"DELETE","url":"%s/x"}`, seen{"DELETE /x", "", map[string]string{"Content-Length": "0", "Idempotency-Key": key}}},
		"file": {`{"method":"POST","url":"%s/","body_from":"orders"}`,
			seen{"POST /", "id\n1\n", map[string]string{"Content-Length": "5", "Content-Type": "application/octet-stream", "Idempotency-Key": key}}},
		"value as body": {`{"method":"POST","url":"%s/","body_from":"n"}`,
			seen{"POST /", "7", map[string]string{"Content-Length": "1", "Content-Type": "application/json", "Idempotency-Key": key}}},
		"bearer":        {`{"url":"%s/","auth":{"bearer":"TOKEN"}}`, seen{"GET /", "", map[string]string{"Content-Length": "0", "Authorization": "Bearer s3cr3t-t0ken"}}},
		"basic":         {`{"url":"%s/","auth":{"basic":{"user":7,"password":"PW"}}}`, seen{"GET /", "", map[string]string{"Content-Length": "0", "Authorization": "Basic NzpwYXNzIHdvcmQ="}}},
		"secret header": {`{"url":"%s/","secret_headers":{"x-key":"PW"}}`, seen{"GET /", "", map[string]string{"Content-Length": "0", "X-Key": "pass word"}}},
		"secret query":  {`{"url":"%s/?a=1","secret_query":{"key":"PW"},"query":{"z":1}}`, seen{"GET /?a=1&key=pass+word&z=1", "", map[string]string{"Content-Length": "0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got seen
			srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) { recordRequest(&got, w, r) })
			if _, failure := h.Execute(t.Context(), httpCall(t, c.with, srv.URL, give)); failure != nil {
				t.Fatal(failure)
			}
			for name, value := range map[string]string{"User-Agent": "apollo/v1.2.3", "Accept-Encoding": "gzip"} {
				if c.want.Header[name] == "" {
					c.want.Header[name] = value
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestHTTPOutputs(t *testing.T) {
	t.Parallel()
	srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["X-Two"] = []string{"a", "b"}
		w.Header().Set("Set-Cookie", "session=1234567890")
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		switch r.URL.Path {
		case "/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, "unpacked")
			_ = z.Close()
		case "/status":
			w.WriteHeader(http.StatusTeapot)
		default:
			_, _ = io.WriteString(w, r.URL.Query().Get("give"))
		}
	})
	optional := events.Output{Role: "body", Optional: true}
	long := strings.Repeat("x", maxOutputs+1)
	for name, c := range map[string]struct {
		with    string
		outputs []events.Output
		body    string // the value
		file    string
	}{
		"JSON":                {`{"url":"%s/?type=application/json&give=%20{\"n\":1.50}"}`, []events.Output{bodyOutput}, ` {"n":1.50}`, ""},
		"a kind of JSON":      {`{"url":"%s/?type=application/problem%2Bjson%3Bcharset=utf-8&give=[]"}`, []events.Output{bodyOutput}, `[]`, ""},
		"no JSON":             {`{"url":"%s/?type=text/html&give=<b>1"}`, []events.Output{bodyOutput}, `"<b>1"`, ""},
		"empty JSON":          {`{"url":"%s/?type=application/json"}`, []events.Output{bodyOutput}, `null`, ""},
		"empty text":          {`{"url":"%s/?type=text/plain"}`, []events.Output{bodyOutput}, `""`, ""},
		"byte order mark":     {`{"url":"%s/?type=application/json&give=%EF%BB%BF1"}`, []events.Output{bodyOutput}, `1`, ""},
		"file":                {`{"url":"%s/?give=abc"}`, []events.Output{fileOutput}, ``, "abc"},
		"file and value":      {`{"url":"%s/?type=text/plain&give=abc"}`, []events.Output{fileOutput, bodyOutput}, `"abc"`, "abc"},
		"unpacked":            {`{"url":"%s/gzip?type=text/plain"}`, []events.Output{fileOutput, bodyOutput}, `"unpacked"`, "unpacked"},
		"HEAD":                {`{"method":"HEAD","url":"%s/?type=text/plain&give=abc"}`, []events.Output{fileOutput, bodyOutput}, `""`, "empty"},
		"long, not needed":    {`{"url":"%s/?type=text/plain","query":{"give":"` + long + `"}}`, []events.Output{optional}, ``, ""},
		"long, in a file":     {`{"url":"%s/?type=text/plain","query":{"give":"` + long + `"}}`, []events.Output{fileOutput, optional}, ``, long},
		"over a small limit":  {`{"url":"%s/?type=text/plain&give=abcd","max_body":3}`, []events.Output{optional}, ``, ""},
		"exactly the limit":   {`{"url":"%s/?type=text/plain&give=abc","max_body":3}`, []events.Output{fileOutput, bodyOutput}, `"abc"`, "abc"},
		"nobody wants it":     {`{"url":"%s/?type=application/json&give=}"}`, nil, ``, ""},
		"a status that is OK": {`{"url":"%s/status?type=text/plain","expect":[200,418]}`, []events.Output{bodyOutput}, `""`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := httpCall(t, c.with, srv.URL, outputs(append([]events.Output{{Role: "status"}, {Role: "headers"}}, c.outputs...)...))
			r, failure := h.Execute(t.Context(), call)
			if failure != nil {
				t.Fatal(failure)
			}
			if got := string(r.Values["body"]); got != c.body {
				t.Errorf("body %.100s", got)
			}
			out := filepath.Join(call.Dir, "out")
			if c.file == "" {
				if _, err := os.Stat(out); err == nil {
					t.Error("a directory was made")
				}
			} else if got := read(t, filepath.Join(out, "sub/data.bin")); got != strings.TrimPrefix(c.file, "empty") {
				t.Errorf("file of %d bytes", len(got))
			} else if left, _ := os.ReadDir(filepath.Join(out, "sub")); len(left) != 1 {
				t.Errorf("beside the file: %v", left)
			}
			status := map[bool]string{true: "418", false: "200"}[strings.Contains(name, "status")]
			var headers map[string]string
			if err := json.Unmarshal(r.Values["headers"], &headers); err != nil || headers["x-two"] != "a, b" || headers["set-cookie"] != "" || string(r.Values["status"]) != status {
				t.Errorf("%s, %v, %v", r.Values["status"], headers, err)
			}
		})
	}
}

func TestHTTPValuesThatCannotBe(t *testing.T) {
	t.Parallel()
	srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("type"))
		w.Header().Set("X-Long", strings.Repeat("y", len(r.URL.Query().Get("header"))))
		_, _ = io.WriteString(w, r.URL.Query().Get("give"))
	})
	long := strings.Repeat("x", maxOutputs+1)
	for name, c := range map[string]struct{ with, code, pointer string }{
		"too long":        {`{"url":"%s/","query":{"give":"` + long + `"}}`, "E_HTTP_SIZE", "/outputs/body"},
		"over the limit":  {`{"url":"%s/?give=abcd","max_body":3}`, "E_HTTP_SIZE", "/outputs/body"},
		"broken JSON":     {`{"url":"%s/?type=application/json&give={\"a\":1"}`, "E_HTTP_VALUE", "/outputs/body"},
		"a key twice":     {`{"url":"%s/?type=application/json&give={\"a\":1,\"a\":2}"}`, "E_HTTP_VALUE", "/outputs/body/a"},
		"no UTF-8":        {`{"url":"%s/?type=text/plain%3Bcharset=latin1&give=%E9"}`, "E_HTTP_VALUE", "/outputs/body"},
		"long altogether": {`{"url":"%s/?type=text/plain","query":{"give":"` + long[:40<<10] + `","header":"` + long[:30<<10] + `"}}`, "E_HTTP_VALUE", "/outputs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, failure := h.Execute(t.Context(), httpCall(t, c.with, srv.URL, outputs(bodyOutput, events.Output{Role: "headers"})))
			if failure == nil || failure.Class != events.BadOutput || failure.Pointer != c.pointer || !strings.HasPrefix(failure.Reason, c.code+": ") || r.Values != nil {
				t.Errorf("%+v, %.100v", failure, r.Values)
			}
		})
	}
}

func TestHTTPSettingsThatCannotBe(t *testing.T) {
	t.Parallel()
	h := newHTTPForTest(t)
	for name, c := range map[string]struct{ with, code, pointer string }{
		"no address":       {`{"url":"orders"}`, "E_URL", "/url"},
		"null":             {`{"url":null}`, "E_URL", "/url"},
		"file":             {`{"url":"file:///etc/passwd"}`, "E_URL", "/url"},
		"user":             {`{"url":"http://li:hunter22@example.com/"}`, "E_URL", "/url"},
		"broken user":      {`{"url":"http://li:hunter22 x@example.com/"}`, "E_URL", "/url"},
		"header":           {`{"url":"http://example.com/","headers":{"A":"x\r\nB: y"}}`, "E_HTTP_HEADER", "/headers/A"},
		"secret in a line": {`{"url":"http://example.com/","secret_headers":{"A":"PEM"}}`, "E_HTTP_HEADER", "/headers/A"},
		"no such secret":   {`{"url":"http://example.com/","auth":{"bearer":"NOPE"}}`, "E_SECRET", "/secrets/NOPE"},
		"no such input":    {`{"url":"http://example.com/","body_from":"nope"}`, "the input", "/body_from"},
	} {
		r, failure := h.Execute(t.Context(), httpCall(t, c.with, "", withSecrets(map[string]string{"PEM": "hunter22\nhunter22"})))
		if failure == nil || failure.Class != events.BadInput || failure.Pointer != c.pointer || !strings.HasPrefix(failure.Reason, c.code) {
			t.Errorf("%s: %+v", name, failure)
		} else if strings.Contains(failure.Reason, "hunter22") || r.Stdout.Path != "" {
			t.Errorf("%s: %+v, %+v", name, failure, r.Stdout)
		}
	}
	_, failure := h.Execute(t.Context(), httpCall(t, `{"url":"http://example.com/"}`, "", func(c *Call) { c.Network = "none" }))
	if failure == nil || failure.Class != events.ExecFailed || !strings.HasPrefix(failure.Reason, "E_NETWORK_NONE") {
		t.Errorf("no network: %+v", failure)
	}
}

func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", r.URL.Query().Get("after"))
		w.WriteHeader(int(status.Load()))
		_, _ = io.WriteString(w, strings.Repeat("sorry ", 10_000))
	})
	for _, c := range []struct {
		status                         int32
		with, actual, expected, reason string
		on                             string
	}{
		{503, `{"url":"%s/x?id=7&after=120","auth":{"bearer":"T"}}`, "503 Service Unavailable", "200 to 299", "asks to wait 2m0s", "http:503"},
		{429, `{"url":"%s/?after=99999"}`, "429 Too Many Requests", "200 to 299", "asks to wait 1h0m0s", "http:4xx"},
		{500, `{"url":"%s/?after=Fri,%2031%20Dec%209999%2023:59:59%20GMT"}`, "500 Internal Server Error", "200 to 299", "asks to wait 1h0m0s", "http:5xx"},
		{500, `{"url":"%s/?after=Fri,%2031%20Dec%201999%2023:59:59%20GMT"}`, "500 Internal Server Error", "200 to 299", "asks to wait 0s", "http:500"},
		{599, `{"url":"%s/?after=soon"}`, "599", "200 to 299", "answered 599, and 200 to 299 was expected", "http:599"},
		{200, `{"url":"%s/","expect":[201,404]}`, "200 OK", "201, 404", "and 201, 404 was expected", "http:200"},
	} {
		status.Store(c.status)
		r, failure := h.Execute(t.Context(), httpCall(t, c.with, srv.URL, outputs(bodyOutput, fileOutput), withSecrets(map[string]string{"T": "sorry sor"})))
		if failure == nil || failure.Class != events.ExecFailed || failure.Pointer != "/status" || failure.Actual != c.actual || failure.Expected != c.expected ||
			!strings.HasPrefix(failure.Reason, "E_HTTP_STATUS: GET ") || !strings.Contains(failure.Reason, c.reason) || strings.Contains(failure.Reason, "id=7") {
			t.Errorf("%d: %+v", c.status, failure)
			continue
		}
		if len(r.Evidence) == 0 || len(r.Evidence) > proofSize || strings.Contains(r.Evidence, "sorry sor") || r.Values != nil {
			t.Errorf("%d: %d bytes of evidence: %.100s", c.status, len(r.Evidence), r.Evidence)
		}
		for on, want := range map[string]events.Type{c.on: events.StageRetryScheduled, "http:418": events.StageFailed} {
			stage := &events.Stage{Name: "fetch", Retry: &events.Retry{Max: 1, On: []string{on}}}
			if got, _ := events.Settle(events.ID{1}, stage, 1, failure, 0); got != want {
				t.Errorf("%d, retry on %s: %s", c.status, on, got)
			}
		}
	}
}

func TestHTTPLogAndSegments(t *testing.T) {
	t.Parallel()
	srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/from" {
			http.Redirect(w, r, "/to?key=abcdefgh&bare", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, "12345")
	})
	call := httpCall(t, `{"url":"%s/from?a=1","secret_query":{"k":"T"}}`, srv.URL, outputs(fileOutput), withSecrets(map[string]string{"T": "s3cr3t-t0ken"}))
	r, failure := h.Execute(t.Context(), call)
	if failure != nil {
		t.Fatal(failure)
	}
	lines := strings.Split(strings.TrimSpace(read(t, r.Stdout.Path)), "\n")
	first := "GET " + srv.URL + "/from?a=***&k=*** -> 302 Found, to " + srv.URL + "/to?key=***&***"
	last := "GET " + srv.URL + "/to?key=***&*** -> 200 OK, 5 bytes, "
	if len(lines) != 2 || lines[0] != first || !strings.HasPrefix(lines[1], last) || !strings.HasSuffix(lines[1], " ms") {
		t.Errorf("log:\n%s", strings.Join(lines, "\n"))
	}
	var names []string
	for _, s := range r.Segments {
		names = append(names, s.Name)
		if s.Duration < 0 {
			t.Errorf("%+v", s)
		}
	}
	if diff := cmp.Diff([]string{"connect", "send", "wait", "body"}, names); diff != "" {
		t.Errorf("segments (-want +got)\n%s", diff)
	}
}

// One connection serves one attempt after the other, and no cookie goes from one to the next.
func TestHTTPSharesConnectionsAndNothingElse(t *testing.T) {
	t.Parallel()
	addresses := map[string]bool{}
	srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		addresses[r.RemoteAddr] = true
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		if len(r.Cookies()) > 0 {
			t.Error("a cookie came back")
		}
		_, _ = io.WriteString(w, "not wanted by any output")
	})
	for range 3 {
		if _, failure := h.Execute(context.Background(), httpCall(t, `{"url":"%s/"}`, srv.URL)); failure != nil {
			t.Fatal(failure)
		}
	}
	if len(addresses) != 1 {
		t.Errorf("%d connections", len(addresses))
	}
}
