package events

import (
	"encoding/json"
	"time"
)

// Data is what an event says. One struct serves every type: a type uses the fields that it needs and leaves the others
// zero. The encoded form keeps a number for each field (see codec.go); a number is never reused, so that an old log is
// always readable, and fields that this build does not know are kept as they are in Unknown.
type Data struct {
	Stage     string          `json:"stage,omitempty"`
	Attempt   int             `json:"attempt,omitempty"`
	Pipeline  string          `json:"pipeline,omitempty"`
	Plan      Digest          `json:"plan,omitzero"`     // digest of the frozen plan
	Params    json.RawMessage `json:"params,omitempty"`  // object: every parameter with its default filled in
	Kind      string          `json:"kind,omitempty"`    // kind of trigger: manual, webhook, file, ...
	Trigger   string          `json:"trigger,omitempty"` // which trigger, as "webhook:/hooks/orders"
	Key       string          `json:"key,omitempty"`     // idempotency key
	Delivery  ID              `json:"delivery,omitzero"` // on run.created: what the run came from
	Run       ID              `json:"run,omitzero"`      // on delivery events: the run it became, or the first run of a duplicate
	Reason    string          `json:"reason,omitempty"`  // one sentence: why refused, skipped, failed, cancelled
	Code      string          `json:"code,omitempty"`    // of a refused delivery, as "E_SIG"
	Headers   []Pair          `json:"headers,omitempty"` // allow-listed headers, sorted by name
	Body      []byte          `json:"body,omitempty"`    // raw bytes up to 64 KiB
	Blob      Digest          `json:"blob,omitzero"`     // artifact of a longer body or of a dropped file
	Size      int64           `json:"size,omitempty"`    // bytes of the body or file
	File      string          `json:"file,omitempty"`    // original name of a dropped file
	Trace     string          `json:"traceparent,omitempty"`
	Forked    ID              `json:"forked_from,omitzero"`
	Sample    int             `json:"sample,omitempty"`
	Worker    string          `json:"worker,omitempty"`
	Token     uint64          `json:"token,omitempty"`     // fencing token: the sequence of the stage.started event
	Lease     time.Duration   `json:"lease,omitempty"`     // nanoseconds between heartbeats that keep the claim
	Waits     string          `json:"waits_for,omitempty"` // on stage.queued: slot, resources, concurrency, approval, paused
	Due       int64           `json:"due,omitempty"`       // Unix nanoseconds: not before
	Duration  time.Duration   `json:"duration,omitempty"`  // nanoseconds that the body took
	Class     Class           `json:"class,omitempty"`
	Pointer   string          `json:"pointer,omitempty"`
	Expected  string          `json:"expected,omitempty"`
	Actual    string          `json:"actual,omitempty"`
	Exit      int             `json:"exit,omitempty"`
	Signal    string          `json:"signal,omitempty"`
	Evidence  Digest          `json:"evidence,omitzero"`
	Outputs   []Result        `json:"outputs,omitempty"`
	Segments  []Segment       `json:"segments,omitempty"`
	Stdout    LogRef          `json:"stdout,omitzero"`
	Stderr    LogRef          `json:"stderr,omitzero"`
	Usage     Usage           `json:"usage,omitzero"`
	Leftovers int             `json:"leftovers,omitempty"` // processes that outlived the stage's own and were killed
	Pins      []Pair          `json:"pins,omitempty"`      // what else the result depends on, as an interpreter's or image's digest
	Item      int             `json:"item,omitempty"`      // number of a foreach stage's instance, from 1; 0 is the stage itself
	Items     json.RawMessage `json:"items,omitempty"`     // on stage.started of a foreach stage: array; a long one is in blob
	Count     int             `json:"count,omitempty"`     // of the items
	Group     string          `json:"group,omitempty"`     // concurrency group of a run, its expression evaluated
	Parent    ID              `json:"parent,omitzero"`     // run that started this one by a stage of its own
	Depth     int             `json:"depth,omitempty"`     // runs above a child run
	From      string          `json:"from,omitempty"`      // on run.created of a rerun: the stage from which everything runs anew
	Checks    []Check         `json:"checks,omitempty"`    // conditions as they were evaluated
	Answer    json.RawMessage `json:"answer,omitempty"`    // object: the form as the person who approved filled it in
	Actor     string          `json:"actor,omitempty"`     // who approved, rejected or opened a gate
	IO        IO              `json:"io,omitzero"`
	Pinned    json.RawMessage `json:"pinned,omitempty"`       // object: what the attempt's result depends on; the SHA-256 of these bytes is the stage key
	PinnedAt  Digest          `json:"pinned_at,omitzero"`     // the stage key, when the document is so long that it is an artifact
	Machine   Digest          `json:"machine,omitzero"`       // artifact: what the attempt ran on, which is no part of the key
	Cached    ID              `json:"cached_from,omitzero"`   // run whose result with the same stage key was taken over
	Accesses  []Pair          `json:"accesses,omitempty"`     // what the attempt did beside its declarations: name is read, list, write, execute, connect, leave or unobserved
	Isolation string          `json:"isolation,omitempty"`    // level that was reached: env, landlock, landlock+seccomp, container
	Out       Digest          `json:"stdout_digest,omitzero"` // of all that was written to it, after masking
	Err       Digest          `json:"stderr_digest,omitzero"` // likewise
	Logical   int64           `json:"logical_time,omitempty"` // Unix nanoseconds: the run's time for its stages, when it is not that of its creation
	Seed      uint64          `json:"seed,omitempty"`         // of the run, when it does not follow from its id
	Shared    int             `json:"shared,omitempty"`       // 1: other runs may take the result over
	Verdict   string          `json:"verdict,omitempty"`      // reproduced, nondeterministic, depends_on, not_verifiable, skipped; of a run: reproduced, differs, incomplete
	Factor    string          `json:"factor,omitempty"`       // what the result depends on, as timezone
	Role      string          `json:"role,omitempty"`         // of the output that differs first
	Times     int             `json:"times,omitempty"`        // executions that were compared
	Hermetic  int             `json:"hermetic,omitempty"`     // 1: nothing that was not declared could be reached
	Fresh     int             `json:"fresh,omitempty"`        // 1: the run takes over no result of another
	Unknown   []byte          `json:"-"`                      // encoded fields of a newer build
}

