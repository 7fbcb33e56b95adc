package router_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
)

type sealed = storage.Sealed

// memory is a store of maps: what the engine asks of a store, and commits that can be made to fail.
type memory struct {
	storage.Store // the rest is not used and would panic
	mu            sync.Mutex
	log           map[events.ID][]storage.Sealed
	plans         map[events.Digest][]byte
	runs          map[events.ID]storage.RunRow
	stages        map[events.ID]map[int]storage.StageRow
	deliveries    map[events.ID]storage.DeliveryRow
	parked        []storage.ParkedRow
	results       map[events.Digest]storage.ResultRow
	failing       error
	unreadable    error
	refused       int // reads of unfinished runs that failed
	spare         int // commits before the failing begins
	turnedAway    int // commits that failed
	newest        []storage.Sealed
	wake          chan struct{}
}

func newMemory() *memory {
	return &memory{log: map[events.ID][]storage.Sealed{}, plans: map[events.Digest][]byte{}, runs: map[events.ID]storage.RunRow{},
		stages: map[events.ID]map[int]storage.StageRow{}, deliveries: map[events.ID]storage.DeliveryRow{}, results: map[events.Digest]storage.ResultRow{}, wake: make(chan struct{}, 1)}
}

func (m *memory) Commit(b *storage.Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.spare > 0 {
		m.spare--
	} else if m.failing != nil {
		m.turnedAway++
		select {
		case m.wake <- struct{}{}:
		default:
		}
		return m.failing
	}
	for _, e := range b.Events {
		if uint64(len(m.log[e.Stream]))+1 != e.Sequence {
			return storage.ErrConflict
		}
		m.log[e.Stream] = append(m.log[e.Stream], e)
	}
	if n := len(b.Events); n > 0 {
		m.newest = b.Events[n-1 : n : n]
	}
	for _, p := range b.Plans {
		m.plans[p.Digest] = p.Bytes
	}
	for _, r := range b.Runs {
		m.runs[r.ID] = r
	}
	for _, s := range b.Stages {
		if m.stages[s.Run] == nil {
			m.stages[s.Run] = map[int]storage.StageRow{}
		}
		m.stages[s.Run][s.Index] = s
	}
	for _, d := range b.Deliveries {
		m.deliveries[d.ID] = d
	}
	for _, r := range b.Results {
		if _, there := m.results[r.Key]; !there {
			m.results[r.Key] = r
		}
	}
	m.parked = append(m.parked, b.Parked...)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return nil
}

func (m *memory) Head() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.newest))
}

func (m *memory) Scan(_ context.Context, _ int64, page []storage.Record) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.newest {
		page[i] = storage.Record{Sealed: m.newest[i], Position: 1}
	}
	return len(m.newest), nil
}

func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing, m.spare = err, 0
}

// failAfter makes commits fail, but for the first so many.
func (m *memory) failAfter(n int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spare, m.failing = n, err
}

// untilRefused waits until so many commits have failed.
func (m *memory) untilRefused(t *testing.T, n int) {
	t.Helper()
	for deadline := time.After(patience); ; {
		m.mu.Lock()
		enough := m.turnedAway >= n
		m.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-m.wake:
		case <-deadline:
			t.Fatal("no commit failed")
		}
	}
}

// unread makes reads of unfinished runs fail too.
func (m *memory) unread(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unreadable = err
}

func (m *memory) refusals() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

func (m *memory) Events(_ context.Context, stream events.ID, after uint64, limit int) ([]storage.Sealed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	log := m.log[stream]
	log = log[min(after, uint64(len(log))):]
	return slices.Clone(log[:min(limit, len(log))]), nil
}

func (m *memory) Plan(_ context.Context, d events.Digest) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.plans[d]; ok {
		return b, nil
	}
	return nil, storage.ErrNotFound
}

func (m *memory) Run(_ context.Context, id events.ID) (storage.RunRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.runs[id]; ok {
		return r, nil
	}
	return storage.RunRow{}, storage.ErrNotFound
}

func (m *memory) Result(_ context.Context, key events.Digest) (storage.ResultRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.results[key]; ok {
		return r, nil
	}
	return storage.ResultRow{}, storage.ErrNotFound
}

