package executor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// specialRange is a range of addresses that are not those of some server in the public internet.
type specialRange struct {
	prefix netip.Prefix
	what   string
}

// specialRanges are what a stage may not reach unless the operator allows it, from the IANA registries of special-purpose
// addresses. An address of version 6 outside 2000::/3 needs no line: it is refused anyway, and one only to be named.
var specialRanges = func() (table []specialRange) {
	for _, line := range [][2]string{
		{"0.0.0.0/8", "of this host"}, {"10.0.0.0/8", "private"}, {"100.64.0.0/10", "a carrier's own"}, {"127.0.0.0/8", "loopback"},
		{"168.63.129.16/32", "a cloud platform's own"}, {"169.254.0.0/16", "link-local"}, {"172.16.0.0/12", "private"}, {"192.0.0.0/24", "for protocols"},
		{"192.0.2.0/24", "for documentation"}, {"192.88.99.0/24", "a 6to4 relay's"}, {"192.168.0.0/16", "private"}, {"198.18.0.0/15", "for benchmarks"},
		{"198.51.100.0/24", "for documentation"}, {"203.0.113.0/24", "for documentation"}, {"224.0.0.0/4", "multicast"}, {"240.0.0.0/4", "reserved"},
		{"::/128", "of this host"}, {"::1/128", "loopback"}, {"::/96", "IPv4-compatible"}, {"::ffff:0:0:0/96", "IPv4-translated"},
		{"64:ff9b:1::/48", "a local translator's"}, {"100::/64", "discarded"}, {"2001::/23", "for protocols"}, {"2001:db8::/32", "for documentation"},
		{"3fff::/20", "for documentation"}, {"5f00::/16", "for segment routing"}, {"fc00::/7", "private"}, {"fe80::/10", "link-local"},
		{"fec0::/10", "site-local"}, {"ff00::/8", "multicast"},
	} {
		table = append(table, specialRange{netip.MustParsePrefix(line[0]), line[1]})
	}
	return table
}()

var (
	nat64        = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour    = netip.MustParsePrefix("2002::/16")
	globalRange6 = netip.MustParsePrefix("2000::/3")
)

// special says what kind of address it is that no server in the public internet has, or "". An address that carries one
// of version 4 for a translator or a tunnel is what that one is.
func special(a netip.Addr) string {
	a = plainAddr(a)
	for _, r := range specialRanges {
		if r.prefix.Contains(a) {
			return r.what
		}
	}
	switch b := a.As16(); {
	case nat64.Contains(a):
		return special(netip.AddrFrom4([4]byte(b[12:16])))
	case sixToFour.Contains(a):
		return special(netip.AddrFrom4([4]byte(b[2:6])))
	case !a.IsValid(), a.Is6() && !globalRange6.Contains(a):
		return "unassigned"
	}
	return ""
}

// plainAddr is the form in which addresses are compared: IPv4 as such, and no zone.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// allowed is one thing that the operator lets stages reach: a host by its name, or addresses; at one port, or at any.
type allowed struct {
	host   string // lower case; empty: prefix counts
	prefix netip.Prefix
	port   uint16 // 0 is any
}

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,252})$`)

// parseAllowed reads 10.1.0.0/16, 10.1.2.3, 10.1.2.3:8080, [fd00::1]:8080, example.internal or example.internal:8080.
func parseAllowed(entry string) (allowed, error) {
	entry = strings.ToLower(strings.TrimSpace(entry))
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		return allowed{prefix: prefix.Masked()}, nil
	}
	var a allowed
	host := entry
	if h, port, err := net.SplitHostPort(entry); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return a, notAllowed(entry)
		}
		host, a.port = h, uint16(n)
	}
	if address, err := netip.ParseAddr(host); err == nil {
		address = plainAddr(address)
		a.prefix = netip.PrefixFrom(address, address.BitLen())
		return a, nil
	}
	if a.host = strings.TrimSuffix(host, "."); !hostName.MatchString(a.host) || strings.Trim(a.host, "0123456789.") == "" {
		return a, notAllowed(entry)
	}
	return a, nil
}

func notAllowed(entry string) error {
	return fmt.Errorf("%q is neither a network, as 10.1.0.0/16, nor a host or an address, alone or with a port from 1 to 65535", entry)
}

// CheckHTTPAllow reports the first entry of Settings.HTTPAllow that can't be read.
func CheckHTTPAllow(entries []string) error {
	for _, entry := range entries {
		if _, err := parseAllowed(entry); err != nil {
			return err
		}
	}
	return nil
}

// guard decides which addresses are connected to. It looks at each address at the moment when it is dialled, so that it
// makes no difference how one came to it: written out, by a name whose meaning changes, or by a redirect.
type guard []allowed

// newGuard leaves out what can't be read: that is not allowed.
func newGuard(entries []string) (g guard) {
	for _, entry := range entries {
		if a, err := parseAllowed(entry); err == nil {
			g = append(g, a)
		}
	}
	return g
}

func (g guard) allows(host string, to netip.AddrPort) bool {
	for _, a := range g {
		if a.port != 0 && a.port != to.Port() {
			continue
		}
		if a.host == host && host != "" || a.host == "" && a.prefix.Contains(plainAddr(to.Addr())) {
			return true
		}
	}
	return false
}

// refusedAddress is a connection that was not made.
type refusedAddress struct {
	host    string
	address netip.Addr
	what    string
}

func (e *refusedAddress) Error() string {
	return fmt.Sprintf("%s leads to the address %s, which is %s", e.host, e.address, e.what)
}

// dialledHost is the key under which a context holds the name that is being connected to.
type dialledHost struct{}

// dialling remembers the name for control.
func dialling(ctx context.Context, address string) context.Context {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return context.WithValue(ctx, dialledHost{}, strings.TrimSuffix(strings.ToLower(host), "."))
}

// control is net.Dialer's hook between the making of a socket and its connection.
func (g guard) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	host, _ := ctx.Value(dialledHost{}).(string)
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return &refusedAddress{host: host, what: "no address of IP"}
	}
	if what := special(to.Addr()); what != "" && !g.allows(host, to) {
		return &refusedAddress{host: host, address: to.Addr(), what: what}
	}
	return nil
}
