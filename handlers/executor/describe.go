package executor

import (
	"context"
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Describer is an executor that can say what it would start, before it does. It makes no file and starts no stage.
type Describer interface {
	Describe(ctx context.Context, c *Call) (*Program, *events.Failure)
}

// Program is what carries an attempt out.
type Program struct {
	Path      string            // absolute; empty when nothing is started
	Args      []string          // with the name at 0
	Files     map[string]string // text of each file that is made for it, by its absolute path
	Env       map[string]string // variables that the executor adds to those that every stage has
	Symbols   map[string]string // names that stand for directories of this machine, by their paths
	Toolchain []events.Pair     // what reads the program: interpreter, version, build, each with its digest; sorted by name
}

// Environ gives the whole environment of an attempt of the call as NAME=value, sorted, secrets and all. Values that are too
// long for a variable are written below the work directory.
func (p *Program) Environ(c *Call) ([]string, *events.Failure) {
	own := *c
	own.Env = mergedEnv(c.Env, p.Env)
	e, failure := newEnviron(&own, "")
	if failure != nil {
		return nil, failure
	}
	delete(e.values, markName)
	return e.list(), nil
}

// BaseEnv gives the variables that every attempt has in every run, with $WORK for the work directory.
func BaseEnv() map[string]string {
	e := environ{values: map[string]string{}}
	e.base(&Call{Dir: "$WORK"})
	same := map[string]string{}
	for _, name := range []string{"PATH", "LANG", "TZ", "HOME", "TMPDIR"} {
		same[name] = e.values[name]
	}
	return same
}

func mergedEnv(declared, own map[string]string) map[string]string {
	if len(own) == 0 {
		return declared
	}
	all := make(map[string]string, len(declared)+len(own))
	for _, some := range []map[string]string{declared, own} {
		maps.Copy(all, some)
	}
	return all
}

// binaries remembers what programs are, for as long as their files stay the same.
type binaries struct {
	mu    sync.Mutex
	known map[string]installed // by the path under which it was found
}

type installed struct {
	state    fileState
	resolved string // without symbolic links
	digest   string
	version  string // first line that it prints when it is asked; empty when it does not say
	pairs    []events.Pair
}

// toolchain gives what reads a script: the interpreter, and the program that `env` is told to find.
func (b *binaries) toolchain(path string, args []string) ([]events.Pair, *events.Failure) {
	found, err := b.of(path)
	if err != nil {
		return nil, systemFailure("read the interpreter", err)
	}
	tools := found.pairs
	if filepath.Base(path) == "env" {
		if name := toldTo(args); name != "" {
			if path, ok := lookPath(name, stagePath); ok {
				if found, err = b.of(path); err != nil {
					return nil, systemFailure("read the interpreter", err)
				}
				tools = append(slices.Clip(tools), found.named("program")...)
			}
		}
	}
	return tools, nil
}

// toldTo gives the program among the arguments of env: the first word that is neither an option nor a variable.
func toldTo(args []string) string {
	for _, argument := range args[min(1, len(args)):] {
		for word := range strings.FieldsSeq(strings.TrimPrefix(argument, "-S")) {
			if word[0] != '-' && !strings.Contains(word, "=") {
				return word
			}
		}
	}
	return ""
}

func (b *installed) named(name string) []events.Pair {
	pairs := []events.Pair{{Name: name, Value: b.resolved}, {Name: name + "_digest", Value: b.digest}}
	if b.version != "" {
		pairs = append(pairs, events.Pair{Name: name + "_version", Value: b.version})
	}
	return pairs
}

// of reads a program's file, and asks it for its version, when the file is not the one that was read before.
func (b *binaries) of(path string) (installed, error) {
	now, ok := stateOf(path)
	if !ok {
		return installed{}, os.ErrNotExist
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.known[path]; ok && known.state == now {
		return known, nil
	}
	found := installed{state: now}
	var err error
	if found.resolved, err = filepath.EvalSymlinks(path); err != nil {
		return installed{}, err
	}
	if found.digest, err = digestOf(found.resolved); err != nil {
		return installed{}, err
	}
	found.version = versionText(found.resolved)
	found.pairs = found.named("interpreter")
	if b.known == nil {
		b.known = map[string]installed{}
	}
	b.known[path] = found
	return found, nil
}

// versionPatience bounds how long a program may think about its version.
const versionPatience = 2 * time.Second

// versionText gives the first line that a program prints for --version, empty when it knows no such option.
func versionText(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), versionPatience)
	defer cancel()
	ask := exec.CommandContext(ctx, path, "--version")
	ask.Env = []string{"PATH=" + stagePath, "LC_ALL=C"}
	ask.Dir = "/"
	answer, err := ask.Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(answer), "\n")
	if line = strings.TrimSpace(line); len(line) > 200 {
		line = line[:200]
	}
	return strings.ToValidUTF8(line, "")
}

// BuildID names the program that is running as exactly as its digest would, and is read from its head: what the Go linker
// notes of the build's content. It is empty where the linker left no note.
var BuildID = sync.OnceValue(func() string {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // read only
	section := f.Section(".note.go.buildid")
	if section == nil {
		return ""
	}
	note, err := section.Data()
	if err != nil || len(note) < 16 {
		return ""
	}
	return strings.TrimRight(string(note[16:]), "\x00")
})

// taskProgram says which build a task is part of. It is the same one each time.
var taskProgram = sync.OnceValue(func() *Program {
	return &Program{Toolchain: []events.Pair{{Name: "build", Value: BuildID()}, {Name: "go", Value: runtime.Version()}}}
})

// Describe implements Describer.
func (s *Shell) Describe(_ context.Context, c *Call) (*Program, *events.Failure) {
	var settings shellSettings
	if failure := decodeSettings(c.With, &settings); failure != nil {
		return nil, failure
	}
	p, failure := interpret(c, settings)
	if failure != nil {
		return nil, failure
	}
	tools, failure := s.tools.toolchain(p.path, p.args)
	if failure != nil {
		return nil, failure
	}
	return &Program{Path: p.path, Args: p.args, Files: p.files(), Toolchain: tools}, nil
}

// Describe implements Describer. It builds no environment.
func (p *Python) Describe(ctx context.Context, c *Call) (*Program, *events.Failure) {
	t, failure := p.plan(ctx, c, false)
	if failure != nil {
		return nil, failure
	}
	own := map[string]string{}
	for name, value := range t.call.Env {
		if declared, is := c.Env[name]; !is || declared != value {
			own[name] = value
		}
	}
	return &Program{Path: t.program.path, Args: t.program.args, Files: t.program.files(), Env: own, Toolchain: t.pins,
		Symbols: map[string]string{p.cache: "$CACHE"}}, nil
}

// Describe implements Describer: what carries a task out is this program.
func (e *Tasks) Describe(_ context.Context, c *Call) (*Program, *events.Failure) {
	if _, failure := e.settings(c.With); failure != nil {
		return nil, failure
	}
	return taskProgram(), nil
}
