package trigger

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
)

// payloadOf holds the body against its media type and checks JSON strictly. The payload is that of a JSON object, if it is
// wanted, else nil; a refusal comes with the status to answer.
func payloadOf(contentType string, body []byte, wanted bool) (payload map[string]any, status int, refusal *Refusal) {
	switch media := mediaType(contentType); {
	case media == "application/json" || strings.HasSuffix(media, "+json"):
	case media == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, http.StatusBadRequest, &Refusal{"E_FORM", "the form cannot be read"}
		}
		if !form.Has("payload") {
			return nil, 0, nil
		}
		body = []byte(form.Get("payload"))
	default:
		return nil, http.StatusUnsupportedMediaType, &Refusal{"E_MEDIA_TYPE", "a hook takes application/json or a form"}
	}
	payload, err := object(body, wanted)
	if err != nil {
		code := "E_JSON"
		if e, ok := errors.AsType[*contract.DecodeError](err); ok {
			code = e.Code
		}
		return nil, http.StatusBadRequest, &Refusal{code, err.Error()}
	}
	return payload, 0, nil
}

// mediaType gives what a header says without its parameters: JSON when it is empty, nothing when it cannot be read.
func mediaType(contentType string) string {
	if contentType == "" || contentType == "application/json" {
		return "application/json"
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ""
	}
	return media
}

func object(text []byte, wanted bool) (map[string]any, error) {
	if !wanted {
		return nil, contract.CheckStrict(text)
	}
	value, err := contract.DecodeStrict(text)
	o, _ := value.(map[string]any)
	return o, err
}

// readsPayload reports whether a payload is looked at, and not only checked.
func (to *route) readsPayload() bool {
	_, field := to.key()
	return field != "" || to.scheme.asks()
}

// key gives the headers and the member of the payload that may name a delivery: what the hook says goes before the scheme.
func (to *route) key() (headers []string, field string) {
	if own, ok := strings.CutPrefix(to.Hook.Key, "header:"); ok {
		return []string{own}, ""
	}
	return to.scheme.keys, to.scheme.field
}

// keyOf is what makes two posts the same: the header that the hook names, else what its scheme names, else the body.
func keyOf(to *route, h http.Header, payload map[string]any, body []byte) string {
	names, field := to.key()
	for _, name := range names {
		if v := h.Get(name); isKey(v) {
			return v
		}
	}
	if v, ok := payload[field].(string); ok && field != "" && isKey(v) {
		return v
	}
	return events.DigestOf(body).String()
}

const maxKey = 512 // bytes; a longer one names nothing

func isKey(v string) bool {
	return v != "" && len(v) <= maxKey && utf8.ValidString(v) && !strings.ContainsRune(v, 0)
}

// keptHeaders may be stored: what a pipeline may want to know, and nothing that opens a door. The names are canonical.
var keptHeaders = []string{"Content-Type", "User-Agent", "X-Github-Event", "X-Github-Delivery", "X-Gitlab-Event", "X-Gitea-Event",
	"X-Gogs-Event", "X-Shopify-Topic", "X-Shopify-Shop-Domain", "X-Event-Key", "X-Slack-Retry-Num", "Webhook-Id", "Webhook-Timestamp",
	"Ce-Id", "Ce-Type", "Ce-Source", "Ce-Specversion", "Ce-Subject", "Ce-Time", "Ce-Dataschema", "Traceparent"}

const maxHeader = 1 << 10 // bytes kept of one header

func kept(h http.Header) map[string]string {
	all := make(map[string]string, 4)
	for _, name := range keptHeaders {
		if v := h[name]; len(v) > 0 && v[0] != "" {
			all[name] = strings.ToValidUTF8(v[0][:min(len(v[0]), maxHeader)], "")
		}
	}
	return all
}

var w3cTrace = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// traceparent gives the header when it is one: what a stranger sends instead goes into no event.
func traceparent(v string) string {
	if !w3cTrace.MatchString(v) {
		return ""
	}
	return v
}
