package trigger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
)

// MaxBody is how many bytes a post may have when its hook says nothing: what GitHub sends at most.
const MaxBody = 25 << 20

// Route is one hook: the last part of its address, and the pipeline that its posts are meant for.
type Route struct {
	Pipeline string
	Hook     events.WebhookTrigger
}

type route struct {
	Route
	scheme  scheme
	limit   int64
	trigger string
	refused refusals
}

// Hooks serves POST /hooks/{path}. A post is looked up, bounded, read raw, verified, parsed and only then stored; it is
// answered with 202 once its run is durable. Routes are replaced whole, while posts are served.
type Hooks struct {
	inbox   Inbox
	secrets func(ref string) ([]string, error)
	clock   func() time.Time
	logger  zerolog.Logger
	routes  atomic.Pointer[map[string]*route]
	reading atomic.Int64 // bytes of large bodies that are held now
	buffers sync.Pool
}

// NewHooks makes a handler without routes. secrets gives the value of a secret:// reference, or two while one replaces
// the other.
func NewHooks(inbox Inbox, secrets func(ref string) ([]string, error), clock func() time.Time, logger zerolog.Logger) *Hooks {
	h := &Hooks{inbox: inbox, secrets: secrets, clock: clock, logger: logger}
	h.buffers.New = func() any { return new(bytes.Buffer) }
	h.SetRoutes(nil)
	return h
}

// SetRoutes replaces the table of hooks.
func (h *Hooks) SetRoutes(routes []Route) {
	table := make(map[string]*route, len(routes))
	for _, r := range routes {
		s, ok := schemeOf(r.Hook.Scheme)
		if !ok {
			h.logger.Error().Str("hook", r.Hook.Path).Str("scheme", r.Hook.Scheme).Msg("hook left out: no such scheme")
			continue
		}
		limit := r.Hook.MaxBody
		if limit == 0 {
			limit = MaxBody
		}
		table[r.Hook.Path] = &route{Route: r, scheme: s, limit: limit, trigger: "webhook:/hooks/" + r.Hook.Path}
	}
	h.routes.Store(&table)
}

// ServeHTTP takes one post.
func (h *Hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, _ := strings.CutPrefix(r.URL.Path, "/hooks/")
	to := (*h.routes.Load())[path]
	switch {
	case to == nil:
		refuse(w, http.StatusNotFound, "E_HOOK", "there is no such hook")
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "E_METHOD", "a hook takes POST")
		return
	case r.Header.Get("Content-Encoding") != "" && r.Header.Get("Content-Encoding") != "identity":
		refuse(w, http.StatusUnsupportedMediaType, "E_ENCODING", "a compressed body is not taken")
		return
	case r.ContentLength > to.limit:
		h.tooLarge(w, to)
		return
	}
	buffer, _ := h.buffers.Get().(*bytes.Buffer)
	defer func() {
		if buffer.Cap() < 1<<20 {
			buffer.Reset()
			h.buffers.Put(buffer)
		}
	}()
	done, err := h.read(buffer, r.ContentLength, http.MaxBytesReader(w, r.Body, to.limit), to.limit)
	defer done()
	if err != nil {
		h.notRead(w, to, err)
		return
	}
	h.take(w, r, to, buffer.Bytes())
}

// maxReading is how many bytes of large bodies are held at once. Strangers can post to a hook, and must not be able to
// fill the memory. Bodies up to smallBody are not counted: the kernel's limit on connections bounds them.
const (
	maxReading = 256 << 20
	smallBody  = 64 << 10
)

// read reads a body whole. done gives its share of the memory back; it is never nil.
func (h *Hooks) read(buffer *bytes.Buffer, length int64, body io.Reader, limit int64) (done func(), err error) {
	done = func() {}
	if _, err := io.CopyN(buffer, body, smallBody); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return done, err
	}
	if length < 0 {
		length = limit
	}
	if h.reading.Add(length) > maxReading {
		h.reading.Add(-length)
		return done, ErrBusy
	}
	_, err = io.Copy(buffer, body)
	return func() { h.reading.Add(-length) }, err
}

func (h *Hooks) notRead(w http.ResponseWriter, to *route, err error) {
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		h.tooLarge(w, to)
	case errors.Is(err, ErrBusy):
		w.Header().Set("Connection", "close")
		h.notStored(w, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		refuse(w, http.StatusRequestTimeout, "E_BODY_TIMEOUT", "the body came too slowly")
	default:
		refuse(w, http.StatusBadRequest, "E_BODY", "the body did not arrive whole")
	}
}

func (h *Hooks) tooLarge(w http.ResponseWriter, to *route) {
	w.Header().Set("Connection", "close")
	refuse(w, http.StatusRequestEntityTooLarge, "E_BODY_SIZE", "the body is larger than "+strconv.FormatInt(to.limit, 10)+" bytes")
}

