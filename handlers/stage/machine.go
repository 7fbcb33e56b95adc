package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// stamp is what a file system says of a file without reading it. It identifies nothing; that two are the same only saves
// reading the file again.
type stamp struct {
	dev, ino uint64
	size     int64
	mtime    int64 // Unix nanoseconds
	ctime    int64
}

func stampOf(info fs.FileInfo) stamp {
	st := stamp{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		st.dev, st.ino, st.ctime = uint64(sys.Dev), sys.Ino, sys.Ctim.Nano() //nolint:unconvert // differs by system
	}
	return st
}

// taken is an input that was read from the machine.
type taken struct {
	role, path string
	digest     events.Digest
	stamps     []stamp // of the file, or of all that is in the directory
}

// machineFiles remembers the content of files that were taken in, so that an attempt after the other does not read a large
// file that nobody has touched.
type machineFiles struct {
	mu    sync.Mutex
	known map[string]machineFile
}

type machineFile struct {
	stamp
	artifacts.Info
}

const (
	maxMachineFiles = 4096
	// racy is how old a file's times must be to be trusted: within one tick of the file system's clock it can change again
	// and keep them.
	racy = 2 * time.Second
)

// readsMachine reports whether an input of the stage comes from the machine, so that nobody knows it before the attempt.
func readsMachine(st *events.Stage) bool {
	return slices.ContainsFunc(st.Inputs, func(in events.Input) bool { return in.File != "" })
}

// takeIn copies an input from the machine into the store, or finds there what was recorded of it.
func (w *work) takeIn(ctx context.Context, s *Steps, in *events.Input) (source, *events.Failure) {
	if given, is := w.Given[in.Role]; is {
		f := &file{digest: given.Digest, name: given.Name, size: given.Size, count: -1}
		if given.Kind == "directory" {
			f.name += "/"
		}
		if s.still(ctx, in.File, given.Digest) { // the stage may read it there too, as it may have done
			w.call.Readable = append(slices.Clip(w.call.Readable), in.File)
		}
		return source{file: f}, nil
	}
	w.call.Readable = append(slices.Clip(w.call.Readable), in.File)
	info, err := os.Stat(in.File)
	if err != nil {
		return source{}, notTaken(ctx, in, err)
	}
	f := &file{name: filepath.Base(in.File), count: -1}
	t := taken{role: in.Role, path: in.File}
	switch {
	case info.IsDir():
		f.name += "/"
		err = s.takeDir(ctx, &t, f)
	case info.Mode().IsRegular():
		err = s.takeFile(ctx, &t, f)
	default:
		err = fmt.Errorf("%w: %v", artifacts.ErrSpecial, info.Mode().Type())
	}
	if err != nil {
		return source{}, notTaken(ctx, in, err)
	}
	w.machine = append(w.machine, t)
	return source{file: f}, nil
}

// still reports whether a file or directory of the machine has the content that was recorded of it.
func (s *Steps) still(ctx context.Context, path string, recorded events.Digest) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	now := stampOf(info)
	if known, is := s.seen.get(path, now); is && info.Mode().IsRegular() {
		return known.Digest == recorded
	}
	d, err := hashPath(ctx, path)
	if err == nil && info.Mode().IsRegular() {
		s.seen.put(path, machineFile{now, artifacts.Info{Digest: d, Size: now.size}})
	}
	return err == nil && d == recorded
}

// notTaken says why an input could not be read from the machine.
func notTaken(ctx context.Context, in *events.Input, err error) *events.Failure {
	if ctx.Err() != nil || errors.Is(err, storage.ErrFull) || errors.Is(err, storage.ErrFsync) {
		return cannot(ctx, "take in "+in.File, err)
	}
	actual := err.Error()
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		actual = e.Err.Error()
	}
	return &events.Failure{Class: events.BadInput, Expected: "a file or directory " + in.File + " on this machine", Actual: actual,
		Reason: fmt.Sprintf("the input %s: cannot read %s: %s; put it there, or change inputs.%s.file", in.Role, in.File, actual, in.Role)}
}

