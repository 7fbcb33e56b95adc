package cmd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// newFile is a file that is to be written.
type newFile struct {
	path    string
	content []byte
}

// existsError says that a file is there already and stays as it is.
type existsError struct{ path string }

func (e *existsError) Error() string { return e.path + " is there already" }

// install writes all files or none: each is complete under another name before the first gets its own, and a failure takes
// back what was done. Without force a file that is there is an *existsError, also when it appears meanwhile.
func install(files []newFile, force bool) (err error) {
	w := &installing{}
	defer func() {
		for _, part := range w.parts {
			_ = os.Remove(part) // it is gone already where it got its name
		}
		if err != nil {
			err = errors.Join(err, w.undo())
		}
	}()
	for _, f := range files {
		if _, err := os.Lstat(f.path); err == nil && !force {
			return &existsError{f.path}
		}
	}
	for _, f := range files {
		if err := w.prepare(f); err != nil {
			return err
		}
	}
	for i, f := range files {
		if err := w.commit(w.parts[i], f.path, force); err != nil {
			return err
		}
	}
	return nil
}

// installing remembers what must be taken back.
type installing struct {
	parts []string
	dirs  []string // made, the outer before the inner
	done  []func() error
}

// prepare writes a file under another name in its folder.
func (w *installing) prepare(f newFile) error {
	if err := w.makeDir(filepath.Dir(f.path)); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(f.path), ".apollo-*.part")
	if err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	w.parts = append(w.parts, part.Name())
	_, err = part.Write(f.content)
	if err = errors.Join(err, part.Chmod(0o644), part.Close()); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

func (w *installing) makeDir(dir string) error {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	slices.Reverse(missing)
	for _, d := range missing {
		if err := os.Mkdir(d, 0o755); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // definitions are no secrets
			return err
		}
		w.dirs = append(w.dirs, d)
	}
	return nil
}

// commit gives a file its name.
func (w *installing) commit(part, path string, force bool) error {
	old, err := os.ReadFile(path)
	switch {
	case err == nil && force:
		info, err := os.Stat(path)
		if err == nil {
			err = os.Rename(part, path)
		}
		if err != nil {
			return err
		}
		w.done = append(w.done, func() error { return os.WriteFile(path, old, info.Mode().Perm()) })
		return nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := os.Link(part, path); err != nil { // unlike a rename, it never replaces
		if errors.Is(err, os.ErrExist) {
			return &existsError{path}
		}
		if err := os.Rename(part, path); err != nil { // a file system without links; nothing was there a moment ago
			return err
		}
	}
	w.done = append(w.done, func() error { return os.Remove(path) })
	return nil
}

func (w *installing) undo() error {
	var errs []error
	for _, take := range slices.Backward(w.done) {
		errs = append(errs, take())
	}
	for _, dir := range slices.Backward(w.dirs) {
		_ = os.Remove(dir) // somebody else's file keeps it
	}
	return errors.Join(errs...)
}
