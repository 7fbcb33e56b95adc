package executor

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// strip runs on the attempt's own thread: first what needs privileges, then what takes them away.
func (a *attempt) strip(grants []grant) (listener int, err error) {
	a.call.Perturb.onThread()
	if a.how.enforce || !a.isolation.privileged {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return -1, fmt.Errorf("give up new privileges: %w", err)
		}
	}
	if a.how.enforce {
		ruleset, err := newRuleset(a.isolation.Landlock, a.how.none, systemGrants(), grants)
		if err != nil {
			return -1, err
		}
		defer unix.Close(ruleset)
		if err := restrict(ruleset); err != nil {
			return -1, err
		}
	}
	kind := a.how.filter()
	if kind == (filterKind{}) {
		return -1, nil
	}
	if listener, err = a.isolation.install(kind); err != nil {
		return -1, fmt.Errorf("install a seccomp filter: %w", err)
	}
	return listener, nil
}

// launch starts the process, from a thread of its own where anything is taken from it.
func (a *attempt) launch(p program, env []string, files []uintptr) (failure *events.Failure) {
	if !a.how.apart() && !a.call.Perturb.ofThread() {
		runtime.LockOSThread()
		a.unlock = runtime.UnlockOSThread
		failure = a.spawn(p, env, files)
	} else {
		var grants []grant
		if a.how.enforce || a.how.observe {
			grants = attemptGrants(a.call, &p, a.fifo)
			defer closeGrants(grants)
		}
		a.observer = observer{fd: -1, how: a.how, free: a.call.Network == "allow", abstract: a.isolation.Landlock >= abiScopes, grants: grants}
		a.own = newThread(func() {
			var err error
			if a.observer.fd, err = a.strip(grants); err != nil {
				failure = systemFailure("isolate the stage", err)
				return
			}
			failure = a.spawn(p, env, files)
		})
	}
	if failure == nil {
		first(a.proc.pid)
	}
	return failure
}

// letGo gives back the thread that started the process. The process must have ended.
func (a *attempt) letGo() {
	a.own.end()
	if a.unlock != nil {
		a.unlock()
	}
}

// spawn starts the process from the calling thread. A sandbox may allow control groups, and not the call that starts a
// process in one.
func (a *attempt) spawn(p program, env []string, files []uintptr) (failure *events.Failure) {
	dir, umask := filepath.Join(a.call.Dir, "out"), a.call.Perturb.umask()
	a.proc, failure = p.start(dir, env, files, &a.limits, umask)
	if failure != nil && a.limits.group != nil {
		a.limits.ungroup()
		a.proc, failure = p.start(dir, env, files, &a.limits, umask)
	}
	return failure
}

// explain says of an attempt what it used beside its declarations, and lets it fail for that where it was refused. An
// attempt that was stopped keeps that reason.
func (o *observer) explain(failure *events.Failure, stopped bool, result *Result) *events.Failure {
	result.Accesses = o.found.list()
	if o.how.enforce && !o.how.observe && failure != nil && failure.Class == events.ExecFailed {
		failure.Reason += "; the stage is isolated, and this kernel cannot tell what it was refused: see docs/isolation.md"
	}
	if !o.how.enforce || stopped || len(result.Accesses) == 0 {
		return failure
	}
	first, network := o.found.first, false
	if !o.found.hard {
		if first, network = o.found.network(); !network || failure == nil || !o.how.none {
			return failure
		}
	}
	undeclared := &events.Failure{Class: events.UndeclaredAccess, Pointer: "/inputs", Expected: "what the stage declares", Actual: first.Name + " " + first.Value,
		Reason: fmt.Sprintf("undeclared_access: %s: the stage %s, which it does not declare%s", first.Value, did(first.Name), mend(first, result.Accesses))}
	if network || first.Name == "connect" {
		undeclared.Pointer = "/network"
	}
	if failure != nil {
		undeclared.Exit, undeclared.Signal = failure.Exit, failure.Signal
	}
	result.Evidence = evidenceOf(result.Accesses)
	return undeclared
}

// network gives an access to the network, if there was one.
func (a *accesses) network() (events.Pair, bool) {
	for _, p := range a.all() {
		if p.Name == "connect" {
			return p, true
		}
	}
	return events.Pair{}, false
}

func did(kind string) string {
	switch kind {
	case "list":
		return "tried to list this directory"
	case "execute":
		return "tried to execute this program"
	case "connect":
		return "tried to reach this"
	}
	return "tried to " + kind + " this file"
}

// mend says what to write.
func mend(first events.Pair, all []events.Pair) string {
	more := ""
	if n := len(all) - 1; n > 0 {
		more = fmt.Sprintf("; %d more, see the evidence", n)
	}
	lines := Declare([]events.Pair{first})
	if first.Name == "write" {
		return "; write it to the current directory and add outputs: {" + RoleOf(first.Value) + ": {path: " + yamlText(filepath.Base(first.Value)) + "}}" + more
	}
	if len(lines) == 0 {
		return more
	}
	return "; add " + strings.Join(lines, " and ") + more
}

// evidenceOf lists everything, and the lines that declare it.
func evidenceOf(all []events.Pair) string {
	var b strings.Builder
	b.WriteString("undeclared access:\n")
	for _, p := range all {
		fmt.Fprintf(&b, "  %s %s\n", p.Name, p.Value)
	}
	if lines := Declare(all); len(lines) > 0 {
		b.WriteString("to declare it:\n")
		for _, line := range lines {
			b.WriteString("  " + line + "\n")
		}
	}
	return b.String()
}
