package trigger

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

// said is what a hook answered.
type said struct {
	status      int
	header      http.Header
	raw         string
	Code        string `json:"code"`
	Reason      string `json:"reason"`
	Delivery    string `json:"delivery"`
	Fate        string `json:"fate"`
	Run         string `json:"run"`
	Duplicate   bool   `json:"duplicate"`
	DuplicateOf string `json:"duplicate_of"`
}

type poster func(body []byte, h http.Header) said

// serve starts a real server on a port of its own and gives its address.
func serve(tb testing.TB, handler http.Handler) (string, *http.Client) {
	tb.Helper()
	return serveWith(tb, handler, func(*http.Server) {})
}

func serveWith(tb testing.TB, handler http.Handler, change func(*http.Server)) (string, *http.Client) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	server, ended := NewServer(handler), make(chan error, 1)
	change(server)
	go func() { ended <- server.Serve(listener) }()
	transport := &http.Transport{}
	tb.Cleanup(func() {
		transport.CloseIdleConnections()
		assert.NoError(tb, server.Close())
		assert.ErrorIs(tb, <-ended, http.ErrServerClosed)
	})
	return "http://" + listener.Addr().String(), &http.Client{Transport: transport}
}

// hook serves one route and gives its inbox and a way to post to it. v may be nil: then the hook has no secret.
func hook(tb testing.TB, r Route, v *vector) (*fakeInbox, poster) {
	tb.Helper()
	in := newInbox()
	return in, hookInto(tb, in, r, v)
}

func hookInto(tb testing.TB, in Inbox, r Route, v *vector) poster {
	tb.Helper()
	r.Pipeline, r.Hook.Path, r.Hook.Scheme = "orders", "in", "none"
	if v == nil {
		v = &vector{}
	} else {
		r.Hook.Scheme, r.Hook.Secret = schemeFor[v.Provider], "secret://hook"
	}
	hooks := NewHooks(in, func(string) ([]string, error) { return v.secrets(), nil }, clockAt(v.Now).now, zerolog.Nop())
	hooks.SetRoutes([]Route{r})
	base, client := serve(tb, hooks)
	return func(body []byte, h http.Header) said {
		return send(tb, client, http.MethodPost, base+"/hooks/in", bytes.NewReader(body), h)
	}
}

func send(tb testing.TB, client *http.Client, method, to string, body io.Reader, h http.Header) said {
	tb.Helper()
	request, err := http.NewRequestWithContext(tb.Context(), method, to, body)
	require.NoError(tb, err)
	if h != nil {
		request.Header = h.Clone()
	}
	response, err := client.Do(request)
	require.NoError(tb, err)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	require.NoError(tb, err)
	answer := said{status: response.StatusCode, header: response.Header, raw: string(raw)}
	if response.Header.Get("Content-Type") == "application/json" {
		require.NoError(tb, json.Unmarshal(raw, &answer), answer.raw)
		require.Equal(tb, "nosniff", response.Header.Get("X-Content-Type-Options"))
	}
	return answer
}

func vectorOf(tb testing.TB, id string) *vector {
	tb.Helper()
	for _, v := range vectors(tb) {
		if v.ID == id {
			return &v
		}
	}
	require.FailNow(tb, "no vector "+id)
	return nil
}

func jsonHeader() http.Header { return http.Header{"Content-Type": {"application/json"}} }

// Every vector goes over the wire too: what is rightly signed reaches the inbox byte for byte.
func TestVectorsOverHTTP(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()
			in, post := hook(t, Route{}, &v)
			answer := post(v.body(t), v.header())
			switch {
			case v.Expect == "reject":
				require.Equal(t, http.StatusUnauthorized, answer.status, answer.raw)
				return
			case v.ID == "gh-docs": // rightly signed, and no JSON
				require.Equal(t, http.StatusBadRequest, answer.status, answer.raw)
				require.Equal(t, "E_JSON_SYNTAX", answer.Code)
				require.Equal(t, "E_JSON_SYNTAX", in.next(t).Refused.Code)
				return
			}
			require.Equal(t, http.StatusAccepted, answer.status, answer.raw)
			got := in.next(t)
			require.Equal(t, v.body(t), got.Body)
			require.Equal(t, "webhook:/hooks/in", got.Trigger)
			require.Equal(t, "orders", got.Pipeline)
			require.NotEmpty(t, got.Key)
			nothingSecret(t, got, &v)
		})
	}
}

