package executor

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
	"sync"
	"time"

	"github.com/apollo-11/apollo/events"
)

// containerEngine speaks the API of Docker, which Podman speaks too. One client serves all attempts.
type containerEngine struct {
	host string // as it was set
	http *http.Client
	base string // scheme and host of every address

	mu    sync.Mutex
	about *engineInfo // once the engine has answered
}

// engineInfo is what the engine said of itself.
type engineInfo struct {
	version  string // of the API, as both sides know it
	podman   bool
	rootless bool
}

// The versions of the API that this client was written for, 1.41 to 1.44. Engines know older ones for years.
const oldestAPI, newestAPI = 41, 44

// quick bounds every request that does not wait for a container or a registry.
const quick = 30 * time.Second

// newContainerEngine makes the client of unix:///path or tcp://host:port; anything else is told when it is used.
func newContainerEngine(host string) *containerEngine {
	e := &containerEngine{host: host, base: "http://engine"}
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 4, IdleConnTimeout: quick}
	switch scheme, rest, _ := strings.Cut(host, "://"); scheme {
	case "unix":
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", rest)
		}
	case "tcp", "http":
		e.base = "http://" + strings.TrimSuffix(rest, "/")
	default:
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return nil, fmt.Errorf("%q is neither unix:///path nor tcp://host:port", host)
		}
	}
	e.http = &http.Client{Transport: transport}
	return e
}

// engineError is an answer of the engine that says no.
type engineError struct {
	status int
	text   string
}

func (e *engineError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.status) }

// refused reports whether the engine answered with this status.
func refused(err error, status int) bool {
	e, ok := errors.AsType[*engineError](err)
	return ok && e.status == status
}

// send makes a request and gives the answer, whose body the caller closes. Everything above 399 is an engineError.
func (e *containerEngine) send(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	address := e.base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, address, content) //nolint:gosec // the operator names the engine
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if strings.HasSuffix(path, "/attach") {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "tcp")
	}
	answer, err := e.http.Do(r) //nolint:gosec // as above
	if err != nil {
		return nil, err
	}
	if answer.StatusCode < http.StatusBadRequest {
		return answer, nil
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, toolLog))
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &said) == nil && said.Message != "" {
		text = []byte(said.Message)
	}
	return nil, &engineError{status: answer.StatusCode, text: lastLine(string(text), http.StatusText(answer.StatusCode))}
}

// call makes a request below the API's version and reads the answer into a value, when there is one.
func (e *containerEngine) call(ctx context.Context, method, path string, query url.Values, body, into any) error {
	about, err := e.hello(ctx)
	if err != nil {
		return err
	}
	answer, err := e.send(ctx, method, "/v"+about.version+path, query, body)
	if err != nil {
		return err
	}
	return decodeAnswer(answer, into)
}

// decodeAnswer reads an answer to its end into a value, or past it when there is none.
func decodeAnswer(answer *http.Response, into any) error {
	defer answer.Body.Close()
	if into == nil {
		_, err := io.Copy(io.Discard, answer.Body)
		return err
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// hello asks the engine once what it is.
func (e *containerEngine) hello(ctx context.Context) (engineInfo, error) {
	e.mu.Lock()
	known := e.about
	e.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	answer, err := e.send(ctx, http.MethodGet, "/_ping", nil, nil)
	if err != nil {
		return engineInfo{}, err
	}
	_ = answer.Body.Close() // its headers say it all
	about := engineInfo{podman: answer.Header.Get("Libpod-Api-Version") != ""}
	newest, _ := strconv.Atoi(strings.TrimPrefix(answer.Header.Get("Api-Version"), "1."))
	about.version = fmt.Sprintf("1.%d", max(oldestAPI, min(newest, newestAPI)))
	info, err := e.send(ctx, http.MethodGet, "/v"+about.version+"/info", nil, nil)
	if err != nil {
		return engineInfo{}, err
	}
	var said struct{ SecurityOptions []string }
	if err := decodeAnswer(info, &said); err != nil {
		return engineInfo{}, err
	}
	for _, option := range said.SecurityOptions {
		about.rootless = about.rootless || strings.Contains(option, "rootless")
	}
	e.mu.Lock()
	e.about = &about
	e.mu.Unlock()
	return about, nil
}

// containerState is how a container is doing.
type containerState struct {
	Running   bool
	Pid       int
	ExitCode  int
	OOMKilled bool
	Error     string
}

// container is one container by the id that the engine gave it.
type container struct {
	engine *containerEngine
	id     string
}

func (e *containerEngine) create(ctx context.Context, name string, config *containerConfig) (container, error) {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	var made struct{ ID string }
	err := e.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, config, &made)
	return container{engine: e, id: made.ID}, err
}

func (c container) path(verb string) string { return "/containers/" + url.PathEscape(c.id) + verb }

// post asks for something that is done at once.
func (c container) post(ctx context.Context, verb string, query url.Values) error {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	return c.engine.call(ctx, http.MethodPost, c.path(verb), query, nil, nil)
}

// wait returns once the container does not run, which it may never have done.
func (c container) wait(ctx context.Context) error {
	return c.engine.call(ctx, http.MethodPost, c.path("/wait"), nil, nil, new(json.RawMessage))
}

func (c container) state(ctx context.Context) (containerState, error) {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	var said struct{ State containerState }
	err := c.engine.call(ctx, http.MethodGet, c.path("/json"), nil, nil, &said)
	return said.State, err
}

// remove ends the container, if it runs, and removes it with everything that it wrote inside. One that is gone is
// no error.
func (c container) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quick)
	defer cancel()
	err := c.engine.call(ctx, http.MethodDelete, c.path(""), url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
	if refused(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// attach gives the output of a container from now on. Opened before the start it misses nothing.
func (c container) attach(ctx context.Context) (io.ReadCloser, error) {
	about, err := c.engine.hello(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(quick, cancel)
	answer, err := c.engine.send(ctx, http.MethodPost, "/v"+about.version+c.path("/attach"), url.Values{"stream": {"1"}, "stdout": {"1"}, "stderr": {"1"}}, nil) //nolint:bodyclose // attached closes it
	late.Stop()
	if err != nil {
		cancel()
		return nil, err
	}
	return &attached{ReadCloser: answer.Body, cancel: cancel}, nil
}

// attached is the connection that brings a container's output.
type attached struct {
	io.ReadCloser
	cancel func()
}

func (a *attached) Close() error {
	a.cancel()
	return a.ReadCloser.Close()
}

// listed is a container as a list shows it.
type listed struct {
	ID     string
	Labels map[string]string
}

// labelled lists the containers with a label, running or not.
func (e *containerEngine) labelled(ctx context.Context, label string) ([]listed, error) {
	filters, err := json.Marshal(map[string][]string{"label": {label}})
	if err != nil {
		return nil, err
	}
	var found []listed
	err = e.call(ctx, http.MethodGet, "/containers/json", url.Values{"all": {"1"}, "filters": {string(filters)}}, nil, &found)
	return found, err
}

// fails says that the engine, not the stage, is at fault.
func (e *containerEngine) fails(doing string, err error) *events.Failure {
	failure := &events.Failure{Class: events.System, Expected: "a Docker-compatible engine at " + e.host, Actual: err.Error(),
		Reason: fmt.Sprintf("E_CONTAINER_ENGINE: the container engine could not %s; start it, or set APOLLO_CONTAINER_HOST to its socket as unix:///path", doing)}
	if _, answered := errors.AsType[*engineError](err); answered {
		failure.Reason = fmt.Sprintf("E_CONTAINER_ENGINE: the container engine refused to %s: %v", doing, err)
	}
	return failure
}
