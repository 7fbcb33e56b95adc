package plugin

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// Trial is what became of a sample request.
type Trial struct {
	Sent    json.RawMessage // the request; null for a template, of which nothing is executed
	Answers []string        // the first lines of the answers, as they came
	Log     string          // the end of what was written to the log
	Failure *events.Failure // nil when all went well
}

// Bounds of a trial.
const (
	trialAnswers = 100
	trialLog     = 4 << 10 // bytes
)

// Sample is what a sample request is made of.
type Sample struct {
	Run  events.ID
	With json.RawMessage // settings of an executor
	Now  time.Time
}

// Try sends a plug-in of any kind a sample request: an executor an attempt with the settings and no inputs, a channel an
// alert that says that it is a test. The file of a template is checked once more. It is for a plug-in without a fault.
func (p *Plugin) Try(ctx context.Context, settings executor.Settings, s Sample) (*Trial, error) {
	dir, err := os.MkdirTemp("", "apollo-plugin-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing of worth is in it
	t := new(Trial)
	var result *executor.Result
	switch p.Kind {
	case configs.PluginExecutor:
		x := &Executor{plugin: p, supervisor: executor.NewSupervisor(settings), trace: t.follow()}
		timeout := p.Timeout
		if timeout == 0 {
			timeout = alertTimeout
		}
		result, t.Failure = x.Execute(ctx, &executor.Call{Run: s.Run, Pipeline: "test", Stage: "test", Attempt: 1, Key: s.Run.String() + "/test",
			Dir: filepath.Join(dir, "work"), LogDir: filepath.Join(dir, "logs"), With: s.With, LogicalTime: s.Now, Timeout: timeout})
	case configs.PluginAlert:
		c := p.Channel(settings)
		c.trace = t.follow()
		result, t.Failure = c.send(ctx, Alert{ID: s.Run.String(), Level: "info", Title: "Test", Text: "This is a test of the channel " + p.Name + ".", Time: s.Now}, dir)
	default:
		if fault := (&Plugin{Manifest: p.Manifest, Dir: p.Dir}).load(); fault != nil {
			t.Failure = p.changed(fault)
		}
		return t, nil
	}
	t.Log = string(result.Stdout.Tail(trialLog)) + string(result.Stderr.Tail(trialLog))
	return t, nil
}

// follow records a conversation.
func (t *Trial) follow() trace {
	return trace{
		asked: func(line []byte) { t.Sent = append(json.RawMessage(nil), line...) },
		heard: func(line []byte) {
			if len(t.Answers) < trialAnswers {
				t.Answers = append(t.Answers, string(line[:min(len(line), maxText)]))
			}
		},
	}
}
