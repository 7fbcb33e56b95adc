package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Delivery is one thing that reached a trigger, before its fate is decided.
type Delivery struct {
	Kind        string            // webhook, file, manual, ...
	Trigger     string            // which one, as "webhook:/hooks/orders"
	Pipeline    string            // that it is meant for
	Key         string            // idempotency key; empty only for manual deliveries
	Headers     map[string]string // allow-listed: no secrets, no signatures
	Body        []byte            // raw bytes
	File        *File             // a dropped file, sealed in the artifact store already
	Params      json.RawMessage   // object, resolved with defaults; empty takes the pipeline's defaults
	Sample      int               // records or files that the input was cut to at the edge; 0: it is whole
	Refused     *Refusal          // set: it is stored as rejected, and there is no run
	Traceparent string            // W3C trace context
	Plan        *events.Plan      // of its own; nil takes the pipeline that is registered under the name
	Child       *Child            // set: a stage of another run starts this one
	Rerun       *Rerun            // set: it runs an ended run's delivery anew
	Logical     time.Time         // the run's time for its stages; zero is that of its creation
	Seed        uint64            // of the run; 0 follows from its id
	Fresh       bool              // the run takes over no result of another
}

// Child says whose stage starts a run.
type Child struct {
	Parent events.ID
	Depth  int // runs above the new one
}

// Rerun says which run is run anew.
type Rerun struct {
	Of       events.ID
	Delivery events.ID // that the run came from: what it brought is read again; zero when this delivery brings something else
	Kind     string    // of that delivery's trigger
	Trigger  string
	From     string // stage from which everything runs anew; empty is all of it
	Reason   string // why, in one sentence
	Actor    string // who wants it
}

// File is a dropped file whose content is in the artifact store.
type File struct {
	Name   string // as it was dropped, for display
	Digest events.Digest
	Size   int64 // bytes
}

// Refusal says why a delivery was not taken.
type Refusal struct {
	Code, Reason string
}

// Receipt is the fate of a stored delivery.
type Receipt struct {
	Delivery    events.ID
	Run         events.ID // the run it became; of a duplicate, the first run
	DuplicateOf events.ID // the first delivery with the key
	Fate        string    // run, duplicate, rejected, held, ignored
	Code        string
	Reason      string
}

// Errors of an Inbox that say that nothing was stored.
var (
	ErrBusy   = errors.New("E_BUSY: the queue is full")        // try again later: 429
	ErrFull   = errors.New("E_STORE_FULL: no space left")      // 507
	ErrClosed = errors.New("E_CLOSED: the engine is stopping") // 503
)

// Inbox stores a delivery and decides its fate in one transaction. It returns only after the commit.
type Inbox interface {
	Accept(ctx context.Context, d *Delivery) (Receipt, error)
}
