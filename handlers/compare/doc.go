// Package compare says where two runs part, and why: it takes two folded runs with their artifacts and gives a Result. It
// executes nothing and changes nothing. A stage is judged by its results (its state, its failure class, its outputs) and by
// what they may depend on (its pins document, or what the plan and the log say where there is none).
package compare
