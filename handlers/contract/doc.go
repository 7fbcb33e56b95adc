// Package contract decides whether data is what a stage was promised: JSON, newline-delimited JSON and CSV are read
// strictly and compared with a JSON Schema.
//
// What the strict readers refuse is what different programs understand differently: a key twice, keys that differ only by
// case, numbers that do not fit, broken UTF-8, text after the end, rows of unequal length. Numbers stay the text that
// they were. A rejected file is never guessed at, and the place of every fault is named.
//
// A CSV row is an object: the header names its properties, each cell has the type that the schema asks for. CSV and
// NDJSON are read in constant memory whatever the size of the file; a JSON document is read whole.
//
// An empty cell is an absent property, so that `required` means "has a value". It is null where the property's type
// allows null, and the empty text where the schema mentions that: `minLength: 0`, `const: ""`, or "" in `enum`.
package contract