// nothingSecret fails when a stored delivery tells the secret or a signature.
func nothingSecret(tb testing.TB, d *Delivery, v *vector) {
	tb.Helper()
	for name, value := range d.Headers {
		require.NotContains(tb, strings.ToLower(name), "signature")
		require.NotContains(tb, strings.ToLower(name), "hmac")
		require.NotContains(tb, strings.ToLower(name), "token")
		require.NotContains(tb, value, v.Secret)
	}
}

func TestCase_W1(t *testing.T) {
	t.Parallel()
	form, plain := vectorOf(t, "gh-form"), vectorOf(t, "gh-push")
	in, post := hook(t, Route{}, form)
	answer := post(form.body(t), form.header())
	require.Equal(t, http.StatusAccepted, answer.status, answer.raw)
	got := in.next(t)
	require.Equal(t, form.body(t), got.Body, "the raw bytes are kept")
	require.Equal(t, "application/x-www-form-urlencoded", got.Headers["Content-Type"], "what the body is, is kept beside it")
	fields, err := url.ParseQuery(string(got.Body))
	require.NoError(t, err)
	require.Equal(t, string(plain.body(t)), fields.Get("payload"))

	// The same event in its JSON form is the same delivery.
	h := plain.header()
	h.Set("X-Github-Delivery", form.Headers["X-GitHub-Delivery"])
	again := post(plain.body(t), h)
	require.Equal(t, http.StatusOK, again.status, again.raw)
	require.Equal(t, answer.Run, again.Run)
}

func TestCase_W2(t *testing.T) {
	t.Parallel()
	v := vectorOf(t, "gh-push.unicode")
	in, post := hook(t, Route{}, v)
	answer := post(v.body(t), v.header())
	require.Equal(t, http.StatusAccepted, answer.status, answer.raw)
	require.Equal(t, v.body(t), in.next(t).Body)
}

// signatureHeader is where each scheme carries its proof.
var signatureHeader = map[string]string{"github": "X-Hub-Signature-256", "standard": "Webhook-Signature", "gitlab": "X-Gitlab-Token",
	"stripe": "Stripe-Signature", "slack": "X-Slack-Signature", "shopify": "X-Shopify-Hmac-Sha256", "hex": "X-Gitea-Signature"}

func TestCase_W3(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, v := range vectors(t) {
		scheme := schemeFor[v.Provider]
		if v.Expect != "accept" || seen[scheme] {
			continue
		}
		seen[scheme] = true
		in, post := hook(t, Route{}, &v)
		good := v.header().Get(signatureHeader[scheme])
		for _, bad := range []string{"", " ", "\xe9\xff\xfe", "sha256=\u00e9", "v0=\u00e9", "v1,\u00e9", "t=1,v1=\u00e9", "=", ",", "sha256=", "v1=,t=",
			"t=99999999999999999999,v1=00", strings.Repeat("a", 20<<10), good + "00", good + "\u00e9", strings.Repeat("v1=00,", 2000)} {
			h := v.header()
			h.Set(signatureHeader[scheme], bad)
			answer := post(v.body(t), h)
			assert.Equal(t, http.StatusUnauthorized, answer.status, "%s: %.40q: %s", scheme, bad, answer.raw)
		}
		h := v.header()
		h.Set(signatureHeader[scheme], strings.Repeat("a", 64<<10))
		assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, post(v.body(t), h).status, "longer than any header may be")
		for _, d := range in.all() {
			assert.NotNil(t, d.Refused)
		}
	}
	require.Len(t, seen, len(signatureHeader))
}

func TestCase_W5(t *testing.T) {
	t.Parallel()
	v := vectorOf(t, "gh-push")
	in, post := hook(t, Route{}, v)
	first := post(v.body(t), v.header())
	require.Equal(t, http.StatusAccepted, first.status, first.raw)
	require.Equal(t, "run", first.Fate)
	require.NotEmpty(t, first.Run)
	require.Equal(t, v.Headers["X-GitHub-Delivery"], in.next(t).Key)
	again := post(v.body(t), v.header())
	require.Equal(t, http.StatusOK, again.status, again.raw)
	require.True(t, again.Duplicate)
	require.Equal(t, "duplicate", again.Fate)
	require.Equal(t, first.Run, again.Run, "the first run is named")
	require.Equal(t, first.Delivery, again.DuplicateOf)
	require.NotEqual(t, first.Delivery, again.Delivery, "the second delivery is visible by itself")
}

