package router

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
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
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// Artifacts keeps bodies that are too long for an event.
type Artifacts interface {
	Put(ctx context.Context, r io.Reader) (artifacts.Info, error)
	Get(d events.Digest) (*artifacts.Reader, error)
	Has(d events.Digest) bool
}

// Conditions evaluates what decides on a stage before it runs; stage.Conditions does.
type Conditions interface {
	When(ctx context.Context, a *stage.Attempt) events.Check
	Items(ctx context.Context, a *stage.Attempt) (items json.RawMessage, count int, check events.Check)
	Value(ctx context.Context, a *stage.Attempt, expr string) (any, error)
}

// Keys says what the result of an attempt would depend on, before it begins; stage.Steps does.
type Keys interface {
	Key(ctx context.Context, a *stage.Attempt) (document json.RawMessage, ok bool)
}

// Options are what an engine is made of.
type Options struct {
	Store     storage.Store
	Artifacts Artifacts
	Runner    stage.Runner
	Clock     func() time.Time
	NewID     func() events.ID
	Logger    zerolog.Logger
	Metrics   Metrics   // may be nil
	Handlers  []Handler // beside the built-in ones
	Owner     string    // names this engine on its claims
	// KillOrphans ends processes that an engine which died has left behind, before their stages start again, and tells
	// which. May be nil.
	KillOrphans  func(ctx context.Context) ([]executor.Orphan, error)
	ProcessSlots int // stages that run processes at once; 0 is 4
	TaskSlots    int // Go tasks at once; 0 is 512
	Conditions   Conditions
	Keys         Keys            // may be nil: no stage takes over the result of another run
	Budget       schedule.Budget // of the machine, for stages that say what they need; zero is no limit
	MaxRuns      int             // runs that go on at once, but for child runs; others wait; 0 is no bound
	MaxLive      int             // runs that have not ended; past it deliveries are refused with ErrBusy; 0 is 20,000
}

func (o *Options) fill() error {
	o.ProcessSlots = orElse(o.ProcessSlots, 4)
	o.TaskSlots = orElse(o.TaskSlots, 512)
	o.MaxLive = orElse(o.MaxLive, 20_000)
	if o.Owner == "" {
		o.Owner = "engine"
	}
	var problems []error
	if o.Store == nil || o.Runner == nil || o.Clock == nil || o.NewID == nil {
		problems = append(problems, errors.New("engine options: store, runner, clock and ids are needed"))
	}
	if o.ProcessSlots < 0 || o.TaskSlots < 0 || o.MaxLive < 0 {
		problems = append(problems, errors.New("engine options: slots and bounds cannot be negative"))
	}
	return errors.Join(problems...)
}

