package executor

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/apollo-11/apollo/events"
)

// supervisor starts attempts for the executors that run programs.
type supervisor struct {
	owner    string
	spares   spares
	groups   func() groups    // found once, when a stage first asks for resources
	isolated func() Isolation // what the machine can do to hold an attempt
}

func newSupervisor(s Settings) *supervisor {
	return &supervisor{owner: s.Owner, spares: spares{root: s.Spare}, groups: sync.OnceValue(func() groups { return openGroups(s.Owner) }), isolated: Isolated}
}

// supervise runs a program as an attempt of the call and returns when nothing of it is left.
func (s *supervisor) supervise(ctx context.Context, c *Call, p program) (*Result, *events.Failure) {
	env, failure := newEnviron(c, s.mark(c))
	if failure != nil {
		return new(Result), failure
	}
	result, failure, _ := s.carryOut(ctx, c, p, env)
	if failure == nil {
		result.Values, failure = readOutputs(outputsPath(c))
	}
	return result, failure
}

// mark is what the processes of an attempt bear in their environment. Two attempts at once never have the same.
func (s *supervisor) mark(c *Call) string {
	return fmt.Sprintf("%s/%s/%s/%d", s.owner, c.Run, c.Label(), c.Attempt)
}

// carryOut is supervise in an environment that is made already. ended says that the program ended by itself.
func (s *supervisor) carryOut(ctx context.Context, c *Call, p program, env *environ) (result *Result, failure *events.Failure, ended bool) {
	if c.Resources == nil {
		return s.attend(ctx, c, p, env, limits{})
	}
	l := newLimits(c, s.groups())
	defer l.group.remove()
	return s.attend(ctx, c, p, env, l)
}

// attend is carryOut within limits that are made already.
func (s *supervisor) attend(ctx context.Context, c *Call, p program, env *environ, l limits) (result *Result, failure *events.Failure, ended bool) {
	result = new(Result)
	isolation := s.isolated()
	how, failure := isolation.confine(c)
	result.Isolation = how.level
	if failure != nil {
		return result, failure, false
	}
	result.Hermetic = how.hermetic()
	if err := becomeSubreaper(); err != nil {
		return result, systemFailure("become a subreaper", err), false
	}
	if err := s.makeDirs(c.Dir); err != nil {
		return result, systemFailure("make the work directory", err), false
	}
	fifo, err := s.spares.takeFIFO(c.Dir)
	if err != nil {
		return result, systemFailure("make the named pipe of the segments", err), false
	}
	env.values["APOLLO_SEGMENTS"] = fifo.path
	c.Perturb.setClock(env)
	a := &attempt{ctx: ctx, limits: l, call: c, isolation: &isolation, how: how, tree: tree{mark: env.values[markName], seen: make(map[int]uint64)}, fifo: fifo, spares: &s.spares}
	failure = a.run(p, env.list(), result)
	if !how.observe && (c.Isolation == "observe" || c.Isolation == "enforce") { // never taken for an attempt that used nothing
		result.Accesses = append(result.Accesses, Unobserved)
	}
	a.letGo()
	s.spares.giveFIFO(fifo, a.clean)
	if a.clean { // else a stray process might still write there
		s.giveBack(c.Dir)
	}
	return result, failure, a.exited && a.stopped == nil && len(a.stuck) == 0
}

// writableDirs are those of the work directory that an attempt writes to: its outputs, what it needs for a while, and
// what it says of itself.
var writableDirs = []string{"out", "tmp", "state"}

// giveBack takes what an attempt left empty out of its work directory, and that one too when nothing else is in it.
func (s *supervisor) giveBack(dir string) {
	if s.spares.giveWork(dir) {
		return
	}
	for _, name := range writableDirs {
		s.spares.giveDir(filepath.Join(dir, name))
	}
	s.spares.giveDir(dir)
}

// makeDirs makes the writable directories, and the work directory when it is missing.
func (s *supervisor) makeDirs(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%q is not an absolute path", dir)
	}
	if s.spares.takeWork(dir) {
		return nil
	}
	for _, name := range writableDirs {
		if err := s.spares.mkdirAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}
