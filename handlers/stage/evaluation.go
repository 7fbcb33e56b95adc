package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
)

// file is a file input: an artifact, or bytes that travelled inside the delivery.
type file struct {
	digest events.Digest
	name   string
	inline []byte // not nil: these bytes
	path   string // where it lies for the stage
	size   int64
	count  int64 // records; -1 when the format has none
}

// dir reports whether the file is a directory, whose artifact is its manifest: its name ends with a slash.
func (f *file) dir() bool { return strings.HasSuffix(f.name, "/") }

// evaluation holds the data that the attempt's expressions see; what came with the trigger is read when one asks.
type evaluation struct {
	ctx       context.Context //nolint:containedctx // of one prepare
	attempt   *Attempt
	artifacts Artifacts
	env       map[string]any
	files     map[string]*file // by digest text: what a file value in an expression stands for
}

// eval gives the value of the inside of a ${{ }}.
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
	if f := e.readStages(src); f != nil {
		return nil, f
	}
	v, err := configs.Eval(src, e.env)
	if err != nil {
		return nil, &events.Failure{Class: events.BadInput, Reason: err.Error()}
	}
	return v, nil
}

// with gives an evaluation that sees more names, as the sides of a reconciliation.
func (e *evaluation) with(names map[string]any) (*evaluation, *events.Failure) {
	if e.env == nil {
		env, f := e.build()
		if f != nil {
			return nil, f
		}
		e.env = env
	}
	more := *e
	more.env = maps.Clone(e.env)
	maps.Copy(more.env, names)
	return &more, nil
}

func (e *evaluation) build() (map[string]any, *events.Failure) {
	env := map[string]any{"params": map[string]any{}}
	if len(e.attempt.Params) > 0 {
		params, err := decodeNumbers(e.attempt.Params)
		if err != nil {
			return nil, cannot(e.ctx, "read the parameters", err)
		}
		env["params"] = params
	}
	env["stages"] = map[string]any{}
	if e.attempt.Facts != nil {
		env["run"] = e.attempt.Facts
	}
	if e.attempt.Item > 0 {
		item, err := e.item(e.attempt.Value)
		if err != nil {
			return nil, cannot(e.ctx, "read the item", err)
		}
		env["item"] = item
	}
	return env, nil
}

// readStages decodes the outputs of the stages that the expression names, each once: what a foreach stage's list came from
// would else be decoded for each of its items.
func (e *evaluation) readStages(src string) *events.Failure {
	stages, _ := e.env["stages"].(map[string]any)
	for name, up := range e.attempt.Upstream {
		if stages[name] != nil || !strings.Contains(src, name) {
			continue
		}
		outputs, err := e.outputsOf(name, up)
		if err != nil {
			return cannot(e.ctx, "read the outputs of "+name, err)
		}
		stages[name] = map[string]any{"outputs": outputs, "state": up.State.String(), "class": string(up.Class), "reason": up.Reason,
			"duration_ms": int(up.Duration.Milliseconds())}
	}
	return nil
}

// outputsOf gives a stage's outputs by role; those of a foreach stage are lists in the order of its items, with null for
// an item that has not completed, and empty when there are no items.
func (e *evaluation) outputsOf(name string, up *Upstream) (map[string]any, error) {
	if !up.Foreach {
		return e.results(up.Results)
	}
	lists := map[string][]any{}
	if up.State == events.Completed {
		for _, role := range declared(e.attempt.Plan, name) {
			lists[role] = make([]any, len(up.Items))
		}
	}
	for i, results := range up.Items {
		one, err := e.results(results)
		if err != nil {
			return nil, err
		}
		for role, v := range one {
			if lists[role] == nil {
				lists[role] = make([]any, len(up.Items))
			}
			lists[role][i] = v
		}
	}
	outputs := make(map[string]any, len(lists))
	for role, list := range lists {
		outputs[role] = list
	}
	return outputs, nil
}

// declared gives the roles that a stage of the plan writes.
func declared(p *events.Plan, name string) (roles []string) {
	for i := range p.Stages {
		if s := &p.Stages[i]; s.Name == name {
			for k := range s.Outputs {
				roles = append(roles, s.Outputs[k].Role)
			}
		}
	}
	return roles
}

func (e *evaluation) results(results []events.Result) (map[string]any, error) {
	outputs := map[string]any{}
	for i := range results {
		r := &results[i]
		if len(r.Value) == 0 {
			outputs[r.Role] = e.fileValue(&file{digest: r.Digest, name: r.Name, size: r.Size, count: r.Records})
			continue
		}
		v, err := decodeNumbers(r.Value)
		if err != nil {
			return nil, err
		}
		outputs[r.Role] = v
	}
	return outputs, nil
}