// take verifies, parses and stores a post that was read whole. body belongs to the caller.
func (h *Hooks) take(w http.ResponseWriter, r *http.Request, to *route, body []byte) {
	if refusal := h.verify(r.Header, body, to); refusal != nil {
		h.remember(r.Context(), to, refusal)
		refuse(w, http.StatusUnauthorized, refusal.Code, refusal.Reason)
		return
	}
	payload, status, refusal := payloadOf(r.Header.Get("Content-Type"), body, to.readsPayload())
	if refusal != nil {
		h.remember(r.Context(), to, refusal)
		refuse(w, status, refusal.Code, refusal.Reason)
		return
	}
	if answer, asked := challenge(to, payload); asked {
		replyAs(w, "text/plain; charset=utf-8", http.StatusOK, []byte(answer))
		return
	}
	d := &Delivery{Kind: "webhook", Trigger: to.trigger, Pipeline: to.Pipeline, Key: keyOf(to, r.Header, payload, body),
		Headers: kept(r.Header), Body: bytes.Clone(body), Traceparent: traceparent(r.Header.Get("Traceparent"))}
	receipt, err := h.inbox.Accept(r.Context(), d)
	if err != nil {
		h.notStored(w, err)
		return
	}
	answer(w, receipt)
}

func (h *Hooks) verify(header http.Header, body []byte, to *route) *Refusal {
	var secrets []string
	if to.scheme.name != "none" {
		var err error
		if secrets, err = h.secrets(to.Hook.Secret); err != nil || len(secrets) == 0 {
			h.logger.Error().Err(err).Str("hook", to.Hook.Path).Str("secret", to.Hook.Secret).Msg("the secret of a hook cannot be read")
			return errSignature
		}
	}
	return to.scheme.verify(header, body, secrets, h.clock())
}

// refusals bounds how many refused posts of a hook are stored: the rest is only counted.
type refusals struct {
	mu      sync.Mutex
	minute  int64
	stored  int
	dropped int
}

const refusalsPerMinute = 60

// remember makes a refused post of a known hook visible, without a byte of its body.
func (h *Hooks) remember(ctx context.Context, to *route, refusal *Refusal) {
	minute := h.clock().Unix() / 60
	to.refused.mu.Lock()
	if to.refused.minute != minute {
		if to.refused.dropped > 0 {
			h.logger.Warn().Str("hook", to.Hook.Path).Int("posts", to.refused.dropped).Msg("further posts were refused and not recorded")
		}
		to.refused.minute, to.refused.stored, to.refused.dropped = minute, 0, 0
	}
	full := to.refused.stored >= refusalsPerMinute
	if full {
		to.refused.dropped++
	} else {
		to.refused.stored++
	}
	to.refused.mu.Unlock()
	if full {
		return
	}
	if _, err := h.inbox.Accept(ctx, &Delivery{Kind: "webhook", Trigger: to.trigger, Pipeline: to.Pipeline, Refused: refusal}); err != nil {
		h.logger.Warn().Err(err).Str("hook", to.Hook.Path).Msg("record a refused post")
	}
}

func (h *Hooks) notStored(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrBusy):
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, "E_BUSY", "the queue is full; nothing was stored")
	case errors.Is(err, ErrFull):
		refuse(w, http.StatusInsufficientStorage, "E_STORE_FULL", "no space left; nothing was stored")
	case errors.Is(err, ErrClosed):
		w.Header().Set("Retry-After", "5")
		refuse(w, http.StatusServiceUnavailable, "E_CLOSED", "the engine is stopping; nothing was stored")
	default:
		h.logger.Error().Err(err).Msg("store a post")
		refuse(w, http.StatusInternalServerError, "E_STORE", "the post could not be stored")
	}
}

// answer says what became of a stored post.
func answer(w http.ResponseWriter, r Receipt) {
	b := make([]byte, 0, 192)
	b = append(b, `{"delivery":"`...)
	b = append(b, r.Delivery.String()...)
	b = append(b, `","fate":"`...)
	b = append(b, r.Fate...)
	if !r.Run.IsZero() {
		b = append(append(b, `","run":"`...), r.Run.String()...)
	}
	b = append(b, '"')
	status := http.StatusAccepted
	switch r.Fate {
	case "duplicate":
		status = http.StatusOK
		b = append(b, `,"duplicate":true,"duplicate_of":"`...)
		b = append(append(b, r.DuplicateOf.String()...), '"')
	case "rejected":
		status = http.StatusUnprocessableEntity
		detail, _ := json.Marshal(struct { //nolint:errchkjson // strings always have a JSON form
			Code   string `json:"code"`
			Reason string `json:"reason"`
		}{r.Code, r.Reason})
		b = append(append(b, ','), detail[1:len(detail)-1]...)
	}
	reply(w, status, append(b, '}', '\n'))
}

func refuse(w http.ResponseWriter, status int, code, reason string) {
	b, _ := json.Marshal(struct { //nolint:errchkjson // strings always have a JSON form
		Code   string `json:"code"`
		Reason string `json:"reason"`
	}{code, reason})
	reply(w, status, append(b, '\n'))
}

func reply(w http.ResponseWriter, status int, body []byte) {
	replyAs(w, "application/json", status, body)
}

func replyAs(w http.ResponseWriter, media string, status int, body []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// NewServer gives a server with the bounds that an open port needs.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 60 * time.Second,
		MaxHeaderBytes: 32 << 10}
}
