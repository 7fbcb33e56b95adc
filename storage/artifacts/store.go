package artifacts

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Info names an artifact and gives its size in bytes.
type Info struct {
	Digest events.Digest
	Size   int64
}

// Store is a directory of artifacts. It is safe for concurrent use.
type Store struct {
	root   *os.Root // the directory itself
	blobs  *os.Root // sha256/
	temps  *os.Root // tmp/
	shards [256]shard
	clones func() bool // whether the file system clones; it is tried once

	mu   sync.Mutex
	live map[string]bool // names in tmp/ that this process is writing

	fault func(step string) error // tests only: called before each step of storing
}

// shard guards one directory ab/. Its lock is held from a rename to the sync of the directory, so that whoever finds
// an artifact under the lock knows whether its name is durable.
type shard struct {
	mu     sync.Mutex
	made   bool // the directory exists, durably
	synced bool // no name in it is newer than its last sync by this process
}

const (
	blobMode = 0o444
	dirMode  = 0o700
)

// Open opens the store in a directory and makes what is missing of it, with mode 0700.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("open artifacts: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open artifacts: %w", err)
	}
	s := &Store{root: root, live: map[string]bool{}}
	s.clones = sync.OnceValue(s.tryClone)
	if s.blobs, err = openSub(root, "sha256"); err == nil {
		s.temps, err = openSub(root, "tmp")
	}
	if err == nil {
		err = errors.Join(root.Chmod(".", dirMode), syncDir(root, "."))
	}
	if err == nil {
		err = syncPath(filepath.Dir(dir))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open artifacts: %w", err), s.Close())
	}
	return s, nil
}

// openSub makes and opens a directory of the store; a symbolic link in its place is refused.
func openSub(root *os.Root, name string) (*os.Root, error) {
	if err := root.Mkdir(name, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := mustBeDir(root, name); err != nil {
		return nil, err
	}
	return root.OpenRoot(name)
}

func mustBeDir(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%w: %s is no directory", storage.ErrCorrupt, name)
	}
	return err
}

// Close lets go of the directory. Readers that are still open stay usable.
func (s *Store) Close() error {
	var errs []error
	for _, r := range []*os.Root{s.blobs, s.temps, s.root} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	return errors.Join(errs...)
}

// Sweep removes what dead processes have left in tmp/ and gives the number of files. Nobody else may write to the store
// meanwhile: the caller holds the lock of the data directory.
func (s *Store) Sweep() (removed int, err error) {
	f, err := s.temps.Open(".")
	if err != nil {
		return 0, fmt.Errorf("sweep artifacts: %w", err)
	}
	names, err := f.Readdirnames(-1)
	err = errors.Join(err, f.Close())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if s.live[name] {
			continue
		}
		if gone := s.temps.RemoveAll(name); gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		removed++
	}
	if err != nil {
		return removed, fmt.Errorf("sweep artifacts: %w", err)
	}
	return removed, nil
}

// Stat gives the size of an artifact. The error of one that is not there is storage.ErrNotFound.
func (s *Store) Stat(d events.Digest) (Info, error) {
	size, err := s.lookup(d)
	if err != nil {
		return Info{}, fmt.Errorf("stat artifact %v: %w", d, err)
	}
	return Info{Digest: d, Size: size}, nil
}

// Has reports whether the artifact is there. It does not read it.
func (s *Store) Has(d events.Digest) bool {
	_, err := s.lookup(d)
	return err == nil
}

// lookup gives the size of a blob after it has refused everything but a regular file in a real directory.
func (s *Store) lookup(d events.Digest) (int64, error) {
	dir, name := place(d)
	if err := mustBeDir(s.blobs, dir); err != nil {
		return 0, missing(err)
	}
	info, err := s.blobs.Lstat(name)
	switch {
	case err != nil:
		return 0, missing(err)
	case !info.Mode().IsRegular():
		return 0, fmt.Errorf("%w: sha256/%s is no regular file", storage.ErrCorrupt, name)
	}
	return info.Size(), nil
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return storage.ErrNotFound
	}
	return err
}

// place gives the directory and the whole name of an artifact below sha256/.
func place(d events.Digest) (dir, name string) {
	text := hex.EncodeToString(d[:])
	return text[:2], text[:2] + "/" + text[2:]
}

func syncDir(root *os.Root, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(syncFile(f), f.Close())
}

func syncPath(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(syncFile(f), f.Close())
}
