// Package plugin loads plug-ins: executables and templates in a directory, each described by a manifest and pinned by the
// SHA-256 of its file. It speaks with the executables in lines of JSON; docs/plugins.md is the protocol.
//
// # What runs is what is pinned
//
// The file is checked when it is loaded, and again before each start: it is read once, from one open descriptor, into
// memory that is then sealed against every change; the digest is that of these very bytes, and they are what is executed.
// So nothing can be put in the file's place between the check and the start. Only the one file is pinned: what a script
// imports beside it is not.
//
// # A broken plug-in
//
// It has a Fault with a code, and is left out; the others are used.
package plugin
