package cmd

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// machine says what attempts run on here.
func machine() events.Machine {
	build, _ := version()
	can := executor.Isolated()
	host, _ := os.Hostname() // recorded as far as the system says it
	return events.Machine{Schema: events.DocumentSchema, Apollo: build, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Kernel: firstLine("/proc/sys/kernel/osrelease"), CPU: processor(), CPUs: runtime.NumCPU(), Hostname: host, UID: os.Getuid(),
		Isolation: can.Level, Landlock: can.Landlock}
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // read only
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

const pinKeyFile = "pins.key"

// pinKey gives the key under which a data directory tells secrets apart in its pins, and makes it once. Who has it could
// try guesses of a secret, so it is for the owner only, and goes into no export.
func pinKey(dir string) ([]byte, error) {
	path := filepath.Join(dir, pinKeyFile)
	key, err := os.ReadFile(path)
	if err == nil && len(key) > 0 {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the key of the pins: %w", err)
	}
	key = []byte(rand.Text() + "\n")
	fresh := path + ".new"
	if err := errors.Join(os.WriteFile(fresh, key, 0o600), os.Rename(fresh, path)); err != nil {
		return nil, fmt.Errorf("make the key of the pins: %w", err)
	}
	return key, nil
}
