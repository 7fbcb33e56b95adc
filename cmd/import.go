package cmd

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/sqlite"
)

func (a *app) importCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "import FILE", Args: a.arguments(1, 1)}, "import")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"apollo"}, cobra.ShellCompDirectiveFilterFileExt
	}
	c.RunE = func(c *cobra.Command, args []string) error { return a.importFile(c.Context(), args[0]) }
	return c
}

// importedJSON is what import says of what it took in.
type importedJSON struct {
	File   string `json:"file"`
	Digest string `json:"digest"`
	*bundle.Imported
}

// importFile looks at every byte of the file before it touches the data directory.
func (a *app) importFile(ctx context.Context, path string) (err error) {
	f, file, err := bundle.OpenPath(path)
	if err != nil {
		return a.noBundle(path, err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := f.Verify(ctx); err != nil {
		return err
	}
	if !f.Manifest.Ended() {
		return a.fail(exitConflict, "E_NOT_ENDED", "error.import_not_ended", lang.Data{"File": path})
	}
	digest, err := digestOf(file)
	if err != nil {
		return err
	}
	done, err := a.takeIn(ctx, f, file, filepath.Base(path), digest)
	if err != nil {
		return err
	}
	return a.tellImported(importedJSON{path, digest.String(), done})
}

func digestOf(file io.ReadSeeker) (d events.Digest, err error) {
	h := sha256.New()
	if _, err = file.Seek(0, io.SeekStart); err == nil {
		_, err = io.Copy(h, file)
	}
	h.Sum(d[:0])
	return d, err
}

// takeIn imports a file that was verified: into the data directory, or through the process that holds it. That is asked
// for as long as one process follows the other.
func (a *app) takeIn(ctx context.Context, f *bundle.File, file *os.File, name string, digest events.Digest) (*bundle.Imported, error) {
	deadline := time.Now().Add(patience)
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, maxGap) {
		n, err := a.hold(a.quietLogger(), a.die)
		if err == nil {
			done, err := n.takeIn(ctx, f, name, digest, by("").Actor)
			return done, errors.Join(err, n.close(ctx))
		}
		if _, held := errors.AsType[*sqlite.HeldError](err); !held {
			return nil, err
		}
		done, err := a.sendBundle(ctx, file, name)
		if !errors.Is(err, errGone) {
			return done, err
		}
		if time.Now().After(deadline) {
			return nil, a.stillHeld(err)
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// sendBundle hands the file's bytes to the process that holds the data directory.
func (a *app) sendBundle(ctx context.Context, file io.ReadSeeker, name string) (*bundle.Imported, error) {
	dir, err := filepath.Abs(a.data)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return dialServer(dir).ImportBundle(ctx, name, io.NopCloser(file))
}

// takeIn imports a verified file into this node's store. The engine need not run; it has no part in it.
func (n *node) takeIn(ctx context.Context, f *bundle.File, name string, digest events.Digest, actor string) (*bundle.Imported, error) {
	done, err := f.Import(ctx, n.store, n.artifacts, bundle.Import{Name: name, Digest: digest, Actor: actor,
		Now: func() int64 { return time.Now().UnixNano() }, NewID: newID})
	if errors.Is(err, bundle.ErrConflict) || errors.Is(err, bundle.ErrNotEnded) {
		err = &exitError{exitConflict, "", err}
	}
	return done, err
}

// ImportBundle implements web.Importer: the bytes are kept in a file without a name until they are verified, so that
// nothing is left of them whatever happens.
func (n *node) ImportBundle(ctx context.Context, name, actor string, from io.Reader) (*bundle.Imported, error) {
	file, err := os.CreateTemp(n.dir, ".import-*")
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is thrown away
	if err := os.Remove(file.Name()); err != nil {
		return nil, err
	}
	h := sha256.New()
	size, err := io.Copy(io.MultiWriter(file, h), from)
	if err != nil {
		return nil, fmt.Errorf("receive %s: %w", name, err)
	}
	f, err := bundle.Open(file, size)
	if err == nil {
		err = f.Verify(ctx)
	}
	if err != nil {
		return nil, &web.ErrStatus{Status: http.StatusUnprocessableEntity, Err: err}
	}
	done, err := n.takeIn(ctx, f, name, events.Digest(h.Sum(nil)), actor)
	if _, refused := errors.AsType[*exitError](err); refused {
		err = &web.ErrStatus{Status: http.StatusConflict, Err: err}
	}
	return done, err
}

func (a *app) tellImported(j importedJSON) error {
	if a.output != "text" {
		return writeJSON(a.out, j, a.output == "json")
	}
	for i := range j.Runs {
		r := &j.Runs[i]
		id := "import.here"
		if r.Verdict == "imported" {
			id = "import.done"
		}
		fmt.Fprintln(a.out, line(a.say.T(id, lang.Data{"Run": r.Run.String(), "Pipeline": r.Pipeline, "State": a.say.T("state." + r.State.String()), "N": r.Events})))
	}
	if j.Missing > 0 {
		a.tell("export.missing", lang.Data{"N": j.Missing})
	}
	return nil
}
