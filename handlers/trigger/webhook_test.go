package trigger

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
