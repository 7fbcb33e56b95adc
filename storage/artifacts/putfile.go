package artifacts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// PutFile takes a file into the store; the caller gives it up, and after a success its name is gone. Only a regular
// file is taken, never through a symbolic link. Where the file can be trusted to stay as it is (same file system, ours,
// no other hard link) it is renamed and not copied. Whoever had it open for writing must be gone: a change while it is
// being hashed is noticed and refused, a later one only by the next reader.
func (s *Store) PutFile(ctx context.Context, root *os.Root, name string) (Info, error) {
	info, err := s.putFile(ctx, root, name)
	if err != nil {
		return Info{}, fmt.Errorf("put file %q: %w", path.Base(name), err)
	}
	return info, nil
}

func (s *Store) putFile(ctx context.Context, root *os.Root, name string) (Info, error) {
	if named, err := root.Lstat(name); err != nil {
		return Info{}, err
	} else if !named.Mode().IsRegular() {
		return Info{}, fmt.Errorf("not a regular file: %v", named.Mode().Type())
	}
	// Non-blocking, should it have become something else: opening a fifo without a writer never returns.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Info{}, err
	}
	defer f.Close() //nolint:errcheck // read only
	if err := sameRegular(root, name, f); err != nil {
		return Info{}, err
	}
	if movable(f) {
		info, err := s.move(ctx, root, name, f)
		if !errors.Is(err, syscall.EXDEV) && !errors.Is(err, syscall.EPERM) {
			return info, err
		}
	}
	info, err := s.put(ctx, reader{ctx, f})
	if err != nil {
		return Info{}, err
	}
	return info, root.Remove(name)
}

// sameRegular makes sure that the name is the regular file that was opened, and no link to it.
func sameRegular(root *os.Root, name string, f *os.File) error {
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	named, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !named.Mode().IsRegular() || !os.SameFile(opened, named) {
		return fmt.Errorf("not a regular file: %v", named.Mode().Type())
	}
	return nil
}

// movable says whether a file may become an artifact as it stands: it is ours, so that nobody else can make it writable
// again, and it has no second name.
func movable(f *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 1 && int(st.Uid) == os.Geteuid()
}

// move renames the file into tmp/, where no stage can reach it by name, and only then hashes it.
func (s *Store) move(ctx context.Context, root *os.Root, name string, f *os.File) (Info, error) {
	t := &temp{store: s, name: rand.Text()}
	s.mark(t.name, true)
	defer t.drop()
	if err := s.adopt(root, name, t.name); err != nil {
		return Info{}, err
	}
	var err error
	if t.file, err = s.temps.Open(t.name); err != nil {
		return Info{}, err
	}
	if err := sameRegular(s.temps, t.name, f); err != nil {
		return Info{}, err
	}
	info, err := s.hashAndSeal(ctx, t)
	if err != nil {
		return Info{}, errors.Join(err, s.giveBack(root, name, t.name))
	}
	return info, nil
}

func (s *Store) hashAndSeal(ctx context.Context, t *temp) (Info, error) {
	if err := t.file.Chmod(blobMode); err != nil {
		return Info{}, err
	}
	before, err := t.file.Stat()
	if err != nil {
		return Info{}, err
	}
	if before.Size() >= early { // the disk writes while the processor hashes
		var writing sync.WaitGroup
		writing.Go(func() { writeBack(t.file, 0, 0) })
		defer writing.Wait()
	}
	h := sha256.New()
	size, err := copyBuffered(h, reader{ctx, t.file})
	if err != nil {
		return Info{}, err
	}
	after, err := t.file.Stat()
	if err != nil {
		return Info{}, err
	}
	if size != before.Size() || after.Size() != size || !after.ModTime().Equal(before.ModTime()) {
		return Info{}, errors.New("the file was changed while it was read")
	}
	return s.seal(t, h, size)
}

// adopt renames across two roots, which os.Root cannot.
func (s *Store) adopt(from *os.Root, name, temp string) error {
	return renameAcross(from, name, s.temps, temp)
}

// giveBack undoes adopt after a failure, so that the caller still has the file.
func (s *Store) giveBack(to *os.Root, name, temp string) error {
	return renameAcross(s.temps, temp, to, name)
}

func renameAcross(from *os.Root, name string, to *os.Root, target string) error {
	if err := across(from, name, to, target, unix.Renameat); err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	return nil
}
