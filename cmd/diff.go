package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/compare"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) diffCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "diff A B", Args: a.arguments(2, 2), ValidArgsFunction: a.completeRuns}, "diff")
	o := compare.Options{}
	c.Flags().StringVar(&o.Stage, "stage", "", "flag.diff_stage")
	c.Flags().BoolVar(&o.All, "all", false, "flag.diff_all")
	c.Flags().IntVar(&o.Limit, "limit", 20, "flag.diff_limit")
	external := c.Flags().Bool("external", false, "flag.external")
	c.RunE = func(c *cobra.Command, args []string) error {
		if o.Limit < 1 {
			return a.usageError("usage.positive", lang.Data{"Flag": "--limit", "Value": o.Limit})
		}
		if *external {
			o.External = diffoscope
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			kept, err := a.openKept()
			if err != nil {
				return err
			}
			defer kept.Close() //nolint:errcheck // nothing was written
			return a.diff(c.Context(), s, kept, args, o)
		})
	}
	return c
}

// diff compares two runs of the store.
func (a *app) diff(ctx context.Context, s *sqlite.Store, kept *keptArtifacts, names []string, o compare.Options) error {
	var sides [2]*compare.Side
	for i, name := range names {
		var err error
		if sides[i], err = a.side(ctx, s, kept, name); err != nil {
			return err
		}
	}
	if o.Stage != "" {
		if at, err := a.place(o.Stage); err != nil {
			return err
		} else if !hasPlace(sides[0].Run, at) && !hasPlace(sides[1].Run, at) {
			return a.fail(exitNotFound, "E_REF", "error.no_stage_in_both", lang.Data{"Stage": o.Stage})
		}
	}
	result, err := compare.Runs(ctx, sides[0], sides[1], o)
	if err != nil {
		return err
	}
	if a.output == "text" {
		err = a.printDiff(result, sides, o)
	} else {
		err = writeJSON(a.out, result, a.output == "json")
	}
	if err == nil && result.Verdict != compare.Same {
		err = silent(exitDiffers)
	}
	return err
}

// side reads one run of the store.
func (a *app) side(ctx context.Context, s *sqlite.Store, kept *keptArtifacts, name string) (*compare.Side, error) {
	id, err := a.findRun(ctx, s, name)
	if err != nil {
		return nil, err
	}
	v, err := loadView(ctx, s, id, a.logsDir())
	if err != nil {
		return nil, err
	}
	side := &compare.Side{Name: id.String(), Run: v.run, Artifacts: kept}
	log, err := s.Events(ctx, v.run.Delivery, 0, 1)
	if err != nil {
		return nil, err
	}
	if len(log) > 0 {
		side.Delivery = &log[0].Data
	}
	return side, nil
}

func hasPlace(r *events.Run, at web.Place) bool {
	_, ok := r.Find(at.Stage, at.Item)
	return ok
}

// keptArtifacts are those of the data directory; there may be none.
type keptArtifacts struct{ *artifacts.Store }

func (a *app) openKept() (*keptArtifacts, error) {
	dir := filepath.Join(a.data, "artifacts")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return &keptArtifacts{}, nil
	}
	s, err := artifacts.Open(dir)
	return &keptArtifacts{s}, err
}

// Open implements compare.Artifacts.
func (k *keptArtifacts) Open(d events.Digest) (io.ReadCloser, error) {
	if k.Store == nil {
		return nil, fmt.Errorf("open artifact %v: %w", d, os.ErrNotExist)
	}
	return k.Get(d)
}

// Close lets go of the directory.
func (k *keptArtifacts) Close() error {
	if k.Store == nil {
		return nil
	}
	return k.Store.Close()
}

const (
	externalTime  = 2 * time.Minute
	externalBytes = 1 << 20
)

// diffoscope compares two binaries by the program of that name.
func diffoscope(ctx context.Context, name string, a, b io.Reader) (text string, err error) {
	program, err := exec.LookPath("diffoscope")
	if err != nil {
		return "", errors.New("diffoscope is not installed")
	}
	dir, err := os.MkdirTemp("", "apollo-diff-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	paths := [2]string{}
	for i, r := range []io.Reader{a, b} {
		paths[i] = filepath.Join(dir, string("ab"[i])+"-"+name)
		if err := writeAll(paths[i], r); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, externalTime)
	defer cancel()
	out := &head{left: externalBytes}
	run := exec.CommandContext(ctx, program, "--text", "-", "--", paths[0], paths[1])
	run.Stdout, run.WaitDelay = out, time.Second
	err = run.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		err = nil // they differ
	}
	if err != nil {
		err = fmt.Errorf("run diffoscope: %w", err)
	}
	return out.String(), err
}

func writeAll(path string, r io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// head keeps the beginning of what is written to it.
type head struct {
	bytes.Buffer
	left int
}

// Write takes all and keeps what there is room for.
func (h *head) Write(p []byte) (int, error) {
	n := min(len(p), h.left)
	h.left -= n
	h.Buffer.Write(p[:n])
	return len(p), nil
}
