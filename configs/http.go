package configs

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// HTTPValues are the roles under which an http stage gives its answer as small values.
var HTTPValues = []string{"status", "headers", "body"}

var requestHeader = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// connectionHeaders belong to the connection, not to the request, and are made by whoever holds it.
var connectionHeaders = map[string]string{
	"host": "the host comes from url", "content-length": "it is counted", "transfer-encoding": "", "connection": "", "keep-alive": "",
	"proxy-connection": "", "proxy-authorization": "", "proxy-authenticate": "", "te": "", "trailer": "", "upgrade": "", "expect": "", "http2-settings": "",
}

// ParseURL reads the address of an HTTP request: absolute, http or https, with a host and without user or password. Its
// errors never repeat the address, which may hold what is secret.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		err = wrong.Err
	}
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the address does not begin with http:// or https://")
	case u.User != nil:
		return nil, errors.New("the address holds a user or a password")
	case u.Hostname() == "":
		return nil, errors.New("the address names no host")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("the address has a port outside 1 to 65535")
		}
	}
	return u, nil
}

// checkHTTP finds what is wrong with a request beyond the form of its keys.
func (b *builder) checkHTTP(s *stageInfo, n *node) {
	b.checkAnswer(s)
	if network := s.body.get("network"); network != nil && network.text == "none" {
		b.at(network, "E_NETWORK_NONE", "the stage "+s.name+" makes a request and has no network", "network: allow", "")
	}
	if n.kind != mapNode {
		return
	}
	secrets := b.checkHTTPSecrets(s, n)
	b.checkURL(n.get("url"), secrets > 0)
	b.checkHeaders(n)
	b.checkBody(s, n)
}

// checkURL looks at an address that is written out; what an expression gives is checked when the stage runs.
func (b *builder) checkURL(n *node, secrets bool) {
	if n == nil || n.kind != scalarNode || strings.Contains(n.text, "${{") {
		return
	}
	u, err := ParseURL(n.text)
	if err != nil {
		hint := ""
		if strings.Contains(n.text, "@") {
			hint = "secrets: {PASSWORD: secret://name} and auth: {basic: {user: …, password: PASSWORD}}"
		}
		b.at(n, "E_URL", err.Error(), "http:// or https://, a host, and no user", hint)
		if hint != "" {
			b.problems[len(b.problems)-1].Snippet = "" // it would show the password
		}
		return
	}
	address, _ := netip.ParseAddr(u.Hostname())
	if secrets && u.Scheme == "http" && u.Hostname() != "localhost" && !address.IsLoopback() {
		b.warn(n.line, n.col, "E_HTTP_PLAIN", "a secret would travel unencrypted to "+shortened(u.Hostname()), "https://", "")
	}
}

// checkHTTPSecrets looks for the variables that auth, secret_headers and secret_query name, and counts them.
func (b *builder) checkHTTPSecrets(s *stageInfo, n *node) (count int) {
	auth := n.get("auth")
	named := []*node{auth.get("bearer"), auth.get("basic").get("password")}
	for _, group := range []*node{n.get("secret_headers"), n.get("secret_query")} {
		if group != nil {
			for _, e := range group.entries {
				named = append(named, e.value)
			}
		}
	}
	var known []string
	if secrets := s.body.get("secrets"); secrets != nil {
		for _, e := range secrets.entries {
			known = append(known, e.key.text)
		}
	}
	slices.Sort(known)
	for _, name := range named {
		if name == nil || name.kind != scalarNode || name.text == "" {
			continue
		}
		count++
		if !slices.Contains(known, name.text) {
			hint := didYouMean(name.text, known)
			if hint == "" {
				hint = "declare it: secrets: {" + shortened(name.text) + ": secret://name}"
			}
			b.at(name, "E_REF", "the stage "+s.name+" has no secret "+shortened(name.text), "a variable under secrets: of the stage", hint)
		}
	}
	return count
}

// checkHeaders looks at the names in headers and secret_headers, of which each may stand once.
func (b *builder) checkHeaders(n *node) {
	seen := map[string]string{}
	if n.get("auth") != nil {
		seen["authorization"] = "auth"
	}
	for _, group := range []string{"headers", "secret_headers"} {
		headers := n.get(group)
		if headers == nil {
			continue
		}
		for _, e := range headers.entries {
			b.checkHeader(e)
			lower := strings.ToLower(e.key.text)
			if first, again := seen[lower]; again {
				b.at(e.key, "E_HTTP_HEADER", "the header "+shortened(e.key.text)+" is set already, by "+first, "each header once", "")
			}
			seen[lower] = group
		}
	}
}

func (b *builder) checkHeader(e entry) {
	name := e.key.text
	why, own := connectionHeaders[strings.ToLower(name)]
	switch {
	case !requestHeader.MatchString(name):
		b.at(e.key, "E_HTTP_HEADER", strconv.Quote(shortened(name))+" is no name of a header", "letters, digits and dashes", "")
	case own:
		b.at(e.key, "E_HTTP_HEADER", "the header "+name+" belongs to the connection and can't be set", "a header of the request", why)
	case e.value.kind == scalarNode && strings.ContainsFunc(e.value.text, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		b.at(e.value, "E_HTTP_HEADER", "the header "+name+" holds a line break or another control character", "one line of text", "")
	}
}

func (b *builder) checkBody(s *stageInfo, n *node) {
	body, from := n.get("body"), n.get("body_from")
	if body != nil && from != nil {
		b.at(from, "E_ONE", "the request has body and body_from", "exactly one", "")
	}
	if from != nil && from.kind == scalarNode && from.text != "" {
		var roles []string
		if inputs := s.body.get("inputs"); inputs != nil {
			for _, e := range inputs.entries {
				roles = append(roles, e.key.text)
			}
		}
		slices.Sort(roles)
		if !slices.Contains(roles, from.text) {
			b.at(from, "E_REF", "the stage "+s.name+" has no input "+shortened(from.text), "a role under inputs: of the stage", didYouMean(from.text, roles))
		}
		body = from
	}
	if method := textOr(n, "method", "GET"); body != nil && (method == "GET" || method == "HEAD") {
		b.warn(body.line, body.col, "E_HTTP_BODY", "a "+method+" request has a body, which many servers ignore or refuse", "method: POST, PUT or PATCH", "")
	}
}

// checkAnswer sees that the outputs are what an answer has: one file with its body, and the values.
func (b *builder) checkAnswer(s *stageInfo) {
	outputs := s.body.get("outputs")
	if outputs == nil {
		return
	}
	file := ""
	for _, e := range outputs.entries {
		i := slices.IndexFunc(s.out.Outputs, func(o events.Output) bool { return o.Role == e.key.text })
		switch {
		case i < 0:
		case s.out.Outputs[i].Path == "" && !slices.Contains(HTTPValues, e.key.text):
			b.at(e.key, "E_HTTP_OUTPUT", "an answer has no value "+shortened(e.key.text), "status, headers or body; or path: for a file with the body",
				didYouMean(e.key.text, HTTPValues))
		case isDirectory(s.out.Outputs[i].Path):
			b.at(e.value.get("path"), "E_HTTP_OUTPUT", "an answer's body is one file, and "+e.key.text+" is a directory", "a path without a slash at its end", "")
		case s.out.Outputs[i].Path != "" && file != "":
			b.at(e.key, "E_HTTP_OUTPUT", "the answer's body can't become two files, "+file+" and "+e.key.text, "at most one output with a path",
				"a stage that reads "+file+" can make more of it")
		case s.out.Outputs[i].Path != "":
			file = e.key.text
		}
	}
}
