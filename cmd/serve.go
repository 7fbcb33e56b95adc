package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/handlers/web"
)

const (
	defaultListen = "127.0.0.1:7411"
	drainLimit    = 30 * time.Second // unless --drain says otherwise
)

func (a *app) serveCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "serve", Args: a.arguments(0, 0)}, "serve")
	listen := c.Flags().String("listen", defaultListen, "flag.listen")
	level := c.Flags().String("log-level", "info", "flag.loglevel")
	c.Flags().StringVar(&a.httpAllow, "http-allow", "", "flag.httpallow")
	drain := c.Flags().Duration("drain", drainLimit, "flag.drain")
	a.budgetFlags(c)
	c.Flags().UintVar(&a.maxRuns, "max-runs", 0, "flag.max_runs")
	c.RunE = func(c *cobra.Command, _ []string) error {
		l, err := zerolog.ParseLevel(*level)
		if err != nil {
			return a.choice("--log-level", *level, "debug, info, warn, error")
		}
		return a.serve(c.Context(), *listen, *drain, zerolog.New(a.err).Level(l).With().Timestamp().Logger())
	}
	return c
}

// server is a node that listens.
type server struct {
	*node
	hooks    *trigger.Hooks
	http     []*http.Server
	watching sync.WaitGroup
	unwatch  context.CancelFunc
	seen     []*trigger.Seen
	errs     chan error
}

func (a *app) serve(ctx context.Context, listen string, drain time.Duration, logger zerolog.Logger) error {
	if err := a.onlyLoopback(listen); err != nil {
		return err
	}
	fatal := make(chan error, 1)
	n, err := a.open(logger, func(err error) {
		select {
		case fatal <- err:
		default:
		}
	})
	if err != nil {
		return err
	}
	s := &server{node: n, errs: make(chan error, 4)}
	if err := s.start(ctx, listen); err != nil {
		return errors.Join(err, s.stop(ctx, 0))
	}
	select {
	case <-ctx.Done():
		logger.Info().Stringer("at_most", drain).Msg("draining: no stage starts any more, running ones are waited for")
		return s.stop(ctx, drain)
	case err = <-fatal: // what the disk holds is unknown: nothing may be acknowledged any more
		logger.Error().Err(err).Msg("stopping at once")
		return &exitError{exitInternal, "", err}
	case err = <-s.errs:
	case <-n.engine.Done():
		err = n.engine.Err()
	}
	return errors.Join(err, s.stop(ctx, 0))
}

// onlyLoopback refuses to open a port to others: there are no tokens yet that could tell them apart.
func (a *app) onlyLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return a.fail(exitUsage, "E_LISTEN", "error.listen_form", lang.Data{"Listen": listen})
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return a.fail(exitUsage, "E_LISTEN_OPEN", "error.listen_open", lang.Data{"Listen": listen})
}

func (s *server) start(ctx context.Context, listen string) error {
	s.hooks = trigger.NewHooks(s.engine, s.app.secrets(s.dir), time.Now, s.logger)
	watch := s.load()
	if err := s.engine.Start(ctx); err != nil {
		return err
	}
	public, err := net.Listen("tcp", listen) //nolint:noctx // it is there at once or not at all
	if err != nil {
		return s.app.fail(exitBusy, "E_LISTEN", "error.listen", lang.Data{"Listen": listen, "Error": err.Error()})
	}
	if err := s.serveControl(kindServe, public.Addr().String()); err != nil {
		return errors.Join(err, public.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/hooks/", s.hooks)
	mux.Handle("/", web.Health(s.engine.Ready))
	s.listen(public, mux)
	wctx, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	s.unwatch = unwatch
	for _, w := range watch {
		s.watch(wctx, w)
	}
	address := public.Addr().String()
	if err := s.lock.SetAddress(address); err != nil {
		return err
	}
	s.logger.Info().Str("address", address).Int("pid", os.Getpid()).Str("data", s.dir).Msg("ready")
	_, err = fmt.Fprintf(s.app.out, "listening on http://%s\n", address)
	return err
}

func (s *server) listen(l net.Listener, h http.Handler) {
	srv := trigger.NewServer(h)
	s.http = append(s.http, srv)
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			select {
			case s.errs <- err:
			default:
			}
		}
	}()
}

