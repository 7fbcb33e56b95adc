package events

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Plan is a pipeline as frozen into a run: resolved, typed, complete. Its canonical form is its JSON as encoding/json
// writes it (struct order, sorted map keys); its digest is the SHA-256 of that. A run keeps the plan it began with.
type Plan struct {
	Schema      int                        `json:"schema"` // version of this document, now 1
	Pipeline    string                     `json:"pipeline"`
	Description string                     `json:"description,omitempty"`
	Params      map[string]json.RawMessage `json:"params,omitempty"` // JSON Schema of each parameter
	Triggers    []Trigger                  `json:"triggers,omitempty"`
	Contracts   map[string]Contract        `json:"contracts,omitempty"`
	Concurrency *Concurrency               `json:"concurrency,omitempty"`
	Deadline    time.Duration              `json:"deadline,omitempty"` // nanoseconds; 0 is none
	Priority    int                        `json:"priority,omitempty"` // higher goes first where runs or stages wait; 0 is usual
	Outputs     []PlanOutput               `json:"outputs,omitempty"`  // what a run gives to the stage that started it; sorted by role
	Stages      []Stage                    `json:"stages"`             // in a topological order, ties by declaration
}

// PlanSchema is the version of the Plan document that this build writes.
const PlanSchema = 1

// Trigger is one entry of `on:`. Kind says which of the settings holds.
type Trigger struct {
	Kind     string           `json:"kind"` // webhook, file, cron, pipeline, event
	Webhook  *WebhookTrigger  `json:"webhook,omitempty"`
	File     *FileTrigger     `json:"file,omitempty"`
	Cron     *CronTrigger     `json:"cron,omitempty"`
	Pipeline *PipelineTrigger `json:"pipeline,omitempty"`
	Event    *EventTrigger    `json:"event,omitempty"`
}

// WebhookTrigger starts a run for each verified HTTP post on /hooks/<path>.
type WebhookTrigger struct {
	Path    string `json:"path"`
	Scheme  string `json:"scheme"`             // github, standard, none, ...
	Secret  string `json:"secret,omitempty"`   // a reference, secret://name; never the value
	Key     string `json:"key,omitempty"`      // idempotency key: header:<Name>; empty is the scheme's own, else the body's digest
	MaxBody int64  `json:"max_body,omitempty"` // bytes; 0 is the default of 25 MiB
}

// FileTrigger starts a run for each file that arrives under a glob pattern.
type FileTrigger struct {
	Watch      string        `json:"watch"`            // absolute glob pattern
	Settle     time.Duration `json:"settle,omitempty"` // size and time must stand still this long; 0 for files that arrive by rename
	AllowEmpty bool          `json:"allow_empty,omitempty"`
}

// CronTrigger starts a run at the instants of a five-field schedule in a time zone.
type CronTrigger struct {
	Schedule string `json:"schedule"`
	Timezone string `json:"timezone,omitempty"`
	Missed   string `json:"missed,omitempty"`
	Overlap  string `json:"overlap,omitempty"`
}

// PipelineTrigger starts a run when a run of another pipeline ends with the outcome.
type PipelineTrigger struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome,omitempty"`
}

// EventTrigger starts a run for each event of a type that meets a condition.
type EventTrigger struct {
	Type string `json:"type"`
	If   string `json:"if,omitempty"`
}

// Contract is a schema that data must meet, embedded whole so that the plan needs no file beside it.
type Contract struct {
	Schema json.RawMessage `json:"schema"` // JSON Schema; for CSV it describes one row as an object
}

// PlanOutput is one output of a whole run: an expression over the outputs of its stages.
type PlanOutput struct {
	Role string `json:"role"`
	From string `json:"from"` // the inside of ${{ }}
}

// Concurrency bounds how many runs of a group go at once.
type Concurrency struct {
	Group    string `json:"group"` // a name, or one ${{ expression }} over parameters and trigger
	Max      int    `json:"max"`
	Overflow string `json:"overflow,omitempty"` // queue, skip, cancel_oldest
}

