package artifacts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// Placing says how an artifact is made a file of a stage.
type Placing struct {
	// Shared allows a hard link to the artifact itself, where the file system cannot clone it. Only a caller that keeps
	// whoever reads the file from writing to it may say so, and must call Restore when the reader is gone.
	Shared bool
	// Time becomes the file's own, but for one that is a hard link: that one has the time of every artifact, Stored.
	Time time.Time
	// Dir says that the artifact is the manifest of a directory: the name becomes that directory, and all that is in it is
	// made as this says.
	Dir bool
}

// Stored is the modification time of every artifact: that when it was stored would tell runs apart.
var Stored = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// Place makes a read-only file of the artifact below root: a clone where the file system can, else a hard link where that
// is allowed, else a copy. Whichever it is, the bytes are read and compared with the digest. The name must be free. After
// an error there is no file; of a directory, what was made so far is left behind.
func (s *Store) Place(ctx context.Context, d events.Digest, root *os.Root, name string, p Placing) error {
	var err error
	if p.Dir {
		err = s.placeDir(ctx, d, root, name, p)
	} else {
		err = s.place(ctx, d, root, name, blobMode, p)
	}
	if err != nil {
		return fmt.Errorf("place artifact %v: %w", d, err)
	}
	return nil
}

func (s *Store) place(ctx context.Context, d events.Digest, root *os.Root, name string, mode fs.FileMode, p Placing) error {
	if p.Shared && mode == blobMode && !s.clones() {
		if linked, err := s.link(ctx, d, root, name); linked || err != nil {
			return err
		}
	}
	if err := s.copyTo(ctx, d, root, name, mode); err != nil || p.Time.IsZero() {
		return err
	}
	if err := root.Chtimes(name, p.Time, p.Time); err != nil {
		return errors.Join(err, root.Remove(name))
	}
	return nil
}

// tryClone clones a file of one block within the store.
func (s *Store) tryClone() bool {
	a, err := s.newTemp()
	if err != nil {
		return false
	}
	defer a.drop()
	b, err := s.newTemp()
	if err != nil {
		return false
	}
	defer b.drop()
	_, err = a.file.Write(make([]byte, 4096))
	return err == nil && clone(b.file, a.file)
}

// link makes a hard link to an artifact that was read and found whole.
func (s *Store) link(ctx context.Context, d events.Digest, root *os.Root, name string) (bool, error) {
	source, _, err := s.open(d)
	if err != nil {
		return false, err
	}
	defer source.Close() //nolint:errcheck // read only
	h := sha256.New()
	if _, err := copyBuffered(h, reader{ctx, source}); err != nil {
		return false, err
	}
	if err := compare(d, h); err != nil {
		return false, err
	}
	_, blob := place(d)
	if err := across(s.blobs, blob, root, name, func(from int, blob string, to int, target string) error {
		return unix.Linkat(from, blob, to, target, 0)
	}); err != nil {
		return false, linkless(err)
	}
	named, err := root.Lstat(name)
	opened, err2 := source.Stat()
	if err = errors.Join(err, err2); err == nil && !os.SameFile(named, opened) {
		err = errors.New("the artifact was replaced while it was linked")
	}
	if err != nil {
		return false, errors.Join(err, root.Remove(name))
	}
	return true, nil
}

// linkless passes over what only says that this file system, or the kernel's policy, has no such links.
func linkless(err error) error {
	for _, no := range []error{unix.EXDEV, unix.EPERM, unix.EMLINK, unix.EOPNOTSUPP} {
		if errors.Is(err, no) {
			return nil
		}
	}
	return err
}

// Restore gives an artifact, and all that is in it when it is a directory, the mode and the time back that a reader which
// owns it may have changed through a hard link.
func (s *Store) Restore(ctx context.Context, d events.Digest, p Placing) error {
	all := []events.Digest{d}
	if p.Dir {
		m, err := s.Manifest(ctx, d)
		if err != nil {
			return fmt.Errorf("restore artifact %v: %w", d, err)
		}
		for i := range m.Entries {
			if e := &m.Entries[i]; e.Type == typeFile {
				all = append(all, e.Digest)
			}
		}
	}
	for _, d := range all {
		_, name := place(d)
		info, err := s.blobs.Lstat(name)
		if err == nil && (info.Mode().Perm() != blobMode || !info.ModTime().Equal(Stored)) {
			err = errors.Join(s.blobs.Chmod(name, blobMode), s.blobs.Chtimes(name, Stored, Stored))
		}
		if err != nil {
			return fmt.Errorf("restore artifact %v: %w", d, missing(err))
		}
	}
	return nil
}

// placeDir makes a read-only directory of a manifest.
func (s *Store) placeDir(ctx context.Context, d events.Digest, root *os.Root, name string, p Placing) error {
	m, err := s.Manifest(ctx, d)
	if err != nil {
		return err
	}
	if err := root.Mkdir(name, dirMode); err != nil {
		return err
	}
	dir, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close() //nolint:errcheck // a directory
	dirs := []string{"."}
	for i := range m.Entries {
		e := &m.Entries[i]
		switch e.Type {
		case typeDir:
			err = dir.Mkdir(e.Path, dirMode)
			dirs = append(dirs, e.Path)
		case typeLink:
			err = dir.Symlink(e.Target, e.Path)
		default:
			mode := fs.FileMode(blobMode)
			if e.Exec {
				mode = 0o555
			}
			err = s.place(ctx, e.Digest, dir, e.Path, mode, p)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", e.Path, err)
		}
	}
	for _, name := range slices.Backward(dirs) { // from within: making an entry moves the time of its directory
		if !p.Time.IsZero() {
			err = dir.Chtimes(name, p.Time, p.Time)
		}
		if err = errors.Join(err, dir.Chmod(name, 0o500)); err != nil {
			return err
		}
	}
	return nil
}

// across opens the directories of two names in two roots, which os.Root cannot do in one call.
func across(from *os.Root, name string, to *os.Root, target string, do func(from int, name string, to int, target string) error) error {
	source, err := from.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // a directory
	dest, err := to.Open(path.Dir(target))
	if err != nil {
		return err
	}
	defer dest.Close() //nolint:errcheck // a directory
	return do(int(source.Fd()), path.Base(name), int(dest.Fd()), path.Base(target))
}

// copyBuffered copies with a buffer that large files want.
func copyBuffered(dst io.Writer, src io.Reader) (int64, error) {
	buffer := buffers.Get().(*[]byte) //nolint:forcetypeassert // nothing else is in there
	defer buffers.Put(buffer)
	return io.CopyBuffer(onlyWriter{dst}, src, *buffer)
}

// onlyWriter hides ReadFrom, which would bring its own small buffer.
type onlyWriter struct{ io.Writer }
