// Package events is Apollo's vocabulary and its pure core: the event types and their envelope, the plan of a run,
// the states and the one transition table, the failure classes, Fold and Decide. It does no I/O and knows no clock
// and no randomness: whatever it says is a function of the events it was given.
package events
