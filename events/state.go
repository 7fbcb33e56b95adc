package events

import "fmt"

// State is where a run or a stage stands. Skipped is for stages only.
type State uint8

// The states. None is that of a run or stage which does not exist yet.
const (
	None State = iota
	Pending
	Running
	Completed
	Failed
	Cancelled
	Skipped
)

var stateNames = [...]string{"none", "pending", "running", "completed", "failed", "cancelled", "skipped"}

// String gives the state's name in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// Terminal reports whether nothing more happens by itself.
func (s State) Terminal() bool { return s >= Completed }

// ParseState reads a state's name.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if n == name {
			return State(i), nil
		}
	}
	return None, fmt.Errorf("parse state %q: not in the list", name)
}

// MarshalText implements encoding.TextMarshaler with the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error {
	parsed, err := ParseState(string(text))
	*s = parsed
	return err
}

// Transition is one row of the table: in state From, an event of the type leads to To. Anything that is not in the
// table is refused as an InvariantError.
type Transition struct {
	Event    Type
	From, To State
}

// Transitions gives the one table of what may follow what, for runs and stages. docs/state-machine.md is made from it.
func Transitions() []Transition {
	return []Transition{
		{RunCreated, None, Pending},
		{RunQueued, Pending, Pending},
		{RunStarted, Pending, Running},
		{RunCompleted, Running, Completed},
		{RunFailed, Running, Failed},
		{RunCancelRequested, Pending, Pending},
		{RunCancelRequested, Running, Running},
		{RunCancelled, Pending, Cancelled},
		{RunCancelled, Running, Cancelled},
		{RunResumed, Failed, Pending},
		{RunImported, Completed, Completed},
		{RunImported, Failed, Failed},
		{RunImported, Cancelled, Cancelled},
		{RunVerified, Completed, Completed},
		{RunVerified, Failed, Failed},
		{RunVerified, Cancelled, Cancelled},
		{RunPruned, Completed, Completed},
		{RunPruned, Failed, Failed},
		{RunPruned, Cancelled, Cancelled},

		{StageQueued, Pending, Pending},
		{StageStarted, Pending, Running},
		{StageSegmentRecorded, Running, Running},
		{StageGateOpened, Pending, Pending},
		{StageApproved, Pending, Pending},
		{StageRejected, Pending, Pending},
		{StageCompleted, Running, Completed},
		{StageFailed, Running, Failed},
		{StageRetryScheduled, Running, Pending},
		{StageSkipped, Pending, Skipped},
		{StageCancelled, Pending, Cancelled},
		{StageCancelled, Running, Cancelled},
		{StageLateResult, Pending, Pending},
		{StageLateResult, Running, Running},
		{StageLateResult, Completed, Completed},
		{StageLateResult, Failed, Failed},
		{StageLateResult, Cancelled, Cancelled},
		{StageLateResult, Skipped, Skipped},
		{StageVerified, Completed, Completed},
		{StageIrreproducibleFound, Completed, Completed},
	}
}

const stateCount = int(Skipped) + 1

var transitionTable = indexTransitions()

// indexTransitions turns the list into an array: next state by event and state; None where nothing may follow.
func indexTransitions() (table [256][stateCount]State) {
	for _, t := range Transitions() {
		table[t.Event][t.From] = t.To
	}
	return table
}

// InvariantError says that an event may not follow what is there. It is never a user's mistake.
type InvariantError struct {
	Stream   ID
	Sequence uint64
	Event    Type
	Stage    string
	State    State
	Why      string
}

// Error names the run, the event, the stage and the state.
func (e *InvariantError) Error() string {
	at := "run " + e.Stream.String()
	if e.Stage != "" {
		at += " stage " + e.Stage
	}
	return fmt.Sprintf("E_INVARIANT: %s: event %d %s may not follow state %s: %s", at, e.Sequence, e.Event.Short(), e.State, e.Why)
}

// Next gives the state that the event leads to, or false when the table does not allow it.
func Next(s State, t Type) (State, bool) {
	if int(s) >= stateCount {
		return None, false
	}
	to := transitionTable[t][s]
	return to, to != None
}
