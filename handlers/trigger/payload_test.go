package trigger

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/apollo-11/apollo/events"
)

func TestPayloadIsReadWhereItIsLookedAt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scheme, own string
		reads       bool
	}{
		{"github", "", false},
		{"standard", "", false},
		{"none", "", false},
		{"stripe", "", true},
		{"stripe", "header:X-Own", false},
		{"slack", "", true},
		{"slack", "header:X-Own", true}, // a challenge stands in it
	} {
		s, _ := schemeOf(c.scheme)
		to := &route{Route: Route{Hook: events.WebhookTrigger{Key: c.own}}, scheme: s}
		assert.Equal(t, c.reads, to.readsPayload(), "%+v", c)
	}
}

// A post gets the same answer whether its payload is wanted or only checked.
func TestPayloadIsCheckedAlways(t *testing.T) {
	t.Parallel()
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct{ media, body, code string }{
		{"", `{"a":1}`, ""},
		{"application/json", `{"a":1}`, ""},
		{"application/JSON; charset=utf-8", `{"a":1}`, ""},
		{"application/cloudevents+json", `[1]`, ""},
		{"application/json", `{"a":1,"a":2}`, "E_JSON_DUP"},
		{"application/json", ``, "E_JSON_SYNTAX"},
		{form, `payload={"a":1}`, ""},
		{form, `payload={"a":`, "E_JSON_SYNTAX"},
		{form, `other=1`, ""},
		{form, `%`, "E_FORM"},
		{"text/plain", `{}`, "E_MEDIA_TYPE"},
		{"application/json; =", `{}`, "E_MEDIA_TYPE"},
		{"+json;/", `{}`, "E_MEDIA_TYPE"},
	} {
		payload, status, refusal := payloadOf(c.media, []byte(c.body), true)
		none, sameStatus, sameRefusal := payloadOf(c.media, []byte(c.body), false)
		assert.Equal(t, c.code == "" && strings.Contains(c.body, `{"a":1}`), payload != nil, "%+v", c)
		assert.Nil(t, none, "%+v", c)
		assert.Equal(t, status, sameStatus, "%+v", c)
		assert.Equal(t, refusal, sameRefusal, "%+v", c)
		if refusal == nil {
			refusal = &Refusal{}
		}
		assert.Equal(t, c.code, refusal.Code, "%+v", c)
	}
}

func TestKeptHeadersAreCanonical(t *testing.T) {
	t.Parallel()
	for _, name := range keptHeaders {
		assert.Equal(t, http.CanonicalHeaderKey(name), name)
	}
}
