package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Container runs a stage in a container, through the API of Docker that Podman has too. The stage sees its inputs under
// /apollo/in, read-only, works in /apollo/out and has the rest of its work directory under /tmp and /apollo/state; its
// variables hold these paths. Everything else is the image's. Logs, time-out, grace and exit codes are as for a shell
// stage.
//
// The container has no network unless the stage allows it, no capabilities, cannot gain privileges, runs as the engine's
// own user unless told otherwise, and has the stage's memory and processors. With another user, the directories are
// opened to every user of the container. A secret is a variable of the container, which whoever may use the container
// engine can read while it exists.
//
// The image's digest is a pin of the attempt. Fetching an image is the segment `environment` and, as building a Python
// environment does, does not count against the stage's time-out.
//
// However the attempt ends, the container is removed; one that outlives a dead Apollo is removed by RemoveContainers.
type Container struct {
	engine   *containerEngine
	owner    string
	patience time.Duration // after which a container that survives KILL is removed by force
}

// NewContainer makes the executor.
func NewContainer(s Settings) *Container {
	return &Container{engine: newContainerEngine(s.ContainerHost), owner: s.Owner, patience: killPatience}
}

// Spec implements Executor.
func (x *Container) Spec() Spec {
	return Spec{
		Name: "container",
		Doc:  "Runs a command in a container, without a network unless the stage allows it.",
		With: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["image"],"properties":{
"image":{"type":"string","minLength":1,"description":"The image; a digest pins it."},
"command":{"type":"array","description":"The command, one argument each; else the image's own."},
"entrypoint":{"type":"array","description":"What the command is handed to; else the image's own."},
"pull":{"enum":["missing","always","never"],"description":"When the image is fetched."},
"user":{"type":"string","description":"The user inside; else the engine's own."},
"workdir":{"type":"string","description":"The directory inside; else /apollo/out."}}}`),
	}
}

type containerSettings struct {
	Image      string            `json:"image"`
	Command    []json.RawMessage `json:"command"`
	Entrypoint []json.RawMessage `json:"entrypoint"`
	Pull       string            `json:"pull"`
	User       json.RawMessage   `json:"user"`
	Workdir    string            `json:"workdir"`
}

// containerStop is how long what follows the end of an attempt may take, when everybody else has given up waiting.
const containerStop = time.Minute

// Execute implements Executor.
func (x *Container) Execute(ctx context.Context, c *Call) (*Result, *events.Failure) {
	result := new(Result)
	var settings containerSettings
	if failure := decodeSettings(c.With, &settings); failure != nil {
		return result, failure
	}
	about, err := x.engine.hello(ctx)
	if err != nil {
		return result, x.engine.imageFailure(ctx, "be reached", err)
	}
	begin := time.Now()
	img, failure := x.engine.resolve(ctx, settings.Image, settings.Pull)
	result.Segments = []Segment{{Name: "environment", Duration: time.Since(begin)}}
	if failure != nil {
		return result, failure
	}
	result.Pins = img.pins(settings.Image)
	config, failure := x.configure(c, &settings, img.ID, about)
	if failure != nil {
		return result, failure
	}
	result.Isolation, result.Hermetic = LevelContainer, c.Network != "allow"
	c.Perturb.missInContainer()
	a := &containerAttempt{call: c, engine: x.engine, result: result, patience: x.patience, memory: config.HostConfig.Memory, named: textOf(settings.User) != ""}
	failure = a.run(ctx, x.nameOf(c), config)
	if failure == nil {
		result.Values, failure = readOutputs(filepath.Join(c.Dir, "state", "outputs.json"))
	}
	return result, failure
}

// nameOf is the same for every try to make an attempt's container, so that there is one at most.
func (x *Container) nameOf(c *Call) string {
	name := fmt.Sprintf("apollo-%s-%s-%d", c.Run, c.Stage, c.Attempt)
	if c.Item > 0 {
		name += fmt.Sprintf("-%d", c.Item)
	}
	return name
}

// The labels of every container.
const (
	labelOwner   = "apollo.owner"
	labelRun     = "apollo.run"
	labelStage   = "apollo.stage"
	labelAttempt = "apollo.attempt"
)

// RemoveContainers removes every container that an earlier engine of the same owner left behind, and gives what they
// were of. It is for the start of an engine, as KillOrphans is. Where no container engine answers there is nothing to
// remove, and that is no error.
func RemoveContainers(ctx context.Context, host, owner string) ([]Orphan, error) {
	path, local := strings.CutPrefix(host, "unix://")
	if _, err := os.Stat(path); host == "" || local && err != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, containerStop)
	defer cancel()
	engine := newContainerEngine(host)
	defer engine.http.CloseIdleConnections()
	if _, err := engine.hello(ctx); err != nil {
		return nil, nil
	}
	found, err := engine.labelled(ctx, labelOwner+"="+owner)
	if err != nil {
		return nil, fmt.Errorf("list the containers of a dead engine: %w", err)
	}
	var removed []Orphan
	var errs []error
	for _, l := range found {
		if l.Labels[labelOwner] != owner {
			continue // an engine that does not know the filter
		}
		if err := (container{engine: engine, id: l.ID}).remove(ctx); err != nil {
			errs = append(errs, fmt.Errorf("remove the container %s of a dead engine: %w", l.ID, err))
			continue
		}
		o := Orphan{Run: l.Labels[labelRun], Stage: l.Labels[labelStage], Command: "container " + l.ID}
		_, _ = fmt.Sscan(l.Labels[labelAttempt], &o.Attempt)
		removed = append(removed, o)
	}
	return removed, errors.Join(errs...)
}

// create makes the container. A leftover of the same name is one of this attempt's own, from before a crash, if its
// labels say so.
func (x *containerAttempt) create(ctx context.Context, name string, config *containerConfig) *events.Failure {
	var err error
	x.container, err = x.engine.create(ctx, name, config)
	if refused(err, http.StatusConflict) {
		found, failed := x.engine.labelled(ctx, labelOwner+"="+config.Labels[labelOwner])
		for _, l := range found {
			if l.Labels[labelRun] == config.Labels[labelRun] && l.Labels[labelStage] == config.Labels[labelStage] &&
				l.Labels[labelAttempt] == config.Labels[labelAttempt] {
				failed = errors.Join(failed, container{engine: x.engine, id: l.ID}.remove(ctx))
			}
		}
		if failed == nil {
			x.container, err = x.engine.create(ctx, name, config)
		}
	}
	switch {
	case err == nil:
		return nil
	case refused(err, http.StatusNotFound):
		return noImage(config.Image, "it went away before the container was made")
	}
	return x.engine.imageFailure(ctx, "make the container", err)
}
