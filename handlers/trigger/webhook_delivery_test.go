package trigger

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

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

func TestTraceparent(t *testing.T) {
	t.Parallel()
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, bad := range []string{"", "00", good + "0", strings.ToUpper(good), "x" + good, good + "\n", strings.Repeat("0", 20<<10)} {
		require.Empty(t, traceparent(bad), "%.60q", bad)
	}
	require.Equal(t, good, traceparent(good))
}
