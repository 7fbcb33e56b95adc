package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
}

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
			return nil, cannot(e.ctx, "read the parameters", err)
		}
		env["params"] = params
	}
	stages := map[string]any{}
	for name, results := range e.attempt.Upstream {
		outputs := map[string]any{}
		for i := range results {
			r := &results[i]
			if len(r.Value) == 0 {
				outputs[r.Role] = e.fileValue(&file{digest: r.Digest, name: r.Name}, r.Size, r.Records)
				continue
			}
			v, err := decodeNumbers(r.Value)
			if err != nil {
				return nil, cannot(e.ctx, "read the output "+name+"."+r.Role, err)
			}
			outputs[r.Role] = v
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
		t["file"] = e.fileValue(&file{digest: d.Blob, name: d.File}, d.Size, -1)
		return t, nil
	}
	body := &file{digest: d.Blob, name: "body"}
	if d.Blob.IsZero() {
		body.inline, body.digest = append([]byte{}, d.Body...), events.DigestOf(d.Body)
	}
	t["body"] = e.fileValue(body, d.Size, -1)
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
