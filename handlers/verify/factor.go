package verify

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// factor is one condition that a result must not depend on.
type factor struct {
	name  string
	field string // of executor.Perturbation, in which what could not be applied is named
	// fits says whether the factor means anything to a stage, and whether it can be changed here.
	fits   func(s *subject, h *Host) fit
	change func(c *conditions, h *Host)
}

type fit int

const (
	fitting   fit = iota
	pointless     // the stage says itself what the condition is, or cannot see it
	unable        // it cannot be changed here
)

// conditions are those of one execution.
type conditions struct {
	executor.Perturbation
	round     int                                                // number of the execution under changed conditions, from 0
	calls     []func(c *executor.Call, p *executor.Perturbation) // in the call, once it is filled in
	elsewhere bool                                               // the work directory has another path
	reversed  bool                                               // inputs are placed in the opposite order
	touched   bool                                               // input files have other times of modification
	loaded    bool                                               // the machine is kept busy
}

// set gives the attempt a variable, over what it has.
func (c *conditions) set(name, value string) {
	if c.Env == nil {
		c.Env = map[string]string{}
	}
	c.Env[name] = value
}

// shift is how far the clock is moved: into another year, month, weekday, hour and minute.
const shift = 400*24*time.Hour + 5*time.Hour + 43*time.Minute + 21*time.Second

// factors is the list of what is changed, in the order in which reports name them.
func factors() []factor {
	return []factor{
		{"time", "Clock", processes, func(c *conditions, _ *Host) { c.Clock = shift }},
		{"timezone", "", variables("TZ"), func(c *conditions, h *Host) { c.set("TZ", of(h.Zones, c.round)) }},
		{"locale", "", variables("LANG", "LC_ALL"), func(c *conditions, h *Host) { c.set("LANG", of(h.Locales, c.round)) }},
		{"umask", "", processes, func(c *conditions, _ *Host) { c.Umask = 0o077 }},
		{"home", "", ownHome, func(c *conditions, _ *Host) { c.calls = append(c.calls, homeElsewhere) }},
		{"env", "", variables(extraVariable), func(c *conditions, _ *Host) { c.set(extraVariable, "1") }},
		{"hostname", "Hostname", processes, func(c *conditions, h *Host) { c.Hostname = "x-" + h.Hostname + "-verify" }},
		{"cpus", "CPUs", manyCPUs, func(c *conditions, h *Host) { c.CPUs = []int{of(h.CPUs, c.round)} }},
		{"path", "", outsideContainers, func(c *conditions, _ *Host) { c.elsewhere = true }},
		{"run", "", everywhere, func(c *conditions, _ *Host) { c.calls = append(c.calls, otherRun) }},
		{"order", "", ordered, func(c *conditions, _ *Host) { c.reversed = true }},
		{"mtime", "", withFiles, func(c *conditions, _ *Host) { c.touched = true }},
		{"network", "", networked, func(c *conditions, _ *Host) { c.calls = append(c.calls, noNetwork) }},
		{"undeclared", "", unheld, func(c *conditions, _ *Host) { c.calls = append(c.calls, enforce) }},
		{"load", "", everywhere, func(c *conditions, _ *Host) { c.loaded = true }},
	}
}

// extraVariable is a variable that no stage declares.
const extraVariable = "UNDECLARED_BY_THE_STAGE"

// Factors gives the names of everything that is changed.
func Factors() []string {
	var names []string
	for _, f := range factors() {
		names = append(names, f.name)
	}
	return names
}

func of[T any](list []T, round int) T { return list[round%len(list)] }

func everywhere(*subject, *Host) fit { return fitting }

// processes are those of stages that run programs here; a task is part of this one, and a container's are elsewhere.
func processes(s *subject, _ *Host) fit {
	if s.kind == "task" || s.kind == "container" || s.kind == "http" {
		return unable
	}
	return fitting
}

// variables is for a condition that variables carry: a stage that declares one of them has said what it is.
func variables(names ...string) func(s *subject, h *Host) fit {
	return func(s *subject, _ *Host) fit {
		if slices.ContainsFunc(names, s.declares) {
			return pointless
		}
		if s.kind == "task" || s.kind == "http" {
			return unable
		}
		return fitting
	}
}

func ownHome(s *subject, h *Host) fit {
	if s.declares("HOME") {
		return pointless
	}
	return processes(s, h)
}

func homeElsewhere(c *executor.Call, p *executor.Perturbation) {
	set(p, "HOME", filepath.Join(c.Dir, "out"))
}

func set(p *executor.Perturbation, name, value string) {
	if p.Env == nil {
		p.Env = map[string]string{}
	}
	p.Env[name] = value
}

func manyCPUs(s *subject, h *Host) fit {
	if len(h.CPUs) < 2 {
		return unable
	}
	return processes(s, h)
}

func outsideContainers(s *subject, _ *Host) fit {
	if s.kind == "container" {
		return pointless // it finds its directories at the same place always
	}
	return fitting
}

func otherRun(c *executor.Call, _ *executor.Perturbation) {
	for i := range c.Run[:] {
		c.Run[i] ^= 0x55
	}
	c.Attempt += 7
	c.Key = c.Run.String() + "/" + c.Label()
}

func withFiles(s *subject, _ *Host) fit {
	if s.files == 0 {
		return pointless
	}
	return fitting
}

func ordered(s *subject, h *Host) fit {
	if s.files < 2 {
		return pointless
	}
	if !h.Ordered {
		return unable
	}
	return fitting
}

// networked is for stages that do not say whether they need the network. A container has none unless it says so.
func networked(s *subject, h *Host) fit {
	if s.stage.Network != "" || s.kind == "container" {
		return pointless
	}
	if !h.Filters {
		return unable
	}
	return processes(s, h)
}

func noNetwork(c *executor.Call, _ *executor.Perturbation) { c.Network = "none" }

// unheld is for stages that are not kept from what they did not declare.
func unheld(s *subject, h *Host) fit {
	if s.stage.Isolation == "enforce" || s.kind == "container" {
		return pointless
	}
	if !h.Landlock || s.stage.Network == "none" && !h.Filters {
		return unable
	}
	return processes(s, h)
}

func enforce(c *executor.Call, _ *executor.Perturbation) { c.Isolation = "enforce" }

// subject is a stage, or an instance, that is to be executed again.
type subject struct {
	stage *events.Stage
	kind  string // task, container, http, or another for what runs a program here
	files int    // among its inputs
}

func (s *subject) declares(name string) bool {
	_, env := s.stage.Env[name]
	_, secret := s.stage.Secrets[name]
	return env || secret
}

// plugin reports whether a plug-in carries the stage out.
func plugin(st *events.Stage) bool { return !slices.Contains(configs.Executors(), st.Executor) }
