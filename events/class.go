package events

import "fmt"

// Class says what kind of failure ended an attempt. The list is closed: it becomes a metric label and a filter.
type Class string

// The failure classes.
const (
	BadInput         Class = "bad_input"         // an input broke its contract or could not be prepared
	Timeout          Class = "timeout"           // the stage ran over its time-out
	BadOutput        Class = "bad_output"        // an output is missing or broke its contract
	ExecFailed       Class = "exec_failed"       // a non-zero exit code, a signal, or a program that could not be started
	GateRejected     Class = "gate_rejected"     // the acceptance criteria were not met
	UndeclaredAccess Class = "undeclared_access" // the stage touched something it had not declared
	Lost             Class = "lost"              // the worker that ran the attempt died
	Aborted          Class = "cancelled"         // somebody cancelled the run
	System           Class = "system"            // Apollo's own fault, or the machine's
)

// Classes gives the closed list.
func Classes() []Class {
	return []Class{BadInput, Timeout, BadOutput, ExecFailed, GateRejected, UndeclaredAccess, Lost, Aborted, System}
}

// ParseClass refuses what is not in the list.
func ParseClass(s string) (Class, error) {
	for _, c := range Classes() {
		if string(c) == s {
			return c, nil
		}
	}
	return "", fmt.Errorf("parse failure class %q: not in the list", s)
}

// Failure is why an attempt ended without success, with what a person needs to see at once.
type Failure struct {
	Class    Class  `json:"class"`
	Reason   string `json:"reason"`             // one sentence
	Pointer  string `json:"pointer,omitempty"`  // the place in the data: a JSON pointer, or row:column
	Expected string `json:"expected,omitempty"` // the limit or rule that was broken
	Actual   string `json:"actual,omitempty"`   // what was found
	Exit     int    `json:"exit,omitempty"`     // exit code, when there was one
	Signal   string `json:"signal,omitempty"`   // signal name, as "SIGKILL", when one ended it
	Evidence Digest `json:"evidence,omitzero"`  // artifact that proves it: log tail, bad rows, ...
}

// Error makes a Failure an error: "class: reason".
func (f *Failure) Error() string { return string(f.Class) + ": " + f.Reason }
