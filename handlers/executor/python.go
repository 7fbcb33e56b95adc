package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Python runs a Python program. What it can import is the standard library and what the machine's administrator
// installed for the interpreter; with a lock file it is the standard library and the packages of the lock. The
// user's own packages, the work directory and PYTHON* variables play no part. Hashes of texts have the same order in
// every run, and nothing is written beside imported files.
//
// The interpreter is found in the PATH that every stage has, never in the engine's own. Its version and the digest of
// its binary are pins of the attempt, and so is the digest of the lock.
//
// An attempt that has to build the environment of its lock first, or to wait for somebody who does, spends that time
// in the segment `environment`. It does not count against the stage's time-out, which would otherwise end every
// attempt before there is an environment; a build has a bound of its own.
type Python struct {
	supervisor *supervisor
	cache      string
	pip        map[string]string
	patience   time.Duration // for one step of building an environment

	mu    sync.Mutex
	known map[string]interpreter // by the path under which it was found
}

// buildPatience bounds each step of building an environment.
const buildPatience = 15 * time.Minute

// NewPython makes the executor.
func NewPython(s Settings) *Python {
	pip := maps.Clone(s.Pip)
	cache := ""
	if s.Cache != "" {
		cache = filepath.Join(s.Cache, "python")
	}
	s.Spare = "" // is one supervisor's own
	return &Python{supervisor: newSupervisor(s), cache: cache, pip: pip, patience: buildPatience, known: map[string]interpreter{}}
}

// Spec implements Executor.
func (p *Python) Spec() Spec {
	return Spec{
		Name: "python",
		Doc:  "Runs a Python program, with the packages of a lock file when there is one.",
		With: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["script"],"properties":{
"script":{"type":"string","minLength":1,"description":"The text of the program; values reach it as variables and arguments, never as text."},
"interpreter":{"type":"string","description":"The interpreter, as python3.12; found in PATH."},
"args":{"type":"array","description":"Arguments, each handed over as one."},
"requirements":{"type":"string","description":"The text of the lock file: every line is name==version."}}}`),
	}
}

type pythonSettings struct {
	Script       string            `json:"script"`
	Interpreter  string            `json:"interpreter"`
	Args         []json.RawMessage `json:"args"`
	Requirements string            `json:"requirements"`
}

// pythonVariables make a program behave alike in every run. They are inherited by the programs that it starts, which
// options would not be; and the option that ignores PYTHON* variables would ignore the hash seed too.
var pythonVariables = map[string]string{
	"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1", "PYTHONSAFEPATH": "1",
}

// Execute implements Executor.
func (p *Python) Execute(ctx context.Context, c *Call) (*Result, *events.Failure) {
	t, failure := p.plan(ctx, c, true)
	result := &Result{Pins: t.pins, Segments: t.segments, Evidence: t.log}
	if failure != nil {
		return result, failure
	}
	if err := t.program.write(); err != nil {
		return result, systemFailure("write the script", err)
	}
	ran, failure := p.supervisor.supervise(ctx, t.call, t.program)
	ran.Pins, ran.Segments = result.Pins, append(result.Segments, ran.Segments...)
	return ran, failure
}

// pythonAttempt is what an attempt comes to before its program starts.
type pythonAttempt struct {
	call     *Call
	program  program
	pins     []events.Pair
	segments []Segment
	log      string // of an environment that could not be built
}

// plan finds the interpreter, and builds the environment of the lock where there is none yet and it is told to.
func (p *Python) plan(ctx context.Context, c *Call, build bool) (t pythonAttempt, failure *events.Failure) {
	var settings pythonSettings
	if failure = decodeSettings(c.With, &settings); failure != nil {
		return t, failure
	}
	var args []string
	if t.call, args, failure = settings.prepare(c); failure != nil {
		return t, failure
	}
	found, failure := p.interpreter(ctx, c, settings.Interpreter)
	if failure != nil {
		return t, failure
	}
	t.pins = found.pins(settings.Requirements)
	t.program = program{path: found.path, file: filepath.Join(c.Dir, "script.py"), text: settings.Script}
	if found.Prefix != "/" {
		t.program.trees = []string{found.Prefix}
	}
	if settings.Requirements != "" {
		dir := p.environmentOf(&found, settings.Requirements)
		if build {
			begin := time.Now()
			dir, t.log, failure = p.environment(ctx, c, found, settings.Requirements)
			t.segments = []Segment{{Name: "environment", Duration: time.Since(begin)}}
			if failure != nil {
				return t, failure
			}
		}
		t.program.path, t.program.trees = pythonOf(dir), append(t.program.trees, dir)
		t.call.Env["VIRTUAL_ENV"], t.call.Env["PATH"] = dir, filepath.Join(dir, "bin")+":"+stagePath
	}
	t.program.args = append([]string{t.program.path, "-s", t.program.file}, args...)
	return t, nil
}

// prepare checks the settings, and gives the call that the program gets and its arguments.
func (s *pythonSettings) prepare(c *Call) (*Call, []string, *events.Failure) {
	if failure := checkScript(s.Script); failure != nil {
		return nil, nil, failure
	}
	args := make([]string, len(s.Args))
	for i, raw := range s.Args {
		if args[i] = textOf(raw); strings.Contains(args[i], "\x00") {
			return nil, nil, &events.Failure{Class: events.BadInput, Pointer: fmt.Sprintf("/args/%d", i),
				Reason: fmt.Sprintf("the argument %d holds a NUL byte, which no argument can carry", i+1)}
		}
	}
	own := *c
	own.Env = maps.Clone(c.Env)
	if own.Env == nil {
		own.Env = map[string]string{}
	}
	for _, declared := range []map[string]string{own.Env, c.Secrets} {
		for _, name := range slices.Sorted(maps.Keys(declared)) {
			if strings.HasPrefix(name, "PYTHON") {
				return nil, nil, &events.Failure{Class: events.ExecFailed, Pointer: "/env/" + name,
					Reason: fmt.Sprintf("E_ENV_NAME: %s may not be declared: it changes what Python runs", name)}
			}
		}
	}
	maps.Copy(own.Env, pythonVariables)
	return &own, args, nil
}
