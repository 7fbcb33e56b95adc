package executor

import "golang.org/x/sys/unix"

// auditArch is this machine's architecture, as seccomp names it.
const auditArch = unix.AUDIT_ARCH_AARCH64

// foreignCalls is where the numbers of another kind of calls begin; there is none here.
const foreignCalls = 0

// ownCalls are the trapped calls that not every architecture has.
var ownCalls = []trappedCall{
	{nr: unix.SYS_RENAMEAT, use: replaces, paths: [2]pathArgument{{0, 1}, {2, 3}}, two: true},
}
