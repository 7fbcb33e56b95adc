package executor

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// ByHand is an executor that starts no program of the stage's own on this machine, and can say what a person types to have
// the same done. What it gives holds the secrets of the call.
type ByHand interface {
	ByHand(ctx context.Context, c *Call) (*Manual, *events.Failure)
}

// Manual is a command for a person's shell.
type Manual struct {
	Args  []string // with the program at 0
	Env   []string // the whole environment as NAME=value; nil is the person's own
	Input string   // for its standard input; empty is nothing
}

// Builder is an executor that may have to build something before an attempt can start, which Describe never does.
type Builder interface {
	// Built reports whether what the call needs is there.
	Built(ctx context.Context, c *Call) (bool, *events.Failure)
	// Build makes it. log is what the builder said, when it failed.
	Build(ctx context.Context, c *Call) (log string, failure *events.Failure)
}

// Built implements Builder: the environment of the lock.
func (p *Python) Built(ctx context.Context, c *Call) (bool, *events.Failure) {
	t, failure := p.plan(ctx, c, false)
	if failure != nil {
		return false, failure
	}
	dir, locked := t.call.Env["VIRTUAL_ENV"]
	return !locked || usable(dir), nil
}

// Build implements Builder.
func (p *Python) Build(ctx context.Context, c *Call) (log string, failure *events.Failure) {
	t, failure := p.plan(ctx, c, true)
	return t.log, failure
}

// ByHand implements ByHand: the request as curl makes it.
func (h *HTTP) ByHand(ctx context.Context, c *Call) (*Manual, *events.Failure) {
	x := &exchange{http: h, call: c, result: new(Result)}
	if failure := decodeSettings(c.With, &x.settings); failure != nil {
		return nil, failure
	}
	secrets := x.settings.SecretQuery // curl encodes what it adds to the query itself
	x.settings.SecretQuery = nil
	req, failure := x.newRequest(ctx)
	if failure != nil {
		return nil, failure
	}
	if req.Body != nil {
		defer req.Body.Close()
	}
	args := []string{"curl", "--fail-with-body", "--location", "--max-redirs", strconv.Itoa(maxRedirects)}
	if req.Method == http.MethodHead {
		args = append(args, "--head")
	} else {
		args = append(args, "--request", req.Method)
	}
	if c.Timeout > 0 {
		args = append(args, "--max-time", strconv.FormatFloat(c.Timeout.Seconds(), 'f', -1, 64))
	}
	if auth := x.settings.Auth; auth != nil && auth.Basic != nil {
		password, failure := x.secretOf(auth.Basic.Password)
		if failure != nil {
			return nil, failure
		}
		req.Header.Del("Authorization")
		args = append(args, "--user", textOf(auth.Basic.User)+":"+password)
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		value, failure := x.secretOf(secrets[name])
		if failure != nil {
			return nil, failure
		}
		args = append(args, "--url-query", name+"="+value)
	}
	for _, header := range sortedHeaders(req.Header) {
		args = append(args, "--header", header)
	}
	switch {
	case x.settings.BodyFrom != "" && c.Inputs[x.settings.BodyFrom].Path != "":
		args = append(args, "--data-binary", "@"+c.Inputs[x.settings.BodyFrom].Path)
	case req.Body != nil:
		content, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, systemFailure("read the body of the request", err)
		}
		args = append(args, "--data-raw", string(content))
	}
	return &Manual{Args: append(args, req.URL.String())}, nil
}

// sortedHeaders gives headers as lines.
func sortedHeaders(header http.Header) []string {
	var text strings.Builder
	if err := header.Write(&text); err != nil { // a builder takes everything
		return nil
	}
	return strings.FieldsFunc(text.String(), func(r rune) bool { return r == '\r' || r == '\n' })
}

// ByHand implements ByHand: the container as the command line of its engine makes it. The directories that it works in are
// made.
func (x *Container) ByHand(ctx context.Context, c *Call) (*Manual, *events.Failure) {
	var settings containerSettings
	if failure := decodeSettings(c.With, &settings); failure != nil {
		return nil, failure
	}
	about, err := x.engine.hello(ctx)
	program := "docker"
	if err == nil && about.podman {
		program = "podman"
	}
	config, failure := x.configure(c, &settings, settings.Image, about)
	if failure != nil {
		return nil, failure
	}
	host := &config.HostConfig
	args := []string{program, "run", "--rm", "--network", host.NetworkMode, "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--pids-limit", strconv.Itoa(maxPids), "--user", config.User, "--hostname", config.Hostname, "--workdir", config.WorkingDir}
	if host.UsernsMode != "" {
		args = append(args, "--userns", host.UsernsMode)
	}
	if settings.Pull != "" {
		args = append(args, "--pull", settings.Pull)
	}
	if host.Memory > 0 {
		args = append(args, "--memory", strconv.FormatInt(host.Memory, 10), "--memory-swap", strconv.FormatInt(host.MemorySwap, 10))
	}
	if host.NanoCpus > 0 {
		args = append(args, "--cpus", strconv.FormatFloat(float64(host.NanoCpus)/1e9, 'f', -1, 64))
	}
	for _, m := range host.Mounts {
		bind := "type=bind,source=" + m.Source + ",target=" + m.Target
		if m.ReadOnly {
			bind += ",readonly"
		}
		args = append(args, "--mount", bind)
	}
	for _, variable := range config.Env {
		args = append(args, "--env", variable)
	}
	rest := config.Cmd
	if len(config.Entrypoint) > 0 { // the command line takes one word; what is handed on comes before the command
		args = append(args, "--entrypoint", config.Entrypoint[0])
		rest = slices.Concat(config.Entrypoint[1:], config.Cmd)
	}
	return &Manual{Args: append(append(args, settings.Image), rest...)}, nil
}
