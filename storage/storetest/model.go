package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// world is what a store should hold: the rows of a few maps.
type world struct {
	s          storage.Store
	m          Maker
	graph      *events.Graph
	plan       storage.PlanRow
	flows      []*Flow
	log        []storage.Sealed
	runs       map[events.ID]storage.RunRow
	deliveries []storage.DeliveryRow
	past       []*storage.Batch
	cursors    map[string]int64
	results    map[events.Digest]storage.ResultRow
	seen       []storage.Sealed // read so far, up to position
	position   int64
}

// model drives a store and a model of it with the same random commits, good and bad, and compares what they say.
func model(t *testing.T, open func(t *testing.T) storage.Store) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{s: open(t), runs: map[events.ID]storage.RunRow{}, cursors: map[string]int64{}, results: map[events.Digest]storage.ResultRow{}}
		defer func() {
			if err := w.s.Close(); err != nil {
				rt.Error(err)
			}
		}()
		w.graph, w.plan = Plan("p", rapid.IntRange(1, 4).Draw(rt, "stages"))
		rt.Repeat(map[string]func(*rapid.T){"begin": w.begin, "move": w.move, "deliver": w.deliver, "afterEnd": w.afterEnd, "import": w.importOne, "again": w.again,
			"conflict": w.conflict, "gap": w.gap, "cursor": w.cursor, "": w.compareNew})
		w.compare(rt)
		if d, err := w.s.Rebuild(context.Background(), false); err != nil || len(d) > 0 {
			rt.Fatalf("rebuild: %v, %+v", err, d)
		}
	})
}

func (w *world) commit(t *rapid.T, b *storage.Batch) {
	if err := w.s.Commit(b); err != nil {
		t.Fatal(err)
	}
	w.past = append(w.past, b)
	w.log = append(w.log, b.Events...)
	for _, r := range b.Runs {
		w.runs[r.ID] = r
	}
	for _, d := range b.Deliveries {
		if i := slices.IndexFunc(w.deliveries, func(old storage.DeliveryRow) bool { return old.ID == d.ID }); i >= 0 {
			w.deliveries[i] = d
		} else {
			w.deliveries = append(w.deliveries, d)
		}
	}
	for _, r := range b.Results {
		if first, has := w.results[r.Key]; !has || w.runs[first.Run].Pruned > 0 || w.runs[first.Run].Imported > 0 {
			w.results[r.Key] = r
		}
	}
}

func (w *world) begin(t *rapid.T) {
	f := w.m.Begin(w.graph, w.plan, w.m.ID())
	if rapid.Bool().Draw(t, "started") {
		f.Decide()
	}
	w.flows = append(w.flows, f)
	w.commit(t, f.Take())
}

// move takes a run on by one step that the world may take.
func (w *world) move(t *rapid.T) {
	if len(w.flows) == 0 {
		t.Skip("no run")
	}
	f := rapid.SampledFrom(w.flows).Draw(t, "run")
	i := f.Running()
	switch {
	case f.State == events.Failed:
		f.Emit(events.RunResumed, events.Data{})
	case f.State.Terminal():
		t.Skip("ended")
	case !f.Cancelling() && rapid.IntRange(0, 5).Draw(t, "cancel") == 0:
		f.Emit(events.RunCancelRequested, events.Data{Reason: "enough"})
	case i >= 0:
		typ := rapid.SampledFrom([]events.Type{events.StageCompleted, events.StageCompleted, events.StageFailed, events.StageRetryScheduled}).Draw(t, "result")
		if typ == events.StageCompleted && rapid.Bool().Draw(t, "shared") {
			f.Share(i, rapid.SampledFrom([]string{`{"seed":"1"}`, `{"seed":"2"}`}).Draw(t, "pins"))
		} else {
			f.Report(i, typ)
		}
		for j := range f.Stages {
			if s := &f.Stages[j]; s.Waits == "retry" && s.State == events.Pending && !f.Cancelling() {
				f.Emit(events.StageStarted, events.Data{Stage: f.Graph.Plan.Stages[j].Name, Attempt: s.Attempt + 1})
			}
		}
	}
	if rapid.Bool().Draw(t, "cascade") || i >= 0 {
		f.Decide()
	}
	if len(f.batch.Events) == 0 {
		t.Skip("nothing happened")
	}
	w.commit(t, f.Take())
}

func (w *world) deliver(t *rapid.T) {
	typ := rapid.SampledFrom([]events.Type{events.DeliveryReceived, events.DeliveryHeld, events.DeliveryRejected}).Draw(t, "fate")
	_, b := w.m.Delivery(typ, events.Data{Pipeline: "p", Kind: "manual", Trigger: "manual", Reason: rapid.String().Draw(t, "reason"),
		Key: rapid.SampledFrom([]string{"", w.m.ID().String()}).Draw(t, "key")})
	w.commit(t, b)
}

// afterEnd says of a run that has ended what became of it since. Several events come together, as one verification of it.
func (w *world) afterEnd(t *rapid.T) {
	var ended []*Flow
	for _, f := range w.flows {
		if f.State.Terminal() {
			ended = append(ended, f)
		}
	}
	if len(ended) == 0 {
		t.Skip("no run has ended")
	}
	f := rapid.SampledFrom(ended).Draw(t, "ended run")
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		typ := rapid.SampledFrom([]events.Type{events.RunImported, events.RunVerified, events.RunPruned, events.StageVerified, events.StageIrreproducibleFound}).Draw(t, "type")
		d := events.Data{Verdict: rapid.SampledFrom([]string{"reproduced", "differs"}).Draw(t, "verdict")}
		if typ.Entity() == "stage" {
			if f.Stages[0].State != events.Completed {
				continue
			}
			d.Stage = f.Graph.Plan.Stages[0].Name
		}
		f.Emit(typ, d)
	}
	if len(f.batch.Events) > 0 {
		w.commit(t, f.Take())
	}
}

