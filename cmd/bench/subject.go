package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/schedule"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
)

// Subject is the product under load, in a process of its own that is killed afterwards. The caller builds it with
// everything switched on; the hooks below only watch.
type Subject struct {
	Engine *router.Engine
	Dir    string
	Sealer trigger.Sealer
	watch  *watch
}

// watch sees what the load generator has to wait for.
type watch struct {
	ended   chan events.ID
	failed  atomic.Pointer[string] // why a run failed: none may
	hopping bool                   // one run at a time: the time between two stages means something
	exits   atomic.Int64           // Unix nanoseconds of the last task's return
	mu      sync.Mutex
	hops    times
	bodies  times
	started chan time.Time
	release chan struct{} // closed when held stages may end
}

// NewSubject makes the hooks; give them to the engine, then set Engine and Dir.
func NewSubject() *Subject {
	return &Subject{watch: &watch{ended: make(chan events.ID, 1<<16), started: make(chan time.Time, 1024), release: make(chan struct{})}}
}

// Handlers tells the load generator when a run has ended.
func (s *Subject) Handlers() []router.Handler {
	return []router.Handler{{Name: "bench", Topics: []events.Type{events.RunCompleted, events.RunFailed}, Handle: func(msg *message.Message) ([]*message.Message, error) {
		if w, ok := schedule.WorkOf(msg); ok {
			if w.Event.Type == events.RunFailed {
				s.watch.failed.Store(&w.Event.Data.Reason)
			}
			s.watch.ended <- w.Run.ID
		}
		return nil, nil
	}}}
}

// Task is the no-op stage. It notes the time from one stage's end to the next one's start.
func (s *Subject) Task(_ context.Context, call *executor.TaskCall) error {
	now := time.Now().UnixNano()
	if last := s.watch.exits.Load(); s.watch.hopping && last > 0 && call.Stage != "s00000" {
		s.watch.mu.Lock()
		if len(s.watch.hops) < 1<<20 {
			s.watch.hops = append(s.watch.hops, time.Duration(now-last))
		}
		s.watch.mu.Unlock()
	}
	s.watch.exits.Store(time.Now().UnixNano())
	if call.Pipeline == failsOnce && call.Attempt == 1 && call.Stage != "s00000" {
		return errOnce
	}
	return nil
}

// Runner times attempts and notes when their processes run.
func (s *Subject) Runner(next stage.Runner) stage.Runner { return timed{s.watch, next} }

type timed struct {
	watch *watch
	next  stage.Runner
}

// Run implements stage.Runner.
func (t timed) Run(ctx context.Context, a *stage.Attempt) stage.Outcome {
	if a.Stage.Executor == "task" {
		return t.next.Run(ctx, a)
	}
	a.Started = func(int) {
		select {
		case t.watch.started <- time.Now():
		default:
		}
	}
	begin := time.Now()
	o := t.next.Run(ctx, a)
	t.watch.mu.Lock()
	t.watch.bodies = append(t.watch.bodies, time.Since(begin))
	t.watch.mu.Unlock()
	return o
}

// Load is what the child is asked to do.
type Load struct {
	Kind    string        `json:"kind"` // chains, graph, webhooks, posts, files, process, shell, cached
	Runs    int           `json:"runs"`
	Flight  int           `json:"flight"`
	Stages  int           `json:"stages"`
	Wide    bool          `json:"wide"`
	Form    string        `json:"form,omitempty"` // of a graph's stages: condition, retry, item; else plain
	For     time.Duration `json:"for"`
	Hold    int           `json:"hold"` // runs left unfinished
	Connect int           `json:"connect"`
}

// Done is what it reports.
type Done struct {
	Accepted int64         `json:"accepted"` // deliveries acknowledged
	Count    int64         `json:"count"`
	Took     time.Duration `json:"took"`
	P50      time.Duration `json:"p50"`
	P99      time.Duration `json:"p99"`
	Samples  int           `json:"samples"`
	Peak     float64       `json:"-"` // MiB that the process had resident at most
}

// Run carries out one load. A run that fails makes the figure worthless, and is an error.
func (s *Subject) Run(ctx context.Context, l Load) (Done, error) {
	d, err := s.carryOut(ctx, l)
	if why := s.watch.failed.Load(); err == nil && why != nil {
		err = fmt.Errorf("a run of the load failed: %s", *why)
	}
	return d, err
}

