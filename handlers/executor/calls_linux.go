package executor

import "golang.org/x/sys/unix"

// pathUse is what a system call does with its path.
type pathUse int

const (
	opens    pathUse = iota // reads or writes, as its flags say
	opensHow                // the same, with the flags in a struct
	creates                 // writes, and makes the file when it is missing
	makes                   // a name that is not there yet
	changes                 // what is there
	replaces                // what is there, or makes it
	executes
	connects
	asks // for a socket
)

// here is the argument of a path that is relative to the working directory.
const here = -1

// pathArgument says which arguments of a call are a directory's descriptor and a path relative to it.
type pathArgument struct{ dir, path int }

// trappedCall is a system call that the kernel tells the supervisor of, before it carries it out.
type trappedCall struct {
	nr    uint32
	use   pathUse
	flags int // argument with the flags, or of how
	paths [2]pathArgument
	two   bool // both paths count
}

// trappedCalls are all of them, but for those that not every architecture has.
var trappedCalls = append([]trappedCall{
	{nr: unix.SYS_OPENAT, use: opens, flags: 2, paths: [2]pathArgument{{0, 1}}},
	{nr: unix.SYS_OPENAT2, use: opensHow, flags: 2, paths: [2]pathArgument{{0, 1}}},
	{nr: unix.SYS_MKDIRAT, use: makes, paths: [2]pathArgument{{0, 1}}},
	{nr: unix.SYS_MKNODAT, use: makes, paths: [2]pathArgument{{0, 1}}},
	{nr: unix.SYS_SYMLINKAT, use: makes, paths: [2]pathArgument{{1, 2}}},
	{nr: unix.SYS_LINKAT, use: replaces, paths: [2]pathArgument{{0, 1}, {2, 3}}, two: true},
	{nr: unix.SYS_UNLINKAT, use: changes, paths: [2]pathArgument{{0, 1}}},
	{nr: unix.SYS_RENAMEAT2, use: replaces, paths: [2]pathArgument{{0, 1}, {2, 3}}, two: true},
	{nr: unix.SYS_TRUNCATE, use: changes, paths: [2]pathArgument{{here, 0}}},
	{nr: unix.SYS_EXECVE, use: executes, paths: [2]pathArgument{{here, 0}}},
	{nr: unix.SYS_EXECVEAT, use: executes, paths: [2]pathArgument{{0, 1}}},
	{nr: unix.SYS_CONNECT, use: connects},
	{nr: unix.SYS_SOCKET, use: asks},
}, ownCalls...)

// callOf finds a trapped call by its number.
var callOf = func() map[uint32]*trappedCall {
	found := make(map[uint32]*trappedCall, len(trappedCalls))
	for i := range trappedCalls {
		found[trappedCalls[i].nr] = &trappedCalls[i]
	}
	return found
}()
