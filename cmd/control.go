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
	"os"
	"path/filepath"
	"strings"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/router"
)

// StartRun implements web.Control: the same path for a run in this process and for one through another.
func (n *node) StartRun(ctx context.Context, r web.StartRequest) (trigger.Receipt, error) {
	plan, own, err := n.planFor(r)
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
	d.Key, d.Sample = r.Key, r.Sample
	if len(resolved) > 0 {
		if d.Params, err = json.Marshal(resolved); err != nil {
			return trigger.Receipt{}, err
		}
	}
	if err := n.attach(ctx, plan, d, r); err != nil {
		return trigger.Receipt{}, err
	}
	if own {
		return n.acceptOnce(ctx, plan, d)
	}
	return n.Accept(ctx, d)
}

// attach gives the delivery its input: as a file when the plan reads trigger.file, else as the body. A sample is cut here,
// before anything is sealed: what a run says it began with is the sample.
func (n *node) attach(ctx context.Context, plan *events.Plan, d *trigger.Delivery, r web.StartRequest) error {
	if r.Input == nil {
		return nil
	}
	input := sampled(bytes.NewReader(r.Input), sampleFormat(plan, r.InputName), r.Sample)
	if !readsFile(plan) {
		body, err := io.ReadAll(input)
		d.Body = append([]byte{}, body...)
		return badSample(err)
	}
	info, err := n.artifacts.Put(ctx, input)
	if err != nil {
		return badSample(err)
	}
	d.File = &trigger.File{Name: r.InputName, Digest: info.Digest, Size: info.Size}
	return nil
}

// badSample says that it is the input's fault when no sample can be cut from it.
func badSample(err error) error {
	if errors.Is(err, errNoArray) {
		return &web.ErrStatus{Status: http.StatusUnprocessableEntity, Err: &exitError{exitUsage, "", err}}
	}
	return err
}

func readsFile(plan *events.Plan) bool {
	const file = "trigger.file"
	for i := range plan.Stages {
		for _, in := range plan.Stages[i].Inputs {
			if in.Expr && strings.Contains(in.From, file) {
				return true
			}
		}
		for _, value := range plan.Stages[i].Env {
			if strings.Contains(value, file) {
				return true
			}
		}
	}
	return false
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

// planFor gives the plan that came with a request, or the registered one; own says that they are not the same.
func (n *node) planFor(r web.StartRequest) (plan *events.Plan, own bool, err error) {
	if len(r.Plan) == 0 {
		if known, ok := n.pipeline(r.Pipeline); ok {
			return known.Plan, false, nil
		}
		return nil, false, &web.ErrStatus{Status: http.StatusNotFound, Err: &exitError{exitNotFound, "E_REF", fmt.Errorf("there is no pipeline %q", r.Pipeline)}}
	}
	if plan, err = events.DecodePlan(r.Plan); err != nil {
		return nil, false, &web.ErrStatus{Status: http.StatusUnprocessableEntity, Err: &exitError{exitInvalid, "E_PLAN", err}}
	}
	known, ok := n.pipeline(plan.Pipeline)
	if !ok {
		return plan, true, nil
	}
	given, errGiven := plan.Encode()
	kept, errKept := known.Plan.Encode()
	return plan, !bytes.Equal(given, kept), errors.Join(errGiven, errKept)
}

func (n *node) pipeline(name string) (router.Pipeline, bool) {
	n.gate.RLock()
	defer n.gate.RUnlock()
	p, ok := n.pipelines[name]
	return p, ok
}

// Accept implements trigger.Inbox for webhooks and dropped files: a delivery never meets a plan that stands in for the
// registered one for the time of one other delivery.
func (n *node) Accept(ctx context.Context, d *trigger.Delivery) (trigger.Receipt, error) {
	n.gate.RLock()
	defer n.gate.RUnlock()
	return n.engine.Accept(ctx, d)
}

// acceptOnce takes a delivery for a plan of its own and leaves what is registered as it was.
func (n *node) acceptOnce(ctx context.Context, plan *events.Plan, d *trigger.Delivery) (trigger.Receipt, error) {
	r := router.Pipeline{Plan: plan, Refusal: refusalOf(plan)}
	n.gate.Lock()
	defer n.gate.Unlock()
	if err := n.engine.Register(r); err != nil {
		return trigger.Receipt{}, &web.ErrStatus{Status: http.StatusUnprocessableEntity, Err: &exitError{exitInvalid, "E_PLAN", err}}
	}
	receipt, err := n.engine.Accept(ctx, d)
	if known, ok := n.pipelines[plan.Pipeline]; ok {
		err = errors.Join(err, n.engine.Register(known))
	}
	return receipt, err
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
