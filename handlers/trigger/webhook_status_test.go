package trigger

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

func TestStatusOfRequests(t *testing.T) {
	t.Parallel()
	type request struct {
		name, method, path, body string
		header                   map[string]string
		status                   int
		code                     string
	}
	js, deep := map[string]string{"Content-Type": "application/json"}, strings.Repeat("[", 65)+strings.Repeat("]", 65)
	table := []request{
		{"no such hook", "POST", "/hooks/other", "{}", js, 404, "E_HOOK"},
		{"no hook at all", "POST", "/hooks/", "{}", js, 404, "E_HOOK"},
		{"below a hook", "POST", "/hooks/in/in", "{}", js, 404, "E_HOOK"},
		{"outside", "POST", "/in", "{}", js, 404, "E_HOOK"},
		{"get", "GET", "/hooks/in", "", nil, 405, "E_METHOD"},
		{"put", "PUT", "/hooks/in", "{}", js, 405, "E_METHOD"},
		{"unknown hook first", "GET", "/hooks/other", "", nil, 404, "E_HOOK"},
		{"gzip", "POST", "/hooks/in", "{}", map[string]string{"Content-Encoding": "gzip"}, 415, "E_ENCODING"},
		{"identity", "POST", "/hooks/in", "{}", map[string]string{"Content-Encoding": "identity"}, 202, ""},
		{"xml", "POST", "/hooks/in", "<a/>", map[string]string{"Content-Type": "text/xml"}, 415, "E_MEDIA_TYPE"},
		{"media type broken", "POST", "/hooks/in", "{}", map[string]string{"Content-Type": "application/json; ="}, 415, "E_MEDIA_TYPE"},
		{"plus json", "POST", "/hooks/in", "{}", map[string]string{"Content-Type": "application/vnd.docker.distribution.events.v2+json"}, 202, ""},
		{"charset", "POST", "/hooks/in", "{}", map[string]string{"Content-Type": "Application/JSON; charset=utf-8"}, 202, ""},
		{"no media type", "POST", "/hooks/in", `{"a":1152921506151679042,"b":1.417566161e+09}`, nil, 202, ""},
		{"empty", "POST", "/hooks/in", "", js, 400, "E_JSON_SYNTAX"},
		{"no json", "POST", "/hooks/in", "hello", js, 400, "E_JSON_SYNTAX"},
		{"cut short", "POST", "/hooks/in", `{"a":`, js, 400, "E_JSON_SYNTAX"},
		{"key twice", "POST", "/hooks/in", `{"a":1,"a":2}`, js, 400, "E_JSON_DUP"},
		{"key in two cases", "POST", "/hooks/in", `{"a":1,"A":2}`, js, 400, "E_JSON_CASE"},
		{"deep", "POST", "/hooks/in", deep, js, 400, "E_JSON_DEPTH"},
		{"number", "POST", "/hooks/in", `{"a":NaN}`, js, 400, "E_JSON_NUMBER"},
		{"trailing", "POST", "/hooks/in", `{} {}`, js, 400, "E_JSON_TRAILING"},
		{"not utf-8", "POST", "/hooks/in", "\"\xff\"", js, 400, "E_ENCODING"},
		{"form", "POST", "/hooks/in", "a=1&b=2", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 202, ""},
		{"form unreadable", "POST", "/hooks/in", "a=%zz", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 400, "E_FORM"},
		{"form with bad payload", "POST", "/hooks/in", "payload=%7B", map[string]string{"Content-Type": "application/x-www-form-urlencoded"}, 400, "E_JSON_SYNTAX"},
	}
	for _, c := range table {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := newInbox()
			hooks := NewHooks(in, nil, clockAt(0).now, zerolog.Nop())
			hooks.SetRoutes([]Route{{Hook: events.WebhookTrigger{Path: "in", Scheme: "none"}}, {Hook: events.WebhookTrigger{Path: "bad", Scheme: "sha1"}}})
			base, client := serve(t, hooks)
			h := http.Header{}
			for k, v := range c.header {
				h.Set(k, v)
			}
			answer := send(t, client, c.method, base+c.path, strings.NewReader(c.body), h)
			require.Equal(t, c.status, answer.status, answer.raw)
			require.Equal(t, c.code, answer.Code)
			if c.status == 405 {
				require.Equal(t, "POST", answer.header.Get("Allow"))
			}
			switch {
			case c.status == 202:
				require.Len(t, in.all(), 1)
				require.Nil(t, in.all()[0].Refused)
			case c.status == 400 || c.code == "E_MEDIA_TYPE": // it was verified: its sender must be able to find it
				require.Len(t, in.all(), 1)
				require.Equal(t, &Refusal{answer.Code, answer.Reason}, in.all()[0].Refused)
				require.Empty(t, in.all()[0].Body)
			default:
				require.Empty(t, in.all(), "nothing is stored")
			}
		})
	}
}

func TestStatusOfInbox(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  string
	}{
		{ErrBusy, 429, "E_BUSY", "1"},
		{fmt.Errorf("accept: %w", ErrBusy), 429, "E_BUSY", "1"},
		{ErrFull, 507, "E_STORE_FULL", ""},
		{ErrClosed, 503, "E_CLOSED", "5"},
		{errors.New("disk /secret/path broke"), 500, "E_STORE", ""},
	} {
		in := newInbox(c.err)
		post := hookInto(t, in, Route{}, nil)
		answer := post([]byte("{}"), jsonHeader())
		assert.Equal(t, c.status, answer.status)
		assert.Equal(t, c.code, answer.Code)
		assert.Equal(t, c.retry, answer.header.Get("Retry-After"))
		assert.NotContains(t, answer.raw, "/secret/path", "what broke inside is not told")
		assert.Empty(t, in.all())
		assert.Equal(t, http.StatusAccepted, post([]byte("{}"), jsonHeader()).status, "the sender's next attempt is taken")
	}
}

// rejecting is an inbox whose pipeline does not take the payload.
type rejecting struct{}

func (r rejecting) Accept(_ context.Context, _ *Delivery) (Receipt, error) {
	return Receipt{Delivery: numbered(1, 1), Fate: "rejected", Code: "E_CONTRACT", Reason: `"total" is missing`}, nil
}

func TestStatusOfRejectedPayload(t *testing.T) {
	t.Parallel()
	answer := hookInto(t, rejecting{}, Route{}, nil)([]byte("{}"), jsonHeader())
	require.Equal(t, http.StatusUnprocessableEntity, answer.status, answer.raw)
	require.Equal(t, "rejected", answer.Fate)
	require.Equal(t, "E_CONTRACT", answer.Code)
	require.Equal(t, `"total" is missing`, answer.Reason)
	require.Equal(t, numbered(1, 1).String(), answer.Delivery)
	require.Empty(t, answer.Run)
}
