// Package provenance says what a run did in forms that others read: a Workflow Run RO-Crate and an in-toto statement with
// SLSA provenance. Both are made of the same facts, which are what the log says and nothing else. Neither can be imported.
package provenance
