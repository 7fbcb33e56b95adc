package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// interpreter is a Python that was found and asked what it is.
type interpreter struct {
	path       string // under which it was found
	digest     string // of its binary
	state      fileState
	Version    string `json:"version"`
	Executable string `json:"executable"` // the binary, without symbolic links and wrappers
	Prefix     string `json:"prefix"`     // directory of its standard library and of what it needs else
	Venv       bool   `json:"venv"`       // it can make environments
}

// fileState tells whether a file is still the one that was read.
type fileState struct {
	device, inode   uint64
	size            int64
	changed, edited unix.Timespec
}

func stateOf(path string) (fileState, bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileState{}, false
	}
	return fileState{device: st.Dev, inode: st.Ino, size: st.Size, changed: st.Ctim, edited: st.Mtim}, true
}

// probe is asked without any site package, so that nothing but the interpreter answers.
const probe = `import json, os, platform, sys
from importlib.util import find_spec
print(json.dumps({"version": platform.python_version(), "executable": os.path.realpath(sys.executable), "prefix": os.path.realpath(sys.base_prefix),
                  "venv": all(find_spec(m) for m in ("venv", "ensurepip"))}))`

const probePatience = 30 * time.Second

// interpreter finds a Python by name or absolute path. It is asked and read again only when its file has changed, or
// when it is a wrapper, which may lead somewhere else each time.
func (p *Python) interpreter(ctx context.Context, c *Call, name string) (interpreter, *events.Failure) {
	if name == "" {
		name = "python3"
	}
	path, ok := lookPath(name, stagePath)
	if !ok {
		return interpreter{}, &events.Failure{Class: events.ExecFailed, Pointer: "/interpreter", Expected: "in " + stagePath, Actual: "missing",
			Reason: fmt.Sprintf("E_PYTHON: the interpreter %q is not installed; install it (on Debian: apt-get install python3), or name another one under interpreter:", name)}
	}
	p.mu.Lock()
	known, ok := p.known[path]
	p.mu.Unlock()
	if ok && known.unchanged() {
		return known, nil
	}
	found, failure := p.ask(ctx, c, path)
	if failure != nil {
		return found, failure
	}
	if found.unchanged() {
		p.mu.Lock()
		p.known[path] = found
		p.mu.Unlock()
	}
	return found, nil
}

// unchanged reports whether the path still leads straight to the very file that was read.
func (i *interpreter) unchanged() bool {
	target, err := filepath.EvalSymlinks(i.path)
	if err != nil || target != i.Executable {
		return false
	}
	now, ok := stateOf(i.Executable)
	return ok && now == i.state
}

func (p *Python) ask(ctx context.Context, c *Call, path string) (interpreter, *events.Failure) {
	found := interpreter{path: path}
	answer, log, failure := p.tool(ctx, c, probePatience, nil, path, "-I", "-S", "-c", probe)
	if failure != nil && (failure.Class == events.ExecFailed || failure.Class == events.Timeout) && ctx.Err() == nil {
		return found, notPython(path, lastLine(log, failure.Reason))
	}
	if failure != nil {
		return found, failure
	}
	if err := json.Unmarshal(answer, &found); err != nil || !filepath.IsAbs(found.Executable) || found.Version == "" {
		return found, notPython(path, "its answer is no JSON")
	}
	var err error
	if found.state, _ = stateOf(found.Executable); found.state == (fileState{}) {
		return found, notPython(path, found.Executable+" is missing")
	}
	if found.digest, err = digestOf(found.Executable); err != nil {
		return found, systemFailure("read the interpreter", err)
	}
	return found, nil
}

func notPython(path, actual string) *events.Failure {
	return &events.Failure{Class: events.ExecFailed, Pointer: "/interpreter", Expected: "Python 3", Actual: actual,
		Reason: fmt.Sprintf("E_PYTHON: %s does not answer as Python 3 does; name another one under interpreter:", path)}
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // read only
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// pins are what a result depends on: the interpreter and the lock.
func (i *interpreter) pins(lock string) []events.Pair {
	pins := []events.Pair{{Name: "python", Value: i.Version}, {Name: "python_digest", Value: i.digest}}
	if lock != "" {
		pins = append(pins, events.Pair{Name: "requirements", Value: events.DigestOf([]byte(lock)).String()})
	}
	return pins
}
