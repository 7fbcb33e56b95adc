package executor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// An environment of a lock is a directory below the cache, named by the digests of the interpreter and the lock. It is
// built in place, since its files hold its own path, and under a lock on a file beside it, which dies with its holder:
// of all who want it one builds, in whatever process, and the others wait. It counts only once the file `complete` is
// in it. What a builder that died left behind has none, and is removed by the next.

// environmentOf names the environment of a lock.
func (p *Python) environmentOf(i *interpreter, lock string) string {
	h := sha256.New()
	fmt.Fprintf(h, "1\n%s\n%s\n%s\n%s\n", i.digest, i.Version, i.Executable, events.DigestOf([]byte(lock)))
	return filepath.Join(p.cache, hex.EncodeToString(h.Sum(nil)))
}

func pythonOf(dir string) string { return filepath.Join(dir, "bin", "python") }

func completeMark(dir string) string { return filepath.Join(dir, "complete") }

func usable(dir string) bool {
	info, err := os.Stat(completeMark(dir))
	return err == nil && info.Mode().IsRegular() && executable(pythonOf(dir))
}

// environment gives the directory of a lock's environment, and builds it when there is none. log is what the builder
// said, when it failed.
func (p *Python) environment(ctx context.Context, c *Call, i interpreter, lock string) (dir, log string, failure *events.Failure) {
	if p.cache == "" {
		return "", "", systemFailure("build a Python environment", errors.New("no cache directory was set"))
	}
	dir = p.environmentOf(&i, lock)
	if usable(dir) {
		return dir, "", nil
	}
	if !i.Venv {
		return "", "", &events.Failure{Class: events.ExecFailed, Expected: "the modules venv and ensurepip", Actual: "missing",
			Reason: fmt.Sprintf("E_PYTHON_ENV: Python %s at %s cannot make environments; on Debian and Ubuntu install the package python%s-venv (apt-get install python3-venv for the default one)",
				i.Version, i.path, minor(i.Version))}
	}
	if err := os.MkdirAll(p.cache, 0o700); err != nil {
		return "", "", systemFailure("make the cache directory", err)
	}
	release, failure := takeTurn(ctx, dir+".lock")
	if failure != nil {
		return "", "", failure
	}
	defer release()
	if usable(dir) {
		return dir, "", nil
	}
	if log, failure = p.build(ctx, c, &i, dir, lock); failure != nil {
		return "", log, failure
	}
	return dir, "", nil
}

// minor gives 3.11 of 3.11.2.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// takeTurn waits for the lock on a file.
func takeTurn(ctx context.Context, path string) (release func(), failure *events.Failure) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, systemFailure("open the lock of a Python environment", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = f.Close() }, nil // closing releases it
		case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EINTR):
			err = sleep(ctx, 20*time.Millisecond)
		}
		if err != nil {
			_ = f.Close() // nothing was written
			if cause := stopCause(ctx); cause != nil {
				return nil, cause
			}
			return nil, systemFailure("lock a Python environment", err)
		}
	}
}

