package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/apollo-11/apollo/events"
)

// HTTP makes one request. An attempt is one request, besides redirects: retries are the engine's, so that each is an
// event. It keeps no cookies, takes no proxy from the environment, and connects to addresses of the public internet only,
// besides those that the operator allows.
type HTTP struct {
	agent     string
	transport *http.Transport
	dialer    net.Dialer
	stall     time.Duration // a body of which nothing comes for so long is given up
	proof     time.Duration // how long the body of an unexpected answer is waited for
}

// Times of a request besides the stage's own time-out. Those who fetch wait for others: they are long.
const (
	connectTimeout = 30 * time.Second // for all addresses of a host together
	tlsTimeout     = 30 * time.Second
	headerTimeout  = 10 * time.Minute // from the sent request to the answer's header
	stallTimeout   = 5 * time.Minute
	proofTimeout   = 10 * time.Second
)

// NewHTTP makes the executor. What Settings.HTTPAllow has that can't be read is not allowed; see CheckHTTPAllow.
func NewHTTP(s Settings) *HTTP {
	version := s.Version
	if version == "" {
		version = "devel"
	}
	h := &HTTP{agent: "apollo/" + version, stall: stallTimeout, proof: proofTimeout}
	h.dialer = net.Dialer{Timeout: connectTimeout, ControlContext: newGuard(s.HTTPAllow).control}
	h.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return h.dialer.DialContext(dialling(ctx, address), network, address)
		},
		TLSHandshakeTimeout:    tlsTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	return h
}

// Spec implements Executor.
func (h *HTTP) Spec() Spec {
	return Spec{
		Name: "http",
		Doc:  "Makes one HTTP request; the answer becomes the outputs.",
		With: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["url"],"properties":{
"method":{"enum":["GET","HEAD","POST","PUT","PATCH","DELETE"],"default":"GET"},
"url":{"type":"string","description":"Absolute, http or https, without user and password."},
"headers":{"type":"object","description":"Values are texts; null leaves the header out."},
"query":{"type":"object","description":"Added to the query of url; null leaves the parameter out."},
"body":{"description":"Text is sent as it is, anything else as JSON."},
"body_from":{"type":"string","description":"The input whose content is the body."},
"expect":{"type":"array","items":{"type":"integer"},"description":"Status codes that count as success; else 200 to 299. A redirect that is listed is not followed."},
"auth":{"type":"object","description":"bearer: NAME, or basic: {user, password: NAME}; NAME is a secret variable of the stage."},
"secret_headers":{"type":"object","additionalProperties":{"type":"string"},"description":"Headers by the secret variables that hold their values."},
"secret_query":{"type":"object","additionalProperties":{"type":"string"},"description":"Query parameters likewise."},
"max_body":{"type":"integer","description":"Bytes of the answer's body that are taken at most; 1 GiB unless said."}}}`),
	}
}

// httpSettings is a stage's with.
type httpSettings struct {
	Method        string                     `json:"method"`
	URL           json.RawMessage            `json:"url"`
	Headers       map[string]json.RawMessage `json:"headers"`
	Query         map[string]json.RawMessage `json:"query"`
	Body          json.RawMessage            `json:"body"`
	BodyFrom      string                     `json:"body_from"`
	Expect        []int                      `json:"expect"`
	Auth          *httpAuth                  `json:"auth"`
	SecretHeaders map[string]string          `json:"secret_headers"`
	SecretQuery   map[string]string          `json:"secret_query"`
	MaxBody       int64                      `json:"max_body"`
}

type httpAuth struct {
	Bearer string     `json:"bearer"`
	Basic  *basicAuth `json:"basic"`
}

type basicAuth struct {
	User     json.RawMessage `json:"user"`
	Password string          `json:"password"`
}

// maxBody is the largest body that is taken unless the stage says otherwise, in bytes.
const maxBody = 1 << 30

// exchange is one attempt: a request on its way and its answer.
type exchange struct {
	http     *HTTP
	call     *Call
	settings httpSettings
	result   *Result
	hidden   map[string]string // what no text may show: secrets in each form in which they travel
	secret   []string          // names of the headers that no other host gets
	cancel   context.CancelCauseFunc

	times    timeline
	log      capture
	began    time.Time
	hop      *http.Request // the last one that was tried
	received int64         // bytes of the body
	cut      bool          // the body is longer than a value may be
}

// Execute implements Executor.
func (h *HTTP) Execute(ctx context.Context, c *Call) (*Result, *events.Failure) {
	x := &exchange{http: h, call: c, result: new(Result)}
	failure := x.run(ctx)
	if failure != nil {
		for _, text := range []*string{&failure.Reason, &failure.Pointer, &failure.Expected, &failure.Actual} {
			*text = x.masked(*text)
		}
	}
	return x.result, failure
}

func (x *exchange) run(ctx context.Context) *events.Failure {
	if x.call.Network == "none" {
		return &events.Failure{Class: events.ExecFailed, Expected: "network: allow", Actual: "network: none",
			Reason: "E_NETWORK_NONE: the stage may not use the network, and a request needs it"}
	}
	if failure := decodeSettings(x.call.With, &x.settings); failure != nil {
		return failure
	}
	ctx, x.cancel = context.WithCancelCause(ctx)
	defer x.cancel(nil)
	if limit := x.call.Timeout; limit > 0 {
		timeout := &events.Failure{Class: events.Timeout, Expected: limit.String(),
			Reason: fmt.Sprintf("the request ran over its time-out of %s", limit)}
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, timeout)
		defer stop()
	}
	if cause := stopCause(ctx); cause != nil {
		return cause
	}
	x.hide()
	req, failure := x.newRequest(x.times.watch(ctx))
	if failure != nil {
		return failure
	}
	return x.exchange(ctx, req)
}

// exchange sends the request and takes the answer.
func (x *exchange) exchange(ctx context.Context, req *http.Request) *events.Failure {
	x.log = capture{path: filepath.Join(x.call.LogDir, "stdout"), part: logPart, mask: newMasker(x.hidden)}
	x.began, x.hop = time.Now(), req
	client := http.Client{Transport: x.http.transport, CheckRedirect: x.redirect}
	var failure *events.Failure
	resp, err := client.Do(req)
	if err != nil {
		resp, failure = nil, x.fault(ctx, err)
	} else {
		failure = x.receive(ctx, resp)
		resp.Body.Close()
	}
	x.result.Segments = x.times.segments()
	x.noteEnd(resp, failure)
	x.result.Stdout = x.log.close()
	return failure
}