func (s *Subject) carryOut(ctx context.Context, l Load) (Done, error) {
	switch l.Kind {
	case "chains":
		return s.chains(ctx, l)
	case "graph":
		return s.graph(ctx, l)
	case "webhooks", "posts":
		return s.webhooks(ctx, l)
	case "process":
		return s.process(ctx, l)
	case "files":
		return s.files(ctx, l)
	case "shell":
		return s.shell(ctx, l)
	case "cached":
		return s.cached(ctx, l)
	}
	return Done{}, fmt.Errorf("no load %q", l.Kind)
}

// tasks is a plan of no-op stages in a row, or all below the first. The first checks a contract.
func tasks(name string, n int, wide bool) *events.Plan {
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: name, Params: map[string]json.RawMessage{"n": json.RawMessage(`{"type":"integer"}`)},
		Contracts: map[string]events.Contract{"n": {Schema: json.RawMessage(`{"type":"integer","minimum":0}`)}}}
	for i := range n {
		st := events.Stage{Name: fmt.Sprintf("s%05d", i), Executor: "task", With: json.RawMessage(`{"name":"noop"}`)}
		switch {
		case i == 0:
			st.Inputs = []events.Input{{Role: "n", From: "params.n", Expr: true, Contract: "n"}}
		case wide:
			st.Needs = []string{"s00000"}
		default:
			st.Needs = []string{fmt.Sprintf("s%05d", i-1)}
		}
		p.Stages = append(p.Stages, st)
	}
	return p
}

// formed gives a wide plan's stages a condition each, or lets each fail once and be tried again, or makes one foreach stage
// with an item for each of them.
func formed(p *events.Plan, form string) *events.Plan {
	switch form {
	case "condition":
		for i := range p.Stages[1:] {
			p.Stages[1+i].When = "params.n > 0"
		}
	case "retry":
		p.Pipeline = failsOnce
		for i := range p.Stages[1:] {
			p.Stages[1+i].Retry = &events.Retry{Max: 1}
		}
	case "item":
		each := p.Stages[1]
		each.Inputs = []events.Input{{Role: "item", From: "item", Expr: true}}
		each.Foreach = fmt.Sprintf("1..%d", len(p.Stages)-1)
		p.Stages = []events.Stage{p.Stages[0], each}
	}
	return p
}

// failsOnce is the pipeline whose stages, but for the first, fail at their first attempt.
const failsOnce = "fails-once"

var errOnce = errors.New("the first attempt fails")

func script(name, text string) *events.Plan {
	with, _ := json.Marshal(map[string]string{"script": text}) //nolint:errchkjson // a string always has a JSON form
	return &events.Plan{Schema: events.PlanSchema, Pipeline: name, Stages: []events.Stage{{Name: "only", Executor: "shell", With: with, Timeout: time.Minute, Isolation: "off"}}}
}

func (s *Subject) register(p *events.Plan) error {
	return s.Engine.Register(router.Pipeline{Plan: p, Defaults: json.RawMessage(`{"n":1}`)})
}

func (s *Subject) accept(ctx context.Context, pipeline, key string) error {
	_, err := s.Engine.Accept(ctx, &trigger.Delivery{Kind: "manual", Trigger: "bench", Pipeline: pipeline, Key: key})
	return err
}

