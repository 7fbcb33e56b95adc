package trigger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// vector is one line of testdata/webhooks/signatures.json.
type vector struct {
	ID       string            `json:"id"`
	Provider string            `json:"provider"`
	Secret   string            `json:"secret"`
	Previous string            `json:"previous_secret"`
	Headers  map[string]string `json:"headers"`
	Expect   string            `json:"expect"`
	Why      string            `json:"why"`
	BodyText string            `json:"body_text"`
	BodyFile string            `json:"body_file"`
	Now      int64             `json:"now"`
}

// schemeFor maps the providers of the vectors to schemes.
var schemeFor = map[string]string{"github": "github", "slack": "slack", "standard-webhooks": "standard", "stripe": "stripe",
	"shopify": "shopify", "gitlab": "gitlab", "gitea": "hex"}

// notSupported lists the vectors that no scheme takes, each with its reason. There are none.
var notSupported = map[string]string{}

func vectors(tb testing.TB) []vector {
	tb.Helper()
	var file struct {
		Vectors []vector `json:"vectors"`
	}
	require.NoError(tb, json.Unmarshal(testdata(tb, "webhooks/signatures.json"), &file))
	require.Len(tb, file.Vectors, 35)
	return file.Vectors
}

func (v *vector) body(tb testing.TB) []byte {
	tb.Helper()
	if v.BodyFile != "" {
		return testdata(tb, v.BodyFile)
	}
	return []byte(v.BodyText)
}

func (v *vector) header() http.Header {
	h := http.Header{}
	for name, value := range v.Headers {
		h.Set(name, value)
	}
	return h
}

func (v *vector) secrets() []string {
	if v.Previous != "" {
		return []string{v.Secret, v.Previous}
	}
	return []string{v.Secret}
}

func TestSignatureVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		t.Run(v.ID, func(t *testing.T) {
			t.Parallel()
			if why := notSupported[v.ID]; why != "" {
				t.Skip(why)
			}
			s, ok := schemeOf(schemeFor[v.Provider])
			require.True(t, ok, "provider %s has no scheme", v.Provider)
			body, now := v.body(t), time.Unix(v.Now, 0)
			refusal := s.verify(v.header(), body, v.secrets(), now)
			if v.Expect == "reject" {
				require.NotNil(t, refusal, v.Why)
				require.NotContains(t, refusal.Reason, v.Secret)
				return
			}
			require.Nil(t, refusal, v.Why)
			require.NotNil(t, s.verify(v.header(), body, []string{"another secret"}, now), "a wrong secret fits")
			require.NotNil(t, s.verify(v.header(), body, []string{""}, now), "an empty secret fits")
			require.NotNil(t, s.verify(v.header(), body, nil, now), "no secret fits")
			if v.Provider != "gitlab" { // a bare token says nothing about the body
				require.NotNil(t, s.verify(v.header(), append(bytes.Clone(body), ' '), v.secrets(), now), "another body fits")
			}
		})
	}
}

// GitLab's signing token makes the headers of Standard Webhooks; the bare token beside it does not count then.
func TestGitLabSigningToken(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		if v.Provider != "standard-webhooks" {
			continue
		}
		h := v.header()
		h.Set("X-Gitlab-Token", v.Secret)
		refusal := gitlab(h, v.body(t), v.secrets(), time.Unix(v.Now, 0))
		assert.Equal(t, v.Expect == "accept", refusal == nil, v.ID)
	}
}

func TestSchemes(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"github", "standard", "gitlab", "stripe", "slack", "shopify", "hex", "none"}, Schemes())
	_, ok := schemeOf("sha1")
	require.False(t, ok)
	require.Equal(t, "whsec_!", standardKey("whsec_!"), "what is no base64 is used as it is")
	require.Equal(t, "plain", standardKey("plain"))
}

func TestCase_W7(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"stripe-stale":     "the signed timestamp is 301 seconds behind this machine's clock; at most 300 are allowed",
		"stripe-future":    "the signed timestamp is 600 seconds ahead of this machine's clock; at most 300 are allowed",
		"std-future":       "the signed timestamp is 600 seconds ahead of this machine's clock; at most 300 are allowed",
		"slack-docs-stale": "the signed timestamp is 361 seconds behind this machine's clock; at most 300 are allowed",
	}
	for _, v := range vectors(t) {
		if want[v.ID] == "" {
			continue
		}
		in, post := hook(t, Route{}, &v)
		answer := post(v.body(t), v.header())
		assert.Equal(t, http.StatusUnauthorized, answer.status, v.ID)
		assert.Equal(t, "E_SIG_TIME", answer.Code, v.ID)
		assert.Equal(t, want[v.ID], answer.Reason, v.ID)
		if refused := in.next(t).Refused; assert.NotNil(t, refused) {
			assert.Equal(t, want[v.ID], refused.Reason)
		}
		delete(want, v.ID)
	}
	require.Empty(t, want, "vectors that are not there")
}

func TestSkewAtItsEdges(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for stamp, code := range map[string]string{
		"1700000300": "", "1699999700": "", "1700000301": "E_SIG_TIME", "1699999699": "E_SIG_TIME",
		"9223372036854775807": "E_SIG_TIME", "-9223372036854775808": "E_SIG_TIME", "9223372036854775808": "E_SIG", "": "E_SIG", "now": "E_SIG",
	} {
		got := ""
		if refusal := skew(stamp, now); refusal != nil {
			got = refusal.Code
		}
		assert.Equal(t, code, got, stamp)
	}
}

// A sender without the secret must not make the machine hash a body thousands of times: what one post costs does not
// grow with the signatures that it offers.
func TestManyOffersHashOnce(t *testing.T) {
	t.Parallel()
	body, now := bytes.Repeat([]byte("x"), MaxBody), time.Unix(1_700_000_000, 0)
	stripes, standards := http.Header{}, http.Header{}
	stripes.Set("Stripe-Signature", "t=1700000000"+strings.Repeat(",v1=", 7000))
	standards.Set("Webhook-Id", "m")
	standards.Set("Webhook-Timestamp", "1700000000")
	standards.Set("Webhook-Signature", strings.Repeat("v1, ", 7000))
	for name, check := range map[string]func() *Refusal{
		"stripe":   func() *Refusal { return stripe(stripes, body, []string{"s"}, now) },
		"standard": func() *Refusal { return standard(standards, body, []string{"s"}, now) },
	} {
		done := make(chan *Refusal, 1)
		go func() { done <- check() }()
		require.Equal(t, errSignature, receive(t, done), fmt.Sprintf("%s took longer than %s", name, patience))
	}
}
