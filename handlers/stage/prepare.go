package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
	"github.com/apollo-11/apollo/handlers/executor"
)

// file is a file input: an artifact, or bytes that travelled inside the delivery.
type file struct {
	digest events.Digest
	name   string
	inline []byte
	path   string // where it lies for the stage
}

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }

// prepare turns the plan's inputs, parameters, environment and secrets into what the executor gets.
func prepare(ctx context.Context, s *Steps, w *work) *events.Failure {
	a, c := w.Attempt, &w.call
	c.Run, c.Pipeline, c.Stage, c.Attempt = a.Run, a.Plan.Pipeline, a.Stage.Name, a.Number
	c.Key = a.Run.String() + "/" + a.Stage.Name
	c.Dir, c.LogDir = s.attemptDirs(a)
	c.With, c.Timeout, c.Grace, c.Started = a.Stage.With, a.Stage.Timeout, a.Stage.Grace, a.Started
	c.LogicalTime, c.Seed = logical(a), seed(a)
	if len(a.Params) > 0 {
		if err := json.Unmarshal(a.Params, &c.Params); err != nil {
			return systemFailure("read the parameters", err)
		}
	}
	if len(a.Stage.Inputs)+len(a.Stage.Env)+len(a.Stage.Secrets) == 0 {
		return nil
	}
	e := &evaluation{ctx: ctx, attempt: a, files: map[string]*file{}}
	if f := w.prepareInputs(ctx, s, e); f != nil {
		return f
	}
	if f := w.prepareEnv(e); f != nil {
		return f
	}
	return w.prepareSecrets(s)
}

func (w *work) prepareInputs(ctx context.Context, s *Steps, e *evaluation) *events.Failure {
	w.call.Inputs = make(map[string]executor.Input, len(w.Stage.Inputs))
	for i := range w.Stage.Inputs {
		in := &w.Stage.Inputs[i]
		if !in.Expr {
			text, _ := json.Marshal(in.From)
			w.call.Inputs[in.Role] = executor.Input{Value: text}
			continue
		}
		v, f := e.eval(in.From)
		if f != nil {
			f.Pointer = "/inputs/" + in.Role
			return f
		}
		if m, ok := v.(map[string]any); ok && e.isFile(m) {
			if f := w.place(ctx, s, in.Role, e.file(m)); f != nil {
				return f
			}
			continue
		}
		value, err := json.Marshal(v)
		if err != nil {
			return &events.Failure{Class: events.BadInput, Pointer: "/inputs/" + in.Role, Reason: fmt.Sprintf("the input is no value: %v", err)}
		}
		w.call.Inputs[in.Role] = executor.Input{Value: value}
	}
	return nil
}

// place puts a file input, read-only, into in/<role>/<name>.
func (w *work) place(ctx context.Context, s *Steps, role string, f *file) *events.Failure {
	dir := filepath.Join(w.call.Dir, "in", role)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return systemFailure("make the input directory", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return systemFailure("open the input directory", err)
	}
	defer root.Close()
	name := safeName(f.name)
	if f.inline != nil || f.digest.IsZero() {
		err = root.WriteFile(name, f.inline, 0o400)
	} else {
		err = s.Artifacts.CopyTo(ctx, f.digest, root, name)
	}
	if err != nil {
		return systemFailure("place the input "+role, err)
	}
	placed := *f
	placed.path = filepath.Join(dir, name)
	if w.inputs == nil {
		w.inputs = map[string]*file{}
	}
	w.inputs[role] = &placed
	w.call.Inputs[role] = executor.Input{Path: placed.path}
	return nil
}

// safeName keeps a dropped file's own name for the stage unless it could mean something else to a shell or a path.
func safeName(name string) string {
	ext := filepath.Ext(name)
	plain := func(s string) bool {
		return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" && s[0] != '-' && s[0] != '.'
	}
	switch {
	case plain(name) && len(name) <= 128:
		return name
	case len(ext) > 1 && len(ext) <= 16 && plain(ext[1:]):
		return "data" + ext
	}
	return "data"
}

func (w *work) prepareEnv(e *evaluation) *events.Failure {
	if len(w.Stage.Env) == 0 {
		return nil
	}
	w.call.Env = make(map[string]string, len(w.Stage.Env))
	for name, text := range w.Stage.Env {
		if src, ok := configs.Expression(text); ok {
			v, f := e.eval(src)
			if f != nil {
				f.Pointer = "/env/" + name
				return f
			}
			formatted, err := configs.FormatValue(v)
			if err != nil {
				return &events.Failure{Class: events.BadInput, Pointer: "/env/" + name, Reason: err.Error()}
			}
			text = formatted
		}
		w.call.Env[name] = text
	}
	return nil
}