// Stage is one node of the plan's graph.
type Stage struct {
	Name      string            `json:"name"`
	Executor  string            `json:"executor"`       // shell, task, python, container, http, pipeline, approval, or a plugin's name
	With      json.RawMessage   `json:"with,omitempty"` // the executor's own settings, as its spec defines them
	Pin       string            `json:"pin,omitempty"`  // of a plug-in, as name@version sha256:<hex>; empty is any
	Needs     []string          `json:"needs,omitempty"`
	Prefers   []string          `json:"prefers,omitempty"`
	When      string            `json:"when,omitempty"`
	WhenItem  bool              `json:"when_item,omitempty"` // When reads item: it is evaluated for each instance
	Always    bool              `json:"always,omitempty"`
	MayFail   bool              `json:"may_fail,omitempty"`
	Foreach   string            `json:"foreach,omitempty"`
	Delay     time.Duration     `json:"delay,omitempty"`   // nanoseconds that the stage waits once it is ready
	Inputs    []Input           `json:"inputs,omitempty"`  // sorted by role
	Outputs   []Output          `json:"outputs,omitempty"` // sorted by role
	Reads     []string          `json:"reads,omitempty"`   // stages whose outputs the expressions read, sorted
	Facts     bool              `json:"facts,omitempty"`   // its expressions read facts of the run: run.failed and the like
	Env       map[string]string `json:"env,omitempty"`     // literal text or one ${{ expression }}
	Secrets   map[string]string `json:"secrets,omitempty"` // environment variable to secret://name
	Timeout   time.Duration     `json:"timeout,omitempty"` // nanoseconds; 0 is none
	Grace     time.Duration     `json:"grace,omitempty"`   // nanoseconds between TERM and KILL; 0 is the default
	Retry     *Retry            `json:"retry,omitempty"`
	Resources *Resources        `json:"resources,omitempty"`
	Reconcile []Reconcile       `json:"reconcile,omitempty"`
	Gate      []Gate            `json:"gate,omitempty"`
	Isolation string            `json:"isolation,omitempty"`     // off, observe, enforce
	Require   string            `json:"require,omitempty"`       // level that isolation has to reach: env, landlock, landlock+seccomp, container; empty is what the mode needs
	Readable  []string          `json:"readable,omitempty"`      // absolute paths that an isolated stage may read beside its inputs, unpinned
	Network   string            `json:"network,omitempty"`       // none, allow; empty is not said: it is allowed, and verify does without
	Clock     string            `json:"clock,omitempty"`         // fixed: the same logical time and seed in every run; empty is the run's
	Same      *bool             `json:"deterministic,omitempty"` // what the author says of it; nil is nothing
	Compare   *Compare          `json:"compare,omitempty"`
}

// Compare says what counts when two results of a stage are compared.
type Compare struct {
	Ignore    []string `json:"ignore,omitempty"`    // roles of outputs that may differ, sorted
	Normalise string   `json:"normalise,omitempty"` // shell command that turns an output on its standard input into what is compared
}

// Input is one role that a stage reads.
type Input struct {
	Role     string `json:"role"`
	From     string `json:"from"`             // a literal, or one expression when Expr is set
	Expr     bool   `json:"expr,omitempty"`   // From is the inside of ${{ }}
	Format   string `json:"format,omitempty"` // csv, json; empty is bytes
	Contract string `json:"contract,omitempty"`
	File     string `json:"file,omitempty"` // absolute path of a file or directory on the machine, taken in when the attempt begins; From is empty
}

// Output is one role that a stage writes: a file below its out directory when Path is set, a directory when Path ends with
// a slash, else a small value.
type Output struct {
	Role     string          `json:"role"`
	Path     string          `json:"path,omitempty"`
	Format   string          `json:"format,omitempty"`
	Contract string          `json:"contract,omitempty"`
	Schema   json.RawMessage `json:"schema,omitempty"`   // JSON Schema of a value output
	Optional bool            `json:"optional,omitempty"` // a missing file or value is no failure
	Key      []string        `json:"key,omitempty"`      // columns by which rows of a table are compared
}

// Retry says when a failed attempt is tried again. A stage without one is never retried, except after a lost worker.
type Retry struct {
	Max         int           `json:"max"` // attempts after the first
	Interval    time.Duration `json:"interval,omitempty"`
	Backoff     float64       `json:"backoff,omitempty"` // factor per attempt; 0 is 1
	MaxInterval time.Duration `json:"max_interval,omitempty"`
	Jitter      float64       `json:"jitter,omitempty"` // 0..1, share of the interval, seeded from the run
	On          []string      `json:"on,omitempty"`     // failure classes, exit:<code>, http:<status>, http:4xx, http:connect; empty is every class but bad_input and cancelled
}

// Resources are what a stage asks of the machine.
type Resources struct {
	CPU     float64 `json:"cpu,omitempty"`     // cores
	Memory  int64   `json:"memory,omitempty"`  // bytes
	Disk    int64   `json:"disk,omitempty"`    // bytes
	Network int64   `json:"network,omitempty"` // bits a second
}

// Reconcile compares what came in with what went out.
type Reconcile struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Expect string `json:"expect"`
	Level  string `json:"level,omitempty"`
}

// Gate is one acceptance criterion of a stage.
type Gate struct {
	Check   string `json:"check"`
	Message string `json:"message,omitempty"`
}

// Encode gives the plan's canonical bytes.
func (p *Plan) Encode() ([]byte, error) {
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	return b, nil
}

// DecodePlan reads canonical bytes.
func DecodePlan(b []byte) (*Plan, error) {
	p := new(Plan)
	if err := json.Unmarshal(b, p); err != nil {
		return nil, fmt.Errorf("decode plan: %w", err)
	}
	if p.Schema > PlanSchema {
		return nil, fmt.Errorf("decode plan: schema %d is newer than this build's %d", p.Schema, PlanSchema)
	}
	return p, nil
}

// Label names the stage, or its instance with the number: "clean", "clean#3".
func (s *Stage) Label(item int) string {
	if item == 0 {
		return s.Name
	}
	return s.Name + "#" + strconv.Itoa(item)
}

// PerItem reports whether the stage's condition is one of each instance rather than of the whole stage.
func (s *Stage) PerItem() bool { return s.Foreach != "" && s.WhenItem }