// fileKey marks an item that is a file: items are recorded as JSON, where a file would look like any map. No other item
// may have the key.
const fileKey = "$file"

func isFileItem(recorded json.RawMessage) bool {
	return bytes.HasPrefix(recorded, []byte(`{"`+fileKey+`":`))
}

// item reads a recorded item.
func (e *evaluation) item(recorded json.RawMessage) (any, error) {
	v, err := decodeNumbers(recorded)
	if err != nil {
		return nil, err
	}
	if m, ok := v.(map[string]any); ok && m[fileKey] != nil {
		var marked struct {
			File events.Result `json:"$file"`
		}
		if err := json.Unmarshal(recorded, &marked); err != nil {
			return nil, err
		}
		r := &marked.File
		return e.fileValue(&file{digest: r.Digest, name: r.Name, size: r.Size, count: r.Records}), nil
	}
	return v, nil
}

// recordItem gives an item as it is recorded.
func (e *evaluation) recordItem(v any) (any, error) {
	if f := e.fileOf(v); f != nil {
		return map[string]any{fileKey: events.Result{Digest: f.digest, Size: f.size, Records: f.count, Name: f.name}}, nil
	}
	if m, ok := v.(map[string]any); ok && m[fileKey] != nil {
		return nil, fmt.Errorf("E_FOREACH: an item has the key %s, which marks files", fileKey)
	}
	return v, nil
}

// fileValue is how a file looks to an expression.
func (e *evaluation) fileValue(f *file) map[string]any {
	key := f.digest.String()
	e.files[key] = f
	return map[string]any{"digest": key, "size": f.size, "records": f.count, "path": f.name, "name": f.name}
}

// fileOf gives the file that a value of an expression stands for, or nil. Two files with the same bytes differ only in
// their names, and the value has that.
func (e *evaluation) fileOf(v any) *file {
	m, _ := v.(map[string]any)
	digest, _ := m["digest"].(string)
	known := e.files[digest]
	name, named := m["name"].(string)
	if known == nil || !named || len(m) != 5 {
		return nil
	}
	f := *known
	f.name = name
	return &f
}

// filesOf gives the files that a list stands for, with nil for null, or nil when the value is no list of files.
func (e *evaluation) filesOf(v any) []*file {
	list, _ := v.([]any)
	files, some := make([]*file, len(list)), false
	for i, one := range list {
		if one == nil {
			continue
		}
		if files[i] = e.fileOf(one); files[i] == nil {
			return nil
		}
		some = true
	}
	if !some {
		return nil
	}
	return files
}

// trigger is what the delivery brought: body, payload, file, headers, time, delivery.
func (e *evaluation) trigger() (map[string]any, *events.Failure) {
	d, err := e.attempt.Delivery(e.ctx)
	if err != nil {
		return nil, cannot(e.ctx, "read what the trigger brought", err)
	}
	headers := map[string]any{}
	for _, h := range d.Headers {
		headers[h.Name] = h.Value
	}
	t := map[string]any{"headers": headers, "time": e.attempt.Logical.UTC().Format(time.RFC3339Nano), "delivery": e.attempt.From.String(),
		"payload": nil, "file": nil, "body": nil}
	if d.File != "" {
		t["file"] = e.fileValue(&file{digest: d.Blob, name: d.File, size: d.Size, count: -1})
		return t, nil
	}
	body := &file{digest: d.Blob, name: "body", size: d.Size, count: -1}
	if d.Blob.IsZero() {
		body.inline, body.digest = append([]byte{}, d.Body...), events.DigestOf(d.Body)
	}
	t["body"] = e.fileValue(body)
	content, err := e.content(body)
	if err != nil {
		return nil, cannot(e.ctx, "read the body of the delivery", err)
	}
	t["payload"] = payload(content, headers)
	return t, nil
}

// content reads a body whole; a trigger bounds how long one may be.
func (e *evaluation) content(body *file) ([]byte, error) {
	if body.inline != nil {
		return body.inline, nil
	}
	r, err := e.artifacts.Get(body.digest)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}

// payload parses a body: JSON, or JSON in the field payload of a form. What is neither is nil.
func payload(body []byte, headers map[string]any) any {
	for name, value := range headers {
		if strings.EqualFold(name, "content-type") && strings.HasPrefix(fmt.Sprint(value), "application/x-www-form-urlencoded") {
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
