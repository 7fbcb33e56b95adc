package events

import (
	"fmt"
	"strings"
)

// Type is the kind of an event. The number is what the store keeps and what the hash chain covers: it is never
// reused or renumbered. The name is `apollo.<entity>.<past-tense>.v1`; it is also the Watermill topic of the event.
type Type uint8

// The event types. This list is the only place where one is added.
const (
	DeliveryReceived   Type = 1 // its fate is a run
	DeliveryRejected   Type = 2 // refused: reason says why
	DeliveryDuplicated Type = 3 // the same key was seen before
	DeliveryHeld       Type = 4 // kept until its pipeline is unpaused
	DeliveryReleased   Type = 5 // held before, now a run
	DeliveryIgnored    Type = 6 // understood and not wanted: reason says why
	DeliveryImported   Type = 7 // came with a run from another store: its key is nobody's here

	RunCreated         Type = 20
	RunStarted         Type = 21
	RunCompleted       Type = 22
	RunFailed          Type = 23
	RunCancelRequested Type = 24
	RunCancelled       Type = 25
	RunResumed         Type = 26
	RunImported        Type = 28 // came from another store; nothing of it ran here
	RunVerified        Type = 29 // its stages were executed again and compared
	RunPruned          Type = 30 // artifacts that only this run needed were removed
	RunQueued          Type = 27 // has to wait for what waits_for says: a place in its concurrency group, or among all runs

	StageQueued          Type = 40 // ready, and waits for what waits_for says
	StageStarted         Type = 41 // claimed by a worker, under a lease and a fencing token
	StageSegmentRecorded Type = 42
	StageCompleted       Type = 43
	StageFailed          Type = 44
	StageRetryScheduled  Type = 45 // the attempt failed or was lost; the next one may start at due
	StageSkipped         Type = 46
	StageCancelled       Type = 47
	StageGateOpened      Type = 48
	StageApproved        Type = 49
	StageRejected        Type = 50
	StageLateResult      Type = 51 // a result whose attempt was over already; it changes nothing
	StageVerified        Type = 52 // executed again from its recorded inputs: verdict says what came of it

	StageIrreproducibleFound Type = 53 // two results for one stage key: expected and actual are their digests

	ArtifactStored Type = 70

	AlertRaised    Type = 80
	AlertDelivered Type = 81
	AlertFailed    Type = 82

	PipelineRegistered Type = 90
	PipelinePaused     Type = 91
	PipelineUnpaused   Type = 92

	WorkerJoined Type = 100
	WorkerLost   Type = 101
)

var typeNames = map[Type]string{
	DeliveryReceived: "delivery.received", DeliveryRejected: "delivery.rejected", DeliveryDuplicated: "delivery.duplicated",
	DeliveryHeld: "delivery.held", DeliveryReleased: "delivery.released", DeliveryIgnored: "delivery.ignored",
	RunCreated: "run.created", RunStarted: "run.started", RunCompleted: "run.completed", RunFailed: "run.failed",
	RunCancelRequested: "run.cancel_requested", RunCancelled: "run.cancelled", RunResumed: "run.resumed", RunQueued: "run.queued",
	StageQueued: "stage.queued", StageStarted: "stage.started", StageSegmentRecorded: "stage.segment_recorded",
	StageCompleted: "stage.completed", StageFailed: "stage.failed", StageRetryScheduled: "stage.retry_scheduled",
	StageSkipped: "stage.skipped", StageCancelled: "stage.cancelled", StageGateOpened: "stage.gate_opened",
	StageApproved: "stage.approved", StageRejected: "stage.rejected", StageLateResult: "stage.late_result",
	ArtifactStored: "artifact.stored",
	AlertRaised:    "alert.raised", AlertDelivered: "alert.delivered", AlertFailed: "alert.failed",
	PipelineRegistered: "pipeline.registered", PipelinePaused: "pipeline.paused", PipelineUnpaused: "pipeline.unpaused",
	WorkerJoined: "worker.joined", WorkerLost: "worker.lost",
	DeliveryImported: "delivery.imported", RunImported: "run.imported", RunVerified: "run.verified", RunPruned: "run.pruned",
	StageVerified: "stage.verified", StageIrreproducibleFound: "stage.irreproducible_found",
}

var fullNames = nameTypes()

func nameTypes() (full [256]string) {
	for t, name := range typeNames {
		full[t] = "apollo." + name + ".v1"
	}
	return full
}

// String gives the CloudEvents type, as "apollo.run.created.v1".
func (t Type) String() string {
	if name := fullNames[t]; name != "" {
		return name
	}
	return fmt.Sprintf("apollo.unknown.%d.v1", uint8(t))
}

// Short gives the name without prefix and version, as "run.created".
func (t Type) Short() string {
	if name, ok := typeNames[t]; ok {
		return name
	}
	return fmt.Sprintf("unknown.%d", uint8(t))
}

// Entity gives the first part of the short name: "delivery", "run", "stage", ...
func (t Type) Entity() string {
	entity, _, _ := strings.Cut(t.Short(), ".")
	return entity
}

// Known reports whether the type is in the list.
func (t Type) Known() bool { return fullNames[t] != "" }

// AfterEnd reports whether an event of the type may join a stream that is over: what became of a run, or of a delivery,
// after its end.
func (t Type) AfterEnd() bool {
	switch t {
	case DeliveryImported, RunImported, RunVerified, RunPruned, StageVerified, StageIrreproducibleFound:
		return true
	}
	return false
}

// ParseType reads a full name, as "apollo.run.created.v1".
func ParseType(name string) (Type, error) {
	for n := range fullNames {
		if fullNames[n] == name && name != "" {
			return Type(n), nil
		}
	}
	return 0, fmt.Errorf("parse event type %q: not in the list", name)
}

// Types gives every type in the order of its number.
func Types() []Type {
	var all []Type
	for n := range fullNames {
		if fullNames[n] != "" {
			all = append(all, Type(n))
		}
	}
	return all
}

// MarshalText implements encoding.TextMarshaler with the full name.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Type) UnmarshalText(text []byte) error {
	parsed, err := ParseType(string(text))
	*t = parsed
	return err
}
