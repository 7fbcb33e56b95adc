// Package stage holds the ordered steps of one attempt: prepare the inputs, check their contracts, execute, check the
// contracts of the outputs, seal them. It turns everything that can go wrong into a failure with a class and evidence.
package stage
