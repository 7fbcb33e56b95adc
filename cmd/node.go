package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// node is a data directory in use: its lock, store, artifacts and engine.
type node struct {
	app       *app
	dir       string // absolute
	lock      *sqlite.Lock
	store     *sqlite.Store
	artifacts *artifacts.Store
	engine    *router.Engine
	logger    zerolog.Logger
	control   *http.Server  // on the socket in the data directory
	ending    chan struct{} // closed when the node begins to close
	reaping   sync.WaitGroup
	unreap    context.CancelFunc

	naming    sync.Mutex // guards pipelines
	pipelines map[string]router.Pipeline
}

// gcPercent lets the heap grow to five times what is live before it is collected: an engine's live heap is a few MiB, and
// at Go's default a tenth of the time under load went into collecting it.
const gcPercent = 400

// poolRandomness lets ids read the system's randomness in batches.
var poolRandomness = sync.OnceFunc(uuid.EnableRandPool)

func newID() events.ID { return events.ID(uuid.Must(uuid.NewV7())) }

// hold takes the data directory and opens its store and its artifacts. There is no engine.
func (a *app) hold(logger zerolog.Logger, fatal func(error)) (n *node, err error) {
	dir, err := filepath.Abs(a.data)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	n = &node{app: a, dir: dir, logger: logger, ending: make(chan struct{}), pipelines: map[string]router.Pipeline{}}
	if n.lock, err = sqlite.TakeLock(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close(context.Background()))
		}
	}()
	if n.store, err = sqlite.Open(dir, sqlite.Options{Clock: time.Now, Logger: logger, OnFatal: fatal, Fail: failpoint(a.env)}); err != nil {
		return nil, err
	}
	if n.artifacts, err = artifacts.Open(filepath.Join(dir, "artifacts")); err != nil {
		return nil, err
	}
	if removed, err := n.artifacts.Sweep(); err != nil {
		return nil, err
	} else if removed > 0 {
		logger.Info().Int("files", removed).Msg("removed artifacts that were never finished")
	}
	poolRandomness()
	return n, nil
}

// open takes the data directory and makes everything in it ready, but starts nothing.
func (a *app) open(logger zerolog.Logger, fatal func(error)) (n *node, err error) {
	allow, err := a.allowedHosts()
	if err != nil {
		return nil, err
	}
	if n, err = a.hold(logger, fatal); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close(context.Background()))
		}
	}()
	dir := n.dir
	debug.SetGCPercent(gcPercent)
	settings := n.settings(allow)
	runner := &stage.Steps{Artifacts: n.artifacts, Executors: a.executors(settings), WorkDir: filepath.Join(dir, "work"), LogDir: filepath.Join(dir, "logs"),
		Secrets: func(ref string) (string, error) { return firstOf(a.secrets(dir)(ref)) }, Logger: logger, Machine: machine}
	if runner.PinKey, err = pinKey(dir); err != nil {
		return nil, err
	}
	_, stages := a.budget()
	o := router.Options{Store: n.store, Artifacts: n.artifacts, Runner: runner, Conditions: stage.Conditions{Artifacts: n.artifacts}, Keys: runner,
		Clock: time.Now, NewID: newID, Logger: logger, Owner: fmt.Sprintf("pid-%d", os.Getpid()),
		Budget: stages, MaxRuns: int(min(a.maxRuns, math.MaxInt32)),
		KillOrphans: func(ctx context.Context) ([]executor.Orphan, error) {
			return killOrphans(ctx, settings.Owner, settings.ContainerHost, logger)
		}}
	if a.tune != nil {
		a.tune(runner, &o)
	}
	n.engine, err = router.New(o)
	reap, stop := context.WithCancel(context.Background())
	n.unreap = stop
	n.reaping.Go(func() { executor.ReapOrphans(reap) })
	return n, err
}

// allowedHosts are what http stages may reach besides the public internet: the flag's, else the environment's.
func (a *app) allowedHosts() (list []string, err error) {
	for entry := range strings.SplitSeq(orText(a.httpAllow, a.env("APOLLO_HTTP_ALLOW")), ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			list = append(list, entry)
		}
	}
	if err := executor.CheckHTTPAllow(list); err != nil {
		return nil, a.fail(exitUsage, "E_HTTP_ALLOW", "error.http_allow", lang.Data{"Error": err.Error()})
	}
	return list, nil
}