// Pair is a name and a value; lists of pairs are sorted by name.
type Pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Result is one output of a completed stage: an artifact, or a small value.
type Result struct {
	Role    string          `json:"role"`
	Digest  Digest          `json:"digest,omitzero"` // of the file's bytes, or of the value's JSON
	Size    int64           `json:"size"`            // bytes
	Records int64           `json:"records"`         // -1 when the format has none
	Name    string          `json:"name,omitempty"`  // base name of the file
	Value   json.RawMessage `json:"value,omitempty"` // set for a value, empty for a file
}

// Segment is a named part of a stage's time.
type Segment struct {
	Name     string        `json:"name"`
	Duration time.Duration `json:"duration"` // nanoseconds
}

// LogRef says how much a stage wrote to one stream and how much of that was kept.
type LogRef struct {
	Bytes   int64 `json:"bytes"`
	Dropped int64 `json:"dropped,omitempty"`
}

// Usage is what an attempt used of the machine, as the operating system counted it.
type Usage struct {
	User   time.Duration `json:"user,omitempty"`    // CPU nanoseconds
	System time.Duration `json:"system,omitempty"`  // CPU nanoseconds
	MaxRSS int64         `json:"max_rss,omitempty"` // bytes
}

// IO is how much an attempt's processes read and wrote, as the operating system counted it.
type IO struct {
	Read    int64 `json:"read,omitempty"`    // bytes
	Written int64 `json:"written,omitempty"` // bytes
}

// Check is one condition as it was evaluated: what it says, what it gave, and the recorded data that it read.
type Check struct {
	Kind   string          `json:"kind"`             // when, gate, reconcile, foreach, resources
	Expr   string          `json:"expr"`             // as the pipeline has it
	Holds  bool            `json:"holds,omitempty"`  // it gave true
	Inputs json.RawMessage `json:"inputs,omitempty"` // object: each path that it reads, with its value
	Level  string          `json:"level,omitempty"`  // warning: it does not fail the stage
	Error  string          `json:"error,omitempty"`  // why it could not be evaluated
}

// StageKey gives the digest of the attempt's pins document; zero when it has none.
func (d *Data) StageKey() Digest {
	if !d.PinnedAt.IsZero() || len(d.Pinned) == 0 {
		return d.PinnedAt
	}
	return DigestOf(d.Pinned)
}

// MaxInline is the size in bytes up to which a body or value travels inside an event; more is an artifact.
const MaxInline = 64 << 10

// Failure gives the failure fields as a Failure, or nil when the event carries no class.
func (d *Data) Failure() *Failure {
	if d.Class == "" {
		return nil
	}
	return &Failure{Class: d.Class, Reason: d.Reason, Pointer: d.Pointer, Expected: d.Expected, Actual: d.Actual,
		Exit: d.Exit, Signal: d.Signal, Evidence: d.Evidence}
}

// SetFailure copies a failure into the event's fields.
func (d *Data) SetFailure(f *Failure) {
	d.Class, d.Reason, d.Pointer, d.Expected, d.Actual = f.Class, f.Reason, f.Pointer, f.Expected, f.Actual
	d.Exit, d.Signal, d.Evidence = f.Exit, f.Signal, f.Evidence
}
