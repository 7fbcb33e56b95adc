// Package configs reads pipeline definitions strictly, reports every problem at once with file, line and column, and
// freezes a pipeline into an events.Plan.
//
// The way of a file through the package is one list:
//
//	guard     bytes and tokens: size, encoding, depth, aliases, tags, tabs; nothing hostile reaches the parser (guard.go)
//	tree      goccy/go-yaml's tree as plain nodes with positions; duplicate keys (tree.go)
//	check     each node against the language's one specification (language.go, check.go)
//	build     nodes to events.Plan; what a single key can't know: contracts, scripts, triggers (build*.go)
//	graph     needs, cycles, reachability, topological order (graph.go)
//	expression  every ${{ }} and condition compiled against typed data (expression.go, environment.go)
//
// The specification in language.go is also what Schema prints as a JSON Schema for editors.
//
// # The language, where the design leaves room
//
// An input is a scalar (a literal, or one "${{ expression }}") or a map {from, format, contract}. An output with a path
// is a file below the stage's out directory; one without is a small value that the stage writes to $APOLLO_OUTPUTS, with
// the keywords of JSON Schema beside it: {type: integer, minimum: 0}, or whole under schema:. The text of run: is a shell
// script; it is never templated. A "${{ expression }}" stands alone in inputs, env and with; conditions (when, foreach,
// gate, expect, if) are written bare.
//
// A name with a dash is written stages.my-stage.outputs.x; roles and parameters with a dash need brackets:
// stages.a.outputs["my-role"], because outputs.a-b is a subtraction.
//
// # Defaults
//
// Time-outs and retry intervals follow the kind of work (defaults.go): work that fetches (http) waits long and retries
// soon, work that computes has no time-out and retries late. Retries are off unless declared.
//
// Nothing here reads the environment or a clock: what the machine offers is handed in by Options.
package configs
