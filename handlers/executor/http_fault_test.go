package executor

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apollo-11/apollo/events"
)

// rawServer takes connections and lets a function have each.
func rawServer(t *testing.T, handle func(net.Conn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// readHead reads a request without a body.
func readHead(conn net.Conn) string {
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		if n, err := conn.Read(b); n == 0 || err != nil {
			break
		}
		head = append(head, b[0])
	}
	return string(head)
}

type wantFailure struct {
	class   events.Class
	code    string
	pointer string
	text    string
}

func (w wantFailure) check(t *testing.T, failure *events.Failure) {
	t.Helper()
	if failure == nil || failure.Class != w.class || failure.Pointer != w.pointer || !strings.HasPrefix(failure.Reason, w.code) || !strings.Contains(failure.Reason, w.text) {
		t.Errorf("got  %+v\nwant %+v", failure, w)
	}
}

func TestHTTPNoAnswer(t *testing.T) {
	t.Parallel()
	gone := rawServer(t, func(net.Conn) {})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	garbage := rawServer(t, func(c net.Conn) {
		readHead(c)
		_, _ = io.WriteString(c, "SSH-2.0-OpenSSH "+strings.Repeat("x", 1000)+"\r\n")
	})
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	for name, c := range map[string]struct {
		url  string
		want wantFailure
	}{
		"refused":        {"http://" + closed.Addr().String(), wantFailure{events.ExecFailed, "E_HTTP_CONNECT", "/connect", "connection refused"}},
		"no such name":   {"http://nobody.example", wantFailure{events.ExecFailed, "E_HTTP_DNS", "/connect", "no such host"}},
		"not trusted":    {secure.URL, wantFailure{events.ExecFailed, "E_HTTP_TLS", "/connect", "certificate"}},
		"no TLS there":   {"https://" + plain.Listener.Addr().String(), wantFailure{events.ExecFailed, "E_HTTP_TLS", "/connect", "HTTP response to HTTPS client"}},
		"closed at once": {"http://" + gone, wantFailure{events.ExecFailed, "E_HTTP_ANSWER", "/connect", ""}},
		"something else": {"http://" + garbage, wantFailure{events.ExecFailed, "E_HTTP_ANSWER", "/connect", "malformed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHTTPForTest(t, "127.0.0.1")
			h.dialer.Resolver = nameServer(t, func() string { return "" })
			r, failure := h.Execute(t.Context(), httpCall(t, `{"url":"%s/"}`, c.url))
			c.want.check(t, failure)
			if len(failure.Reason) > 800 || !strings.Contains(read(t, r.Stdout.Path), "-> "+c.want.code) {
				t.Errorf("%d bytes of reason; log:\n%s", len(failure.Reason), read(t, r.Stdout.Path))
			}
			stage := &events.Stage{Retry: &events.Retry{Max: 1, On: []string{"http:connect"}}}
			if next, _ := events.Settle(events.ID{}, stage, 1, failure, 0); next != events.StageRetryScheduled {
				t.Error("not tried again")
			}
		})
	}
}

func TestHTTPTimeouts(t *testing.T) {
	t.Parallel()
	const short = 30 * time.Millisecond
	srv, _ := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/some" {
			_, _ = io.WriteString(w, "abc")
			_ = http.NewResponseController(w).Flush()
		}
		if r.URL.Path == "/503" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "proof")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	})
	quit := make(chan struct{})
	silent := rawServer(t, func(net.Conn) { <-quit })
	t.Cleanup(func() { close(quit) })
	for name, c := range map[string]struct {
		url    string
		change func(*HTTP, *Call)
		want   wantFailure
		actual string
	}{
		"header": {srv.URL, func(h *HTTP, _ *Call) { h.transport.ResponseHeaderTimeout = short },
			wantFailure{events.Timeout, "E_HTTP_TIMEOUT", "", "took too long while it waited for the answer"}, "while it waited for the answer"},
		"TLS": {"https://" + silent, func(h *HTTP, _ *Call) { h.transport.TLSHandshakeTimeout = short },
			wantFailure{events.Timeout, "E_HTTP_TIMEOUT", "/connect", "TLS"}, "during the TLS handshake"},
		"body": {srv.URL + "/some", func(h *HTTP, _ *Call) { h.stall = short },
			wantFailure{events.Timeout, "E_HTTP_TIMEOUT", "", "nothing of the answer came for 30ms"}, "3 bytes of the answer had come"},
		"stage": {srv.URL, func(_ *HTTP, c *Call) { c.Timeout = 300 * time.Millisecond },
			wantFailure{events.Timeout, "the request ran over its time-out of 300ms", "", ""}, "while it waited for the answer"},
		"proof": {srv.URL + "/503", func(h *HTTP, _ *Call) { h.proof = short },
			wantFailure{events.ExecFailed, "E_HTTP_STATUS", "/status", ""}, "503 Service Unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHTTPForTest(t, "127.0.0.1")
			call := httpCall(t, `{"url":"%s"}`, c.url, outputs(fileOutput))
			c.change(h, call)
			r, failure := h.Execute(t.Context(), call)
			c.want.check(t, failure)
			if failure != nil && failure.Actual != c.actual {
				t.Errorf("actual %q", failure.Actual)
			}
			if name == "proof" && r.Evidence != "proof" {
				t.Errorf("evidence %q", r.Evidence)
			}
		})
	}
}

