// Package bundle keeps runs in one file, so that they can be carried to another machine: their events, plans and artifacts,
// with every digest. A file is written from a store, read without one, and imported into another. What it looks like is
// in docs/carry.md.
//
// Entries of the file are stored, never compressed: the same run gives the same bytes with every version of the compressor,
// an entry cannot swell while it is read, and a place in the log can be found without reading all that comes before it.
package bundle