func (s *Steps) takeFile(ctx context.Context, t *taken, to *file) error {
	f, err := os.OpenFile(t.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // read only
	before, err := f.Stat()
	if err != nil {
		return err
	}
	now := stampOf(before)
	t.stamps = []stamp{now}
	info, known := s.seen.get(t.path, now)
	if !known || !s.Artifacts.Has(info.Digest) {
		if info, err = s.Artifacts.Put(ctx, f); err != nil {
			return err
		}
		after, err := f.Stat()
		if err != nil {
			return err
		}
		if stampOf(after) != now || info.Size != now.size {
			return errors.New("it was changed while it was read")
		}
		s.seen.put(t.path, machineFile{now, info})
	}
	t.digest, to.digest, to.size = info.Digest, info.Digest, info.Size
	return nil
}

func (s *Steps) takeDir(ctx context.Context, t *taken, to *file) error {
	root, name, err := openParent(t.path)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // a directory
	if t.stamps, err = stamps(t.path); err != nil {
		return err
	}
	info, err := s.Artifacts.CopyDir(ctx, root, name)
	if err != nil {
		return err
	}
	after, err := stamps(t.path)
	if err != nil {
		return err
	}
	if !slices.Equal(t.stamps, after) {
		return errors.New("it was changed while it was read")
	}
	t.digest, to.digest, to.size = info.Digest, info.Digest, info.Size
	return nil
}

// openParent opens the directory that a path's last part lies in, links resolved.
func openParent(path string) (*os.Root, string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, "", err
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	return root, filepath.Base(path), err
}

// stamps gives what the file system says of a file, or of everything in a directory.
func stamps(path string) ([]stamp, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	var all []stamp
	err = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all = append(all, stampOf(info))
		}
		return err
	})
	return all, err
}

// unchanged sees that what was taken in from the machine is still there as it was: else the stage may have read another one
// than the one that is recorded.
func unchanged(ctx context.Context, _ *Steps, w *work) *events.Failure {
	for i := range w.machine {
		t := &w.machine[i]
		if now, err := stamps(t.path); err == nil && slices.Equal(now, t.stamps) {
			continue
		}
		if d, err := hashPath(ctx, t.path); err != nil || d != t.digest {
			if ctx.Err() != nil {
				return interrupted(ctx)
			}
			actual := d.String()
			if err != nil {
				actual = err.Error()
			}
			return &events.Failure{Class: events.BadInput, Pointer: "/inputs/" + t.role, Expected: t.digest.String(), Actual: actual,
				Reason: fmt.Sprintf("the input %s changed while the stage ran: %s", t.role, t.path)}
		}
	}
	return nil
}

// hashPath reads a file or directory of the machine again.
func hashPath(ctx context.Context, path string) (events.Digest, error) {
	info, err := os.Stat(path)
	if err != nil {
		return events.Digest{}, err
	}
	if info.IsDir() {
		root, name, err := openParent(path)
		if err != nil {
			return events.Digest{}, err
		}
		defer root.Close() //nolint:errcheck // a directory
		return artifacts.HashDir(ctx, root, name)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return events.Digest{}, err
	}
	defer f.Close() //nolint:errcheck // read only
	hashed, err := artifacts.Hash(ctx, f)
	return hashed.Digest, err
}

func (m *machineFiles) get(path string, now stamp) (artifacts.Info, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, known := m.known[path]
	return f.Info, known && f.stamp == now
}

// put remembers a file, unless it is so new that it may change again and look the same.
func (m *machineFiles) put(path string, f machineFile) {
	if time.Since(time.Unix(0, max(f.ctime, f.mtime))) < racy {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMachineFiles {
		m.known = map[string]machineFile{}
	}
	m.known[path] = f
}
