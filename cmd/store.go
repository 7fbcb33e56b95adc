package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) storeCommand() *cobra.Command {
	root := a.describe(&cobra.Command{Use: "store", Args: a.arguments(0, 0), RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}, "store")
	rebuild := a.describe(&cobra.Command{Use: "rebuild", Args: a.arguments(0, 0)}, "store.rebuild")
	write := rebuild.Flags().Bool("write", false, "flag.write")
	rebuild.RunE = func(c *cobra.Command, _ []string) error { return a.rebuildStore(c.Context(), *write) }
	backup := a.describe(&cobra.Command{Use: "backup FILE", Args: a.arguments(1, 1)}, "store.backup")
	backup.RunE = func(c *cobra.Command, args []string) error {
		err := a.reading(c.Context(), func(s *sqlite.Store) error { return s.Backup(c.Context(), args[0]) })
		if err == nil {
			a.tell("backup.done", lang.Data{"File": args[0]})
		}
		return err
	}
	fsck := a.describe(&cobra.Command{Use: "fsck", Args: a.arguments(0, 0)}, "store.fsck")
	fsck.RunE = func(c *cobra.Command, _ []string) error { return a.fsck(c.Context()) }
	root.AddCommand(rebuild, backup, fsck, a.pruneCommand())
	return root
}

type differenceJSON struct {
	Table   string `json:"table"`
	Key     string `json:"key"`
	Live    string `json:"live"`
	FromLog string `json:"from_log"`
}

func (a *app) rebuildStore(ctx context.Context, write bool) (err error) {
	var s *sqlite.Store
	if write {
		lock, err := sqlite.TakeLock(a.data)
		if err != nil {
			return err
		}
		defer lock.Release() //nolint:errcheck // the process ends
		s, err = sqlite.Open(a.data, sqlite.Options{Logger: a.quietLogger()})
		if err != nil {
			return err
		}
	} else if s, err = sqlite.OpenReadOnly(a.data); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	differences, err := s.Rebuild(ctx, write)
	if err != nil {
		return err
	}
	rows := make([]differenceJSON, len(differences))
	for i, d := range differences {
		rows[i] = differenceJSON{d.Table, d.Key, d.Live, d.FromTheLog}
	}
	if len(rows) == 0 && a.output == "text" {
		fmt.Fprintln(a.out, a.say.T("rebuild.same"))
		return nil
	}
	if err := list(a, rows, a.heads("table", "key", "live", "log"), func(d differenceJSON) []string { return []string{d.Table, d.Key, d.Live, d.FromLog} }); err != nil {
		return err
	}
	if len(rows) > 0 && !write {
		return silent(exitDiffers)
	}
	return nil
}

type problemJSON struct {
	Code  string `json:"code"`
	Place string `json:"place"`
	What  string `json:"what"`
}

func (a *app) fsck(ctx context.Context) error {
	rows := []problemJSON{}
	report := func(p storage.Problem) { rows = append(rows, problemJSON(p)) }
	err := a.reading(ctx, func(s *sqlite.Store) error {
		return errors.Join(s.Check(ctx, report), checkArtifacts(ctx, a.data, report), checkReferences(ctx, s, a.data, report))
	})
	switch {
	case errors.Is(err, storage.ErrCorrupt):
		report(storage.Problem{Code: "E_STORE_CORRUPT", Place: filepath.Join(a.data, sqlite.FileName), What: err.Error()})
	case err != nil:
		return err
	}
	if len(rows) == 0 && a.output == "text" {
		fmt.Fprintln(a.out, a.say.T("fsck.ok"))
		return nil
	}
	if err := list(a, rows, a.heads("code", "place", "what"), func(p problemJSON) []string { return []string{p.Code, p.Place, p.What} }); err != nil {
		return err
	}
	if len(rows) > 0 {
		return silent(exitDiffers)
	}
	return nil
}

func checkArtifacts(ctx context.Context, data string, report func(storage.Problem)) error {
	dir := filepath.Join(data, "artifacts")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s, err := artifacts.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(s.Check(ctx, report), s.Close())
}

func (a *app) quietLogger() zerolog.Logger { return zerolog.New(a.err).Level(zerolog.ErrorLevel) }
