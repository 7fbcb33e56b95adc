package executor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
)

func TestSpecialAddresses(t *testing.T) {
	t.Parallel()
	for what, list := range map[string]string{
		"":                       "8.8.8.8 1.1.1.1 172.15.255.255 172.32.0.0 100.63.255.255 100.128.0.0 169.253.1.1 192.167.1.1 223.255.255.255 198.20.0.1 2606:4700::1111 2a00:1450:4001::8a ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1 2400:cb00::%eth0",
		"loopback":               "127.0.0.1 127.255.255.254 ::1 ::1%lo ::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::",
		"private":                "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fc00::1 fd00:ec2::254 ::ffff:10.1.2.3 64:ff9b::a01:203 2002:c0a8:101::5",
		"link-local":             "169.254.169.254 169.254.0.1 fe80::1 fe80::1%eth0 ::ffff:a9fe:a9fe 64:ff9b::169.254.169.254 2002:a9fe:a9fe::1",
		"of this host":           "0.0.0.0 0.1.2.3 :: ::ffff:0.0.0.0",
		"multicast":              "224.0.0.1 239.255.255.255 ff02::1 ff0e::1 64:ff9b::e000:1",
		"reserved":               "240.0.0.1 255.255.255.255",
		"a carrier's own":        "100.64.0.1 100.100.100.200 100.127.255.255",
		"a cloud platform's own": "168.63.129.16",
		"for protocols":          "192.0.0.192 2001::1 2001:2::1 2001:20::1",
		"for documentation":      "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1",
		"for benchmarks":         "198.18.0.1 198.19.255.255",
		"site-local":             "fec0::1",
		"IPv4-compatible":        "::7f00:1 ::8.8.8.8",
		"IPv4-translated":        "::ffff:0:7f00:1",
		"a local translator's":   "64:ff9b:1::1",
		"a 6to4 relay's":         "192.88.99.1",
		"discarded":              "100::1",
		"for segment routing":    "5f00::1",
		"unassigned":             "4000::1 100:1::1 e000::1",
	} {
		for text := range strings.FieldsSeq(list) {
			if got := special(netip.MustParseAddr(text)); got != what {
				t.Errorf("%s: %q, want %q", text, got, what)
			}
		}
	}
	if special(netip.Addr{}) == "" {
		t.Error("no address is a public one")
	}
}

// However an address of version 4 is dressed up, it stays what it is.
func TestCarriedAddressesAreWhatTheyCarry(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		four := [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))
		if rapid.Bool().Draw(t, "special") {
			four[0] = rapid.SampledFrom([]byte{0, 10, 127, 240}).Draw(t, "first")
		}
		want := special(netip.AddrFrom4(four))
		mapped := netip.AddrFrom16(netip.AddrFrom4(four).As16())
		nat, sixteen := netip.MustParseAddr("64:ff9b::").As16(), netip.MustParseAddr("2002::1").As16()
		copy(nat[12:], four[:])
		copy(sixteen[2:], four[:])
		for _, a := range []netip.Addr{mapped, netip.AddrFrom16(nat), netip.AddrFrom16(sixteen)} {
			if got := special(a); got != want {
				t.Fatalf("%s: %q, want %q", a, got, want)
			}
		}
	})
}

