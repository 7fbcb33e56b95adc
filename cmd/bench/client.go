package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// postBody is about a kilobyte of JSON, as a small push is.
var postBody = fmt.Appendf(nil, `{"ref":"refs/heads/main","before":"%040d","after":"%040d","repository":{"id":1152921506151679042,"full_name":"apollo/eleven"},"commits":[%s]}`,
	1, 2, strings.TrimSuffix(strings.Repeat(`{"id":"0123456789abcdef0123456789abcdef01234567","message":"one small step"},`, 9), ","))

func signature() string {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write(postBody)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// client posts over one connection that is kept. It shares two cores with what it measures, so it does as little as a
// sender can: net/http's client costs as much as the server.
type client struct {
	ctx  context.Context //nolint:containedctx // of one load
	host string
	head []byte // the request up to the delivery's number
	tail []byte // and from there on
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func newClient(ctx context.Context, address string) (*client, error) {
	to, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return &client{ctx: ctx, host: to.Host, in: bufio.NewReader(nil),
		head: fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Hub-Signature-256: %s\r\nX-Github-Delivery: delivery-",
			to.Path, to.Host, len(postBody), signature()),
		tail: fmt.Appendf(nil, "\r\n\r\n%s", postBody)}, nil
}

// post sends one signed delivery and gives the status of the answer.
func (c *client) post(n int64) (status int, err error) {
	if c.conn == nil {
		if c.conn, err = (&net.Dialer{}).DialContext(c.ctx, "tcp", c.host); err != nil {
			return 0, err
		}
		c.in.Reset(c.conn)
	}
	c.out = append(strconv.AppendInt(append(c.out[:0], c.head...), n, 10), c.tail...)
	if _, err = c.conn.Write(c.out); err != nil {
		return 0, errors.Join(err, c.close())
	}
	status, more, err := c.answer()
	if err != nil || !more {
		err = errors.Join(err, c.close())
	}
	return status, err
}

// answer reads a response; more says whether the connection takes another request.
func (c *client) answer() (status int, more bool, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, false, err
	}
	if _, err := fmt.Sscanf(string(line), "HTTP/1.1 %d", &status); err != nil {
		return 0, false, fmt.Errorf("answer %q: %w", line, err)
	}
	length, more := 0, true
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		switch string(name) {
		case "":
			_, err = c.in.Discard(length)
			return status, more, err
		case "Content-Length":
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, false, fmt.Errorf("answer: %w", err)
			}
		case "Connection":
			more = string(value) != "close"
		}
	}
}

func (c *client) close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}
