package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/contract"
	"github.com/apollo-11/apollo/handlers/executor"
)

// Executor is a plug-in that carries out stages. It implements executor.Executor.
type Executor struct {
	plugin     *Plugin
	supervisor *executor.Supervisor
	trace      trace
}

// trace follows a conversation; a nil function hears nothing. Secrets are masked in what was heard; what was asked holds
// them.
type trace struct {
	asked func(line []byte)
	heard func(line []byte)
}

// Executors gives the executors among the plug-ins.
func (s *Set) Executors(settings executor.Settings) []executor.Executor {
	var list []executor.Executor
	if settings.Spare != "" {
		settings.Spare = filepath.Join(settings.Spare, "plugins") // a supervisor shares its directory with no other
	}
	supervisor := executor.NewSupervisor(settings)
	for _, p := range s.Plugins {
		if p.Fault == nil && p.Kind == configs.PluginExecutor {
			list = append(list, &Executor{plugin: p, supervisor: supervisor})
		}
	}
	return list
}

// Spec implements executor.Executor.
func (x *Executor) Spec() executor.Spec {
	return executor.Spec{Name: x.plugin.Name, Doc: x.plugin.Description, With: x.plugin.With}
}

// Describe implements executor.Describer. What is started is the plug-in's own file, which its pin names by digest.
func (x *Executor) Describe(context.Context, *executor.Call) (*executor.Program, *events.Failure) {
	return &executor.Program{Args: x.plugin.Command, Toolchain: []events.Pair{{Name: "plugin", Value: x.plugin.Pin()}}}, nil
}

// ByHand implements executor.ByHand: the program is asked what an attempt asks it. It answers in lines of JSON and goes on
// until its standard input is closed, which here is at once.
func (x *Executor) ByHand(_ context.Context, c *executor.Call) (*executor.Manual, *events.Failure) {
	line, err := encode(newExecuteRequest(c))
	if err != nil {
		return nil, &events.Failure{Class: events.System, Reason: fmt.Sprintf("cannot write the request to the plug-in %s: %v", x.plugin.Name, err)}
	}
	own := *c
	own.Inputs, own.Params, own.Secrets = nil, nil, nil
	env, failure := (&executor.Program{}).Environ(&own)
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "APOLLO_OUTPUTS=") })
	args := slices.Clone(x.plugin.Command)
	if len(args) > 0 && !filepath.IsAbs(args[0]) {
		args[0] = filepath.Join(x.plugin.Dir, args[0])
	}
	return &executor.Manual{Args: args, Env: env, Input: string(line)}, failure
}

// Execute implements executor.Executor. The result always pins the plug-in.
func (x *Executor) Execute(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
	result, failure := x.execute(ctx, c)
	result.Pins = []events.Pair{{Name: "plugin", Value: x.plugin.Pin()}}
	return result, failure
}

func (x *Executor) execute(ctx context.Context, c *executor.Call) (*executor.Result, *events.Failure) {
	if c.Pin != "" && c.Pin != x.plugin.Pin() {
		return new(executor.Result), &events.Failure{Class: events.System, Expected: c.Pin, Actual: x.plugin.Pin(),
			Reason: fmt.Sprintf("E_PLUGIN_CHANGED: the run began with another version of the plug-in %s than this engine has loaded; put the old one back, or start a new run", x.plugin.Name)}
	}
	if failure := x.checkWith(c.With); failure != nil {
		return new(executor.Result), failure
	}
	request := newExecuteRequest(c)
	a := &answers{secrets: c.Secrets}
	result, failure := x.plugin.converse(ctx, x.supervisor, c, request, a, x.trace)
	if failure == nil {
		result.Values = a.values
	}
	return result, failure
}

// checkWith holds the settings, in which every expression has its value by now, against the plug-in's schema.
func (x *Executor) checkWith(with json.RawMessage) *events.Failure {
	schema, err := contract.Compile(x.plugin.With)
	if err != nil {
		return &events.Failure{Class: events.System, Reason: fmt.Sprintf("cannot read the schema of the plug-in %s: %v", x.plugin.Name, err)}
	}
	v, err := contract.DecodeStrict(with)
	if err != nil {
		return &events.Failure{Class: events.BadInput, Pointer: "/with", Reason: "E_PLUGIN_WITH: the settings are no JSON: " + err.Error()}
	}
	failure := schema.CheckValue(v).Failure(events.BadInput)
	if failure != nil {
		failure.Pointer = "/with" + failure.Pointer
		failure.Reason = fmt.Sprintf("E_PLUGIN_WITH: the settings break the schema of the plug-in %s: %s", x.plugin.Name, failure.Reason)
	}
	return failure
}

// converse starts the plug-in, asks it one thing, and judges its answers.
func (p *Plugin) converse(ctx context.Context, s *executor.Supervisor, c *executor.Call, request any, a *answers, t trace) (*executor.Result, *events.Failure) {
	line, err := encode(request)
	if err != nil {
		return new(executor.Result), &events.Failure{Class: events.System, Reason: fmt.Sprintf("cannot write the request to the plug-in %s: %v", p.Name, err)}
	}
	program, fault := p.sealed()
	if fault != nil {
		return new(executor.Result), p.changed(fault)
	}
	defer program.Close() //nolint:errcheck // it was only read
	if a.heard = t.heard; t.asked != nil {
		t.asked(line[:len(line)-1])
	}
	result, failure, ended := s.Converse(ctx, c, &executor.Dialogue{Program: program, Args: p.Command, Request: line, Cancel: cancelLine, Answer: a.take})
	if failure = a.judge(failure, ended); a.broken != nil && failure == a.broken {
		result.Evidence = a.evidence
	}
	return result, failure
}

// changed is the failure of a plug-in that was right when it was loaded. The machine is at fault, not the pipeline.
func (p *Plugin) changed(fault *Fault) *events.Failure {
	f := &events.Failure{Class: events.System, Reason: fault.Code + ": the plug-in " + p.Name + " was changed since it was loaded: " + fault.Reason + "; " + fault.Hint}
	if fault.Code == "E_PLUGIN_HASH" {
		f.Expected = "sha256:" + p.SHA256
	}
	return f
}

// judge makes one failure, or none, of how the process ended and what it said. ended says that the process ended by
// itself: what the plug-in says of its failure is then more than its exit code is.
func (a *answers) judge(failure *events.Failure, ended bool) *events.Failure {
	if !ended {
		return failure
	}
	exit := failure
	a.end(exit == nil)
	said := a.failed
	if a.broken != nil {
		said = a.broken
	}
	switch {
	case exit == nil:
		return said
	case exit.Class != events.ExecFailed: // processes that survived KILL
		return exit
	case said != nil:
		said.Exit, said.Signal = exit.Exit, exit.Signal
		return said
	case a.over:
		exit.Reason += ", after it had reported success"
	}
	return exit
}
