package cmd

import (
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// failpoint is the hook of the crash tests: APOLLO_FAIL=<point>:<n> ends this process with SIGKILL when the store comes
// to the point for the n-th time. Nobody else sets it.
func failpoint(env func(string) string) func(string) error {
	point, text, ok := strings.Cut(env("APOLLO_FAIL"), ":")
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil {
		return nil
	}
	var passed atomic.Int64
	return func(at string) error {
		if at == point && passed.Add(1) == n {
			return syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		}
		return nil
	}
}
