package executor

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

// maxRedirects is how many redirects are followed.
const maxRedirects = 10

// idempotencyKey is written in lower case, which is the same header: net/http takes its usual spelling for a permission
// to send a request again by itself, and no attempt may be hidden in another.
const idempotencyKey = "idempotency-key"

// newRequest makes the request of the settings.
func (x *exchange) newRequest(ctx context.Context) (*http.Request, *events.Failure) {
	s := &x.settings
	if s.Method == "" {
		s.Method = http.MethodGet
	}
	u, err := configs.ParseURL(textOf(s.URL))
	if err != nil {
		return nil, badRequest("/url", "E_URL: "+err.Error())
	}
	if failure := x.addQuery(u); failure != nil {
		return nil, failure
	}
	req, err := http.NewRequestWithContext(ctx, s.Method, u.String(), nil)
	if err != nil {
		return nil, badRequest("", "the request cannot be made: "+x.shortText(err))
	}
	if failure := x.addBody(req); failure != nil {
		return nil, failure
	}
	if failure := x.addHeaders(req.Header); failure != nil {
		return nil, failure
	}
	return req, x.addSecrets(req)
}

func badRequest(pointer, reason string) *events.Failure {
	return &events.Failure{Class: events.BadInput, Pointer: pointer, Reason: reason}
}

// addQuery appends to the address's own query, which stays as it is written.
func (x *exchange) addQuery(u *url.URL) *events.Failure {
	added := url.Values{}
	for name, raw := range x.settings.Query {
		if string(raw) != "null" {
			added.Set(name, textOf(raw))
		}
	}
	for name, variable := range x.settings.SecretQuery {
		value, failure := x.secretOf(variable)
		if failure != nil {
			return failure
		}
		added.Set(name, value)
	}
	if text := added.Encode(); text != "" {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+text, "&")
	}
	return nil
}

func (x *exchange) secretOf(variable string) (string, *events.Failure) {
	value, ok := x.call.Secrets[variable]
	if !ok {
		return "", badRequest("/secrets/"+variable, fmt.Sprintf("E_SECRET: the stage has no secret %q", variable))
	}
	return value, nil
}

func (x *exchange) addHeaders(header http.Header) *events.Failure {
	header.Set("User-Agent", x.http.agent)
	switch x.settings.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		if x.call.Key != "" {
			header[idempotencyKey] = []string{x.call.Key}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.settings.Headers)) {
		raw := x.settings.Headers[name]
		if string(raw) == "null" {
			continue
		}
		if failure := setHeader(header, name, textOf(raw)); failure != nil {
			return failure
		}
	}
	return nil
}

func setHeader(header http.Header, name, value string) *events.Failure {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return badRequest("/headers/"+name, "E_HTTP_HEADER: the value of the header "+name+" holds a line break or another control character")
	}
	if strings.EqualFold(name, idempotencyKey) {
		header[idempotencyKey] = []string{value}
	} else {
		header.Set(name, value)
	}
	return nil
}

// addSecrets adds the headers that only the host of the address may see.
func (x *exchange) addSecrets(req *http.Request) *events.Failure {
	x.secret = []string{"Authorization", "Cookie"}
	values := map[string]string{}
	for name, variable := range x.settings.SecretHeaders {
		value, failure := x.secretOf(variable)
		if failure != nil {
			return failure
		}
		values[name] = value
	}
	if auth := x.settings.Auth; auth != nil {
		value, failure := x.authorization(auth)
		if failure != nil {
			return failure
		}
		values["Authorization"] = value
	}
	for name, value := range values {
		x.secret = append(x.secret, name)
		if failure := setHeader(req.Header, name, value); failure != nil {
			return failure
		}
	}
	return nil
}

func (x *exchange) authorization(auth *httpAuth) (string, *events.Failure) {
	if auth.Basic == nil {
		token, failure := x.secretOf(auth.Bearer)
		return "Bearer " + token, failure
	}
	password, failure := x.secretOf(auth.Basic.Password)
	return "Basic " + basicCredentials(textOf(auth.Basic.User), password), failure
}

func basicCredentials(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}