// chains keeps `flight` runs of five stages going until `runs` have ended, then leaves `hold` runs unfinished.
func (s *Subject) chains(ctx context.Context, l Load) (Done, error) {
	const five = 5
	if err := s.register(tasks("five", five, false)); err != nil {
		return Done{}, err
	}
	s.watch.hopping = l.Flight == 1
	begin := time.Now()
	next := make(chan int, l.Flight)
	var failed atomic.Pointer[error]
	var senders sync.WaitGroup
	for range l.Flight {
		senders.Go(func() {
			for i := range next {
				if err := s.accept(ctx, "five", fmt.Sprintf("key-%d", i)); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	for i := range l.Runs {
		if i >= l.Flight {
			<-s.watch.ended
		}
		next <- i
	}
	for range min(l.Runs, l.Flight) {
		<-s.watch.ended
	}
	took := time.Since(begin)
	close(next)
	senders.Wait()
	if err := failed.Load(); err != nil {
		return Done{}, *err
	}
	d := Done{Accepted: int64(l.Runs), Count: int64(l.Runs * five), Took: took, P50: s.watch.hops.p50(), P99: s.watch.hops.p99(), Samples: len(s.watch.hops)}
	if l.Hold > 0 {
		if err := s.register(script("hold", "sleep 300")); err != nil {
			return d, err
		}
		for i := range l.Hold {
			if err := s.accept(ctx, "hold", fmt.Sprintf("hold-%d", i)); err != nil {
				return d, err
			}
			d.Accepted++
		}
	}
	return d, nil
}

// graph runs one pipeline of many stages.
func (s *Subject) graph(ctx context.Context, l Load) (Done, error) {
	p := formed(tasks("graph", l.Stages, l.Wide), l.Form)
	if err := s.register(p); err != nil {
		return Done{}, err
	}
	var all times
	for range l.Runs {
		begin := time.Now()
		if err := s.accept(ctx, p.Pipeline, ""); err != nil {
			return Done{}, err
		}
		<-s.watch.ended
		all = append(all, time.Since(begin))
	}
	return Done{Accepted: int64(l.Runs), Count: int64(l.Stages), Took: all.p50(), Samples: len(all)}, nil
}

// shell runs one-stage pipelines of `true`, some at a time.
func (s *Subject) shell(ctx context.Context, l Load) (Done, error) {
	if err := s.register(script("shell", "true")); err != nil {
		return Done{}, err
	}
	begin := time.Now()
	n := 0
	for going := 0; time.Since(begin) < l.For || going > 0; {
		for going < l.Flight && time.Since(begin) < l.For {
			if err := s.accept(ctx, "shell", ""); err != nil {
				return Done{}, err
			}
			going++
			n++
		}
		<-s.watch.ended
		going--
	}
	return Done{Accepted: int64(n), Count: int64(n), Took: time.Since(begin), P50: s.watch.bodies.p50(), P99: s.watch.bodies.p99(), Samples: len(s.watch.bodies)}, nil
}

// files renames files into a watched folder one by one and waits until each one's run is durable.
func (s *Subject) files(ctx context.Context, l Load) (Done, error) {
	inbox, outside := filepath.Join(s.Dir, "inbox"), filepath.Join(s.Dir, "outside")
	if err := os.MkdirAll(inbox, 0o700); err != nil {
		return Done{}, err
	}
	if err := os.MkdirAll(outside, 0o700); err != nil {
		return Done{}, err
	}
	if err := s.register(tasks("file", 1, false)); err != nil {
		return Done{}, err
	}
	durable := make(chan time.Time, 1)
	w := &trigger.Watcher{Pipeline: "file", Trigger: events.FileTrigger{Watch: filepath.Join(inbox, "*.csv")}, Sealer: s.Sealer, Clock: time.Now,
		Logger: zerolog.Nop(), Inbox: noting{s.Engine, durable}}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var all times
	for i := range l.Runs {
		name := fmt.Sprintf("drop-%d.csv", i)
		if err := os.WriteFile(filepath.Join(outside, name), fmt.Appendf(nil, "id,n\n%d,1\n", i), 0o600); err != nil {
			cancel()
			return Done{}, err
		}
		if i > 0 {
			time.Sleep(time.Millisecond) // an idle folder, not a burst
		}
		begin := time.Now()
		if err := os.Rename(filepath.Join(outside, name), filepath.Join(inbox, name)); err != nil {
			cancel()
			return Done{}, err
		}
		all = append(all, (<-durable).Sub(begin))
	}
	cancel()
	return Done{Accepted: int64(l.Runs), Count: int64(l.Runs), P50: all[1:].p50(), P99: all[1:].p99(), Samples: len(all) - 1}, <-ended
}

// noting passes deliveries on and notes when they are durable.
type noting struct {
	inbox   trigger.Inbox
	durable chan time.Time
}

// Accept implements trigger.Inbox.
func (n noting) Accept(ctx context.Context, d *trigger.Delivery) (trigger.Receipt, error) {
	r, err := n.inbox.Accept(ctx, d)
	n.durable <- time.Now()
	return r, err
}

// hooks serves the webhook handler on a loopback port.
func (s *Subject) hooks(pipeline string) (address string, stop func(), err error) {
	h := trigger.NewHooks(s.Engine, func(string) ([]string, error) { return []string{hookSecret}, nil }, time.Now, zerolog.Nop())
	h.SetRoutes([]trigger.Route{{Pipeline: pipeline, Hook: events.WebhookTrigger{Path: "bench", Scheme: "github", Secret: "secret://bench"}}})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := trigger.NewServer(h)
	go func() { _ = srv.Serve(l) }()
	return "http://" + l.Addr().String() + "/hooks/bench", func() { _ = srv.Close() }, nil
}

const hookSecret = "the secret of the benchmark"

var _ http.Handler = (*trigger.Hooks)(nil)