// killOrphans ends what an engine that died left behind. That a container engine is sick is logged and keeps nobody from
// working: what it still runs can change nothing that is recorded.
func killOrphans(ctx context.Context, owner, host string, logger zerolog.Logger) ([]executor.Orphan, error) {
	orphans, err := executor.KillOrphans(ctx, owner)
	containers, sick := executor.RemoveContainers(ctx, host, owner)
	for _, o := range append(orphans, containers...) {
		logger.Warn().Interface("process", o).Msg("ended a process that an engine which died had left behind")
	}
	if sick != nil {
		logger.Warn().Err(sick).Msg("remove containers that an engine which died had left behind")
	}
	return append(orphans, containers...), err
}

func firstOf(values []string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return values[0], nil
}

// closeGrace is how long requests that are being answered have when the process ends.
const closeGrace = 2 * time.Second

// close gives everything back, in the order in which it depends on each other.
func (n *node) close(ctx context.Context) error {
	var errs []error
	if n.engine != nil {
		errs = append(errs, n.engine.Stop(ctx))
	}
	close(n.ending)
	if n.unreap != nil {
		n.unreap()
		n.reaping.Wait()
	}
	if n.control != nil {
		quick, done := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		if n.control.Shutdown(quick) != nil {
			errs = append(errs, n.control.Close())
		}
		done()
	}
	if n.artifacts != nil {
		errs = append(errs, n.artifacts.Close())
	}
	if n.store != nil {
		errs = append(errs, n.store.Close())
	}
	if n.lock != nil {
		errs = append(errs, n.lock.Release())
	}
	return errors.Join(errs...)
}

// register makes a pipeline known to the engine. What this version cannot run yet is refused when it is asked for.
func (n *node) register(p *configs.Pipeline) error {
	plan := p.Plan()
	r := router.Pipeline{Plan: plan}
	if resolved, problems := configs.ResolveParams(plan, nil); len(problems) == 0 && len(resolved) > 0 {
		b, err := json.Marshal(resolved)
		if err != nil {
			return err
		}
		r.Defaults = b
	} else if len(problems) > 0 {
		r.Missing = &trigger.Refusal{Code: "E_PARAM", Reason: problems[0].Message}
	}
	r.Refusal = refusalOf(plan)
	n.naming.Lock()
	defer n.naming.Unlock()
	if err := n.engine.Register(r); err != nil {
		return err
	}
	n.pipelines[plan.Pipeline] = r
	return nil
}

// refusalOf says why runs of a plan are refused, nil when they are not.
func refusalOf(plan *events.Plan) *trigger.Refusal {
	if problems := configs.NotYet(plan); len(problems) > 0 {
		return &trigger.Refusal{Code: problems[0].Code, Reason: problems[0].Message}
	}
	return nil
}

// secrets reads secret:// references: APOLLO_SECRET_<NAME>, or a file of mode 0600 below secrets in the data directory.
// While a secret is being replaced, <name>.next holds the one to come.
func (a *app) secrets(dir string) func(ref string) ([]string, error) {
	return func(ref string) ([]string, error) {
		name, ok := strings.CutPrefix(ref, "secret://")
		if !ok || strings.ContainsAny(name, "/\\.") || name == "" {
			return nil, fmt.Errorf("E_SECRET: %q is no reference of the form secret://name", ref)
		}
		variable := "APOLLO_SECRET_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if v := a.env(variable); v != "" {
			return longEnough(name, v)
		}
		path := filepath.Join(dir, "secrets", name)
		value, err := secretFile(path)
		if err != nil {
			return nil, fmt.Errorf("E_SECRET: the secret %q is neither in %s nor in %s: %w", name, variable, path, err)
		}
		values := []string{value}
		if next, err := secretFile(path + ".next"); err == nil {
			values = append(values, next)
		}
		return longEnough(name, values...)
	}
}

func secretFile(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", errors.New("there is no such file")
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("its mode is %v; chmod 600 it", info.Mode().Perm())
	}
	b, err := os.ReadFile(path)
	return strings.TrimRight(string(b), "\r\n"), err
}

const minSecret = 8 // bytes: a shorter secret is guessed, and masks half a log

// longEnough refuses a secret, or the one that is to replace it, when it is too short.
func longEnough(name string, values ...string) ([]string, error) {
	for i, value := range values {
		if i > 0 {
			name += ".next"
		}
		if len(strings.TrimSpace(value)) < minSecret {
			return nil, fmt.Errorf("E_SECRET_SHORT: the secret %q has fewer than %d bytes; make it longer where it is issued", name, minSecret)
		}
	}
	return values, nil
}