// build makes the environment anew. What it cannot complete it removes. The environment of the empty lock is the
// builder: it alone has pip, and installs the packages of every other, which so hold their lock and nothing else.
func (p *Python) build(ctx context.Context, c *Call, i *interpreter, dir, lock string) (log string, failure *events.Failure) {
	steps := []buildStep{{"the Python environment could not be made", []string{i.path, "-I", "-m", "venv", dir}}}
	if lock != "" {
		builder, log, failure := p.environment(ctx, c, *i, "")
		if failure != nil {
			return log, failure
		}
		steps = stepsOf(i, pythonOf(builder), dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", systemFailure("remove half a Python environment", err)
	}
	defer func() {
		if failure != nil {
			_ = os.RemoveAll(dir) // without its mark it is never used
		}
	}()
	for _, step := range steps {
		if _, log, failure = p.tool(ctx, c, p.patience, p.pipVariables(), step.words...); failure != nil {
			return log, environmentFailure(ctx, step.failed, log, failure)
		}
		if err := writeFile(lockOf(dir), lock); err != nil { // there is no directory for it before the first step
			return "", systemFailure("write the lock of a Python environment", err)
		}
	}
	if err := markComplete(dir, i); err != nil {
		return "", systemFailure("complete a Python environment", err)
	}
	return "", nil
}

// buildStep is a command, and what it means when it fails.
type buildStep struct {
	failed string
	words  []string
}

func lockOf(dir string) string { return filepath.Join(dir, "requirements.lock") }

// stepsOf are the steps that fill an environment. Dependencies are not looked for, since a lock names them all; the
// last step sees whether it does.
func stepsOf(i *interpreter, builder, dir string) []buildStep {
	pip := []string{builder, "-I", "-m", "pip", "--python", pythonOf(dir), "--disable-pip-version-check", "--no-input"}
	return []buildStep{
		{"the Python environment could not be made", []string{i.path, "-I", "-m", "venv", "--without-pip", dir}},
		{"the packages of the lock could not be installed", slices.Concat(pip, []string{"install", "--no-cache-dir", "--no-deps", "--requirement", lockOf(dir)})},
		{"the lock leaves out what its packages need", slices.Concat(pip, []string{"check"})},
	}
}

// environmentFailure says what kept an environment from being built, unless the attempt was stopped meanwhile or the
// machine is at fault.
func environmentFailure(ctx context.Context, failed, log string, f *events.Failure) *events.Failure {
	if ctx.Err() != nil || f.Class != events.ExecFailed && f.Class != events.Timeout {
		return f
	}
	return &events.Failure{Class: events.ExecFailed, Pointer: "/requirements", Exit: f.Exit, Signal: f.Signal, Expected: f.Expected, Actual: lastLine(log, f.Reason),
		Reason: fmt.Sprintf("E_PYTHON_ENV: %s; what pip said is the evidence", failed)}
}

// lastLine gives the last line that says something, bounded.
func lastLine(log, otherwise string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if last == "" {
		last = otherwise
	}
	return strings.ToValidUTF8(last[:min(len(last), 500)], "")
}

// markComplete makes the environment count, after everything in it.
func markComplete(dir string, i *interpreter) error {
	content, err := json.Marshal(map[string]string{"python": i.Version, "python_digest": i.digest, "executable": i.Executable})
	if err != nil {
		return err
	}
	temp := completeMark(dir) + ".new"
	if err := writeFile(temp, string(content)+"\n"); err != nil {
		return err
	}
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // a directory
	// pip syncs nothing, and a mark on files that a power cut emptied would last.
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return err
	}
	return os.Rename(temp, completeMark(dir))
}

// pipVariables are the builder's. Only wheels are taken, since building a package runs code with dependencies that no
// lock pins; and no settings of the machine. The operator can say otherwise.
func (p *Python) pipVariables() map[string]string {
	variables := map[string]string{"PIP_CONFIG_FILE": os.DevNull, "PIP_ONLY_BINARY": ":all:"}
	if p.pip["PIP_NO_BINARY"] != "" {
		delete(variables, "PIP_ONLY_BINARY")
	}
	maps.Copy(variables, p.pip)
	return variables
}

// toolLog is how much of what a tool says is kept, from the end of each stream.
const toolLog = 16 << 10

// tool runs a program for an attempt beside its stage: supervised alike, but in a directory and with logs of its own,
// which are gone afterwards. log is the end of both streams, without the passwords of the operator's addresses.
func (p *Python) tool(ctx context.Context, c *Call, patience time.Duration, env map[string]string, words ...string) (stdout []byte, log string, failure *events.Failure) {
	dir := filepath.Join(c.Dir, "tool")
	defer func() {
		_ = os.RemoveAll(dir) // the attempt's directory goes as a whole
		_ = os.Remove(c.Dir)  // only when nothing else is in it
	}()
	call := &Call{Run: c.Run, Pipeline: c.Pipeline, Stage: c.Stage, Attempt: c.Attempt, Key: c.Key, Dir: dir, LogDir: filepath.Join(dir, "logs"),
		Env: env, LogicalTime: c.LogicalTime, Seed: c.Seed, Timeout: patience, Grace: c.Grace}
	result, failure := p.supervisor.supervise(ctx, call, program{path: words[0], args: words})
	stdout = result.Stdout.Tail(toolLog)
	log = strings.TrimSpace(string(stdout)) + "\n" + strings.TrimSpace(string(result.Stderr.Tail(toolLog)))
	if m := newMasker(p.passwords()); m != nil {
		clean := string(m.mask([]byte(log)))
		log = clean + string(m.flush())
	}
	return stdout, strings.TrimSpace(log), failure
}

// passwords are what no log may tell of the operator's settings: the user parts of addresses.
func (p *Python) passwords() map[string]string {
	found := map[string]string{}
	for name, value := range p.pip {
		for word := range strings.FieldsSeq(value) {
			address, err := url.Parse(word)
			if err != nil || address.User == nil {
				continue
			}
			found[name+" "+word] = address.User.String()
			if password, ok := address.User.Password(); ok {
				found[name+" password "+word] = password
			}
		}
	}
	return found
}
