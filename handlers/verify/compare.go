package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// same reports whether two trials came to the same, and the first role in which they differ: none, when one failed and the
// other did not, or otherwise.
func (t *target) same(a, b *trial) (role string, same bool) {
	one, failed := a.outcome(t.opened)
	other, alsoFailed := b.outcome(t.opened)
	return compareResults(one, failed, other, alsoFailed, t.ignore())
}

// recorded reports whether a trial came to what the run has.
func (t *target) recorded(b *trial) (role string, same bool) {
	results, failure := b.outcome(t.opened)
	return compareResults(t.results, nil, results, failure, t.ignore())
}

func compareResults(a []events.Result, failed *events.Failure, b []events.Result, alsoFailed *events.Failure, ignore []string) (string, bool) {
	if failed != nil || alsoFailed != nil {
		return "", failed != nil && alsoFailed != nil && failed.Class == alsoFailed.Class && failed.Exit == alsoFailed.Exit && failed.Signal == alsoFailed.Signal
	}
	role, differ := events.Differ(a, b, ignore)
	return role, !differ
}

func (t *target) ignore() []string {
	if t.stage.Compare == nil {
		return nil
	}
	return t.stage.Compare.Ignore
}

// normalised gives results with the digests of what the stage's own command makes of them. The content of a digest is
// filtered once.
func (v *trials) normalised(ctx context.Context, t *target, results []events.Result, from Artifacts) ([]events.Result, error) {
	all := slices.Clone(results)
	for i := range all {
		r := &all[i]
		if slices.Contains(t.ignore(), r.Role) || strings.HasSuffix(r.Name, "/") { // a directory has no single content
			continue
		}
		made, known := t.filtered[r.Digest]
		if !known {
			var err error
			if made, err = v.filter(ctx, t, r, from); err != nil {
				return nil, fmt.Errorf("compare.normalise of the output %s: %w", r.Role, err)
			}
			if t.filtered == nil {
				t.filtered = map[events.Digest]events.Digest{}
			}
			t.filtered[r.Digest] = made
		}
		r.Digest, r.Value = made, nil
	}
	return all, nil
}

// filter runs the command with an output on its standard input, and gives the digest of what it wrote.
func (v *trials) filter(ctx context.Context, t *target, r *events.Result, from Artifacts) (made events.Digest, err error) {
	dir := filepath.Join(v.scratch, "filter", strconv.FormatInt(v.number.Add(1), 10))
	defer removeAll(dir) //nolint:errcheck // goes with the scratch directory otherwise
	in := filepath.Join(dir, "in")
	if err := os.MkdirAll(in, 0o700); err != nil {
		return made, err
	}
	root, err := os.OpenRoot(in)
	if err != nil {
		return made, err
	}
	defer root.Close() //nolint:errcheck // a directory
	if len(r.Value) > 0 {
		err = root.WriteFile("output", r.Value, 0o400)
	} else {
		err = from.Place(ctx, r.Digest, root, "output", artifacts.Placing{})
	}
	if err != nil {
		return made, err
	}
	script := "{\n" + t.stage.Compare.Normalise + "\n} < \"$APOLLO_IN_OUTPUT\" > normalised\n"
	with, err := json.Marshal(map[string]string{"script": script})
	if err != nil {
		return made, err
	}
	call := &executor.Call{Run: t.attempt.Run, Pipeline: t.attempt.Plan.Pipeline, Stage: t.stage.Name, Attempt: 1, Dir: dir, LogDir: filepath.Join(dir, "logs"), With: with,
		Inputs: map[string]executor.Input{"output": {Path: filepath.Join(in, "output")}}, LogicalTime: t.attempt.Logical, Timeout: t.patience()}
	if v.o.Host.Filters {
		call.Network = "none"
	}
	shell := v.o.Executors["shell"]
	if shell == nil {
		return made, fmt.Errorf("there is no shell executor")
	}
	result, failure := shell.Execute(ctx, call)
	if failure != nil {
		return made, fmt.Errorf("%s: %s", failure.Reason, bytes.TrimSpace(result.Stderr.Tail(200)))
	}
	b, err := os.Open(filepath.Join(dir, "out", "normalised"))
	if err != nil {
		return made, err
	}
	defer b.Close() //nolint:errcheck // read only
	return digestOf(b)
}

func digestOf(r io.Reader) (d events.Digest, err error) {
	h := newHash()
	if _, err = io.Copy(h, r); err == nil {
		h.Sum(d[:0])
	}
	return d, err
}