// importOne says of a delivery that it came from another store: its key is nobody's.
func (w *world) importOne(t *rapid.T) {
	if len(w.deliveries) == 0 {
		t.Skip("no delivery")
	}
	row := rapid.SampledFrom(w.deliveries).Draw(t, "delivery")
	if _, b := w.m.Import(row); row.Fate != "held" && row.Sequence == 1 {
		w.commit(t, b)
	}
}

// again commits something old once more: nothing changes.
func (w *world) again(t *rapid.T) {
	if len(w.past) == 0 {
		t.Skip("nothing yet")
	}
	if err := w.s.Commit(rapid.SampledFrom(w.past).Draw(t, "batch")); err != nil {
		t.Fatal(err)
	}
}

func (w *world) conflict(t *rapid.T) {
	if len(w.log) == 0 {
		t.Skip("nothing yet")
	}
	e := rapid.SampledFrom(w.log).Draw(t, "event")
	e.ID = w.m.ID()
	w.refused(t, e)
}

func (w *world) gap(t *rapid.T) {
	e := storage.Sealed{Event: events.Event{ID: w.m.ID(), Stream: w.m.ID(), Sequence: 2, Type: events.RunStarted, Time: began}}
	if len(w.flows) > 0 && rapid.Bool().Draw(t, "of a run") {
		f := rapid.SampledFrom(w.flows).Draw(t, "run")
		e.Stream, e.Sequence = f.ID, f.Chain.Sequence+2
	}
	w.refused(t, e)
}

// refused commits an event that may not come in, behind some that may: neither is stored.
func (w *world) refused(t *rapid.T, e storage.Sealed) {
	f := w.m.Begin(w.graph, w.plan, w.m.ID())
	b := f.Take()
	b.Events = append(b.Events, e)
	if err := w.s.Commit(b); !errors.Is(err, storage.ErrConflict) {
		t.Fatalf("event %d: %v", e.Sequence, err)
	}
}

func (w *world) cursor(t *rapid.T) {
	c := storage.Cursor{Topic: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic"), Group: "g", Position: int64(len(w.log))}
	if err := w.s.Commit(&storage.Batch{Cursors: []storage.Cursor{c}}); err != nil {
		t.Fatal(err)
	}
	w.cursors[c.Topic] = c.Position
}

// compareNew looks at what the last commit may have changed, and at one run of all.
func (w *world) compareNew(t *rapid.T) {
	page := make([]storage.Record, len(w.log)-len(w.seen)+1)
	n, err := w.s.Scan(context.Background(), w.position, page)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		w.position = page[i].Position
		w.seen = append(w.seen, page[i].Sealed)
	}
	if len(w.seen) != len(w.log) || w.s.Head() != w.position {
		t.Fatalf("%d events of %d, head %d of %d", len(w.seen), len(w.log), w.s.Head(), w.position)
	}
	if n > 0 {
		same2(t, "what was appended", w.log[len(w.log)-n:], w.seen[len(w.seen)-n:])
	}
	if len(w.flows) > 0 {
		w.compareRun(t, rapid.SampledFrom(w.flows).Draw(t, "look at"))
	}
}

// compare looks at everything.
func (w *world) compare(t *rapid.T) {
	ctx := context.Background()
	all := make([]storage.Record, len(w.log)+1)
	n, err := w.s.Scan(ctx, 0, all)
	if err != nil {
		t.Fatal(err)
	}
	var log []storage.Sealed
	for i := range n {
		log = append(log, all[i].Sealed)
	}
	same2(t, "log", w.log, log)
	for _, f := range w.flows {
		w.compareRun(t, f)
	}
	w.compareLists(ctx, t)
}

func (w *world) compareRun(t *rapid.T, f *Flow) {
	run, err := w.s.Run(context.Background(), f.ID)
	stages, err2 := w.s.Stages(context.Background(), f.ID)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	same2(t, "run", w.runs[f.ID], run)
	var want []storage.StageRow
	for i := range f.Stages {
		if f.Touched(i) {
			want = append(want, storage.StageRowOf(f.Run, i))
		}
	}
	same2(t, "stages", want, stages)
}

func (w *world) compareLists(ctx context.Context, t *rapid.T) {
	var open []storage.RunRow
	for _, f := range w.flows {
		if !f.State.Terminal() {
			open = append(open, w.runs[f.ID])
		}
	}
	unfinished, err := w.s.Unfinished(ctx, storage.Page{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	same2(t, "unfinished", open, unfinished)
	deliveries, err := w.s.Deliveries(ctx, storage.DeliveryFilter{Page: storage.Page{Limit: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(deliveries)
	same2(t, "deliveries", w.deliveries, deliveries)
	for key, want := range w.results {
		have, err := w.s.Result(ctx, key)
		if pruned := w.runs[want.Run].Pruned > 0 || w.runs[want.Run].Imported > 0; pruned != errors.Is(err, storage.ErrNotFound) || !pruned && (err != nil || have != want) {
			t.Fatalf("result %+v, not %+v: %v", have, want, err)
		}
	}
	for topic, want := range w.cursors {
		if have, err := w.s.Cursor(ctx, topic, "g"); err != nil || have != want {
			t.Fatalf("cursor %d, not %d: %v", have, want, err)
		}
	}
}

func same2(t *rapid.T, what string, want, have any) {
	if d := diff(want, have); d != "" {
		t.Fatalf("%s (-want +have):\n%s", what, d)
	}
}
