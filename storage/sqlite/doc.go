// Package sqlite keeps the store contract on one SQLite file: one writer that merges waiting commits, a pool of readers,
// write-ahead log, synchronous=FULL. It is the only package that speaks SQLite.
package sqlite
