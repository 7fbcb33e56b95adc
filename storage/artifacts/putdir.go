package artifacts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// DirInfo is a directory in the store: the digest of its manifest, the bytes of its files altogether, and their number.
type DirInfo struct {
	Info
	Files int
}

// ErrSpecial says that something in a directory cannot be an artifact: a socket, a device, a link that leads out.
var ErrSpecial = errors.New("no plain file")

// PutDir takes a directory into the store: each regular file as PutFile does, the rest as the manifest that names the
// directory. Symbolic links are kept when they are relative and stay in the directory; one that leads out of it, and
// everything that is neither file, directory nor link, is ErrSpecial, before anything was moved. The caller gives the
// directory up; after an error, what has been moved stays in the store and belongs to nobody.
func (s *Store) PutDir(ctx context.Context, root *os.Root, name string) (DirInfo, error) {
	info, err := s.putDir(ctx, root, name)
	if err != nil {
		return DirInfo{}, fmt.Errorf("put directory %q: %w", name, err)
	}
	return info, nil
}

func (s *Store) putDir(ctx context.Context, root *os.Root, name string) (DirInfo, error) {
	dir, err := openDir(root, name)
	if err != nil {
		return DirInfo{}, err
	}
	defer dir.Close() //nolint:errcheck // a directory
	m, err := readTree(ctx, dir, readable)
	if err != nil {
		return DirInfo{}, err
	}
	if err := takeFiles(ctx, m, func(e *Entry) (Info, error) { return s.PutFile(ctx, dir, e.Path) }); err != nil {
		return DirInfo{}, err
	}
	return s.putManifest(ctx, m)
}

// CopyDir copies a directory into the store and leaves it as it is. Errors are as of PutDir; a file that is changed while it
// is read is storage.ErrConflict.
func (s *Store) CopyDir(ctx context.Context, root *os.Root, name string) (DirInfo, error) {
	m, err := hashDir(ctx, root, name, func(f *os.File) (Info, error) { return s.Put(ctx, f) })
	var info DirInfo
	if err == nil {
		info, err = s.putManifest(ctx, m)
	}
	if err != nil {
		return DirInfo{}, fmt.Errorf("copy directory %q: %w", name, err)
	}
	return info, nil
}

// HashDir gives what CopyDir would give, and stores nothing.
func HashDir(ctx context.Context, root *os.Root, name string) (events.Digest, error) {
	m, err := hashDir(ctx, root, name, func(f *os.File) (Info, error) { return Hash(ctx, f) })
	var b []byte
	if err == nil {
		b, err = m.Encode()
	}
	if err != nil {
		return events.Digest{}, fmt.Errorf("hash directory %q: %w", name, err)
	}
	return events.DigestOf(b), nil
}

// Hash gives what Put would give, and stores nothing.
func Hash(ctx context.Context, r io.Reader) (Info, error) {
	h := sha256.New()
	size, err := copyBuffered(h, reader{ctx, r})
	if err != nil {
		return Info{}, fmt.Errorf("hash: %w", err)
	}
	info := Info{Size: size}
	h.Sum(info.Digest[:0])
	return info, nil
}

func hashDir(ctx context.Context, root *os.Root, name string, take func(*os.File) (Info, error)) (*Manifest, error) {
	dir, err := openDir(root, name)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // a directory
	m, err := readTree(ctx, dir, func(*os.Root, string, fs.FileMode) error { return nil })
	if err != nil {
		return nil, err
	}
	return m, takeFiles(ctx, m, func(e *Entry) (Info, error) {
		f, err := dir.OpenFile(e.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return Info{}, err
		}
		defer f.Close() //nolint:errcheck // read only
		if err := sameRegular(dir, e.Path, f); err != nil {
			return Info{}, err
		}
		return take(f)
	})
}

