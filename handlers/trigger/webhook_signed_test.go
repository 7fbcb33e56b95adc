package trigger

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

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
