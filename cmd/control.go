package cmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
)

// StartRun implements web.Control: the same path for a run in this process and for one through the server.
func (n *node) StartRun(ctx context.Context, r web.StartRequest) (trigger.Receipt, error) {
	plan, err := n.planFor(r)
	if err != nil {
		return trigger.Receipt{}, err
	}
	given := map[string]json.RawMessage{}
	for name, text := range r.Params {
		given[name] = configs.ParamFromText(plan, name, text)
	}
	resolved, problems := configs.ResolveParams(plan, given)
	if problems.HasErrors() {
		return trigger.Receipt{}, &web.ErrStatus{Status: http.StatusUnprocessableEntity, Err: &exitError{exitUsage, "", errors.New(problemLine(problems[0]))}}
	}
	d := trigger.Manual(plan.Pipeline, nil)
	d.Key = r.Key
	if len(resolved) > 0 {
		if d.Params, err = json.Marshal(resolved); err != nil {
			return trigger.Receipt{}, err
		}
	}
	return n.engine.Accept(ctx, d)
}

func problemLine(p configs.Problem) string {
	text := p.Code + ": " + p.Message
	if p.Expected != "" {
		text += "; expected " + p.Expected
	}
	if p.Hint != "" {
		text += "; " + p.Hint
	}
	return text
}

// planFor finds the definition that a request names and makes it known to the engine.
func (n *node) planFor(r web.StartRequest) (*events.Plan, error) {
	path := r.File
	if path == "" {
		p, err := n.app.pipelineFile(r.Pipeline)
		if err != nil {
			return nil, &web.ErrStatus{Status: http.StatusNotFound, Err: err}
		}
		path = p
	}
	p, problems := configs.LoadFile(path, n.app.checkOptions())
	if problems.HasErrors() {
		return nil, &web.ErrStatus{Status: http.StatusUnprocessableEntity, Err: &exitError{exitInvalid, "", problems.Err()}}
	}
	if err := n.register(p); err != nil {
		return nil, err
	}
	return p.Plan(), nil
}

// CancelRun implements web.Control.
func (n *node) CancelRun(ctx context.Context, run events.ID, reason string) error {
	err := n.engine.Cancel(ctx, run, reason)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return &web.ErrStatus{Status: http.StatusNotFound, Err: err}
	case errors.Is(err, router.ErrEnded):
		return &web.ErrStatus{Status: http.StatusConflict, Err: err}
	}
	return err
}

// Ready implements web.Control.
func (n *node) Ready() bool { return n.engine.Ready() }

// socketName is the control API's socket in the data directory: whoever may read the directory may control the server.
const socketName = "apollo.sock"

// shortPath reaches a directory by a path that fits into a socket address, which holds 107 bytes.
func shortPath(dir string) (path string, done func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), socketName), func() { _ = f.Close() }, nil
}

// listenControl opens the socket. A socket left by a process that died is replaced: the lock says that it did.
func listenControl(dir string) (net.Listener, error) {
	path, done, err := shortPath(dir)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	defer done()
	_ = os.Remove(filepath.Join(dir, socketName))
	l, err := net.Listen("unix", path) //nolint:noctx // it is there at once or not at all
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // its path goes through a descriptor that is closed by then
	}
	if err := os.Chmod(filepath.Join(dir, socketName), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("control socket: %w", err), l.Close())
	}
	return l, nil
}

// remote talks to the server that holds the data directory.
type remote struct {
	dir    string
	client *http.Client
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

// StartRun asks the server for a run.
func (r *remote) StartRun(ctx context.Context, req web.StartRequest) (web.StartAnswer, error) {
	var answer web.StartAnswer
	return answer, r.post(ctx, "/api/v1/runs", req, &answer)
}

// CancelRun asks the server to end a run.
func (r *remote) CancelRun(ctx context.Context, run events.ID, reason string) error {
	return r.post(ctx, "/api/v1/runs/"+run.String()+"/cancel", map[string]string{"reason": reason}, nil)
}

// exitOfStatus maps what the server answers to exit codes.
var exitOfStatus = map[int]int{http.StatusNotFound: exitNotFound, http.StatusConflict: exitConflict, http.StatusUnprocessableEntity: exitUsage,
	http.StatusTooManyRequests: exitBusy, http.StatusServiceUnavailable: exitUnreachable}

func (r *remote) post(ctx context.Context, path string, body, into any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://apollo"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return &exitError{exitUnreachable, "E_UNREACHABLE", fmt.Errorf("the server that holds %s does not answer: %w", r.dir, err)}
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		var p struct {
			Detail string `json:"detail"`
		}
		_ = json.NewDecoder(resp.Body).Decode(&p)
		exit, known := exitOfStatus[resp.StatusCode]
		if !known {
			exit = exitInternal
		}
		if strings.Contains(p.Detail, "problems") || strings.Contains(p.Detail, ".yaml:") {
			exit = exitInvalid
		}
		return &exitError{exit, "", errors.New(orText(p.Detail, resp.Status))}
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
