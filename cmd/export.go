package cmd

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/provenance"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) exportCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "export RUN --file FILE", Args: a.arguments(1, 1), ValidArgsFunction: a.completeRuns}, "export")
	file := c.Flags().String("file", "", "flag.file")
	format := c.Flags().String("format", "apollo", "flag.format")
	parents := c.Flags().Bool("with-parents", false, "flag.with_parents")
	c.RunE = func(c *cobra.Command, args []string) error {
		e := exporting{app: a, file: *file, format: *format, parents: *parents}
		switch {
		case *file == "":
			return a.usageError("usage.export")
		case *file == "-" && isTerminal(a.out):
			return a.usageError("usage.export_terminal")
		case *format != "apollo" && *format != "ro-crate" && *format != "slsa":
			return a.choice("--format", *format, "apollo, ro-crate, slsa")
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			id, err := a.findRun(c.Context(), s, args[0])
			if err != nil {
				return err
			}
			return e.run(c.Context(), s, id)
		})
	}
	return c
}

// exporting is one call of export.
type exporting struct {
	*app
	file, format string
	parents      bool
}

// exportedJSON is what export says of what it wrote.
type exportedJSON struct {
	File      string          `json:"file"`
	Format    string          `json:"format"`
	Digest    string          `json:"digest"`
	Size      int64           `json:"size"`
	Ended     bool            `json:"ended"` // a run that had not cannot be imported, only replayed
	Runs      []events.ID     `json:"runs"`
	Named     []bundle.Named  `json:"named"` // runs that it refers to and that are not in the file
	Events    uint64          `json:"events"`
	Artifacts int             `json:"artifacts"`
	Missing   []events.Digest `json:"missing"`
}

func (e *exporting) run(ctx context.Context, s *sqlite.Store, id events.ID) (err error) {
	files, done, err := e.artifacts()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	h, counted := sha256.New(), new(counter)
	var m *bundle.Manifest
	err = e.writing(func(w io.Writer) (err error) {
		m, err = e.write(ctx, io.MultiWriter(w, h, counted), s, files, id)
		return err
	})
	if errors.Is(err, provenance.ErrNotEnded) || errors.Is(err, provenance.ErrNoSubject) {
		return &exitError{exitConflict, "", err}
	}
	if err != nil {
		return err
	}
	said := exportedJSON{File: e.file, Format: e.format, Digest: events.Digest(h.Sum(nil)).String(), Size: counted.n, Ended: m.Ended(), Named: m.Named,
		Events: m.Log.Lines, Artifacts: len(m.Artifacts), Missing: m.Missing}
	for i := range m.Runs {
		said.Runs = append(said.Runs, m.Runs[i].Run)
	}
	return e.report(&said)
}

type counter struct{ n int64 }

// Write implements io.Writer.
func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

func (e *exporting) write(ctx context.Context, w io.Writer, s *sqlite.Store, files bundle.Artifacts, id events.ID) (*bundle.Manifest, error) {
	v, _ := version()
	o := bundle.Options{Run: id, Apollo: v, Parents: e.parents}
	switch e.format {
	case "ro-crate":
		return provenance.Crate(ctx, w, s, files, o)
	case "slsa":
		return provenance.Statement(ctx, w, s, files, o)
	}
	return bundle.Write(ctx, w, s, files, o)
}

// report tells what was written: on standard output, unless that is the file itself.
func (e *exporting) report(x *exportedJSON) error {
	to := e.out
	if e.file == "-" {
		to = e.err
	}
	if e.output != "text" {
		return writeJSON(to, x, e.output == "json")
	}
	e.tell("export.done", lang.Data{"File": e.file, "N": x.Events, "Runs": len(x.Runs), "Artifacts": x.Artifacts, "Size": size(float64(x.Size)), "Digest": x.Digest})
	for _, n := range x.Named {
		e.tell("export.named", lang.Data{"Run": n.Run.String(), "Why": n.Why})
	}
	if len(x.Missing) > 0 {
		e.tell("export.missing", lang.Data{"N": len(x.Missing)})
	}
	if !x.Ended {
		e.tell("export.goes_on")
	}
	return nil
}

// writing has a file written under another name beside its own, and gives it its own once it is durable. A file that is
// there is never replaced.
func (e *exporting) writing(do func(io.Writer) error) (err error) {
	if e.file == "-" {
		return do(e.out)
	}
	if _, err := os.Lstat(e.file); err == nil {
		return e.fail(exitConflict, "E_EXISTS", "error.file_exists", lang.Data{"File": e.file})
	}
	f, err := os.CreateTemp(filepath.Dir(e.file), ".apollo-export-*")
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.Remove(f.Name()); err == nil && gone != nil {
			err = gone
		}
	}()
	err = do(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), e.file) // unlike a rename, it never replaces
}

// artifacts opens the artifact store for reading; a data directory without one has no artifacts.
func (a *app) artifacts() (bundle.Artifacts, func() error, error) {
	dir := filepath.Join(a.data, "artifacts")
	if _, err := os.Stat(dir); err != nil {
		return noArtifacts{}, func() error { return nil }, nil //nolint:nilerr // none is an answer
	}
	s, err := artifacts.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

type noArtifacts struct{}

// Stat implements bundle.Artifacts.
func (noArtifacts) Stat(events.Digest) (artifacts.Info, error) {
	return artifacts.Info{}, storage.ErrNotFound
}

// Get implements bundle.Artifacts.
func (noArtifacts) Get(events.Digest) (*artifacts.Reader, error) { return nil, storage.ErrNotFound }
