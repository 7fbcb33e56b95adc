package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// Where a stage finds its work directory.
const (
	insideIn     = "/apollo/in"
	insideOut    = "/apollo/out"
	insideState  = "/apollo/state"  // APOLLO_OUTPUTS and APOLLO_SEGMENTS
	insideValues = "/apollo/values" // values too long for a variable
	insideTmp    = "/tmp"
)

// maxPids is how many processes and threads a container may have.
const maxPids = 4096

// containerConfig is what the engine is asked to make.
type containerConfig struct {
	Image        string
	Cmd          []string
	Entrypoint   []string
	Env          []string
	User         string
	WorkingDir   string
	Hostname     string
	Labels       map[string]string
	AttachStdout bool
	AttachStderr bool
	HostConfig   hostConfig
}

type hostConfig struct {
	Mounts      []mount
	NetworkMode string
	UsernsMode  string
	CapDrop     []string
	SecurityOpt []string
	PidsLimit   int64
	Memory      int64
	MemorySwap  int64 // memory and swap together: no swap
	NanoCpus    int64
	LogConfig   logConfig
}

type mount struct {
	Type, Source, Target string
	ReadOnly             bool
}

type logConfig struct{ Type string }

// configure makes the directories of an attempt and says what its container is.
func (x *Container) configure(c *Call, s *containerSettings, imageID string, about engineInfo) (*containerConfig, *events.Failure) {
	config := &containerConfig{Image: imageID, WorkingDir: insideOut, Hostname: "apollo", AttachStdout: true, AttachStderr: true, User: textOf(s.User),
		Labels: map[string]string{labelOwner: x.owner, labelRun: c.Run.String(), labelStage: c.Stage, labelAttempt: strconv.Itoa(c.Attempt)}}
	if c.Item > 0 {
		config.Labels[labelAttempt] += "/" + strconv.Itoa(c.Item)
	}
	if s.Workdir != "" {
		config.WorkingDir = s.Workdir
	}
	var failure *events.Failure
	if config.Cmd, failure = argumentsOf("/command", s.Command); failure != nil {
		return nil, failure
	}
	if config.Entrypoint, failure = argumentsOf("/entrypoint", s.Entrypoint); failure != nil {
		return nil, failure
	}
	if config.Env, failure = x.variables(c); failure != nil {
		return nil, failure
	}
	config.HostConfig = hostConfig{NetworkMode: "none", CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, PidsLimit: maxPids,
		LogConfig: logConfig{Type: "none"}} // the output is taken as it comes; the engine would keep all of it
	if c.Network == "allow" {
		config.HostConfig.NetworkMode = "default"
	}
	if r := c.Resources; r != nil {
		config.HostConfig.Memory, config.HostConfig.MemorySwap = r.Memory, r.Memory
		config.HostConfig.NanoCpus = int64(math.Ceil(r.CPU * 1e9))
	}
	config.runAs(about)
	if config.HostConfig.Mounts, failure = mountsOf(c, textOf(s.User) != ""); failure != nil {
		return nil, failure
	}
	return config, nil
}

// runAs makes files that the container leaves the engine's own. Where the container engine runs without root, its users
// are not the machine's: there the container's root is the engine's user, or Podman is asked to keep the numbers.
func (c *containerConfig) runAs(about engineInfo) {
	if c.User != "" {
		return
	}
	c.User = fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	switch {
	case about.rootless && about.podman:
		c.HostConfig.UsernsMode = "keep-id"
	case about.rootless:
		c.User = "0:0"
	}
}

func argumentsOf(pointer string, list []json.RawMessage) ([]string, *events.Failure) {
	var words []string
	for i, raw := range list {
		word := textOf(raw)
		if strings.Contains(word, "\x00") {
			return nil, &events.Failure{Class: events.BadInput, Pointer: fmt.Sprintf("%s/%d", pointer, i), Reason: "an argument holds a NUL byte, which no argument can carry"}
		}
		words = append(words, word)
	}
	return words, nil
}

// variables are those of every stage, with the paths as they are inside. PATH is the image's.
func (x *Container) variables(c *Call) ([]string, *events.Failure) {
	inside := *c
	inside.Inputs = make(map[string]Input, len(c.Inputs))
	for role, in := range c.Inputs {
		if in.Path != "" {
			below, err := filepath.Rel(filepath.Join(c.Dir, "in"), in.Path)
			if err != nil || !filepath.IsLocal(below) {
				return nil, systemFailure("hand an input to a container", fmt.Errorf("the input %s lies outside of the work directory", role))
			}
			in.Path = path.Join(insideIn, filepath.ToSlash(below))
		}
		inside.Inputs[role] = in
	}
	env, failure := newEnviron(&inside, "")
	if failure != nil {
		return nil, failure
	}
	for name, value := range env.values {
		if short, ok := strings.CutSuffix(name, "_FILE"); ok && value == filepath.Join(env.dir, short) {
			env.values[name] = path.Join(insideValues, short)
		}
	}
	delete(env.values, markName)
	if _, declared := c.Env["PATH"]; !declared {
		delete(env.values, "PATH")
	}
	env.values["HOME"], env.values["TMPDIR"] = insideTmp, insideTmp
	env.values["APOLLO_OUTPUTS"], env.values["APOLLO_SEGMENTS"] = insideState+"/outputs.json", insideState+"/segments"
	return env.list(), nil
}

// mountsOf makes what is missing of the work directory. open lets every user of the container work there: the directory
// above keeps the users of the machine out.
func mountsOf(c *Call, open bool) ([]mount, *events.Failure) {
	if !filepath.IsAbs(c.Dir) {
		return nil, systemFailure("make the work directory", fmt.Errorf("%q is not an absolute path", c.Dir))
	}
	var mounts []mount
	for _, m := range []struct {
		name, target string
		must         bool
	}{{"in", insideIn, false}, {"values", insideValues, false}, {"out", insideOut, true}, {"state", insideState, true}, {"tmp", insideTmp, true}} {
		dir := filepath.Join(c.Dir, m.name)
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && !m.must {
			continue
		}
		err := os.MkdirAll(dir, 0o700)
		if err == nil && open {
			err = openTo(dir, m.must)
		}
		if err != nil {
			return nil, systemFailure("make the work directory", err)
		}
		mounts = append(mounts, mount{Type: "bind", Source: dir, Target: m.target, ReadOnly: !m.must})
	}
	return mounts, nil
}

// openTo lets everybody into a directory, to write or to read everything below it.
func openTo(dir string, writing bool) error {
	if writing {
		return os.Chmod(dir, 0o777) //nolint:gosec // the directory above is closed
	}
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o444)
		if d.IsDir() {
			mode = 0o555
		}
		return os.Chmod(name, mode) //nolint:gosec // inputs are the engine's own files, and nothing of the stage runs yet
	})
}

// openSegments makes the named pipe by which segments are marked.
func openSegments(c *Call, open bool) (*os.File, error) {
	name := filepath.Join(c.Dir, "state", "segments")
	if err := unix.Mkfifo(name, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	if open {
		if err := os.Chmod(name, 0o666); err != nil { //nolint:gosec // as openTo
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
}