func TestCase_W8(t *testing.T) {
	t.Parallel()
	push := testdata(t, "webhooks/github/push.json")
	big := []byte("[" + strings.Repeat(string(push)+",", 457_000/len(push)) + `"` + strings.Repeat("x", 457_000%len(push)) + `"]`)
	in, post := hook(t, Route{}, nil)
	require.Equal(t, http.StatusAccepted, post(big, jsonHeader()).status, "457 kB, no limit said")
	require.Equal(t, big, in.next(t).Body)
	huge := []byte(`"` + strings.Repeat("x", 20<<20) + `"`)
	require.Equal(t, http.StatusAccepted, post(huge, jsonHeader()).status, "20 MiB, no limit said")
	in.next(t)
	over := post([]byte(`"`+strings.Repeat("x", MaxBody-1)+`"`), jsonHeader())
	require.Equal(t, http.StatusRequestEntityTooLarge, over.status)
	require.Contains(t, over.Reason, fmt.Sprint(MaxBody))

	limited, post := hook(t, Route{Hook: events.WebhookTrigger{MaxBody: 1000}}, nil)
	just := []byte(`"` + strings.Repeat("x", 998) + `"`)
	require.Equal(t, http.StatusAccepted, post(just, jsonHeader()).status, "1000 bytes of 1000")
	limited.next(t)
	over = post(append(just, ' '), jsonHeader())
	require.Equal(t, http.StatusRequestEntityTooLarge, over.status, over.raw)
	require.Equal(t, "E_BODY_SIZE", over.Code)
	require.Contains(t, over.Reason, "1000 bytes")
	require.Len(t, limited.all(), 1, "nothing of it is stored")
}

// endless is a body that never ends; it says when it was closed.
type endless struct{ closed chan struct{} }

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func (e endless) Close() error {
	select {
	case e.closed <- struct{}{}:
	default:
	}
	return nil
}

func TestCase_W8_endlessChunks(t *testing.T) {
	t.Parallel()
	in := newInbox()
	hooks := NewHooks(in, nil, clockAt(0).now, zerolog.Nop())
	hooks.SetRoutes([]Route{{Pipeline: "p", Hook: events.WebhookTrigger{Path: "in", Scheme: "none", MaxBody: 1 << 20}}})
	base, client := serve(t, hooks)
	body := endless{make(chan struct{}, 1)}
	answer := send(t, client, http.MethodPost, base+"/hooks/in", body, jsonHeader())
	require.Equal(t, http.StatusRequestEntityTooLarge, answer.status, answer.raw)
	require.Contains(t, answer.Reason, "1048576 bytes")
	receive(t, body.closed)
	require.Empty(t, in.all())
}

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

// A post that stops in the middle is answered when its time is up.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	in := newInbox()
	hooks := NewHooks(in, nil, clockAt(0).now, zerolog.Nop())
	hooks.SetRoutes([]Route{{Pipeline: "p", Hook: events.WebhookTrigger{Path: "in", Scheme: "none"}}})
	base, client := serveWith(t, hooks, func(s *http.Server) { s.ReadTimeout = 50 * time.Millisecond })
	body, writing := io.Pipe()
	go func() { _, _ = io.WriteString(writing, `{"a":`) }()
	answer := send(t, client, http.MethodPost, base+"/hooks/in", body, jsonHeader())
	require.NoError(t, writing.Close())
	require.Equal(t, http.StatusRequestTimeout, answer.status, answer.raw)
	require.Equal(t, "E_BODY_TIMEOUT", answer.Code)
	require.Empty(t, in.all())
}

// Large posts share a bounded memory. One more is told to come back; small ones pass, and the place is given back.
func TestLargeBodiesAreBounded(t *testing.T) {
	t.Parallel()
	in := newInbox()
	hooks := NewHooks(in, nil, clockAt(0).now, zerolog.Nop())
	hooks.SetRoutes([]Route{{Pipeline: "p", Hook: events.WebhookTrigger{Path: "in", Scheme: "none"}}})
	base, client := serve(t, hooks)
	large := `"` + strings.Repeat("x", 2*smallBody) + `"`
	post := func(body io.Reader) said {
		return send(t, client, http.MethodPost, base+"/hooks/in", body, jsonHeader())
	}
	hooks.reading.Add(maxReading - int64(len(large)) + 1)
	answer := post(strings.NewReader(large))
	require.Equal(t, http.StatusTooManyRequests, answer.status, answer.raw)
	require.Equal(t, "1", answer.header.Get("Retry-After"))
	require.Empty(t, in.all())
	require.Equal(t, http.StatusAccepted, post(strings.NewReader("{}")).status)

	hooks.reading.Add(-1)
	require.Equal(t, http.StatusAccepted, post(strings.NewReader(large)).status)
	chunked := io.MultiReader(strings.NewReader(large)) // says no length, so it may become as long as any
	require.Equal(t, http.StatusTooManyRequests, post(chunked).status)
	hooks.reading.Store(0)
	require.Equal(t, http.StatusOK, post(io.MultiReader(strings.NewReader(large))).status, "the one from before once more")
	require.Eventually(t, func() bool { return hooks.reading.Load() == 0 }, patience, time.Millisecond)
}