func (w *work) prepareSecrets(s *Steps) *events.Failure {
	if len(w.Stage.Secrets) == 0 {
		return nil
	}
	w.call.Secrets = make(map[string]string, len(w.Stage.Secrets))
	for name, ref := range w.Stage.Secrets {
		value, err := s.Secrets(ref)
		if err != nil {
			return &events.Failure{Class: events.BadInput, Pointer: "/secrets/" + name, Reason: err.Error()}
		}
		w.call.Secrets[name] = value
	}
	return nil
}

// evaluation holds the data that the attempt's expressions see; what came with the trigger is read when one asks.
type evaluation struct {
	ctx     context.Context //nolint:containedctx // of one prepare
	attempt *Attempt
	env     map[string]any
	files   map[string]*file // by digest text: what a file value in an expression stands for
}

func (e *evaluation) eval(src string) (any, *events.Failure) {
	if e.env == nil {
		env, f := e.build()
		if f != nil {
			return nil, f
		}
		e.env = env
	}
	if _, has := e.env["trigger"]; !has && strings.Contains(src, "trigger") {
		trigger, f := e.trigger()
		if f != nil {
			return nil, f
		}
		e.env["trigger"] = trigger
	}
	v, err := configs.Eval(src, e.env)
	if err != nil {
		return nil, &events.Failure{Class: events.BadInput, Reason: err.Error()}
	}
	return v, nil
}

func (e *evaluation) build() (map[string]any, *events.Failure) {
	env := map[string]any{"params": map[string]any{}}
	if len(e.attempt.Params) > 0 {
		params, err := decodeNumbers(e.attempt.Params)
		if err != nil {
			return nil, systemFailure("read the parameters", err)
		}
		env["params"] = params
	}
	stages := map[string]any{}
	for name, results := range e.attempt.Upstream {
		outputs := map[string]any{}
		for i := range results {
			r := &results[i]
			if len(r.Value) > 0 {
				v, err := decodeNumbers(r.Value)
				if err != nil {
					return nil, systemFailure("read the output "+name+"."+r.Role, err)
				}
				outputs[r.Role] = v
				continue
			}
			outputs[r.Role] = e.fileValue(&file{digest: r.Digest, name: r.Name}, r.Size, r.Records)
		}
		stages[name] = map[string]any{"outputs": outputs}
	}
	env["stages"] = stages
	return env, nil
}

// fileValue is how a file looks to an expression.
func (e *evaluation) fileValue(f *file, size, records int64) map[string]any {
	key := f.digest.String()
	e.files[key] = f
	return map[string]any{"digest": key, "size": size, "records": records, "path": f.name, "name": f.name}
}

func (e *evaluation) isFile(m map[string]any) bool { return e.file(m) != nil && len(m) == 5 }

func (e *evaluation) file(m map[string]any) *file {
	digest, _ := m["digest"].(string)
	return e.files[digest]
}

// trigger is what the delivery brought: body, payload, file, headers, time, delivery.
func (e *evaluation) trigger() (map[string]any, *events.Failure) {
	d, err := e.attempt.Delivery(e.ctx)
	if err != nil {
		return nil, systemFailure("read what the trigger brought", err)
	}
	headers := map[string]any{}
	for _, h := range d.Headers {
		headers[h.Name] = h.Value
	}
	t := map[string]any{"headers": headers, "time": e.attempt.Logical.Format(time.RFC3339Nano), "delivery": e.attempt.From.String(),
		"payload": nil, "file": nil, "body": nil}
	if d.File != "" {
		t["file"] = e.fileValue(&file{digest: d.Blob, name: d.File}, d.Size, -1)
		return t, nil
	}
	body := &file{digest: d.Blob, name: "body"}
	if d.Blob.IsZero() {
		body.inline, body.digest = append([]byte{}, d.Body...), events.DigestOf(d.Body)
	}
	t["body"] = e.fileValue(body, d.Size, -1)
	if len(d.Body) > 0 {
		t["payload"] = payload(d.Body, headers)
	}
	return t, nil
}

// payload parses a body: JSON, or JSON in the field payload of a form. What is neither is nil.
func payload(body []byte, headers map[string]any) any {
	for name, value := range headers {
		if text, ok := value.(string); ok && strings.EqualFold(name, "content-type") && strings.HasPrefix(text, "application/x-www-form-urlencoded") {
			form, err := url.ParseQuery(string(body))
			if err != nil {
				return nil
			}
			body = []byte(form.Get("payload"))
		}
	}
	v, err := contract.DecodeStrict(body)
	if err != nil {
		return nil
	}
	return v
}

func decodeNumbers(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return v, d.Decode(&v)
}
