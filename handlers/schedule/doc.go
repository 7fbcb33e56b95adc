// Package schedule holds the two handlers that move runs: schedule turns each event that may let something follow into
// the events that do follow, dispatch lets ready stages wait in line for a slot or an instant. Neither runs a stage.
package schedule