func (m *memory) Unfinished(_ context.Context, p storage.Page) ([]storage.RunRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unreadable != nil {
		m.refused++
		return nil, m.unreadable
	}
	var rows []storage.RunRow
	for _, r := range m.runs {
		if !r.State.Terminal() && r.ID.String() > p.After.String() {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b storage.RunRow) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return rows, nil
}

func (m *memory) Delivery(_ context.Context, id events.ID) (storage.DeliveryRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, ok := m.deliveries[id]; ok {
		return d, nil
	}
	return storage.DeliveryRow{}, storage.ErrNotFound
}

func (m *memory) DeliveryByKey(_ context.Context, k storage.KeyHash) (storage.DeliveryRow, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range m.deliveries {
		if d.KeyHash == k {
			return d, nil
		}
	}
	return storage.DeliveryRow{}, storage.ErrNotFound
}

// runner carries out stages by their name's function, or at once.
type runner map[string]func(ctx context.Context, a *stage.Attempt) stage.Outcome

func (r runner) Run(ctx context.Context, a *stage.Attempt) stage.Outcome {
	if f := r[a.Stage.Name]; f != nil {
		return f(ctx, a)
	}
	return stage.Outcome{}
}

// bench is an engine on a memory store.
type bench struct {
	t        *testing.T
	store    *memory
	engine   *router.Engine
	patience time.Duration
}

// prepared makes an engine that has not started.
func prepared(t *testing.T, store *memory, r stage.Runner, change func(*router.Options), plans ...*events.Plan) *bench {
	t.Helper()
	o := router.Options{Store: store, Runner: r, Clock: time.Now, Logger: zerolog.Nop(), Owner: "w1",
		NewID: func() events.ID { return events.ID(uuid.Must(uuid.NewV7())) }}
	if change != nil {
		change(&o)
	}
	e, err := router.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		if err := e.Register(router.Pipeline{Plan: p}); err != nil {
			t.Fatal(err)
		}
	}
	return &bench{t: t, store: store, engine: e, patience: patience}
}

func start(t *testing.T, store *memory, r stage.Runner, change func(*router.Options), plans ...*events.Plan) *bench {
	t.Helper()
	b := prepared(t, store, r, change, plans...)
	b.begin()
	return b
}

// begin starts the engine. At the end of the test it is stopped, and the whole store must hold together.
func (b *bench) begin() {
	b.t.Helper()
	if err := b.engine.Start(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		b.stop()
		b.store.holdsTogether(b.t)
	})
}

// holdsTogether replays every run, and compares every row with the fold of the log.
func (m *memory) holdsTogether(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, row := range m.runs {
		p, err := events.DecodePlan(m.plans[row.Plan])
		if err != nil {
			t.Fatal(err)
		}
		g, err := events.NewGraph(p, row.Plan)
		if err != nil {
			t.Fatal(err)
		}
		r, mismatch := events.Replay(g, func(yield func(*events.Event, []byte) bool) {
			for i := range m.log[id] {
				if !yield(&m.log[id][i].Event, m.log[id][i].Encoded) {
					return
				}
			}
		})
		if mismatch != nil {
			t.Errorf("replay of %s: event %d is %s, recomputed %s", p.Pipeline, mismatch.Sequence, mismatch.Recorded, mismatch.Recomputed)
			continue
		}
		if want := storage.RunRowOf(r); row != want {
			t.Errorf("run of %s: row %+v, the log says %+v", p.Pipeline, row, want)
		}
		for i := range r.Stages {
			got, has := m.stages[id][i]
			if want := storage.StageRowOf(r, i); (has || r.Touched(i)) && got != want {
				t.Errorf("stage of %s: row %+v, the log says %+v", p.Pipeline, got, want)
			}
		}
		if n := len(m.stages[id]); n > len(r.Stages) {
			t.Errorf("%s has %d rows of stages, and %d stages", p.Pipeline, n, len(r.Stages))
		}
	}
}

func (b *bench) stop() {
	b.t.Helper()
	if b.t.Failed() { // what it waits for may never come
		b.hurry()
		return
	}
	if err := b.engine.Stop(context.Background()); err != nil && b.engine.Err() == nil {
		b.t.Error(err)
	}
}

func (b *bench) run(pipeline string) events.ID {
	b.t.Helper()
	r, err := b.engine.Accept(b.t.Context(), &trigger.Delivery{Kind: "manual", Trigger: "manual", Pipeline: pipeline})
	if err != nil || r.Fate != "run" {
		b.t.Fatalf("accept: %+v, %v", r, err)
	}
	return r.Run
}

// until waits for a condition on the store; every commit is a signal to look again.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.After(b.patience); ; {
		b.store.mu.Lock()
		done := ok()
		b.store.mu.Unlock()
		if done {
			return
		}
		select {
		case <-b.store.wake:
		case <-deadline:
			b.t.Fatalf("not reached: %s", what)
		}
	}
}

func (b *bench) ends(id events.ID) storage.RunRow {
	b.t.Helper()
	b.until("the end of the run", func() bool { return b.store.runs[id].State.Terminal() })
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return b.store.runs[id]
}

// chain is a plan of stages a, b, c, ... each needing the one before.
func chain(name string, stages ...string) *events.Plan {
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: name}
	for i, s := range stages {
		st := events.Stage{Name: s, Executor: "task"}
		if i > 0 {
			st.Needs = []string{stages[i-1]}
		}
		p.Stages = append(p.Stages, st)
	}
	return p
}