func TestAllowedEntries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry, host, to string
		want            bool
	}{
		{"10.1.0.0/16", "x", "10.1.9.9:80", true},
		{"10.1.2.3/16", "x", "10.1.9.9:80", true},
		{"10.1.0.0/16", "x", "10.2.0.1:80", false},
		{"10.1.0.0/16", "x", "[::ffff:10.1.0.1]:80", true},
		{" 10.1.2.3 ", "x", "10.1.2.3:99", true},
		{"10.1.2.3:80", "x", "10.1.2.3:80", true},
		{"10.1.2.3:80", "x", "10.1.2.3:81", false},
		{"::1", "x", "[::1]:1", true},
		{"[fd00::1]:80", "x", "[fd00::1]:80", true},
		{"[fd00::1]:80", "x", "[fd00::1]:8080", false},
		{"fe80::/10", "x", "[fe80::1%eth0]:80", true},
		{"Api.Internal", "api.internal", "10.1.2.3:80", true},
		{"api.internal.", "api.internal", "10.1.2.3:80", true},
		{"api.internal", "xapi.internal", "10.1.2.3:80", false},
		{"api.internal:8080", "api.internal", "10.1.2.3:8080", true},
		{"api.internal:8080", "api.internal", "10.1.2.3:80", false},
		{"localhost", "", "127.0.0.1:80", false},
		{"10.1.0.0/16", "", "10.2.0.1:80", false},
	} {
		if _, err := parseAllowed(c.entry); err != nil {
			t.Error(err)
		}
		if got := newGuard([]string{c.entry}).allows(c.host, netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for _, entry := range []string{"", "http://a", "a b", "10.1.2", "10.1.2.3/33", "a:0", "a:70000", "a/8", "*", "*.a", "::1:80/", "300.1.2.3", "-"} {
		if err := CheckHTTPAllow([]string{"localhost", entry}); err == nil {
			t.Errorf("%q is taken", entry)
		}
		if len(newGuard([]string{entry})) != 0 {
			t.Errorf("%q allows something", entry)
		}
	}
}

// mustRefuse asks for an address that must be refused, and sees that nobody was connected to.
func mustRefuse(t *testing.T, h *HTTP, settings, address, at string) {
	t.Helper()
	_, failure := h.Execute(t.Context(), httpCall(t, settings, address))
	if failure == nil || failure.Class != events.ExecFailed || failure.Pointer != "/url" || failure.Actual != at || !strings.HasPrefix(failure.Reason, "E_HTTP_ADDRESS: ") {
		t.Errorf("%s: %+v", address, failure)
	}
}

func TestGuardRefusesWhereverTheAddressComesFrom(t *testing.T) {
	t.Parallel()
	var asked, redirected atomic.Int32
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(inner.Close)
	_, port, _ := net.SplitHostPort(inner.Listener.Addr().String())
	h := newHTTPForTest(t)
	mustRefuse(t, h, `{"url":"%s/"}`, inner.URL, "127.0.0.1")
	mustRefuse(t, h, `{"url":"%s/"}`, "http://localhost:"+port, "127.0.0.1")
	mustRefuse(t, h, `{"url":"%s/"}`, "http://[::ffff:127.0.0.1]:"+port, "127.0.0.1")
	mustRefuse(t, h, `{"url":"%s/latest/meta-data/"}`, "http://169.254.169.254", "169.254.169.254")
	mustRefuse(t, h, `{"url":"%s/"}`, "http://[fd00:ec2::254]", "fd00:ec2::254")
	mustRefuse(t, h, `{"url":"%s/"}`, "http://0.0.0.0:"+port, "0.0.0.0")
	outer, redirecting := httpServer(t, func(w http.ResponseWriter, r *http.Request) {
		redirected.Add(1)
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	mustRefuse(t, redirecting, `{"url":"%s/?to=`+inner.URL+`"}`, outer.URL, "127.0.0.1") // the same address, another port
	mustRefuse(t, redirecting, `{"url":"%s/?to=http://169.254.169.254/"}`, outer.URL, "169.254.169.254")
	if asked.Load() != 0 || redirected.Load() != 2 {
		t.Errorf("%d connections, %d redirects", asked.Load(), redirected.Load())
	}
	if h.transport.Proxy != nil {
		t.Error("a proxy could be used, which nobody guards")
	}
}

// nameServer answers every question for an address with what give says; "" is no such name.
func nameServer(t *testing.T, give func() string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if n > 12 {
				_, _ = conn.WriteTo(answer(buf[:n], give), from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// answer writes the reply to a DNS question.
func answer(question []byte, give func() string) []byte {
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	kind := question[end+2]
	reply := append([]byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question[12:end+5]...)
	if kind != 1 { // no A
		return reply
	}
	address := give()
	if address == "" {
		reply[3] |= 3
		return reply
	}
	reply[7] = 1
	four := netip.MustParseAddr(address).As4()
	return append(append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4), four[:]...)
}

// A name that meant a good address when it was first asked for, and means a bad one when it is connected to.
func TestGuardSeesThroughRebinding(t *testing.T) {
	t.Parallel()
	var good, bad atomic.Int32
	serve := func(address string, count *atomic.Int32) string {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			count.Add(1)
			w.Header().Set("Connection", "close")
			_, _ = io.WriteString(w, "x")
		})}}
		srv.Start()
		t.Cleanup(srv.Close)
		return l.Addr().String()
	}
	_, port, _ := net.SplitHostPort(serve("127.0.0.2:0", &good))
	serve("127.0.0.1:"+port, &bad)
	var means atomic.Value
	h := newHTTPForTest(t, "127.0.0.2")
	h.dialer.Resolver = nameServer(t, func() string { return means.Load().(string) })
	url := "http://rebind.example:" + port
	means.Store("127.0.0.2")
	if _, failure := h.Execute(t.Context(), httpCall(t, `{"url":"%s/"}`, url)); failure != nil {
		t.Fatal(failure)
	}
	means.Store("127.0.0.1")
	mustRefuse(t, h, `{"url":"%s/"}`, url, "127.0.0.1")
	if good.Load() != 1 || bad.Load() != 0 {
		t.Errorf("%d good, %d bad", good.Load(), bad.Load())
	}
	byName := newHTTPForTest(t, "Rebind.example:"+port)
	byName.dialer.Resolver = h.dialer.Resolver
	if _, failure := byName.Execute(t.Context(), httpCall(t, `{"url":"%s/"}`, url)); failure != nil || bad.Load() != 1 {
		t.Errorf("allowed by its name: %v", failure)
	}
	mustRefuse(t, byName, `{"url":"%s/"}`, "http://127.0.0.1:"+port, "127.0.0.1")
}