// load registers every pipeline of the directory. One with an error is named and left out: the others run.
func (s *server) load() (watch []*trigger.Watcher) {
	if _, err := os.Stat(s.app.pipelines); err != nil {
		s.logger.Warn().Str("pipelines", s.app.pipelines).Msg("there is no pipelines directory; apollo init makes one")
		return nil
	}
	s.logPlugins()
	loaded, problems := configs.LoadDir(s.app.pipelines, s.app.checkOptions())
	for _, p := range problems {
		level := zerolog.WarnLevel
		if p.Severity == configs.SeverityError {
			level = zerolog.ErrorLevel
		}
		s.logger.WithLevel(level).Str("file", p.File).Int("line", p.Line).Int("col", p.Col).Str("code", p.Code).Msg(p.Message)
	}
	var routes []trigger.Route
	for _, p := range loaded {
		if err := s.register(p); err != nil {
			s.logger.Error().Err(err).Str("pipeline", p.Name).Msg("pipeline left out")
			continue
		}
		for _, t := range p.Plan().Triggers {
			switch {
			case t.Webhook != nil:
				routes = append(routes, trigger.Route{Pipeline: p.Name, Hook: *t.Webhook})
			case t.File != nil:
				watch = append(watch, s.watcher(p.Name, *t.File))
			}
		}
	}
	s.hooks.SetRoutes(routes)
	s.logger.Info().Int("pipelines", len(loaded)).Int("hooks", len(routes)).Int("watched", len(watch)).Msg("pipelines loaded")
	return watch
}

func (s *server) watcher(pipeline string, t events.FileTrigger) *trigger.Watcher {
	w := &trigger.Watcher{Pipeline: pipeline, Trigger: t, Inbox: s.engine, Sealer: sealer{s.node}, Clock: time.Now, Logger: s.logger}
	digest := events.DigestOf([]byte(pipeline + "\x00" + t.Watch)).String()
	dir := filepath.Join(s.dir, "watch")
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		w.Seen, err = trigger.OpenSeen(filepath.Join(dir, digest[len("sha256:"):][:16]+".seen"))
	}
	if err != nil {
		s.logger.Warn().Err(err).Str("watch", t.Watch).Msg("handled files are not remembered over a restart")
	} else {
		s.seen = append(s.seen, w.Seen)
	}
	return w
}

func (s *server) watch(ctx context.Context, w *trigger.Watcher) {
	s.watching.Go(func() {
		if err := w.Run(ctx); err != nil {
			s.logger.Error().Err(err).Str("pipeline", w.Pipeline).Msg("watching ended")
		}
	})
}

// sealer keeps dropped files in the artifact store.
type sealer struct{ n *node }

// Seal implements trigger.Sealer.
func (s sealer) Seal(ctx context.Context, f *os.File) (events.Digest, int64, error) {
	info, err := s.n.artifacts.Put(ctx, f)
	return info.Digest, info.Size, err
}

// stop takes in nothing more, drains for at most the limit, and gives everything back. A second signal ends the wait.
func (s *server) stop(ctx context.Context, limit time.Duration) error {
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	drain, again := signal.NotifyContext(drain, os.Interrupt, syscall.SIGTERM)
	defer again()
	s.engine.Drain() // before anything that may take its time
	var errs []error
	for _, h := range s.http {
		quick, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		if err := h.Shutdown(quick); err != nil {
			errs = append(errs, h.Close())
		}
		done()
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	s.watching.Wait()
	errs = append(errs, s.close(drain))
	for _, seen := range s.seen {
		errs = append(errs, seen.Close())
	}
	return errors.Join(errs...)
}
