package storetest

import (
	"encoding/binary"
	"fmt"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Maker makes runs and deliveries whose events and rows belong together, as the engine makes them. Ids and times
// ascend. It is not safe for concurrent use.
type Maker struct {
	Salt uint32 // tells the ids of several makers apart
	n    uint64
}

const began = 1_700_000_000_000_000_000 // Unix nanoseconds of the first event

// ID gives the next id.
func (m *Maker) ID() (id events.ID) {
	m.n++
	binary.BigEndian.PutUint64(id[:8], m.n<<20)
	id[6], id[7], id[8] = 0x70|byte(m.n>>8)&0x0f, byte(m.n&0xff), 0x80 //nolint:gosec // four bits of the counter
	binary.BigEndian.PutUint32(id[12:], m.Salt)
	return id
}

// Seal gives an event its id, its time and its place in the chain.
func (m *Maker) Seal(c *events.Chain, e *events.Event) storage.Sealed {
	e.ID = m.ID()
	e.Time = began + int64(m.n) //nolint:gosec // small
	encoded := e.Data.AppendEncoded([]byte{})
	c.Seal(e, encoded, nil)
	sealed := storage.Sealed{Event: *e, Encoded: encoded}
	sealed.Data = events.Data{}
	if err := sealed.Data.Decode(encoded); err != nil { // as a store gives it back
		panic(err)
	}
	return sealed
}

// Plan freezes a plan of stages, each of which needs the one before.
func Plan(pipeline string, stages int) (*events.Graph, storage.PlanRow) {
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: pipeline}
	for i := range stages {
		s := events.Stage{Name: fmt.Sprintf("s%d", i), Executor: "shell"}
		if i > 0 {
			s.Needs = []string{p.Stages[i-1].Name}
		}
		p.Stages = append(p.Stages, s)
	}
	b, err := p.Encode()
	if err != nil {
		panic(err)
	}
	g, err := events.NewGraph(p, events.DigestOf(b))
	if err != nil {
		panic(err)
	}
	return g, storage.PlanRow{Digest: g.Digest, Pipeline: pipeline, Bytes: b}
}

// Flow is a run on its way: events that are emitted gather in a batch until Take.
type Flow struct {
	*events.Run
	m     *Maker
	batch storage.Batch
}

// Begin creates a run of a plan that came from a delivery.
func (m *Maker) Begin(g *events.Graph, plan storage.PlanRow, delivery events.ID) *Flow {
	return m.BeginFrom(g, plan, events.Data{Kind: "manual", Delivery: delivery, Params: []byte(`{}`), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
}

// BeginFrom creates a run of a plan with what else its first event says.
func (m *Maker) BeginFrom(g *events.Graph, plan storage.PlanRow, d events.Data) *Flow {
	f := &Flow{Run: events.NewRun(g), m: m}
	f.batch.Plans = append(f.batch.Plans, plan)
	d.Pipeline, d.Plan = g.Plan.Pipeline, g.Digest
	f.emit(&events.Event{Stream: m.ID(), Type: events.RunCreated, Data: d})
	return f
}

// Emit appends an event to the run. An event that may not follow is a mistake of the test.
func (f *Flow) Emit(typ events.Type, d events.Data) {
	f.emit(&events.Event{Stream: f.ID, Type: typ, Data: d})
}

func (f *Flow) emit(e *events.Event) {
	sealed := f.m.Seal(&f.Chain, e)
	if err := f.Apply(&sealed.Event); err != nil {
		panic(err)
	}
	f.batch.Events = append(f.batch.Events, sealed)
	if row, shared := storage.ResultRowOf(&sealed.Event); shared {
		f.batch.Results = append(f.batch.Results, row)
	}
}

// Decide records everything that is due: stages that are ready start at once.
func (f *Flow) Decide() {
	for d, due := f.NextDecision(); due; d, due = f.NextDecision() {
		e := d.Event(f.Run)
		if d.Type == events.StageQueued {
			e.Type, e.Data.Attempt, e.Data.Worker = events.StageStarted, f.Stages[d.Stage].Attempt+1, "w1"
		}
		f.emit(&e)
	}
}

// Running gives the index of a running stage, or -1.
func (f *Flow) Running() int {
	for i := range f.Stages {
		if f.Stages[i].State == events.Running {
			return i
		}
	}
	return -1
}

// Report records the result of a running stage and what follows from it.
func (f *Flow) Report(i int, typ events.Type) {
	d := events.Data{Stage: f.Graph.Plan.Stages[i].Name, Attempt: f.Stages[i].Attempt, Token: f.Stages[i].Token, Duration: 1000}
	if typ != events.StageCompleted {
		d.Class, d.Reason, d.Exit = events.ExecFailed, "exit code 1", 1
	}
	if typ == events.StageRetryScheduled {
		d.Due = began * 2
	}
	f.Emit(typ, d)
	f.Decide()
}

// Share completes a running stage with a result that other runs may take over, under the stage key of the pins.
func (f *Flow) Share(i int, pins string) {
	f.Emit(events.StageCompleted, events.Data{Stage: f.Graph.Plan.Stages[i].Name, Attempt: f.Stages[i].Attempt, Token: f.Stages[i].Token,
		Pinned: []byte(pins), Shared: 1})
	f.Decide()
}

// Finish completes every stage.
func (f *Flow) Finish() {
	f.Decide()
	for i := f.Running(); i >= 0; i = f.Running() {
		f.Report(i, events.StageCompleted)
	}
}

// Take gives what was emitted since the last Take, with the rows that follow from it.
func (f *Flow) Take() *storage.Batch {
	b := f.batch
	f.batch = storage.Batch{}
	b.Runs = append(b.Runs, storage.RunRowOf(f.Run))
	for i := range f.Stages {
		if f.Touched(i) {
			b.Stages = append(b.Stages, storage.StageRowOf(f.Run, i))
		}
	}
	return &b
}

// Delivery makes a delivery of one event.
func (m *Maker) Delivery(typ events.Type, d events.Data) (storage.DeliveryRow, *storage.Batch) {
	var c events.Chain
	e := m.Seal(&c, &events.Event{Stream: m.ID(), Type: typ, Data: d})
	var row storage.DeliveryRow
	row.Project(&e.Event, c.Head)
	return row, &storage.Batch{Events: []storage.Sealed{e}, Deliveries: []storage.DeliveryRow{row}}
}

// Import makes the event that says of a delivery that it came from another store.
func (m *Maker) Import(row storage.DeliveryRow) (storage.DeliveryRow, *storage.Batch) {
	c := events.Chain{Sequence: row.Sequence, Head: row.Head}
	e := m.Seal(&c, &events.Event{Stream: row.ID, Type: events.DeliveryImported})
	row.Project(&e.Event, c.Head)
	return row, &storage.Batch{Events: []storage.Sealed{e}, Deliveries: []storage.DeliveryRow{row}}
}
