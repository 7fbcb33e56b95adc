// Package prune removes artifacts that nothing needs any more, and finds those that are needed and missing.
//
// What is needed is what the log refers to: every artifact that an event of a run which is kept names, and what those name
// in turn (pins documents, directories, lists of items), and the delivery that the run came from. A run is kept unless it
// has been pruned, or the caller wants to be rid of it: it ended long enough ago, and no kept run was forked from it, is its
// fork, started it, was started by it, or took over one of its results.
//
// No event is ever removed. A run that loses artifacts gets a run.pruned event, before the first of them goes: a crash at any
// moment leaves a log that says so, and artifacts that nothing needs, which the next prune finds.
package prune