func (s *Store) putManifest(ctx context.Context, m *Manifest) (DirInfo, error) {
	b, err := m.Encode()
	if err != nil {
		return DirInfo{}, err
	}
	if len(b) > maxManifest {
		return DirInfo{}, fmt.Errorf("a manifest of %d bytes, at most %d are allowed", len(b), maxManifest)
	}
	info, err := s.Put(ctx, bytes.NewReader(b))
	if err != nil {
		return DirInfo{}, err
	}
	var of DirInfo
	of.Digest = info.Digest
	of.Files, of.Size = m.Size()
	return of, nil
}

func openDir(root *os.Root, name string) (*os.Root, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%w: %v", ErrSpecial, info.Mode().Type())
	}
	return root.OpenRoot(name)
}

// ReadDir looks through a directory and gives its manifest without the digests of its files. Errors are as of PutDir.
func ReadDir(ctx context.Context, root *os.Root, name string) (*Manifest, error) {
	dir, err := openDir(root, name)
	if err == nil {
		defer dir.Close() //nolint:errcheck // a directory
		var m *Manifest
		if m, err = readTree(ctx, dir, readable); err == nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("read directory %q: %w", name, err)
}

// readTree looks through a directory, and opens what it must read where somebody has closed it.
func readTree(ctx context.Context, dir *os.Root, open func(*os.Root, string, fs.FileMode) error) (*Manifest, error) {
	m := &Manifest{Schema: manifestSchema, Entries: []Entry{}}
	if err := open(dir, ".", 0o700); err != nil {
		return nil, err
	}
	err := fs.WalkDir(dir.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || p == "." {
			return err
		}
		if len(m.Entries) == MaxEntries {
			return fmt.Errorf("more than %d entries", MaxEntries)
		}
		e, err := entryOf(dir, p, d, open)
		m.Entries = append(m.Entries, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(m.Entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	return m, nil
}

func entryOf(dir *os.Root, p string, d fs.DirEntry, open func(*os.Root, string, fs.FileMode) error) (Entry, error) {
	e := Entry{Path: p}
	if !utf8.ValidString(p) {
		return e, fmt.Errorf("%w: the name %q is no UTF-8", ErrSpecial, p)
	}
	info, err := d.Info()
	if err != nil {
		return e, err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		e.Type = typeDir
		return e, open(dir, p, 0o700)
	case mode.IsRegular():
		e.Type, e.Size, e.Exec = typeFile, info.Size(), mode&0o100 != 0
		return e, open(dir, p, 0o400)
	case mode&fs.ModeSymlink != 0:
		e.Type = typeLink
		if e.Target, err = dir.Readlink(p); err != nil {
			return e, err
		}
		if !inside(p, e.Target) {
			return e, fmt.Errorf("%w: the link %q leads out of the directory, to %q", ErrSpecial, p, e.Target)
		}
		return e, nil
	default:
		return e, fmt.Errorf("%w: %q is %v", ErrSpecial, p, mode.Type())
	}
}

// readable gives the owner the rights that are missing.
func readable(dir *os.Root, p string, rights fs.FileMode) error {
	info, err := dir.Lstat(p)
	if err != nil || info.Mode()&rights == rights {
		return err
	}
	return dir.Chmod(p, info.Mode().Perm()|rights)
}

const takers = 8 // files of one directory that are stored at once: their syncs share a commit of the file system

// takeFiles stores the manifest's files and notes their digests.
func takeFiles(ctx context.Context, m *Manifest, take func(*Entry) (Info, error)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	errs := make([]error, takers)
	for k := range takers {
		all.Go(func() {
			for i := k; i < len(m.Entries) && ctx.Err() == nil; i += takers {
				e := &m.Entries[i]
				if e.Type != typeFile {
					continue
				}
				info, err := take(e)
				if err == nil && info.Size != e.Size {
					err = fmt.Errorf("%w: %q was changed while it was read", storage.ErrConflict, e.Path)
				}
				if err != nil {
					errs[k] = err
					stop()
					return
				}
				e.Digest = info.Digest
			}
		})
	}
	all.Wait()
	return errors.Join(errors.Join(errs...), ctx.Err())
}
