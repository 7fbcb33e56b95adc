package storage

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/apollo-11/apollo/events"
)

// Errors that callers tell apart with errors.Is.
var (
	ErrNotFound = errors.New("not found")                                 // no such row
	ErrConflict = errors.New("sequence conflict")                         // another event has the place of an appended one
	ErrFull     = errors.New("E_STORE_FULL: no space left")               // nothing of the batch was stored
	ErrFsync    = errors.New("E_STORE_FSYNC: fsync failed")               // the process must stop: what the disk holds is unknown
	ErrNewer    = errors.New("E_SCHEMA_NEWER: written by a newer Apollo") // the file was not touched
	ErrCorrupt  = errors.New("E_STORE_CORRUPT: damaged")                  // names the place in its text
	ErrClosed   = errors.New("store closed")
)

// Sealed is an event with its place in the chain and its encoded data.
type Sealed struct {
	events.Event
	Encoded []byte // Data in its encoded form: what is stored and hashed
}

// Record is a stored event and its place in the log.
type Record struct {
	Sealed
	Position int64 // in the whole log, ascending without regard to streams
}

// Batch is one unit of work: everything in it is stored in one transaction, or nothing is.
type Batch struct {
	Events     []Sealed
	Plans      []PlanRow
	Runs       []RunRow      // whole rows: inserted, or replaced
	Stages     []StageRow    // likewise
	Deliveries []DeliveryRow // likewise
	Results    []ResultRow   // the first of a key stays, until its run is pruned
	Parked     []ParkedRow
	Messages   []Outgoing // Watermill messages that are no Apollo events
	Cursors    []Cursor
}

// Outgoing is a Watermill message on its way into the log.
type Outgoing struct {
	Topic   string
	Message *message.Message
}

// Cursor is how far a consumer group has come. The engine's own topic is EngineTopic: the whole log.
type Cursor struct {
	Topic, Group string
	Position     int64
}

// EngineTopic is the cursor topic of a group that consumes the whole log.
const EngineTopic = "*"

// Page bounds a list: rows after the key After (exclusive, in the list's order), at most Limit (0 is 50).
type Page struct {
	After events.ID
	Limit int
}

// RunFilter selects runs, newest first.
type RunFilter struct {
	Page
	Pipeline string
	State    events.State // None is any
}

// DeliveryFilter selects deliveries, newest first.
type DeliveryFilter struct {
	Page
	Pipeline string
	Fate     string
}

// Store is the one wide contract. Promises, kept by storage/storetest on every implementation:
//
//   - Commit returns only after the batch is durable (a power cut does not lose it) and is all or nothing. Waiting
//     commits of several callers may share one transaction; one caller's conflict does not fail another's batch.
//   - Appending the same event (same id at the same place) again is a success that changes nothing; another event at
//     the place is ErrConflict. There are no gaps within a stream.
//   - Positions ascend in commit order: a reader that remembers the last position misses nothing.
//   - Commit takes no context: a transaction that began is never cancelled half-way.
//   - Reads never block commits and hold no cursor open between calls; every list is paged by key.
//   - Publisher and Subscriber pass Watermill's official Pub/Sub suite; an event is delivered as its CloudEvents JSON
//     under the topic Type.String().
type Store interface {
	Commit(b *Batch) error
	Head() int64 // position of the last committed row
	// Wake gives a channel that is signalled (never blocking, at least once) after each commit, until stop is called.
	Wake() (signal <-chan struct{}, stop func())

	Events(ctx context.Context, stream events.ID, after uint64, limit int) ([]Sealed, error)
	// Scan fills a page with the events of all streams after a position and gives how many: fewer than the page holds only
	// at the end of the log. The page is the caller's to use again; what was copied from it stays as it was.
	Scan(ctx context.Context, after int64, page []Record) (int, error)
	Plan(ctx context.Context, digest events.Digest) ([]byte, error)
	Run(ctx context.Context, id events.ID) (RunRow, error)
	Runs(ctx context.Context, f RunFilter) ([]RunRow, error)
	FindRuns(ctx context.Context, prefix string, limit int) ([]events.ID, error) // by the start of the id's text form
	Stages(ctx context.Context, run events.ID) ([]StageRow, error)
	Unfinished(ctx context.Context, p Page) ([]RunRow, error) // pending and running, oldest first
	Delivery(ctx context.Context, id events.ID) (DeliveryRow, error)
	DeliveryByKey(ctx context.Context, key KeyHash) (DeliveryRow, error)
	Deliveries(ctx context.Context, f DeliveryFilter) ([]DeliveryRow, error)
	Result(ctx context.Context, key events.Digest) (ResultRow, error) // the first with the stage key whose run was neither pruned nor imported
	Parked(ctx context.Context) ([]ParkedRow, error)
	Cursor(ctx context.Context, topic, group string) (int64, error)

	Publisher() message.Publisher
	Subscriber(group string) message.Subscriber

	Backup(ctx context.Context, path string) error
	Rebuild(ctx context.Context, write bool) ([]Difference, error) // state rows from the log; live against rebuilt
	Check(ctx context.Context, report func(Problem)) error         // fsck
	Close() error
}

// Difference is a state row that is not what the log says.
type Difference struct {
	Table, Key       string
	Live, FromTheLog string
}

// Problem is one thing that fsck found, with its place.
type Problem struct {
	Code, Place, What string
}

// Rows gives how many rows the batch writes.
func (b *Batch) Rows() int {
	return len(b.Events) + len(b.Plans) + len(b.Runs) + len(b.Stages) + len(b.Deliveries) + len(b.Results) + len(b.Parked) + len(b.Messages) + len(b.Cursors)
}
