package web

import (
	"context"
	"net"
	"os/user"
	"strconv"
	"syscall"
)

type peerKey struct{}

// WithPeer notes who is at the other end of a connection over a unix socket: the kernel says so, at the time of the
// connection. It is an http.Server's ConnContext.
func WithPeer(ctx context.Context, c net.Conn) context.Context {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	var peer *syscall.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err != nil || failed != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer.Uid)
}

// Peer gives the name of the system's user at the other end; empty when nobody knows.
func Peer(ctx context.Context) string {
	uid, ok := ctx.Value(peerKey{}).(uint32)
	if !ok {
		return ""
	}
	return UserName(int(uid))
}

// UserName gives the name of a user of the system, or uid:1234 for one that has none.
func UserName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid:" + id
}