func orElse(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// Pipeline is a frozen pipeline that deliveries may name.
type Pipeline struct {
	Plan     *events.Plan
	Defaults json.RawMessage  // object: the parameters of a delivery that brings none
	Missing  *trigger.Refusal // set: a delivery without parameters is rejected with this
	Refusal  *trigger.Refusal // set: every delivery is rejected with this, as E_NOT_YET
}

type registered struct {
	Pipeline
	graph *events.Graph
	bytes []byte
}

const (
	closeTimeout = 5 * time.Second
	minInputs    = 128  // inputs that a unit of work takes in at least, when they are there
	maxInputs    = 256  // and at most
	fewSenders   = 8    // that wait for an answer: enough for a unit when the committer has nothing to do
	fewEvents    = 8    // of a unit that the loop stores itself when nothing else waits
	maxEvents    = 4096 // events after which a unit takes in no more
	inputQueue   = 4096 // deliveries and results waiting for the loop
)

// Engine moves runs. One goroutine, the loop, owns the folded runs and prepares units of work; another commits them in
// order. Everything from outside comes in through inputs.
type Engine struct {
	o        Options
	router   *message.Router
	bus      *bus
	schedule *schedule.Handler

	inputs    chan input
	units     chan *unit
	outcomes  sync.WaitGroup // bodies running
	loopDone  chan struct{}
	ready     atomic.Bool
	taking    chan struct{} // closed once deliveries are taken
	stopping  atomic.Bool
	hurried   atomic.Bool // the stop waits no longer: a result that cannot be stored is given up
	fatal     atomic.Pointer[error]
	done      chan struct{}
	closeOnce sync.Once
	stopLoop  chan struct{}
	committed chan struct{} // closed when the committer has ended

	// The loop's own; nobody else touches them.
	unit    *unit
	live    map[events.ID]*live
	keys    map[storage.KeyHash]firstWithKey // keys of units that are not durable yet
	plans   map[events.Digest]*events.Graph
	known   map[events.Digest]bool // plans that the store holds
	results results                // that runs may take over

	sent   uint64        // units handed to the committer; the loop's own
	stored atomic.Uint64 // units that it is done with
	cause  error         // of the last failed commit; whoever commits owns it
	epoch  atomic.Uint64 // of the cache: a failed commit starts a new one
	failed atomic.Bool   // a commit failed: the loop must fold everything anew

	idle     chan *body   // bodies for goroutines that wait for one
	waiting  atomic.Int32 // those goroutines
	bodyLock sync.Mutex
	bodies   map[events.ID]map[uint64]*body // by run and fencing token

	time     clock
	children children

	cancelFirst []*events.Event // wishes to end runs, from before the start

	spare sync.Pool // of batches whose slices the next unit fills again

	keyLock sync.Mutex
	durable []storage.KeyHash // keys of units that have become durable

	mu        sync.Mutex
	pipelines map[string]*registered
}

type firstWithKey struct{ delivery, run events.ID }

// New makes an engine. Start it before anything is accepted.
func New(o Options) (*Engine, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	e := &Engine{o: o, idle: make(chan *body), inputs: make(chan input, inputQueue), units: make(chan *unit, 1), loopDone: make(chan struct{}), taking: make(chan struct{}),
		done: make(chan struct{}), stopLoop: make(chan struct{}), committed: make(chan struct{}), pipelines: map[string]*registered{}, bodies: map[events.ID]map[uint64]*body{}}
	e.time.wall = o.Clock
	e.schedule = &schedule.Handler{Worker: o.Owner, Stopped: e.stopping.Load, Conditions: conditions{e}, Now: func() int64 { return e.unit.now }}
	e.bus = newBus(e)
	e.reset()
	return e, e.wire(slices.Concat(Builtin(e.schedule), o.Handlers))
}

// reset empties everything that was folded: the store is the truth.
func (e *Engine) reset() {
	e.live, e.keys = map[events.ID]*live{}, map[storage.KeyHash]firstWithKey{}
	e.known = map[events.Digest]bool{}
	e.results = newResults()
	if e.plans == nil {
		e.plans = map[events.Digest]*events.Graph{}
	}
	e.schedule.Line, e.schedule.Timers, e.schedule.Groups = e.newLine(), &schedule.Timers{}, e.newGroups()
}

func (e *Engine) newLine() *schedule.Line {
	return schedule.NewLine(schedule.Limits{Processes: e.o.ProcessSlots, Tasks: e.o.TaskSlots, Budget: e.o.Budget})
}

func (e *Engine) newGroups() *schedule.Groups {
	return schedule.NewGroups(e.o.MaxRuns, func(id events.ID) *events.Run {
		if l := e.live[id]; l != nil {
			return l.run
		}
		return nil
	})
}

// Register makes a pipeline known by its name, or replaces it: runs that exist keep their plan.
func (e *Engine) Register(p Pipeline) error {
	b, err := p.Plan.Encode()
	if err != nil {
		return err
	}
	r, err := freeze(p, b)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pipelines[p.Plan.Pipeline] = r
	return nil
}

func freeze(p Pipeline, b []byte) (*registered, error) {
	g, err := events.NewGraph(p.Plan, events.DigestOf(b))
	if err != nil {
		return nil, err
	}
	return &registered{Pipeline: p, graph: g, bytes: b}, nil
}

func (e *Engine) pipeline(name string) *registered {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pipelines[name]
}

// Start recovers what an earlier engine left unfinished and begins to take in deliveries. It returns when the engine is
// ready.
func (e *Engine) Start(ctx context.Context) error {
	go func() { //nolint:gosec // the engine outlives the context of its start; Stop ends it
		if err := e.router.Run(context.Background()); err != nil {
			e.fail(err)
		}
	}()
	select {
	case <-e.router.Running():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := e.time.begin(ctx, e.o.Store); err != nil {
		return err
	}
	go e.commit()
	u, err := e.recover(ctx)
	if err != nil {
		return err
	}
	recovered := make(chan error, 1)
	u.replies = append(u.replies, func(err error) { recovered <- err })
	e.send(u)
	if err := <-recovered; err != nil {
		return fmt.Errorf("store what was recovered: %w", err)
	}
	go e.loop()
	e.ready.Store(true)
	close(e.taking)
	return nil
}

// Ready reports whether deliveries are taken.
func (e *Engine) Ready() bool { return e.ready.Load() && !e.stopping.Load() && e.Err() == nil }

// Done is closed when the engine has stopped, by Stop or by a fatal error.
func (e *Engine) Done() <-chan struct{} { return e.done }

// Err gives the fatal error that stopped the engine, or nil.
func (e *Engine) Err() error {
	if p := e.fatal.Load(); p != nil {
		return *p
	}
	return nil
}

func (e *Engine) fail(err error) {
	if e.fatal.CompareAndSwap(nil, &err) {
		e.o.Logger.Error().Err(err).Msg("engine stopped")
		e.closeOnce.Do(func() { close(e.stopLoop) })
	}
}

// Drain begins to stop: from now on no stage starts and nothing is accepted. It returns at once.
func (e *Engine) Drain() { e.stopping.Store(true) }

// Stop drains: no stage starts any more, running ones are waited for until the context ends, then interrupted and
// recorded as lost, so that the next engine starts them again.
func (e *Engine) Stop(ctx context.Context) error {
	if !e.ready.Load() {
		return e.router.Close()
	}
	e.Drain()
	e.quiesce()
	e.interrupt((*body).waits) // whoever waits for a run of which no stage starts any more would wait for ever
	ended := make(chan struct{})
	go func() { e.outcomes.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-e.loopDone:
	case <-ctx.Done():
		e.hurried.Store(true)
		e.submit(input{interrupt: true})
		select {
		case <-ended:
		case <-e.loopDone:
		}
	}
	e.closeOnce.Do(func() { close(e.stopLoop) })
	<-e.loopDone
	<-e.committed
	return errors.Join(e.router.Close(), e.Err())
}

// submit hands an input to the loop; false when the engine has stopped.
func (e *Engine) submit(in input) bool {
	select {
	case e.inputs <- in:
		e.refuseLate()
		return true
	case <-e.loopDone:
		return false
	}
}

// refuseLate answers an input that was handed in while the loop ended.
func (e *Engine) refuseLate() {
	select {
	case <-e.loopDone:
		e.refuseRest()
	default:
	}
}

// quiesce returns once every unit that was prepared before the engine was told to stop is stored and its bodies are
// counted among the outcomes: no body starts after that.
func (e *Engine) quiesce() {
	stored := make(chan struct{})
	if !e.submit(input{quiet: func() { close(stored) }}) {
		return
	}
	select {
	case <-stored:
	case <-e.committed:
	}
}
