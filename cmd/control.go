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
	d.Key, d.Sample, d.Logical, d.Seed, d.Fresh = r.Key, r.Sample, r.AsOf, r.Seed, r.NoCache
	if len(resolved) > 0 {
		if d.Params, err = json.Marshal(resolved); err != nil {
			return trigger.Receipt{}, err
		}
	}
	if err := n.attach(ctx, plan, d, r); err != nil {
		return trigger.Receipt{}, err
	}
	if own {
		d.Plan, d.Refused = plan, refusalOf(plan)
	}
	receipt, err := n.engine.Accept(ctx, d)
	if errors.Is(err, router.ErrPlan) {
		err = &web.ErrStatus{Status: http.StatusUnprocessableEntity, Err: &exitError{exitInvalid, "E_PLAN", err}}
	}
	return receipt, err
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

// planFor gives the plan that came with a request, which is the run's own then, or the registered one.
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
	return plan, true, nil
}

func (n *node) pipeline(name string) (router.Pipeline, bool) {
	n.naming.Lock()
	defer n.naming.Unlock()
	p, ok := n.pipelines[name]
	return p, ok
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
