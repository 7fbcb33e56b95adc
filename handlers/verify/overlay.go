package verify

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// Artifacts is what is read of a store of artifacts.
type Artifacts interface {
	Place(ctx context.Context, d events.Digest, root *os.Root, name string, p artifacts.Placing) error
	Get(d events.Digest) (*artifacts.Reader, error)
	Has(d events.Digest) bool
}

// overlay reads artifacts of the run and keeps what an execution makes apart from them. It implements stage.Artifacts. The
// store is nil where nothing is made.
type overlay struct {
	*artifacts.Store
	recorded Artifacts
	reversed bool // what a directory holds is made in the opposite order
}

// Place implements stage.Artifacts. A file is never one with the run's own.
func (o *overlay) Place(ctx context.Context, d events.Digest, root *os.Root, name string, p artifacts.Placing) error {
	p.Shared = false
	err := o.recorded.Place(ctx, d, root, name, p)
	if errors.Is(err, storage.ErrNotFound) && o.Store != nil {
		err = o.Store.Place(ctx, d, root, name, p)
	}
	if err == nil && p.Dir && o.reversed {
		err = reverse(root, name)
	}
	return err
}

// Restore implements stage.Artifacts: nothing was shared.
func (o *overlay) Restore(context.Context, events.Digest, artifacts.Placing) error { return nil }

// Has implements stage.Artifacts.
func (o *overlay) Has(d events.Digest) bool {
	return o.recorded.Has(d) || o.Store != nil && o.Store.Has(d)
}

// Get implements stage.Artifacts.
func (o *overlay) Get(d events.Digest) (*artifacts.Reader, error) {
	r, err := o.recorded.Get(d)
	if errors.Is(err, storage.ErrNotFound) && o.Store != nil {
		return o.Store.Get(d)
	}
	return r, err
}

// reverse moves everything in a directory, and in those below it, over to another one in the opposite order, and gives that
// one its name. Modes and times stay as they were.
func reverse(root *os.Root, name string) error {
	info, err := root.Stat(name)
	if err != nil {
		return err
	}
	dir, err := root.Open(name)
	if err != nil {
		return err
	}
	list, err := dir.ReadDir(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	names := make([]string, len(list))
	for i, entry := range list {
		names[i] = entry.Name()
		if entry.IsDir() {
			err = errors.Join(err, reverse(root, path.Join(name, entry.Name())))
		}
	}
	slices.Sort(names) // the order in which they were made
	slices.Reverse(names)
	other := name + ".reversed"
	err = errors.Join(err, root.Mkdir(other, 0o700), root.Chmod(name, 0o700))
	for _, entry := range names {
		if err == nil {
			err = moveEntry(root, path.Join(name, entry), path.Join(other, entry))
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(root.Remove(name), root.Rename(other, name), root.Chmod(name, info.Mode().Perm()), root.Chtimes(name, time.Time{}, info.ModTime()))
}

// moveEntry renames a file or directory; a directory that may not be written to does not let itself be moved.
func moveEntry(root *os.Root, from, to string) error {
	info, err := root.Lstat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return root.Rename(from, to)
	}
	return errors.Join(root.Chmod(from, 0o700), root.Rename(from, to), root.Chmod(to, info.Mode().Perm()))
}
