package executor

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/apollo-11/apollo/events"
)

// maxEnvValue is the longest value, in bytes, that reaches a stage in a variable. A longer one goes by file.
const maxEnvValue = 64 << 10

// stagePath is the PATH of every stage.
const stagePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ collects the variables of one attempt.
type environ struct {
	dir    string // where long values are written
	values map[string]string
}

// newEnviron builds the whole environment of an attempt. Nothing of the engine's own environment is in it.
func newEnviron(c *Call, mark string) (*environ, *events.Failure) {
	e := &environ{dir: filepath.Join(c.Dir, "values"), values: make(map[string]string, 24)}
	e.base(c)
	e.values[markName] = mark
	for _, group := range []map[string]string{c.Env, c.Secrets} {
		for name, value := range group {
			if err := e.declare(name, value); err != nil {
				return nil, err
			}
		}
	}
	for role, in := range c.Inputs {
		text := in.Path
		if text == "" {
			text = textOf(in.Value)
		}
		if err := e.value("APOLLO_IN_", role, text); err != nil {
			return nil, err
		}
	}
	if c.Item > 0 && len(c.Value) > 0 {
		e.values["APOLLO_ITEM_NUMBER"] = strconv.Itoa(c.Item)
		if err := e.value("APOLLO_", "item", textOf(c.Value)); err != nil {
			return nil, err
		}
	}
	for name, raw := range c.Params {
		if err := e.value("APOLLO_PARAM_", name, textOf(raw)); err != nil {
			return nil, err
		}
	}
	e.perturb(c)
	return e, nil
}

// perturb lays the variables of a perturbation over all others but the mark, by which the attempt is found.
func (e *environ) perturb(c *Call) {
	if c.Perturb == nil {
		return
	}
	for name, value := range c.Perturb.Env {
		if name != markName {
			e.values[name] = value
		}
	}
}

func (e *environ) base(c *Call) {
	v := e.values
	v["PATH"], v["LANG"], v["TZ"] = stagePath, "C.UTF-8", "UTC"
	tmp := filepath.Join(c.Dir, "tmp")
	v["HOME"], v["TMPDIR"] = tmp, tmp
	v["SOURCE_DATE_EPOCH"] = strconv.FormatInt(c.LogicalTime.Unix(), 10)
	v["APOLLO_LOGICAL_TIME"] = c.LogicalTime.UTC().Format(time.RFC3339Nano)
	v["APOLLO_SEED"] = strconv.FormatUint(c.Seed, 10)
	v["APOLLO_RUN_ID"], v["APOLLO_STAGE"] = c.Run.String(), c.Stage
	v["APOLLO_ATTEMPT"] = strconv.Itoa(c.Attempt)
	v["APOLLO_IDEMPOTENCY_KEY"] = c.Key
	v["APOLLO_OUTPUTS"] = outputsPath(c)
}

// declare adds what the pipeline's author named himself. Apollo's own variables cannot be replaced.
func (e *environ) declare(name, value string) *events.Failure {
	if name == "" || strings.ContainsAny(name, "=\x00") || strings.HasPrefix(name, "APOLLO_") {
		return &events.Failure{Class: events.ExecFailed, Pointer: "/env/" + name,
			Reason: fmt.Sprintf("E_ENV_NAME: %q cannot be the name of a declared variable", name)}
	}
	if strings.Contains(value, "\x00") {
		return nulByte("/env/" + name)
	}
	e.values[name] = value
	return nil
}

// value adds an input or a parameter, as PREFIX_NAME, or PREFIX_NAME_FILE when it is too long for a variable.
func (e *environ) value(prefix, name, text string) *events.Failure {
	variable := prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if len(text) > maxEnvValue {
		path := filepath.Join(e.dir, variable)
		if err := writeFile(path, text); err != nil {
			return systemFailure("write a value to a file", err)
		}
		variable, text = variable+"_FILE", path
	}
	if strings.Contains(text, "\x00") {
		return nulByte("/" + name)
	}
	if _, taken := e.values[variable]; taken {
		return &events.Failure{Class: events.BadInput, Pointer: "/" + name,
			Reason: fmt.Sprintf("two inputs or parameters become the same variable %s", variable)}
	}
	e.values[variable] = text
	return nil
}

// list gives the variables as NAME=value, sorted by name.
func (e *environ) list() []string {
	list := make([]string, 0, len(e.values))
	for name, value := range e.values {
		list = append(list, name+"="+value)
	}
	sort.Strings(list)
	return list
}

// textOf gives a JSON string as its text, null as nothing, and everything else as it was written.
func textOf(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var text string
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func nulByte(pointer string) *events.Failure {
	return &events.Failure{Class: events.BadInput, Pointer: pointer,
		Reason: "the value holds a NUL byte, which no environment variable can carry"}
}

// writeFile makes the file and the directories above it, readable by the engine's user only.
func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// systemFailure says that Apollo or the machine, not the stage, is at fault.
func systemFailure(doing string, err error) *events.Failure {
	return &events.Failure{Class: events.System, Reason: fmt.Sprintf("cannot %s: %v", doing, err)}
}
