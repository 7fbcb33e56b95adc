// Package replay folds stored runs again, in lockstep with what the engine would decide now, and can go back and forth in
// them. It reads a store or a file that a run was exported to. It cannot carry out a stage: no executor, no process and no
// network client is among what it is built of, and a test holds it to that.
package replay
