package storage

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/apollo-11/apollo/events"
)

// PlanRow is a frozen plan by its digest.
type PlanRow struct {
	Digest   events.Digest
	Pipeline string
	Bytes    []byte // canonical JSON
}

// RunRow is the state of a run as the log says it. Times are Unix nanoseconds; 0 is not yet.
type RunRow struct {
	ID       events.ID
	Pipeline string
	Plan     events.Digest
	State    events.State
	Sequence uint64        // of the last event that changed the row; of the last event of all once the run has ended
	Head     events.Digest // hash of that event
	Delivery events.ID
	Forked   events.ID
	Sample   int
	Kind     string // of the trigger
	Created  int64
	Started  int64
	Ended    int64
	Stage    string // that failed first
	Class    events.Class
	Reason   string
	Waits    string    // what a pending run waits for
	Parent   events.ID // run whose stage started this one
	Imported int64     // when it came from another store
	Pruned   int64     // when artifacts of its own were removed
	Verified int       // verifications that reproduced it
	Findings int       // stages that gave two results for one stage key
}

// ResultRow is the first result that was recorded for a stage key and that other runs may take over.
type ResultRow struct {
	Key      events.Digest // of the pins document
	Run      events.ID
	Sequence uint64 // of the stage.completed event, in the run's stream
}

// StageRow is the state of a stage, or of an instance of a foreach stage, in a run. A stage that no event has touched yet is pending and has no row.
type StageRow struct {
	Run     events.ID
	Index   int // place in events.Run.Stages: the plan's list, then the instances
	Item    int // number of the instance, from 1; 0 is a stage of the plan
	Stage   string
	State   events.State
	Attempt int
	Waits   string // why it is pending
	Started int64
	Ended   int64
	Due     int64
	Class   events.Class
	Reason  string
}

// DeliveryRow is one delivery and its fate.
type DeliveryRow struct {
	ID       events.ID
	Kind     string
	Trigger  string
	Pipeline string
	Key      string
	KeyHash  KeyHash // zero when the delivery has no key or is not the first with it
	Received int64
	Fate     string // run, duplicate, rejected, held, ignored
	Run      events.ID
	First    events.ID // of a duplicate: the first delivery with the key
	Code     string
	Reason   string
	Sequence uint64
	Head     events.Digest
}

// ParkedRow is an event that a handler could not take: it is set aside with its reason, and the rest goes on.
type ParkedRow struct {
	Event   events.ID
	Stream  events.ID
	Handler string
	Reason  string
	At      int64
}

// KeyHash is what idempotency keys are looked up by: the first half of the SHA-256 of trigger, pipeline and key.
type KeyHash [16]byte

// String gives the hash in hexadecimal.
func (k KeyHash) String() string { return hex.EncodeToString(k[:]) }

// HashKey makes the lookup form of an idempotency key.
func HashKey(pipeline, trigger, key string) (k KeyHash) {
	h := sha256.New()
	for _, part := range []string{pipeline, trigger, key} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	copy(k[:], h.Sum(nil))
	return k
}

// RunRowOf projects a folded run. The same function serves the live engine and the rebuild.
func RunRowOf(r *events.Run) RunRow {
	return RunRow{ID: r.ID, Pipeline: r.Graph.Plan.Pipeline, Plan: r.Graph.Digest, State: r.State,
		Sequence: r.Mark.Sequence, Head: r.Mark.Head, Delivery: r.Delivery, Forked: r.Forked, Sample: r.Sample,
		Kind: r.Kind, Created: r.Created, Started: r.Started, Ended: r.Ended, Stage: r.Culprit, Class: r.Class, Reason: r.Reason,
		Waits: r.Waits, Parent: r.Parent, Imported: r.Imported, Pruned: r.Pruned, Verified: r.Verified, Findings: r.Findings}
}

// ResultRowOf gives the row of a result that other runs may take over: of a stage.completed event that is shared, and was
// not taken over itself. It is false for every other event.
func ResultRowOf(e *events.Event) (ResultRow, bool) {
	if e.Type != events.StageCompleted || e.Data.Shared != 1 || !e.Data.Cached.IsZero() {
		return ResultRow{}, false
	}
	row := ResultRow{Key: e.Data.StageKey(), Run: e.Stream, Sequence: e.Sequence}
	return row, !row.Key.IsZero()
}

// StageRowOf projects one stage of a folded run.
func StageRowOf(r *events.Run, i int) StageRow {
	s := &r.Stages[i]
	row := StageRow{Run: r.ID, Index: i, Stage: r.StageOf(i).Name, Item: int(s.Item), State: s.State, Attempt: s.Attempt,
		Waits: s.Waits, Started: s.Started, Ended: s.Ended, Due: s.Due}
	if s.Last != nil {
		row.Class, row.Reason = s.Last.Class, s.Last.Reason
	}
	return row
}

// fates maps the delivery events to the word that people see.
var fates = map[events.Type]string{events.DeliveryReceived: "run", events.DeliveryReleased: "run",
	events.DeliveryDuplicated: "duplicate", events.DeliveryRejected: "rejected", events.DeliveryHeld: "held",
	events.DeliveryIgnored: "ignored"}

// Project moves a delivery's row by one of its events.
func (d *DeliveryRow) Project(e *events.Event, head events.Digest) {
	if e.Sequence == 1 {
		*d = DeliveryRow{ID: e.Stream, Kind: e.Data.Kind, Trigger: e.Data.Trigger, Pipeline: e.Data.Pipeline,
			Key: e.Data.Key, Received: e.Time}
		if d.Key != "" && e.Type != events.DeliveryDuplicated && e.Type != events.DeliveryRejected {
			d.KeyHash = HashKey(d.Pipeline, d.Trigger, d.Key)
		}
	}
	if e.Type == events.DeliveryImported { // the fate stays what it was where it came from
		d.KeyHash, d.Sequence, d.Head = KeyHash{}, e.Sequence, head
		return
	}
	d.Fate, d.Run, d.Code, d.Reason = fates[e.Type], e.Data.Run, e.Data.Code, e.Data.Reason
	d.First = e.Data.Delivery
	d.Sequence, d.Head = e.Sequence, head
}
