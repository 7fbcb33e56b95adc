package trigger

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tolerance is how far a signed timestamp may lie from the clock, in either direction.
const tolerance = 5 * time.Minute

// scheme is one way in which senders sign what they post.
type scheme struct {
	name string
	// keys are the headers that name the delivery, the same on every redelivery; the first that is there counts.
	keys []string
	// field is the member of the payload that names the delivery, of senders that name it only there. Their bodies may
	// differ from one attempt to the next (Stripe counts the attempts in them), so that a digest would not do.
	field string
	// verify checks the raw body. It gives nil when one of the secrets fits.
	verify func(h http.Header, body []byte, secrets []string, now time.Time) *Refusal
}

// schemes is the list of what verify.scheme may say.
func schemes() []scheme {
	return []scheme{
		{"github", []string{"X-GitHub-Delivery"}, "", github},
		{"standard", []string{"Webhook-Id"}, "", standard},
		{"gitlab", []string{"Idempotency-Key", "Webhook-Id"}, "", gitlab},
		{"stripe", nil, "id", stripe},
		{"slack", nil, "event_id", slack},
		{"shopify", []string{"X-Shopify-Webhook-Id"}, "", shopify},
		{"hex", []string{"X-Gitea-Delivery", "X-Forgejo-Delivery", "X-Gogs-Delivery"}, "", plainHex},
		{"none", nil, "", func(http.Header, []byte, []string, time.Time) *Refusal { return nil }},
	}
}

// Schemes gives the names that verify.scheme may have.
func Schemes() []string {
	var names []string
	for _, s := range schemes() {
		names = append(names, s.name)
	}
	return names
}

func schemeOf(name string) (scheme, bool) {
	all := schemes()
	i := slices.IndexFunc(all, func(s scheme) bool { return s.name == name })
	if i < 0 {
		return scheme{}, false
	}
	return all[i], true
}

// The answers do not tell a wrong secret from a wrong body.
var (
	errSignature = &Refusal{Code: "E_SIG", Reason: "the signature does not fit the body"}
	errNoSign    = &Refusal{Code: "E_SIG_MISSING", Reason: "the post carries no signature"}
)

// sum is the HMAC-SHA256 of parts under a secret.
func sum(secret string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	write(h, parts)
	return h.Sum(nil)
}

func write(h hash.Hash, parts [][]byte) {
	for _, p := range parts {
		h.Write(p)
	}
}

// anyOf compares the offered signatures with that of each secret, always all of them. The body is hashed once a secret:
// a stranger who offers thousands of signatures must not make it cost more.
func anyOf(offers [][]byte, secrets []string, sign func(secret string) []byte) bool {
	fits := false
	for _, s := range secrets {
		if s == "" {
			continue
		}
		expected := sign(s)
		for _, offered := range offers {
			if hmac.Equal(offered, expected) {
				fits = true
			}
		}
	}
	return fits
}

// one fits when the only offered signature does.
func one(offered []byte, err error, secrets []string, sign func(secret string) []byte) bool {
	return err == nil && len(offered) == sha256.Size && anyOf([][]byte{offered}, secrets, sign)
}

func verdict(fits bool) *Refusal {
	if fits {
		return nil
	}
	return errSignature
}

// github: X-Hub-Signature-256 is sha256= and the hexadecimal HMAC of the raw body. The SHA-1 header is not looked at.
func github(h http.Header, body []byte, secrets []string, _ time.Time) *Refusal {
	header := h.Get("X-Hub-Signature-256")
	if header == "" {
		return errNoSign
	}
	digits, ok := strings.CutPrefix(header, "sha256=")
	offered, err := hex.DecodeString(digits)
	if !ok || digits != strings.ToLower(digits) {
		return errSignature
	}
	return verdict(one(offered, err, secrets, func(s string) []byte { return sum(s, body) }))
}

// plainHex: Gitea and Gogs send the hexadecimal HMAC alone.
func plainHex(h http.Header, body []byte, secrets []string, _ time.Time) *Refusal {
	header := first(h, "X-Gitea-Signature", "X-Gogs-Signature", "X-Forgejo-Signature", "X-Signature")
	if header == "" {
		return errNoSign
	}
	offered, err := hex.DecodeString(header)
	return verdict(one(offered, err, secrets, func(s string) []byte { return sum(s, body) }))
}