// A cancelled attempt ends at once, wherever it stands, and the connection with it.
func TestHTTPCancelled(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/header", "/body"} {
		reached, ended := make(chan struct{}), make(chan struct{})
		srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
			defer close(ended)
			if r.URL.Path == "/body" {
				_, _ = io.WriteString(w, "abc")
				_ = http.NewResponseController(w).Flush()
			}
			close(reached)
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { <-reached; cancel(errors.New("li cancelled it")) }()
		r, failure := h.Execute(ctx, httpCall(t, `{"url":"%s"}`, srv.URL+path, outputs(bodyOutput)))
		<-ended
		wantFailure{events.Aborted, "the stage was cancelled: li cancelled it", "", ""}.check(t, failure)
		if r.Values != nil {
			t.Error("values of a cancelled attempt")
		}
		_, failure = h.Execute(ctx, httpCall(t, `{"url":"%s"}`, srv.URL+path))
		wantFailure{events.Aborted, "the stage was cancelled", "", ""}.check(t, failure)
	}
}

func TestHTTPBrokenAndHugeBodies(t *testing.T) {
	t.Parallel()
	packed := func(size int) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(make([]byte, size))
		_ = z.Close()
		return b.String()
	}
	small, bomb := packed(1000), packed(4<<20)
	answers := map[string]string{
		"length":        "Content-Length: 10\r\n\r\nabc",
		"chunked":       "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
		"chunk":         "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
		"gzip":          fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(small)-4, small[:len(small)-4]),
		"no gzip":       "Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
		"said huge":     "Content-Length: 9999999999\r\n\r\nabc",
		"huge":          "\r\n" + strings.Repeat("x", 2<<20),
		"huge unpacked": fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb),
	}
	address := rawServer(t, func(c net.Conn) {
		name := strings.Fields(readHead(c))[1][1:]
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n"+answers[strings.ReplaceAll(name, "+", " ")])
	})
	h := newHTTPForTest(t, "127.0.0.1")
	for name := range answers {
		code := "E_HTTP_BROKEN"
		if strings.Contains(name, "huge") {
			code = "E_HTTP_SIZE"
		}
		for _, o := range []events.Output{fileOutput, bodyOutput} {
			call := httpCall(t, `{"url":"%s","max_body":1048576}`, "http://"+address+"/"+strings.ReplaceAll(name, " ", "+"), outputs(o))
			r, failure := h.Execute(t.Context(), call)
			if name == "said huge" && o.Path == "" {
				code = "E_HTTP_BROKEN" // three bytes are no reason to call it large
			}
			t.Run(name, func(t *testing.T) { wantFailure{events.BadOutput, code, "/outputs/" + o.Role, ""}.check(t, failure) })
			if left, _ := filepath.Glob(filepath.Join(call.Dir, "out", "sub", "*")); len(left) > 0 || r.Values != nil {
				t.Errorf("%s left %v, %v", name, left, r.Values)
			}
			if hidden, _ := os.ReadDir(filepath.Join(call.Dir, "out", "sub")); len(hidden) > 0 {
				t.Errorf("%s left %v", name, hidden)
			}
		}
		if _, failure := h.Execute(t.Context(), httpCall(t, `{"url":"%s"}`, "http://"+address+"/"+strings.ReplaceAll(name, " ", "+"))); failure != nil {
			t.Errorf("%s, and nobody wants it: %v", name, failure)
		}
	}
}

