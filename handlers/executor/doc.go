// Package executor carries out one attempt of a stage. An executor is one file with its Spec in it, and one line in
// Builtin. It is handed everything it may know in a Call and answers with a Result and, when the attempt did not
// succeed, one Failure of the closed class list. The environment of the engine itself is never read here.
//
// # What a shell stage can rely on
//
// Its environment starts empty and holds only what environ.go lists; its working directory is Dir/out; umask is 022;
// standard input is empty. Values never become part of the script's text. The default shell stops at the first
// command that fails, inside a pipe too (see shell.go).
//
// # What the engine can rely on
//
// Every stage process leads a session of its own, which is also its process group. When an attempt ends, for whatever
// reason, its whole tree is gone before Execute returns. Members of the tree are known by their session, by their
// parents, and by the variable APOLLO_MARK in their environment. The engine is the "child subreaper" of all of them,
// so what a stage leaves behind becomes a child of the engine: one read of a small /proc file tells a clean end from
// leftovers, and zombies are collected. The one escape that remains is a process that, in a stage that ends by
// itself, leaves the session and also wipes its environment and loses its parent.
//
// One operating system thread serves one attempt: it starts the process with a umask of its own, polls its pipes, and
// is not used for anything else until the process is gone. This keeps the engine's own umask untouched, and makes the
// kernel's parent-death signal mean the engine's death. While a stage runs undisturbed the thread sleeps, but for a
// look at one small file every five seconds, for zombies.
//
// The directories out and tmp, and the work directory itself, are there while a stage runs. Those in which it left
// nothing are gone when Execute returns.
//
// Linux 5.4 or later is required (pidfd).
package executor
