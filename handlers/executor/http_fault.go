package executor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// maxShown bounds an address, and what a library and by it a server says, in a reason; in bytes.
const maxShown = 400

// shortText is an error without secrets, and of a bounded length. That of net/http repeats the whole address, and is left
// out.
func (x *exchange) shortText(err error) string {
	if wrong, ok := errors.AsType[*url.Error](err); ok {
		err = wrong.Err
	}
	return shortened(x.masked(err.Error()))
}

// shortened bounds a text in which secrets are masked already: half a secret would not be found.
func shortened(text string) string {
	if len(text) > maxShown {
		return strings.ToValidUTF8(text[:maxShown], "") + "…"
	}
	return text
}

// fault classes a request that got no answer.
func (x *exchange) fault(ctx context.Context, err error) *events.Failure {
	phase := x.times.phase()
	if cause := x.stopped(ctx); cause != nil {
		return cause
	}
	if own, ok := errors.AsType[*events.Failure](err); ok {
		failure := *own
		return &failure
	}
	failure := &events.Failure{Class: events.ExecFailed, Pointer: events.ConnectPointer}
	host := x.hop.URL.Host
	if refused, ok := errors.AsType[*refusedAddress](err); ok {
		failure.Pointer = "/url"
		failure.Expected, failure.Actual = "an address of the public internet, or one that the operator allows", refused.address.String()
		failure.Reason = fmt.Sprintf("E_HTTP_ADDRESS: %v; the operator can allow it by --http-allow or APOLLO_HTTP_ALLOW", refused)
		return failure
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		failure.Class, failure.Actual = events.Timeout, doing[phase]
		failure.Reason = fmt.Sprintf("E_HTTP_TIMEOUT: %s took too long %s: %s", host, doing[phase], x.shortText(err))
		if phase > phaseTLS {
			failure.Pointer = ""
		}
		return failure
	}
	switch phase {
	case phaseDNS:
		failure.Reason = fmt.Sprintf("E_HTTP_DNS: the host %s was not found: %s", host, x.shortText(err))
	case phaseConnect:
		failure.Reason = fmt.Sprintf("E_HTTP_CONNECT: no connection to %s: %s", host, x.shortText(err))
	case phaseTLS:
		failure.Reason = fmt.Sprintf("E_HTTP_TLS: no secure connection to %s: %s", host, x.shortText(err))
	default:
		failure.Reason = fmt.Sprintf("E_HTTP_ANSWER: no answer of %s that could be read, the connection ended %s: %s", host, doing[phase], x.shortText(err))
	}
	return failure
}

// stopped says why the attempt was ended, if it was; of a time-out also what the request was at.
func (x *exchange) stopped(ctx context.Context) *events.Failure {
	cause := stopCause(ctx)
	if cause != nil && cause.Class == events.Timeout && cause.Actual == "" {
		phase := x.times.phase()
		cause.Actual = doing[phase]
		if phase > 0 && phase <= phaseTLS {
			cause.Pointer = events.ConnectPointer
		}
	}
	return cause
}

// stalled ends a request whose answer goes on no more.
func (x *exchange) stalled() {
	x.cancel(&events.Failure{Class: events.Timeout, Expected: "more of the answer within " + x.http.stall.String(),
		Reason: fmt.Sprintf("E_HTTP_TIMEOUT: nothing of the answer came for %s", x.http.stall)})
}
