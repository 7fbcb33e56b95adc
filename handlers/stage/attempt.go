package stage

import (
	"context"
	"encoding/json"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Attempt is everything that one try of a stage needs. The engine makes it once stage.started is durable; it is
// read-only from then on.
type Attempt struct {
	Run      events.ID
	Plan     *events.Plan
	Stage    *events.Stage
	Index    int             // place in events.Run.Stages
	Item     int             // number of a foreach stage's instance, from 1; 0 is none
	Value    json.RawMessage // of the item
	Number   int             // of the attempt, from 1
	Token    uint64
	Params   json.RawMessage            // object
	Values   map[string]json.RawMessage // the same, decoded; shared by the attempts of a run; nil: decode Params
	Upstream map[string]*Upstream       // the stages in Stage.Reads
	Facts    map[string]any             // of the run, for expressions over `run`; nil when none asks
	Approved bool                       // Answer says yes
	Answer   *events.Data               // of the person who was asked; nil when there is none
	Depth    int                        // runs above this one
	Again    bool                       // it began in an engine that died: its executor looks after what it left, also when the context has ended
	Broken   string                     // why a condition of the stage could not be evaluated; the attempt fails with it
	Kind     string                     // of the trigger
	Trigger  string
	From     events.ID                                   // the delivery that the run came from
	Delivery func(context.Context) (*events.Data, error) // its content, read when an expression asks for it
	Logical  time.Time                                   // the run's time for its stages: the same on every attempt, replay and rerun
	Seed     uint64                                      // of the run: each stage and instance derives its own from it
	Given    map[string]events.PinnedInput               // by role: what inputs from the machine were when they were recorded; they are taken from the store
	Started  func(pid int)                               // called once a process runs; may be nil
	Perturb  *Perturbation                               // what verify changes; nil is nothing
}

// Upstream is how a stage stands that this one's expressions read.
type Upstream struct {
	State    events.State
	Class    events.Class
	Reason   string
	Duration time.Duration
	Results  []events.Result
	Items    [][]events.Result // of a foreach stage: by item; nil for one that has not completed
	Foreach  bool
}

// Outcome is how an attempt ended. Failure is nil after a success. Data carries what the event records: outputs,
// segments, log sizes, usage, leftovers; nil is nothing.
type Outcome struct {
	Data    *events.Data
	Failure *events.Failure
}

// Runner carries out one attempt. It returns when nothing of the attempt is left running. A cancelled context ends the
// attempt early, with the cause of the context as the reason.
type Runner interface {
	Run(ctx context.Context, a *Attempt) Outcome
}
