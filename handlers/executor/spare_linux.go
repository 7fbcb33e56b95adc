package executor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// spareDirs is how many empty directories are kept ready.
const spareDirs = 8

// spares keeps empty directories and named pipes ready, so that an attempt begins without making any: a new inode
// can cost a quarter of a new process, a rename hardly anything. An attempt gives back the directories in which it
// left nothing, and the stock is filled up while a stage's process loads its program, when the supervisor would only
// wait. Without a root nothing is kept ready.
type spares struct {
	root  string
	mu    sync.Mutex
	made  int
	dirs  []string
	works []string // work directories with the writable ones in them
	fifos []fifo
}

// spareWorks is how many work directories are kept ready.
const spareWorks = 4

// takeWork puts a whole work directory into place, unless there is one already.
func (s *spares) takeWork(path string) bool {
	s.mu.Lock()
	last := len(s.works) - 1
	if last < 0 {
		s.mu.Unlock()
		return false
	}
	work := s.works[last]
	s.works = s.works[:last]
	s.mu.Unlock()
	err := unix.Renameat2(unix.AT_FDCWD, work, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.ENOENT) && s.mkdirAll(filepath.Dir(path)) == nil {
		err = unix.Renameat2(unix.AT_FDCWD, work, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		s.mu.Lock()
		s.works = append(s.works, work)
		s.mu.Unlock()
	}
	return err == nil
}

// giveWork takes a work directory out of the tree as a whole, when nothing is in it but the empty directories.
func (s *spares) giveWork(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == "" || len(s.works) >= 2*spareWorks || !untouched(path, writableDirs...) {
		return false
	}
	for _, name := range writableDirs {
		if !untouched(filepath.Join(path, name)) {
			return false
		}
	}
	s.made++
	work := filepath.Join(s.root, "work."+strconv.Itoa(s.made))
	if unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, work, unix.RENAME_NOREPLACE) != nil {
		return false
	}
	s.works = append(s.works, work)
	return true
}

// mkdirAll makes a directory and those above it that are missing, for the engine's user only.
func (s *spares) mkdirAll(path string) error {
	err := s.mkdir(path)
	if errors.Is(err, unix.ENOENT) && filepath.Dir(path) != path {
		if err := s.mkdirAll(filepath.Dir(path)); err != nil {
			return err
		}
		err = s.mkdir(path)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func (s *spares) mkdir(path string) error {
	spare := s.takeDir()
	if spare == "" {
		return unix.Mkdir(path, 0o700)
	}
	renamed := unix.Renameat2(unix.AT_FDCWD, spare, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	if renamed == nil {
		return nil
	}
	err := unix.Mkdir(path, 0o700) // says what is wrong with the path, if it is the path
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.dirs = append(s.dirs, spare)
	} else if !errors.Is(renamed, unix.ENOENT) {
		s.root, s.dirs = "", nil // another file system, or one that cannot do this
	}
	return err
}

func (s *spares) takeDir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.dirs) - 1
	if last < 0 {
		return ""
	}
	dir := s.dirs[last]
	s.dirs = s.dirs[:last]
	return dir
}

// refill makes directories until enough are ready. What is left from an engine that has died is as good as new.
func (s *spares) refill() {
	for {
		dir := s.nextDir()
		if dir == "" {
			return
		}
		_ = unix.Rmdir(dir)
		if unix.Mkdir(dir, 0o700) != nil {
			return
		}
		s.mu.Lock()
		s.dirs = append(s.dirs, dir)
		s.mu.Unlock()
	}
}

// giveDir takes a directory out of the tree when nothing is in it, as long as there is room in the stock.
func (s *spares) giveDir(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == "" || len(s.dirs) >= 2*spareDirs || !untouched(path) {
		return
	}
	s.made++
	spare := filepath.Join(s.root, "dir."+strconv.Itoa(s.made))
	if unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, spare, unix.RENAME_NOREPLACE) == nil {
		s.dirs = append(s.dirs, spare)
	}
}

// untouched reports whether a directory is as mkdir made it: for the owner only, without attributes, and empty but for
// some names.
func untouched(path string, but ...string) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&0o7777 != 0o700 || int(st.Uid) != os.Geteuid() {
		return false
	}
	if n, err := unix.Flistxattr(fd, nil); n > 0 || err != nil && !errors.Is(err, unix.ENOTSUP) {
		return false
	}
	var buf [1024]byte
	return holdsNothing(fd, buf[:], but...)
}

// holdsNothing reads a directory to its end: when a signal comes, as the runtime sends them all the time, the kernel gives
// what it has read so far, which may be no more than the directory itself and the one above.
func holdsNothing(fd int, buf []byte, but ...string) bool {
	for {
		switch n, err := unix.ReadDirent(fd, buf); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return false
		case n == 0:
			return true
		default:
			_, _, names := unix.ParseDirent(buf[:n], -1, nil)
			for _, name := range names {
				if !slices.Contains(but, name) {
					return false
				}
			}
		}
	}
}

// nextDir reserves a name for one more directory; empty when there are enough.
func (s *spares) nextDir() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == "" || len(s.dirs) >= spareDirs {
		return ""
	}
	s.made++
	return filepath.Join(s.root, "dir."+strconv.Itoa(s.made))
}

// takeFIFO lends the named pipe of an attempt's segments; without a root the attempt gets its own.
func (s *spares) takeFIFO(workDir string) (fifo, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == "" {
		return openFIFO(filepath.Join(workDir, "segments"))
	}
	if last := len(s.fifos) - 1; last >= 0 {
		f := s.fifos[last]
		s.fifos = s.fifos[:last]
		return f, nil
	}
	s.made++
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return fifo{fd: -1}, err
	}
	return openFIFO(filepath.Join(s.root, "segments."+strconv.Itoa(s.made)))
}

// giveFIFO takes a pipe back; it is lent again only when no process can hold it open.
func (s *spares) giveFIFO(f fifo, clean bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root != "" && clean {
		s.fifos = append(s.fifos, f)
		return
	}
	unix.Close(f.fd)
	_ = unix.Unlink(f.path) // a stage may have removed it already
}
