package events

// Spec describes an event type to people: what it says and which fields of Data it uses, by their JSON names.
// docs/events.md is made from it.
type Spec struct {
	Type    Type
	Meaning string
	Fields  []string
}

// Fields that several types share.
var (
	deliveryFields = []string{"pipeline", "params", "kind", "trigger", "key", "headers", "body", "blob", "size", "file", "traceparent", "logical_time", "seed"}
	failureFields  = []string{"reason", "class", "pointer", "expected", "actual", "exit", "signal", "evidence"}
	resultFields   = []string{"stage", "item", "attempt", "token", "worker", "duration", "outputs", "checks", "segments", "stdout", "stderr",
		"usage", "io", "leftovers", "pins", "pinned", "pinned_at", "machine", "isolation", "accesses", "stdout_digest", "stderr_digest", "shared", "hermetic",
		"cached_from"}
	attemptFields = with(resultFields, failureFields...)
)

func with(fields []string, more ...string) []string {
	return append(append([]string(nil), fields...), more...)
}

// Catalogue gives the description of every type, in the order of the numbers.
func Catalogue() []Spec {
	return []Spec{
		{DeliveryReceived, "A delivery arrived and became a run.", with(deliveryFields, "run")},
		{DeliveryRejected, "A delivery was refused; code and reason say why.", with(deliveryFields, "code", "reason")},
		{DeliveryDuplicated, "A delivery had a key that was seen before; run and delivery are those of the first.",
			with(deliveryFields, "run", "delivery", "reason")},
		{DeliveryHeld, "A delivery is kept until its pipeline is unpaused.", with(deliveryFields, "reason")},
		{DeliveryReleased, "A delivery that was held became a run.", []string{"run", "reason"}},
		{DeliveryIgnored, "A delivery was understood and not wanted; reason says why.", with(deliveryFields, "code", "reason")},
		{DeliveryImported, "The delivery came with a run from another store: its key is nobody's here.", []string{"run", "reason", "actor"}},
		{RunCreated, "A run exists, with its frozen plan and every pin.", []string{"pipeline", "plan", "params", "kind", "trigger",
			"delivery", "traceparent", "forked_from", "from", "sample", "group", "parent", "depth", "pins", "reason",
			"logical_time", "seed", "fresh"}},
		{RunStarted, "The run's first stages may go.", nil},
		{RunCompleted, "Every stage has ended and none has failed that must not.", nil},
		{RunFailed, "Every stage has ended and one has failed; stage, class and reason are those of the first that did. With class " +
			"system it may come at any time: Apollo itself could not go on with the run.", []string{"stage", "class", "reason"}},
		{RunCancelRequested, "Somebody wants the run to end, or its deadline has passed (class timeout); reason says who or why.", []string{"reason", "class", "actor"}},
		{RunCancelled, "No stage is open any more after a cancel request.", []string{"reason", "class"}},
		{RunResumed, "A failed run goes on: every stage that has not completed is pending again.", []string{"reason", "actor"}},
		{RunQueued, "The run has to wait for what waits_for says; reason has the numbers.", []string{"waits_for", "reason"}},
		{RunImported, "The run came from another store, as it is; nothing of it ran here. Reason names the file.", []string{"reason", "actor", "blob", "machine"}},
		{RunVerified, "The run's stages were executed again from their recorded inputs: verdict and stage say what came of it.",
			[]string{"verdict", "stage", "item", "factor", "count", "machine", "reason", "actor"}},
		{RunPruned, "Artifacts that only this run needed were removed; count and size say how much.", []string{"count", "size", "reason", "actor"}},
		{StageQueued, "The stage is ready and waits for what waits_for says.", []string{"stage", "item", "waits_for", "due", "checks", "reason"}},
		{StageStarted, "A worker has claimed the stage. The event's sequence is the fencing token of the attempt. With items it is " +
			"a foreach stage, which only waits for its instances.", []string{"stage", "item", "attempt", "worker", "lease", "checks", "items", "blob", "count",
			"cached_from", "pinned", "pinned_at"}},
		{StageSegmentRecorded, "The running attempt named a part of its time.", []string{"stage", "attempt", "token", "segments"}},
		{StageCompleted, "The attempt succeeded: its outputs are sealed.", resultFields},
		{StageFailed, "The last attempt failed; no other follows.", attemptFields},
		{StageRetryScheduled, "The attempt failed or was lost; the next one may start at due.", with(attemptFields, "due")},
		{StageSkipped, "The stage will not run: a stage that it needs has not completed, or its condition is false.",
			[]string{"stage", "item", "reason", "checks"}},
		{StageCancelled, "The stage was pending when its run was cancelled, or its attempt was ended for that.", attemptFields},
		{StageGateOpened, "Somebody let a stage pass whose gate was not met; its outputs are those of the attempt that the gate rejected.",
			[]string{"stage", "item", "actor", "reason"}},
		{StageApproved, "Somebody approved what waits for an approval.", []string{"stage", "item", "actor", "reason", "answer"}},
		{StageRejected, "Somebody refused what waits for an approval.", []string{"stage", "item", "actor", "reason", "answer"}},
		{StageLateResult, "A result came for an attempt that was over already. It is kept and changes nothing.", attemptFields},
		{StageVerified, "The stage was executed again from its recorded inputs; verdict, factor and role say what came of it.",
			[]string{"stage", "item", "attempt", "verdict", "factor", "role", "expected", "actual", "times", "isolation", "machine", "reason", "evidence"}},
		{StageIrreproducibleFound, "The stage gave another result than an earlier attempt with the same stage key did: expected and actual are the digests.",
			[]string{"stage", "item", "attempt", "pinned_at", "role", "expected", "actual", "run", "reason"}},
		{ArtifactStored, "Bytes were put into the artifact store from outside a run.", []string{"blob", "size", "file"}},
		{AlertRaised, "Something needs a person.", []string{"pipeline", "run", "stage", "class", "code", "reason", "key"}},
		{AlertDelivered, "An alert reached a channel.", []string{"key", "trigger"}},
		{AlertFailed, "An alert did not reach a channel; reason says why.", []string{"key", "trigger", "attempt", "reason"}},
		{PipelineRegistered, "A pipeline became known, or was replaced, with its plan.", []string{"pipeline", "plan"}},
		{PipelinePaused, "Deliveries of the pipeline are held from now on.", []string{"pipeline", "reason"}},
		{PipelineUnpaused, "Deliveries of the pipeline become runs again.", []string{"pipeline", "reason"}},
		{WorkerJoined, "A worker offers itself for stages.", []string{"worker"}},
		{WorkerLost, "A worker has missed its heartbeats; its attempts are lost.", []string{"worker", "reason"}},
	}
}