// hide lists what texts and logs must not show: every secret of the stage, and the forms in which it travels.
func (x *exchange) hide() {
	x.hidden = map[string]string{}
	for name, value := range x.call.Secrets {
		inJSON, _ := json.Marshal(value) //nolint:errchkjson // a text always has a JSON form
		x.hidden[name] = value
		x.hidden[name+" query"] = url.QueryEscape(value)
		x.hidden[name+" path"] = url.PathEscape(value)
		x.hidden[name+" paths"] = (&url.URL{Path: "/" + value}).EscapedPath()[1:]
		for kind, quoted := range map[string]string{" quoted": strconv.Quote(value), " JSON": string(inJSON), " slashes": strings.ReplaceAll(string(inJSON), "/", `\/`)} {
			x.hidden[name+kind] = quoted[1 : len(quoted)-1]
		}
		if auth := x.settings.Auth; auth != nil && auth.Basic != nil && auth.Basic.Password == name {
			x.hidden[name+" basic"] = basicCredentials(textOf(auth.Basic.User), value)
		}
	}
}

// masked hides the secrets in a whole text.
func (x *exchange) masked(text string) string { return x.maskedPart([]byte(text), true) }

// maskedPart hides the secrets in a text. Unless it is whole, an end that may be the beginning of a secret is left out.
func (x *exchange) maskedPart(text []byte, whole bool) string {
	m := newMasker(x.hidden)
	if m == nil {
		return string(text)
	}
	shown := bytes.Clone(m.mask(text))
	if whole {
		shown = append(shown, m.flush()...)
	}
	return string(shown)
}

// addBody gives the request its body, in a way that it can be read again for a redirect that keeps it.
func (x *exchange) addBody(req *http.Request) *events.Failure {
	s := &x.settings
	var kind string
	var open func() (io.ReadCloser, error)
	var size int64
	switch {
	case s.BodyFrom != "":
		in, ok := x.call.Inputs[s.BodyFrom]
		if !ok {
			return badRequest("/body_from", fmt.Sprintf("the input %q is missing", s.BodyFrom))
		}
		if in.Path == "" {
			kind, open, size = inlineBody(in.Value)
			break
		}
		info, err := os.Stat(in.Path)
		if err != nil {
			return systemFailure("open the input "+s.BodyFrom, err)
		}
		kind, size = "application/octet-stream", info.Size()
		open = func() (io.ReadCloser, error) { return os.Open(in.Path) }
	case len(s.Body) > 0 && string(s.Body) != "null":
		kind, open, size = inlineBody(s.Body)
	default:
		return nil
	}
	req.Header.Set("Content-Type", kind)
	if req.ContentLength = size; size == 0 {
		req.Body, req.GetBody = http.NoBody, func() (io.ReadCloser, error) { return http.NoBody, nil }
		return nil
	}
	var err error
	if req.Body, err = open(); err != nil {
		return systemFailure("open the body of the request", err)
	}
	req.GetBody = open
	return nil
}

// inlineBody sends text as it is, and anything else as JSON.
func inlineBody(raw json.RawMessage) (kind string, open func() (io.ReadCloser, error), size int64) {
	kind, content := "application/json", []byte(raw)
	if bytes.HasPrefix(raw, []byte{'"'}) {
		kind, content = "text/plain; charset=utf-8", []byte(textOf(raw))
	}
	return kind, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }, int64(len(content))
}

// redirect decides whether the next hop is made, and what it may see. The guard looks at its address when it is dialled.
func (x *exchange) redirect(req *http.Request, via []*http.Request) error {
	status := req.Response.StatusCode
	if slices.Contains(x.settings.Expect, status) {
		return http.ErrUseLastResponse
	}
	before := via[len(via)-1]
	x.note(before.Method, before.URL, shownStatus(status)+", to "+x.address(req.URL))
	if _, err := configs.ParseURL(req.URL.String()); err != nil {
		return redirectFailure(fmt.Sprintf("%s redirects to an address that is not followed: %v", before.URL.Host, err))
	}
	switch {
	case len(via) > maxRedirects:
		return redirectFailure(fmt.Sprintf("more than %d redirects", maxRedirects))
	case before.URL.Scheme == "https" && req.URL.Scheme != "https":
		return redirectFailure(fmt.Sprintf("%s redirects from https to http, to %s", before.URL.Host, req.URL.Host))
	}
	x.hop = req
	req.Header.Del("Referer") // it would show the query to others
	for _, hop := range slices.Concat(via[1:], []*http.Request{req}) {
		if origin(hop.URL) != origin(via[0].URL) {
			for _, name := range x.secret {
				req.Header.Del(name)
			}
		}
	}
	return nil
}

func redirectFailure(reason string) *events.Failure {
	return &events.Failure{Class: events.ExecFailed, Pointer: "/headers/location", Reason: "E_HTTP_REDIRECT: " + reason}
}

// origin is what secrets are meant for: a host, asked in one way.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
