package cmd_test

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// limitFiles lets no file of this process grow past APOLLO_TEST_FSIZE bytes: a write past it fails half-way.
func limitFiles() {
	size, err := strconv.ParseUint(os.Getenv("APOLLO_TEST_FSIZE"), 10, 64)
	if err != nil {
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: size}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
