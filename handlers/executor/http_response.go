package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apollo-11/apollo/events"
)

const (
	proofSize = 16 << 10  // bytes of an unexpected answer's body that become evidence
	drainSize = 256 << 10 // bytes of a body that nobody wants which are read, so that the connection can be used again
)

// receive turns the answer into the outputs.
func (x *exchange) receive(ctx context.Context, resp *http.Response) *events.Failure {
	if !x.expects(resp.StatusCode) {
		return x.unexpected(ctx, resp)
	}
	head, failure := x.takeBody(ctx, resp)
	if failure != nil {
		return failure
	}
	values := map[string]json.RawMessage{}
	for i := range x.call.Outputs {
		o := &x.call.Outputs[i]
		switch {
		case o.Path != "":
		case o.Role == "status":
			values[o.Role] = json.RawMessage(strconv.Itoa(resp.StatusCode))
		case o.Role == "headers":
			values[o.Role] = encodeText(x.headerValues(resp.Header))
		case o.Role == "body":
			value, failure := x.bodyValue(o, resp, head)
			if failure != nil {
				return failure
			}
			if value != nil {
				values[o.Role] = value
			}
		}
	}
	size := 0
	for _, value := range values {
		size += len(value)
	}
	if size > maxOutputs {
		return &events.Failure{Class: events.BadOutput, Pointer: "/outputs", Expected: fmt.Sprintf("at most %d bytes", maxOutputs), Actual: fmt.Sprintf("%d bytes", size),
			Reason: "E_HTTP_VALUE: the values of the answer are too large; a file output has no such limit"}
	}
	x.result.Values = values
	return nil
}

func (x *exchange) expects(status int) bool {
	if len(x.settings.Expect) > 0 {
		return slices.Contains(x.settings.Expect, status)
	}
	return status >= 200 && status <= 299
}

// unexpected keeps the head of the body as evidence, as far as it comes soon.
func (x *exchange) unexpected(ctx context.Context, resp *http.Response) *events.Failure {
	timer := time.AfterFunc(x.http.proof, func() { resp.Body.Close() })
	head, err := io.ReadAll(io.LimitReader(resp.Body, proofSize))
	timer.Stop()
	x.received = int64(len(head))
	if cause := x.stopped(ctx); cause != nil {
		return cause
	}
	x.result.Evidence = x.maskedPart(head, err == nil && len(head) < proofSize)
	actual, expected := shownStatus(resp.StatusCode), "200 to 299"
	if len(x.settings.Expect) > 0 {
		expected = strings.Trim(strings.Join(strings.Fields(fmt.Sprint(x.settings.Expect)), ", "), "[]")
	}
	reason := fmt.Sprintf("E_HTTP_STATUS: %s %s was answered %s, and %s was expected", x.hop.Method, x.address(x.hop.URL), actual, expected)
	if wait, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
		reason += fmt.Sprintf("; it asks to wait %s", wait)
	}
	return &events.Failure{Class: events.ExecFailed, Pointer: events.StatusPointer, Expected: expected, Actual: actual, Reason: reason}
}

// retryAfter reads the header of that name, seconds or a date, as a wait of at most an hour.
func retryAfter(text string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, time.Hour), true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), time.Hour).Round(time.Second), true
}

// takeBody streams the body into the file output, and keeps its beginning when it is wanted as a value. A body that no
// output takes is no part of the result: whether it comes whole makes no difference.
func (x *exchange) takeBody(ctx context.Context, resp *http.Response) (head []byte, failure *events.Failure) {
	var file, value *events.Output
	for i := range x.call.Outputs {
		switch o := &x.call.Outputs[i]; {
		case o.Path != "":
			file = o
		case o.Role == "body":
			value = o
		}
	}
	limit := x.settings.MaxBody
	if limit <= 0 {
		limit = maxBody
	}
	begin := &headWriter{limit: maxOutputs + 1}
	body := &steadyReader{Reader: resp.Body, limit: x.http.stall, late: x.stalled}
	switch {
	case file == nil && value == nil:
		x.received, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, drainSize))
		return nil, nil
	case file == nil:
		limit = min(limit, maxOutputs)
		n, err := io.Copy(begin, io.LimitReader(body, limit+1))
		x.cut = n > limit
		return begin.kept, x.taken(ctx, resp, value, n, limit, err)
	}
	if resp.ContentLength > limit && resp.Request.Method != http.MethodHead {
		return nil, tooLarge(file, resp.ContentLength, limit)
	}
	part, err := newPartFile(filepath.Join(x.call.Dir, "out"), file.Path)
	if err != nil {
		return nil, systemFailure("make the file of the output "+file.Role, err)
	}
	defer part.discard()
	n, err := io.Copy(io.MultiWriter(part, begin), io.LimitReader(body, limit+1))
	x.cut = n > maxOutputs
	if part.err != nil {
		return nil, systemFailure("write the output "+file.Role, part.err)
	}
	if failure := x.taken(ctx, resp, file, n, limit, err); failure != nil {
		return nil, failure
	}
	if err := part.keep(); err != nil {
		return nil, systemFailure("write the output "+file.Role, err)
	}
	return begin.kept, nil
}

