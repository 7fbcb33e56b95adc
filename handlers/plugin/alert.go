package plugin

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// Alert is what a channel sends to people.
type Alert struct {
	ID       string       `json:"id"`    // the same when it is sent again
	Level    string       `json:"level"` // info, warning, critical
	Title    string       `json:"title"`
	Text     string       `json:"text"`
	Time     time.Time    `json:"time"`
	Pipeline string       `json:"pipeline,omitempty"`
	Run      string       `json:"run,omitempty"`
	Stage    string       `json:"stage,omitempty"`
	Class    events.Class `json:"class,omitempty"`
}

// alertTimeout is how long sending may take when the manifest does not say.
const alertTimeout = 30 * time.Second

// alerts numbers what is sent: the processes of each are known by it.
var alerts atomic.Int64

// Channel is a plug-in that sends alerts.
type Channel struct {
	plugin     *Plugin
	supervisor *executor.Supervisor
	trace      trace
}

// Channel gives the plug-in as a channel of alerts; it is for a plug-in of that kind without a fault.
func (p *Plugin) Channel(settings executor.Settings) *Channel {
	return &Channel{plugin: p, supervisor: executor.NewSupervisor(settings)}
}

// Alert sends one alert and returns when the plug-in has said that it is sent, and has ended. The error is an
// *events.Failure.
func (c *Channel) Alert(ctx context.Context, a Alert) error {
	dir, err := os.MkdirTemp("", "apollo-alert-")
	if err != nil {
		return fmt.Errorf("make a directory for the alert: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // nothing of worth is in it
	if _, failure := c.send(ctx, a, dir); failure != nil {
		return failure
	}
	return nil
}

func (c *Channel) send(ctx context.Context, a Alert, dir string) (*executor.Result, *events.Failure) {
	a.Time = a.Time.UTC()
	call := &executor.Call{Pipeline: a.Pipeline, Stage: c.plugin.Name, Attempt: int(alerts.Add(1)), Key: a.ID, Dir: dir, LogDir: dir, LogicalTime: a.Time,
		Timeout: c.plugin.Timeout}
	if call.Timeout == 0 {
		call.Timeout = alertTimeout
	}
	return c.plugin.converse(ctx, c.supervisor, call, &alertRequest{Protocol: configs.PluginProtocol, Type: "alert", Alert: a}, new(answers), c.trace)
}
