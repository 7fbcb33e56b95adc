package executor

import (
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stageUmask is the umask of every stage.
const stageUmask = 0o022

func (p *Perturbation) umask() int {
	if p == nil || p.Umask == 0 {
		return stageUmask
	}
	return p.Umask
}

// ofThread reports whether the attempt needs a thread of its own.
func (p *Perturbation) ofThread() bool { return p != nil && (len(p.CPUs) > 0 || p.Hostname != "") }

// miss notes a field that could not be applied.
func (p *Perturbation) miss(field string) { p.Missed = append(p.Missed, field) }

// missInContainer notes what a container takes no part in.
func (p *Perturbation) missInContainer() {
	if p == nil {
		return
	}
	for _, field := range []struct {
		set  bool
		name string
	}{{p.Umask != 0, "Umask"}, {len(p.CPUs) > 0, "CPUs"}, {p.Hostname != "", "Hostname"}, {p.Clock != 0, "Clock"}} {
		if field.set {
			p.miss(field.name)
		}
	}
}

// onThread applies what the stage's process inherits from the thread that starts it.
func (p *Perturbation) onThread() {
	if p == nil {
		return
	}
	if len(p.CPUs) > 0 {
		var set unix.CPUSet
		for _, n := range p.CPUs {
			set.Set(n)
		}
		if unix.SchedSetaffinity(0, &set) != nil {
			p.miss("CPUs")
		}
	}
	if p.Hostname != "" && (unix.Unshare(unix.CLONE_NEWUTS) != nil || unix.Sethostname([]byte(p.Hostname)) != nil) {
		p.miss("Hostname")
	}
}

// setClock has the attempt's programs loaded with a library that moves their clock. Programs that are linked statically,
// as those of Go, do not load it.
func (p *Perturbation) setClock(env *environ) {
	if p == nil || p.Clock == 0 && !p.Frozen {
		return
	}
	library := clockLibrary()
	if library == "" {
		p.miss("Clock")
		return
	}
	env.values["LD_PRELOAD"], env.values["NO_FAKE_STAT"] = library, "1"
	env.values["FAKETIME"] = signed(int64(p.Clock / time.Second))
	if p.Frozen {
		env.values["FAKETIME"], env.values["FAKETIME_FMT"] = strconv.FormatInt(frozenClock.Add(p.Clock).Unix(), 10), "%s"
		env.values["DONT_FAKE_MONOTONIC"], env.values["FAKETIME_DONT_FAKE_MONOTONIC"] = "1", "1" // else whoever sleeps never wakes up
	}
}

// frozenClock is what a clock shows that stands still.
var frozenClock = time.Date(2031, 3, 4, 5, 6, 7, 0, time.UTC)

// signed always writes the sign: without one libfaketime reads an instant.
func signed(n int64) string {
	if n < 0 {
		return strconv.FormatInt(n, 10)
	}
	return "+" + strconv.FormatInt(n, 10)
}

// clockLibrary finds libfaketime, in the form for programs with threads where there is one.
var clockLibrary = sync.OnceValue(func() string {
	for _, name := range []string{"libfaketimeMT.so.1", "libfaketime.so.1"} {
		for _, dir := range []string{"/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime", "/usr/local/lib/faketime"} {
			if found, err := filepath.Glob(filepath.Join(dir, name)); err == nil && len(found) > 0 {
				return found[0]
			}
		}
	}
	return ""
})
