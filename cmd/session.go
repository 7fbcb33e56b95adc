package cmd

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// control is what can be done to runs.
type control interface {
	web.Steering
	web.Verifications
}

// session is a way to an engine: one of this process, or that of the process that holds the data directory.
type session interface {
	StartRun(ctx context.Context, r web.StartRequest) (trigger.Receipt, error)
	control
	reader() *sqlite.Store
	wait(ctx context.Context) error // returns when the log may have grown
	leave(ctx context.Context) error
}

// The kinds of process that hold a data directory.
const (
	kindServe = "serve"
	kindRun   = "run"
)

// serveControl serves the API on the socket. It is built when the first request comes: start-up does not wait for it.
func (n *node) serveControl(kind, address string) error {
	l, err := listenControl(n.dir)
	if err != nil {
		return err
	}
	v, _ := version()
	api := sync.OnceValue(func() http.Handler {
		return web.API(web.Options{Control: n, Log: n.store, Import: n, Done: n.ending, Status: func() web.Status {
			return web.Status{PID: os.Getpid(), Kind: kind, Address: address, Version: v, Ready: n.engine.Ready()}
		}})
	})
	n.control = trigger.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { api().ServeHTTP(w, r) }))
	n.control.ConnContext = web.WithPeer
	go func() {
		if err := n.control.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.logger.Error().Err(err).Msg("control socket closed")
		}
	}()
	return nil
}

// local is a session on an engine of this process. It shares it over the socket while it lasts.
type local struct {
	*node
	wake <-chan struct{}
	stop func()
}

func (l *local) reader() *sqlite.Store { return l.store }

func (l *local) wait(ctx context.Context) error {
	select {
	case <-l.wake:
		return nil
	case <-l.engine.Done():
		if err := l.engine.Err(); err != nil {
			return err
		}
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave stops the engine. Stages of others' runs that are running are waited for; whoever waits for those runs takes
// the data directory over and goes on with them.
func (l *local) leave(ctx context.Context) error {
	l.stop()
	slow := time.AfterFunc(time.Second, func() { l.app.tell("run.draining") })
	defer slow.Stop()
	return l.close(ctx)
}

// patience is how long a data directory may be held by a process that does not answer.
const patience = 10 * time.Second

// session starts an engine on the data directory, or goes through the process that has it. Between one holder's end
// and the next one's beginning nobody answers: that is waited out. An engine of this process is prepared before it starts.
func (a *app) session(ctx context.Context, prepare ...func(*node)) (session, error) {
	deadline := time.Now().Add(patience)
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, maxGap) {
		s, err := a.trySession(ctx, prepare)
		if !errors.Is(err, errGone) {
			return s, err
		}
		if time.Now().After(deadline) {
			return nil, a.stillHeld(err)
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

func (a *app) trySession(ctx context.Context, prepare []func(*node)) (session, error) {
	logger := zerolog.New(a.err).Level(zerolog.ErrorLevel).With().Timestamp().Logger()
	n, err := a.open(logger, a.die)
	if _, held := errors.AsType[*sqlite.HeldError](err); held {
		return a.connect(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range prepare {
		p(n)
	}
	if err = n.engine.Start(ctx); err == nil {
		err = n.serveControl(kindRun, "")
	}
	if err != nil {
		return nil, errors.Join(err, n.close(ctx))
	}
	l := &local{node: n}
	l.wake, l.stop = n.store.Wake()
	return l, nil
}

// connect reaches the process that holds the data directory, or gives errGone.
func (a *app) connect(ctx context.Context) (session, error) {
	dir, err := filepath.Abs(a.data)
	if err != nil {
		return nil, err
	}
	r := dialServer(dir)
	if _, err := r.status(ctx); err != nil {
		return nil, err
	}
	if r.store, err = sqlite.OpenReadOnly(dir); err != nil {
		return nil, err
	}
	return r, nil
}

// die ends the process at once: after a failed fsync nobody knows what the disk holds.
func (a *app) die(err error) { os.Exit(a.exit(context.Background(), err)) }

// stillHeld names the holder that did not answer.
func (a *app) stillHeld(err error) error {
	if held, _ := sqlite.Holder(a.data); held != nil {
		return held
	}
	return &exitError{exitUnreachable, "E_UNREACHABLE", err}
}