func shopify(h http.Header, body []byte, secrets []string, _ time.Time) *Refusal {
	header := h.Get("X-Shopify-Hmac-Sha256")
	if header == "" {
		return errNoSign
	}
	offered, err := base64.StdEncoding.DecodeString(header)
	return verdict(one(offered, err, secrets, func(s string) []byte { return sum(s, body) }))
}

// gitlab: a signing token makes Standard Webhooks headers, else the secret itself stands in X-Gitlab-Token.
func gitlab(h http.Header, body []byte, secrets []string, now time.Time) *Refusal {
	if h.Get("Webhook-Signature") != "" {
		return standard(h, body, secrets, now)
	}
	token := h.Get("X-Gitlab-Token")
	if token == "" {
		return errNoSign
	}
	fits := 0
	for _, s := range secrets {
		if s != "" {
			fits |= subtle.ConstantTimeCompare([]byte(s), []byte(token))
		}
	}
	return verdict(fits == 1)
}

// standard is Standard Webhooks 1.0: several space-separated v1 signatures over id.timestamp.body.
func standard(h http.Header, body []byte, secrets []string, now time.Time) *Refusal {
	id, stamp, header := h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), h.Get("Webhook-Signature")
	if id == "" || stamp == "" || header == "" {
		return errNoSign
	}
	if late := skew(stamp, now); late != nil {
		return late
	}
	signed := []byte(id + "." + stamp + ".")
	var offers [][]byte
	for part := range strings.FieldsSeq(header) {
		text, ok := strings.CutPrefix(part, "v1,")
		if offered, err := base64.StdEncoding.DecodeString(text); ok && err == nil {
			offers = append(offers, offered)
		}
	}
	return verdict(anyOf(offers, secrets, func(s string) []byte { return sum(standardKey(s), signed, body) }))
}

// standardKey decodes a whsec_ secret; other secrets are used as they are.
func standardKey(secret string) string {
	text, ok := strings.CutPrefix(secret, "whsec_")
	if !ok {
		return secret
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) == 0 {
		return secret
	}
	return string(key)
}

// stripe: Stripe-Signature is t=,v1=,v1=... over t.body.
func stripe(h http.Header, body []byte, secrets []string, now time.Time) *Refusal {
	header := h.Get("Stripe-Signature")
	if header == "" {
		return errNoSign
	}
	var stamp string
	var offers [][]byte
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			stamp = value
		case "v1":
			if offered, err := hex.DecodeString(value); err == nil {
				offers = append(offers, offered)
			}
		}
	}
	if late := skew(stamp, now); late != nil {
		return late
	}
	return verdict(anyOf(offers, secrets, func(s string) []byte { return sum(s, []byte(stamp+"."), body) }))
}

// slack: X-Slack-Signature is v0= and the hexadecimal HMAC of v0:timestamp:body.
func slack(h http.Header, body []byte, secrets []string, now time.Time) *Refusal {
	stamp, header := h.Get("X-Slack-Request-Timestamp"), h.Get("X-Slack-Signature")
	if stamp == "" || header == "" {
		return errNoSign
	}
	if late := skew(stamp, now); late != nil {
		return late
	}
	digits, ok := strings.CutPrefix(header, "v0=")
	offered, err := hex.DecodeString(digits)
	return verdict(ok && one(offered, err, secrets, func(s string) []byte { return sum(s, []byte("v0:"+stamp+":"), body) }))
}

// asks reports whether the scheme's sender may ask a question in place of a delivery.
func (s scheme) asks() bool { return s.name == "slack" }

// challenge is what Slack wants to hear back before it uses an address. The question is signed as any post is, and
// nothing that happened: no delivery comes of it.
func challenge(to *route, payload map[string]any) (answer string, asked bool) {
	if !to.scheme.asks() || payload["type"] != "url_verification" {
		return "", false
	}
	answer, asked = payload["challenge"].(string)
	return answer, asked
}

// skew refuses a timestamp too far from the clock and says by how many seconds.
func skew(stamp string, now time.Time) *Refusal {
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return errSignature
	}
	off := now.Sub(time.Unix(seconds, 0))
	if off.Abs() <= tolerance {
		return nil
	}
	where := "behind"
	if off < 0 {
		where = "ahead of"
	}
	return &Refusal{Code: "E_SIG_TIME", Reason: fmt.Sprintf("the signed timestamp is %d seconds %s this machine's clock; at most %d are allowed",
		int64(off.Abs().Seconds()), where, int64(tolerance.Seconds()))}
}

func first(h http.Header, names ...string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}