func TestTraceparent(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, bad := range []string{"", "00", good + "0", strings.ToUpper(good), "x" + good, good + "\n", strings.Repeat("0", 20<<10)} {
		require.Empty(t, traceparent(bad), "%.60q", bad)
	}
	require.Equal(t, good, traceparent(good))
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

func TestBadlySignedIsVisibleAndBounded(t *testing.T) {
	t.Parallel()
	v := vectorOf(t, "gh-wrong-secret")
	in, clock := newInbox(), clockAt(600)
	hooks := NewHooks(in, func(string) ([]string, error) { return v.secrets(), nil }, clock.now, zerolog.Nop())
	hooks.SetRoutes([]Route{{Pipeline: "orders", Hook: events.WebhookTrigger{Path: "in", Scheme: "github", Secret: "secret://hook"}}})
	base, client := serve(t, hooks)
	post := func() {
		answer := send(t, client, http.MethodPost, base+"/hooks/in", bytes.NewReader(v.body(t)), v.header())
		require.Equal(t, http.StatusUnauthorized, answer.status)
		require.Equal(t, "E_SIG", answer.Code)
	}
	for range 100 {
		post()
	}
	require.Len(t, in.all(), 60, "in the first minute")
	clock.advance(59e9)
	post()
	require.Len(t, in.all(), 60, "in the last second of it")
	clock.advance(1e9)
	for range 70 {
		post()
	}
	require.Len(t, in.all(), 120, "in the second minute")
	for _, d := range in.all() {
		require.Equal(t, &Refusal{Code: "E_SIG", Reason: "the signature does not fit the body"}, d.Refused)
		require.Equal(t, "orders", d.Pipeline)
		require.Equal(t, "webhook:/hooks/in", d.Trigger)
		require.Empty(t, d.Body, "a stranger's bytes are not stored")
		require.Empty(t, d.Headers)
		require.Empty(t, d.Key)
	}
}

func TestSecretThatCannotBeRead(t *testing.T) {
	t.Parallel()
	v := vectorOf(t, "gh-push")
	var log bytes.Buffer
	hooks := NewHooks(newInbox(), func(ref string) ([]string, error) { return nil, errors.New("no " + ref) }, clockAt(0).now, zerolog.New(&log))
	hooks.SetRoutes([]Route{{Hook: events.WebhookTrigger{Path: "in", Scheme: "github", Secret: "secret://hook"}}})
	base, client := serve(t, hooks)
	answer := send(t, client, http.MethodPost, base+"/hooks/in", bytes.NewReader(v.body(t)), v.header())
	require.Equal(t, http.StatusUnauthorized, answer.status, "never open because the secret is gone")
	require.NotContains(t, answer.raw, "secret://")
	require.Contains(t, log.String(), "the secret of a hook cannot be read")
}

func TestKeyOfDelivery(t *testing.T) {
	t.Parallel()
	body := []byte(`{"id":"evt_1","event_id":"Ev1"}`)
	payload, _, _ := payloadOf("", body, true)
	digest := events.DigestOf(body).String()
	for _, c := range []struct{ scheme, own, name, value, key string }{
		{"github", "", "X-GitHub-Delivery", "d-1", "d-1"},
		{"standard", "", "Webhook-Id", "m-1", "m-1"},
		{"gitlab", "", "Idempotency-Key", "i-1", "i-1"},
		{"shopify", "", "X-Shopify-Webhook-Id", "s-1", "s-1"},
		{"gitlab", "", "Webhook-Id", "m-1", "m-1"},
		{"hex", "", "X-Gogs-Delivery", "g-1", "g-1"},
		{"stripe", "", "X-Other", "x", "evt_1"},
		{"slack", "", "X-Other", "x", "Ev1"},
		{"stripe", "header:X-Own", "X-Other", "x", digest},
		{"none", "", "X-Other", "x", digest},
		{"none", "header:X-Own", "X-Own", "own", "own"},
		{"github", "header:X-Own", "X-GitHub-Delivery", "d-1", digest},
		{"github", "", "X-GitHub-Delivery", strings.Repeat("d", 513), digest},
		{"github", "", "X-GitHub-Delivery", "d\xff", digest},
	} {
		s, _ := schemeOf(c.scheme)
		h := http.Header{}
		h.Set(c.name, c.value)
		to := &route{Route: Route{Hook: events.WebhookTrigger{Key: c.own}}, scheme: s}
		assert.Equal(t, c.key, keyOf(to, h, payload, body), "%+v", c)
	}
}

// Stripe and Slack name an event in the payload alone, and a later attempt need not have the same bytes.
func TestRedeliveryWithOtherBytes(t *testing.T) {
	t.Parallel()
	for scheme, bodies := range map[string][2]string{
		"stripe": {`{"id":"evt_1","pending_webhooks":2}`, `{"id":"evt_1","pending_webhooks":1}`},
		"slack":  {`{"event_id":"Ev1","type":"event_callback"}`, `{"type":"event_callback","event_id":"Ev1"}`},
	} {
		v := &vector{Secret: "s", Now: 1_700_000_000}
		v.Provider = scheme
		in, post := hook(t, Route{}, v)
		first := post([]byte(bodies[0]), signed(scheme, "s", bodies[0]))
		require.Equal(t, http.StatusAccepted, first.status, first.raw)
		again := post([]byte(bodies[1]), signed(scheme, "s", bodies[1]))
		require.Equal(t, http.StatusOK, again.status, again.raw)
		require.Equal(t, first.Run, again.Run)
		require.Len(t, in.all(), 2)
	}
}

// signed gives the headers of a post at Unix time 1700000000.
func signed(scheme, secret, body string) http.Header {
	h := jsonHeader()
	const stamp = "1700000000"
	switch scheme {
	case "stripe":
		h.Set("Stripe-Signature", "t="+stamp+",v1="+hex.EncodeToString(sum(secret, []byte(stamp+"."+body))))
	case "slack":
		h.Set("X-Slack-Request-Timestamp", stamp)
		h.Set("X-Slack-Signature", "v0="+hex.EncodeToString(sum(secret, []byte("v0:"+stamp+":"+body))))
	}
	return h
}

// Slack asks a new address to say a word back. It is answered only when the question is signed, and starts nothing.
func TestSlackChallenge(t *testing.T) {
	t.Parallel()
	body := string(testdata(t, "webhooks/slack/url_verification.json"))
	v := &vector{Provider: "slack", Secret: "s", Now: 1_700_000_000}
	in, post := hook(t, Route{}, v)
	answer := post([]byte(body), signed("slack", "s", body))
	require.Equal(t, http.StatusOK, answer.status, answer.raw)
	require.Equal(t, "text/plain; charset=utf-8", answer.header.Get("Content-Type"))
	require.Equal(t, "nosniff", answer.header.Get("X-Content-Type-Options"))
	require.Contains(t, body, `"`+answer.raw+`"`)
	require.Empty(t, in.all())

	answer = post([]byte(body), signed("slack", "another", body))
	require.Equal(t, http.StatusUnauthorized, answer.status)
	require.NotContains(t, body, answer.raw)

	_, open := hook(t, Route{}, nil)
	require.Equal(t, http.StatusAccepted, open([]byte(body), jsonHeader()).status, "another sender's post of this shape is a delivery")
}

func TestKeptHeaders(t *testing.T) {
	t.Parallel()
	in, post := hook(t, Route{}, nil)
	h := jsonHeader()
	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "Proxy-Authorization", "X-Gitlab-Token", "X-Hub-Signature-256", "X-Slack-Signature"} {
		h.Set(name, "door-opener")
	}
	h.Set("Ce-Type", strings.Repeat("\u00e9", 600))
	h.Set("X-Github-Event", "push\xff")
	h.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	require.Equal(t, http.StatusAccepted, post([]byte("{}"), h).status)
	got := in.next(t)
	for name, value := range got.Headers {
		require.NotContains(t, value, "door-opener", name)
		require.LessOrEqual(t, len(value), maxHeader, name)
		require.True(t, utf8.ValidString(value), "%s is stored as text: %q", name, value)
	}
	require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", got.Traceparent)
	require.NotEmpty(t, got.Headers["Ce-Type"])
}

// Posts share their buffers; what is stored is a copy of its own.
func TestStoredBodiesStayAsTheyWere(t *testing.T) {
	t.Parallel()
	in, post := hook(t, Route{}, nil)
	for i := range 50 {
		require.Equal(t, http.StatusAccepted, post(fmt.Appendf(nil, `{"n":%d}`, 10+i), jsonHeader()).status)
	}
	for i, d := range in.all() {
		require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, 10+i), string(d.Body))
	}
}
