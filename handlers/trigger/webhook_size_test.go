package trigger

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/apollo-11/apollo/events"
)

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