// taken says what was wrong with a body of which n bytes came.
func (x *exchange) taken(ctx context.Context, resp *http.Response, o *events.Output, n, limit int64, err error) *events.Failure {
	x.received = n
	switch cause := x.stopped(ctx); {
	case err != nil && cause != nil:
		cause.Actual = fmt.Sprintf("%d bytes of the answer had come", n)
		return cause
	case err != nil:
		expected := "the whole body"
		if resp.ContentLength >= 0 {
			expected = fmt.Sprintf("%d bytes", resp.ContentLength)
		}
		return &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role, Expected: expected, Actual: fmt.Sprintf("%d bytes", n),
			Reason: fmt.Sprintf("E_HTTP_BROKEN: the answer broke off after %d bytes: %s", n, x.shortText(err))}
	case n > limit && (o.Path != "" || !o.Optional):
		return tooLarge(o, max(n, resp.ContentLength), limit)
	}
	return nil
}

func tooLarge(o *events.Output, size, limit int64) *events.Failure {
	failure := &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role, Expected: fmt.Sprintf("at most %d bytes", limit),
		Actual: fmt.Sprintf("%d bytes or more", size), Reason: fmt.Sprintf("E_HTTP_SIZE: the answer is larger than max_body, %d bytes", limit)}
	if o.Path == "" {
		failure.Reason = fmt.Sprintf("E_HTTP_SIZE: the answer is too large for a value, of which %d bytes are taken; an output with a path takes more", limit)
	}
	return failure
}

// headerValues gives the answer's headers by their names in lower case. Cookies are left out: they are credentials.
func (x *exchange) headerValues(header http.Header) map[string]string {
	values := map[string]string{}
	for name, list := range header {
		if lower := strings.ToLower(name); lower != "set-cookie" && lower != "set-cookie2" {
			values[lower] = x.masked(strings.ToValidUTF8(strings.Join(list, ", "), "\uFFFD"))
		}
	}
	return values
}

// bodyValue parses a body that says it is JSON, and takes any other as text. Secrets that the server repeats are masked,
// since values are kept in events.
func (x *exchange) bodyValue(o *events.Output, resp *http.Response, body []byte) (json.RawMessage, *events.Failure) {
	bad := func(expected, why string) *events.Failure {
		return &events.Failure{Class: events.BadOutput, Pointer: "/outputs/" + o.Role, Expected: expected, Actual: why,
			Reason: fmt.Sprintf("E_HTTP_VALUE: the body of the answer is not %s: %s", expected, why)}
	}
	if x.cut {
		if o.Optional {
			return nil, nil
		}
		return nil, tooLarge(o, x.received, maxOutputs)
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if !utf8.Valid(body) {
		return nil, bad("text in UTF-8", "other bytes; an output with a path takes them")
	}
	text := x.masked(string(body))
	if !isJSON(resp.Header.Get("Content-Type")) {
		return encodeText(text), nil
	}
	if strings.TrimSpace(text) == "" {
		return json.RawMessage("null"), nil
	}
	w := strictJSON{dec: json.NewDecoder(strings.NewReader(text))}
	w.dec.UseNumber()
	if at, err := w.document(); err != nil {
		failure := bad("strict JSON", x.shortText(err))
		failure.Pointer += at
		return nil, failure
	}
	return json.RawMessage(text), nil
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)) && (kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json"))
}

// encodeText writes texts as JSON without more escapes than it needs.
func encodeText(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) //nolint:errchkjson // texts always have a JSON form
	return bytes.TrimSpace(b.Bytes())
}

// headWriter keeps the beginning of what is written.
type headWriter struct {
	limit int
	kept  []byte
}

func (w *headWriter) Write(p []byte) (int, error) {
	w.kept = append(w.kept, p[:min(len(p), w.limit-len(w.kept))]...)
	return len(p), nil
}

// steadyReader calls late when a read brings nothing for too long.
type steadyReader struct {
	io.Reader
	limit time.Duration
	late  func()
}

func (r *steadyReader) Read(p []byte) (int, error) {
	timer := time.AfterFunc(r.limit, r.late)
	defer timer.Stop()
	return r.Reader.Read(p)
}

// partFile is an output that has its name only once it is whole.
type partFile struct {
	root       *os.Root
	file       *os.File
	temp, name string
	err        error // of a write
}

func newPartFile(dir, name string) (*partFile, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	p := &partFile{root: root, name: name, temp: path.Join(path.Dir(name), "."+path.Base(name)+".part")}
	if err = root.MkdirAll(path.Dir(name), 0o700); err == nil {
		p.file, err = root.OpenFile(p.temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return p, nil
}

// Write implements io.Writer, and remembers that it was the writing which failed.
func (p *partFile) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.err = err
	return n, err
}

func (p *partFile) keep() error {
	return errors.Join(p.file.Close(), p.root.Rename(p.temp, p.name))
}

// discard removes what was not kept.
func (p *partFile) discard() {
	_ = p.file.Close()        // of a kept one it fails
	_ = p.root.Remove(p.temp) // likewise
	_ = p.root.Close()        // a directory
}
