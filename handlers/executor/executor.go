package executor

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Call is everything an executor may know of one attempt.
type Call struct {
	Run      events.ID
	Pipeline string
	Stage    string
	Attempt  int
	Key      string // idempotency key, the same on every attempt of a stage in a run

	Dir    string          // work directory; in, out and tmp lie below it, made by the executor that needs them
	LogDir string          // directory of the log files, made at the first byte that the stage writes
	With   json.RawMessage // the executor's own settings, as its Spec defines them
	Pin    string          // of a plug-in, as the plan has it; empty is any

	Inputs  map[string]Input           // by role
	Params  map[string]json.RawMessage // by name
	Env     map[string]string          // variables that the stage declares
	Secrets map[string]string          // variables whose values are masked in the logs

	Item     int             // number of a foreach stage's instance, from 1; 0 is none
	Value    json.RawMessage // of the item
	Outputs  []events.Output // what the stage declares, in the plan's order
	Depth    int             // runs above this one
	Approved bool            // Answer says yes
	Answer   *events.Data    // of the stage.approved or stage.rejected event; nil when there is none

	LogicalTime time.Time
	Seed        uint64
	Timeout     time.Duration     // 0 is none
	Grace       time.Duration     // between TERM and KILL; 0 is DefaultGrace
	Resources   *events.Resources // what the stage may use; nil is not said
	Network     string            // none, allow; empty is not said, and allows it
	Isolation   string            // off, observe, enforce; empty is off
	Require     string            // level that has to be reached; empty is what Isolation needs
	Readable    []string          // absolute paths that the attempt may read beside its inputs
	Perturb     *Perturbation     // what verify changes; nil is nothing

	Started func(pid int) // called once the process runs, may be nil
}

// Perturbation changes what a result must not depend on: verify executes a stage under it. A zero field changes nothing.
type Perturbation struct {
	Env      map[string]string // variables that lie over all others
	Umask    int               // instead of 022; 0 is 022
	CPUs     []int             // numbers of the only processors that the attempt may use
	Hostname string            // of a UTS namespace of its own; not changed where the system does not allow it
	Clock    time.Duration     // that the wall clock is ahead, by libfaketime where it is installed
	Frozen   bool              // the wall clock shows the same all the time, likewise
	Missed   []string          // filled in: names of the fields that could not be applied here
}

// Label names the stage, or its instance with the number: "clean", "clean#3".
func (c *Call) Label() string { return (&events.Stage{Name: c.Stage}).Label(c.Item) }

// DefaultGrace is how long a stage may take to end after TERM, when the plan says nothing.
const DefaultGrace = 5 * time.Second

// Input is what a stage reads under one role: a file when Path is set, else a value.
type Input struct {
	Path  string
	Value json.RawMessage
}

// Result is what an attempt left behind. It is filled as far as the attempt got, also when a Failure comes with it.
type Result struct {
	Values   map[string]json.RawMessage // small outputs by role; numbers are kept as they were written
	Segments []Segment                  // in the order in which the stage marked them
	Stdout   Log
	Stderr   Log
	Usage    Usage
	Pins     []events.Pair // what the result depends on beside its inputs, sorted by name, as image: sha256:...
	// Isolation is the level that was reached: env, landlock, landlock+seccomp or container. Hermetic says that nothing could
	// be reached that was not declared, the network included.
	Isolation string
	Hermetic  bool
	// Accesses are what the attempt did beside its declarations: Name is read, list, write, execute or connect, Value the
	// path or address.
	Accesses []events.Pair
	// Leftovers counts the processes that outlived the stage's own process and had to be ended.
	Leftovers int
	// Evidence is text that proves a Failure and is in no log: the stack of a task that panicked.
	Evidence string
}

// Segment is a part of an attempt's time, from its mark to the next mark or the end.
type Segment struct {
	Name     string
	Duration time.Duration
}

// Usage is what the kernel charged to the stage's process and to the descendants that were waited for.
type Usage struct {
	User   time.Duration
	System time.Duration
	// MaxRSS is the peak of memory in bytes: of the whole tree where a control group holds it, else the largest
	// resident set of one process. That one is 0 when no process grew beyond the engine's own peak: until a new process
	// has loaded its program the kernel charges it with the engine's memory, and anything below that cannot be told
	// apart.
	MaxRSS int64
	// Read and Written are bytes that went through read and write calls of the process and of all descendants that were
	// waited for, files and pipes alike; 0 where the system does not say.
	Read, Written int64
}

// Log describes one captured stream. Path is empty when the stage wrote nothing to it.
type Log struct {
	Path    string
	Bytes   int64 // bytes that the stage wrote, after masking
	Kept    int64 // bytes of the stage in the file; the mark of what was dropped is not counted
	Dropped int64 // bytes left out between head and tail, or lost to a full disk
}

// Tail gives up to n bytes from the end of the stream, for evidence. It is empty when nothing can be read.
func (l Log) Tail(n int64) []byte {
	if l.Path == "" {
		return nil
	}
	f, err := os.Open(l.Path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-n), n))
	return b
}

// Spec describes an executor once, for documentation, validation and forms.
type Spec struct {
	Name string
	Doc  string          // one sentence
	With json.RawMessage // JSON Schema of Call.With
}

// Executor carries out attempts. Execute returns a nil Failure when the attempt succeeded; the Result is never nil.
// When ctx is cancelled it ends the attempt first and then returns: with the cause itself when that is an
// *events.Failure, else with class cancelled, or timeout when the cause is context.DeadlineExceeded.
type Executor interface {
	Spec() Spec
	Execute(ctx context.Context, c *Call) (*Result, *events.Failure)
}

// Settings are what the built-in executors need to be told.
type Settings struct {
	Owner string          // names this engine in its processes' marks, and is what KillOrphans looks for: the data directory's id
	Spare string          // directory for what one attempt hands on to the next; empty is none, which is slower
	Tasks map[string]Task // Go functions by name
	// HTTPAllow are the hosts and networks besides the public internet that http stages may reach, as CheckHTTPAllow reads
	// them. It is the operator's, never a pipeline's.
	HTTPAllow []string
	Version   string // of this build, for User-Agent
	Runs      Runs   // starts runs of other pipelines; nil: this build has no executor for them
	Files     Files  // of the artifact store, for outputs of child runs; goes with Runs

	Cache string            // directory for what attempts share, as Python environments; it may be removed while no engine runs
	Pip   map[string]string // variables for building Python environments, as PIP_INDEX_URL; their values are not recorded

	ContainerHost string // the container engine, as unix:///var/run/docker.sock or tcp://host:port
}

// Builtin gives the executors of this build.
func Builtin(s Settings) []Executor {
	return []Executor{
		NewShell(s),
		NewTasks(s.Tasks),
		NewHTTP(s),
		NewPipelines(s.Runs, s.Files),
		Approvals{},
		NewPython(s),
		NewContainer(s),
	}
}
