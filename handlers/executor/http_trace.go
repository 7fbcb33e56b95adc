package executor

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/apollo-11/apollo/events"
)

// httpPhases are the parts of a request's time, in their order. Over several hops each is added up.
var httpPhases = []string{"dns", "connect", "tls", "send", "wait", "body"}

// The phases by their place in the list; 0 is before the first.
const (
	phaseDNS = iota + 1
	phaseConnect
	phaseTLS
	phaseSend
	phaseWait
	phaseBody
)

// doing says of each phase what a request that ends in it was at.
var doing = []string{"before it began", "while the address of the host was looked up", "while it connected", "during the TLS handshake",
	"while it was sent", "while it waited for the answer", "while it read the answer"}

// timeline follows a request from phase to phase. Its hooks may come from several goroutines, and late ones of a connection
// that was not needed after all: within a hop it goes only forward.
type timeline struct {
	mu    sync.Mutex
	at    int
	since time.Time
	spent [phaseBody + 1]time.Duration
	began [phaseBody + 1]bool
}

func (t *timeline) enter(phase int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if phase > t.at {
		t.move(phase)
	}
}

// hop begins anew: a connection is asked for.
func (t *timeline) hop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.move(0)
}

func (t *timeline) move(phase int) {
	now := time.Now()
	if t.at > 0 {
		t.spent[t.at] += now.Sub(t.since)
	}
	t.at, t.since, t.began[phase] = phase, now, true
}

func (t *timeline) phase() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

func (t *timeline) segments() (list []Segment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.move(0)
	for i, name := range httpPhases {
		if t.began[i+1] {
			list = append(list, Segment{Name: name, Duration: t.spent[i+1]})
		}
	}
	return list
}

func (t *timeline) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { t.hop() },
		DNSStart:             func(httptrace.DNSStartInfo) { t.enter(phaseDNS) },
		ConnectStart:         func(string, string) { t.enter(phaseConnect) },
		TLSHandshakeStart:    func() { t.enter(phaseTLS) },
		GotConn:              func(httptrace.GotConnInfo) { t.enter(phaseSend) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { t.enter(phaseWait) },
		GotFirstResponseByte: func() { t.enter(phaseBody) },
	})
}

// address is an address for people: without the values of its query, which may be secret.
func (x *exchange) address(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	text := shown.String()
	if u.RawQuery != "" {
		var names []string
		for part := range strings.SplitSeq(u.RawQuery, "&") {
			name, _, named := strings.Cut(part, "=")
			if named {
				name += "="
			} else {
				name = ""
			}
			names = append(names, name+string(maskText))
		}
		text += "?" + strings.Join(names, "&")
	}
	return shortened(x.masked(text))
}

// shownStatus is a status with the phrase that belongs to it; what a server writes in the phrase's place is not shown.
func shownStatus(code int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", code, http.StatusText(code)))
}

// note writes what became of a hop: one line of the stage's log.
func (x *exchange) note(method string, u *url.URL, what string) {
	x.log.write([]byte(method + " " + x.address(u) + " -> " + what + "\n"))
}

// noteEnd writes the line of the last hop.
func (x *exchange) noteEnd(resp *http.Response, failure *events.Failure) {
	took := fmt.Sprintf("%d ms", time.Since(x.began).Milliseconds())
	switch {
	case resp == nil:
		x.note(x.hop.Method, x.hop.URL, failure.Reason+", "+took)
	case failure == nil || failure.Pointer == events.StatusPointer:
		x.note(x.hop.Method, x.hop.URL, fmt.Sprintf("%s, %d bytes, %s", shownStatus(resp.StatusCode), x.received, took))
	default:
		x.note(x.hop.Method, x.hop.URL, fmt.Sprintf("%s, %d bytes, %s, %s", shownStatus(resp.StatusCode), x.received, took, failure.Reason))
	}
}
