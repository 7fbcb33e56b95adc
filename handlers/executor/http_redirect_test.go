package executor

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
)

// A hop is /<status>/<where it leads>; anything else answers with what it got.
func redirecting(w http.ResponseWriter, r *http.Request) {
	status, to, _ := strings.Cut(strings.TrimPrefix(r.RequestURI, "/"), "/")
	if code, err := strconv.Atoi(status); err == nil && code != http.StatusOK {
		w.Header().Set("Location", to)
		w.WriteHeader(code)
		return
	}
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s body=%s auth=%s key=%s cookie=%s plain=%s referer=%s", r.Method, body, r.Header.Get("Authorization"), r.Header.Get("X-Key"),
		r.Header.Get("Cookie"), r.Header.Get("X-Plain"), r.Header.Get("Referer"))
}

// serverAt starts a server at an address of this machine.
func serverAt(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(redirecting)}}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestHTTPRedirects(t *testing.T) {
	t.Parallel()
	a, b := serverAt(t, "127.0.0.1"), serverAt(t, "127.0.0.2")
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("rows"), 0o600); err != nil {
		t.Fatal(err)
	}
	give := func(c *Call) {
		c.Secrets, c.Inputs = map[string]string{"T": "s3cr3t-t0ken"}, map[string]Input{"f": {Path: file}}
	}
	// What is sent is masked where it comes back as a value, so that *** says it was there.
	const kept = "auth=Bearer *** key=*** cookie=c=1 plain=p referer="
	const dropped = "auth= key= cookie= plain=p referer="
	for name, c := range map[string]struct{ method, path, want string }{
		"none":                   {"GET", "/x", "GET body= " + kept},
		"same host":              {"GET", "/302//x", "GET body= " + kept},
		"other host":             {"GET", "/302/" + b + "/x", "GET body= " + dropped},
		"there and back":         {"GET", "/302/" + b + "/302/" + a + "/x", "GET body= " + dropped},
		"other port":             {"GET", "/302/" + serverAt(t, "127.0.0.1") + "/x", "GET body= " + dropped},
		"POST becomes GET":       {"POST", "/303//x", "GET body= " + kept},
		"POST becomes GET (302)": {"POST", "/302//x", "GET body= " + kept},
		"POST stays":             {"POST", "/307//x", "POST body=rows " + kept},
		"POST stays elsewhere":   {"PUT", "/308/" + b + "/x", "PUT body=rows " + dropped},
		"ten":                    {"GET", strings.Repeat("/302/", 10) + "/x", "GET body= " + kept},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHTTPForTest(t, "127.0.0.0/8")
			from := ""
			if c.method != http.MethodGet {
				from = `,"body_from":"f"`
			}
			with := `{"method":"` + c.method + `","url":"%s","auth":{"bearer":"T"},"secret_headers":{"X-Key":"T"},"headers":{"Cookie":"c=1","X-Plain":"p"}` + from + `}`
			r, failure := h.Execute(t.Context(), httpCall(t, with, a+c.path, give, outputs(bodyOutput)))
			if failure != nil {
				t.Fatal(failure)
			}
			if diff := cmp.Diff(`"`+c.want+`"`, string(r.Values["body"])); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestHTTPRedirectsThatAreNotFollowed(t *testing.T) {
	t.Parallel()
	srv, h := httpServer(t, redirecting)
	for path, text := range map[string]string{
		strings.Repeat("/302/", 11) + "/x": "more than 10 redirects",
		"/302/ftp://example.com/":          "http:// or https://",
		"/302/http://li:pw@127.0.0.1/":     "a user or a password",
		"/302/file:///etc/passwd":          "http:// or https://",
		"/302/http:///x":                   "no host",
	} {
		r, failure := h.Execute(t.Context(), httpCall(t, `{"url":"%s"}`, srv.URL+path))
		wantFailure{events.ExecFailed, "E_HTTP_REDIRECT", "/headers/location", text}.check(t, failure)
		if log := read(t, r.Stdout.Path); !strings.Contains(log, " -> 302 Found, to ") || !strings.Contains(log, " -> E_HTTP_REDIRECT: ") {
			t.Errorf("log:\n%s", log)
		}
	}
	r, failure := h.Execute(t.Context(), httpCall(t, `{"url":"%s","expect":[302]}`, srv.URL+"/302//x", outputs(events.Output{Role: "status"}, events.Output{Role: "headers"})))
	if failure != nil || string(r.Values["status"]) != "302" || !strings.Contains(string(r.Values["headers"]), `"location":"/x"`) {
		t.Errorf("%v, %s", failure, r.Values)
	}
	secure := httptest.NewTLSServer(http.HandlerFunc(redirecting))
	t.Cleanup(secure.Close)
	down := newHTTPForTest(t, "127.0.0.1")
	down.transport.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	_, failure = down.Execute(t.Context(), httpCall(t, `{"url":"%s"}`, secure.URL+"/302/"+srv.URL+"/x"))
	wantFailure{events.ExecFailed, "E_HTTP_REDIRECT", "/headers/location", "from https to http"}.check(t, failure)
}
