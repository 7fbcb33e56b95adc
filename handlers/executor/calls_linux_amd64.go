package executor

import "golang.org/x/sys/unix"

// auditArch is this machine's architecture, as seccomp names it.
const auditArch = unix.AUDIT_ARCH_X86_64

// foreignCalls is where the numbers of another kind of calls begin, that of x32 programs.
const foreignCalls = 0x40000000

// ownCalls are the trapped calls that only this architecture has.
var ownCalls = []trappedCall{
	{nr: unix.SYS_OPEN, use: opens, flags: 1, paths: [2]pathArgument{{here, 0}}},
	{nr: unix.SYS_CREAT, use: creates, paths: [2]pathArgument{{here, 0}}},
	{nr: unix.SYS_MKDIR, use: makes, paths: [2]pathArgument{{here, 0}}},
	{nr: unix.SYS_MKNOD, use: makes, paths: [2]pathArgument{{here, 0}}},
	{nr: unix.SYS_SYMLINK, use: makes, paths: [2]pathArgument{{here, 1}}},
	{nr: unix.SYS_LINK, use: replaces, paths: [2]pathArgument{{here, 0}, {here, 1}}, two: true},
	{nr: unix.SYS_RMDIR, use: changes, paths: [2]pathArgument{{here, 0}}},
	{nr: unix.SYS_UNLINK, use: changes, paths: [2]pathArgument{{here, 0}}},
	{nr: unix.SYS_RENAME, use: replaces, paths: [2]pathArgument{{here, 0}, {here, 1}}, two: true},
	{nr: unix.SYS_RENAMEAT, use: replaces, paths: [2]pathArgument{{0, 1}, {2, 3}}, two: true},
}