func TestHTTPCannotWrite(t *testing.T) {
	t.Parallel()
	srv, h := httpServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "abc") })
	call := httpCall(t, `{"url":"%s"}`, srv.URL, outputs(events.Output{Role: "data", Path: "data"}))
	if err := os.MkdirAll(filepath.Join(call.Dir, "out", "data", "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, failure := h.Execute(t.Context(), call)
	wantFailure{events.System, "cannot write the output data", "", ""}.check(t, failure)
}

// What a full disk does is told apart from what the server does.
func TestHTTPPartFileRemembersThatTheWritingFailed(t *testing.T) {
	t.Parallel()
	p, err := newPartFile(t.TempDir(), "a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer p.discard()
	p.file.Close()
	if _, err := p.Write([]byte("x")); err == nil || p.err == nil {
		t.Errorf("%v, %v", err, p.err)
	}
}

// Each phase lasts until the next; what comes late from a connection that was not needed changes nothing.
func TestHTTPTimeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var line timeline
		for _, step := range []struct {
			phase int // 0 is a hop
			after int // seconds
		}{{0, 7}, {phaseConnect, 1}, {phaseSend, 2}, {phaseConnect, 3}, {phaseWait, 4}, {phaseBody, 5}, {0, 7}, {phaseSend, 6}, {phaseTLS, 7}, {phaseBody, 8}} {
			if step.phase == 0 {
				line.hop()
			} else {
				line.enter(step.phase)
			}
			if err := sleep(t.Context(), time.Duration(step.after)*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		got := fmt.Sprint(line.segments())
		if got != "[{connect 1s} {send 18s} {wait 4s} {body 13s}]" {
			t.Error(got)
		}
	})
}

func TestHTTPOverTLS(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	h := newHTTPForTest(t, "127.0.0.1")
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	h.transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	r, failure := h.Execute(t.Context(), httpCall(t, `{"url":"%s"}`, srv.URL, outputs(bodyOutput)))
	if failure != nil || string(r.Values["body"]) != `"HTTP/2.0"` || len(r.Segments) != 5 || r.Segments[1].Name != "tls" {
		t.Errorf("%v, %s, %+v", failure, r.Values["body"], r.Segments)
	}
}

// The connection of the first request is closed by the server when the second one has been read. No third may be sent.
func TestHTTPSendsNothingTwiceByItself(t *testing.T) {
	t.Parallel()
	for _, own := range []string{"", `,"headers":{"Idempotency-Key":"k"}`} {
		var asked atomic.Int32
		srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) > 1 {
				_, _ = io.Copy(io.Discard, r.Body)
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					conn.Close()
				}
			}
		})
		with := `{"method":"POST","url":"%s","body":"x"` + own + `}`
		if _, failure := h.Execute(t.Context(), httpCall(t, with, srv.URL)); failure != nil {
			t.Fatal(failure)
		}
		_, failure := h.Execute(t.Context(), httpCall(t, with, srv.URL))
		wantFailure{events.ExecFailed, "E_HTTP_ANSWER", "/connect", ""}.check(t, failure)
		if asked.Load() != 2 {
			t.Errorf("%d requests", asked.Load())
		}
	}
}

const topSecret = `s3cr3t/"tok en"<&>`

// Whatever a server does with a secret that it was sent, no text of the attempt shows it in any of its forms.
func TestHTTPSecretsStaySecret(t *testing.T) {
	t.Parallel()
	srv, h := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		echo := r.Header.Get("Authorization") + " " + r.Header.Get("X-Key") + " " + r.URL.RawQuery + " " + r.URL.Query().Get("k")
		quoted, _ := json.Marshal(echo)
		w.Header().Set("X-Echo", echo)
		switch r.URL.Path {
		case "/location", "/path":
			w.Header().Set("Location", map[string]string{"/location": "://" + strings.Repeat("y", 360), "/path": "/500/" + strings.Repeat("y", 365)}[r.URL.Path]+r.Header.Get("X-Key"))
			w.WriteHeader(http.StatusFound)
		case "/host":
			http.Redirect(w, r, "http://"+r.Header.Get("X-Host")+"/", http.StatusFound)
		case "/redirect":
			http.Redirect(w, r, "ftp://h/"+r.URL.RawQuery, http.StatusFound)
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(bytes.ReplaceAll(quoted, []byte("/"), []byte(`\/`)))
		case "/ok":
			_, _ = io.WriteString(w, echo+string(quoted))
		default:
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, strings.Repeat("x", proofSize-40)+echo+string(quoted))
		}
	})
	h.dialer.Resolver = nameServer(t, func() string { return "" })
	give := withSecrets(map[string]string{"TOKEN": topSecret, "HOST": "s3cr3thost"})
	for _, path := range []string{"/ok", "/json", "/500", "/location", "/redirect", "/path", "/host"} {
		for _, auth := range []string{`{"bearer":"TOKEN"}`, `{"basic":{"user":"li","password":"TOKEN"}}`} {
			with := `{"url":"%s` + path + `","auth":` + auth + `,"secret_headers":{"X-Key":"TOKEN","X-Host":"HOST"},"secret_query":{"k":"TOKEN"}}`
			r, failure := h.Execute(t.Context(), httpCall(t, with, srv.URL, give, outputs(bodyOutput, events.Output{Role: "headers"})))
			if (failure == nil) != (path == "/ok" || path == "/json") {
				t.Fatalf("%s: %v", path, failure)
			}
			told := fmt.Sprintf("%+v\n%s\n%s\n%s", failure, r.Evidence, read(t, r.Stdout.Path), r.Values)
			for _, form := range []string{"s3c", "tok en", "tok+en", "tok%20en", "bGk6czNj"} {
				if strings.Contains(told, form) {
					t.Errorf("%s shows %s: %.600s", path, form, strings.ReplaceAll(told, "x", ""))
				}
			}
			if failure == nil && !strings.Contains(string(r.Values["body"]), "***") {
				t.Errorf("%s: %s", path, r.Values["body"])
			}
		}
	}
}
