package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/prune"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) pruneCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "prune", Args: a.arguments(0, 0)}, "store.prune")
	older := c.Flags().String("older-than", "", "flag.older_than")
	dry := c.Flags().Bool("dry-run", false, "flag.dry_run")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var age time.Duration
		if *older != "" {
			var err error
			if age, err = parseAge(*older); err != nil || age <= 0 {
				return a.choice("--older-than", *older, "30d, 12h, ...")
			}
		}
		return a.prune(c.Context(), age, *dry)
	}
	return c
}

// parseAge reads a duration, also in days: what is kept for how long is thought of in days.
func parseAge(text string) (time.Duration, error) {
	if number, days := strings.CutSuffix(text, "d"); days {
		n, err := strconv.ParseUint(number, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

type pruneJSON struct {
	Artifacts int             `json:"artifacts"`
	Bytes     int64           `json:"bytes"`
	Dry       bool            `json:"dry_run"`
	Runs      []prunedRunJSON `json:"runs"`
}

type prunedRunJSON struct {
	Run       string `json:"run"`
	Pipeline  string `json:"pipeline"`
	Ended     string `json:"ended_at"`
	Artifacts int    `json:"artifacts"`
	Bytes     int64  `json:"bytes"`
}

// prune removes artifacts that nothing needs, alone with the data directory.
func (a *app) prune(ctx context.Context, age time.Duration, dry bool) (err error) {
	if _, err := os.Stat(filepath.Join(a.data, sqlite.FileName)); errors.Is(err, os.ErrNotExist) {
		return a.fail(exitNotFound, "E_NO_STORE", "error.no_store", lang.Data{"Data": a.data})
	}
	lock, err := sqlite.TakeLock(a.data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	s, err := sqlite.Open(a.data, sqlite.Options{Clock: time.Now, Logger: a.quietLogger()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	files, err := artifacts.Open(filepath.Join(a.data, "artifacts"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	now := time.Now()
	o := prune.Options{Dry: dry, Began: now, Now: time.Now, NewID: newID, Actor: web.UserName(os.Geteuid()), Reason: "apollo store prune"}
	if age > 0 {
		o.Before = now.Add(-age).UnixNano()
		o.Reason += " --older-than " + age.String()
	}
	r, err := prune.Prune(ctx, s, s, files, o)
	if err != nil {
		return err
	}
	return a.printPruned(r, dry)
}

func (a *app) printPruned(r prune.Report, dry bool) error {
	out := pruneJSON{Artifacts: r.Artifacts, Bytes: r.Bytes, Dry: dry, Runs: []prunedRunJSON{}}
	for _, p := range r.Runs {
		out.Runs = append(out.Runs, prunedRunJSON{p.Run.String(), p.Pipeline, time.Unix(0, p.Ended).UTC().Format(time.RFC3339), p.Artifacts, p.Bytes})
	}
	if a.output != "text" {
		return writeJSON(a.out, out, a.output == "json")
	}
	if len(out.Runs) > 0 {
		if err := list(a, out.Runs, a.heads("run", "pipeline", "ended", "artifacts", "size"), func(p prunedRunJSON) []string {
			return []string{p.Run, p.Pipeline, p.Ended, strconv.Itoa(p.Artifacts), size(float64(p.Bytes))}
		}); err != nil {
			return err
		}
		fmt.Fprintln(a.out)
	}
	id := "prune.done"
	if dry {
		id = "prune.would"
	}
	fmt.Fprintln(a.out, a.say.T(id, lang.Data{"N": r.Artifacts, "Size": size(float64(r.Bytes))}))
	return nil
}

// checkReferences names artifacts that the log refers to and that are missing.
func checkReferences(ctx context.Context, s *sqlite.Store, data string, report func(storage.Problem)) error {
	dir := filepath.Join(data, "artifacts")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return prune.Check(ctx, s, nothing{}, report)
	}
	files, err := artifacts.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(prune.Check(ctx, s, files, report), files.Close())
}

// nothing is a store of artifacts that is not there. fsck makes none.
type nothing struct{ prune.Artifacts }

func (nothing) Stat(events.Digest) (artifacts.Info, error) {
	return artifacts.Info{}, storage.ErrNotFound
}

func (nothing) Get(events.Digest) (*artifacts.Reader, error) { return nil, storage.ErrNotFound }

func (nothing) Manifest(context.Context, events.Digest) (*artifacts.Manifest, error) {
	return nil, storage.ErrNotFound
}
