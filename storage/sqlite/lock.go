package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// LockName is the file that the holder of a data directory locks. It is not the store itself: closing any handle on
// that would drop SQLite's own locks.
const LockName = "apollo.lock"

// Lock is the right to write a data directory. The kernel gives it back when the process ends, however it ends.
type Lock struct{ file *os.File }

// HeldError says who holds a data directory.
type HeldError struct {
	PID     string
	Address string // where it listens; empty when it does not
}

// Error names the holder.
func (e *HeldError) Error() string {
	at := ""
	if e.Address != "" {
		at = " on " + e.Address
	}
	return fmt.Sprintf("E_STORE_HELD: the data directory is held by process %s%s", e.PID, at)
}

// TakeLock takes the data directory, or gives a *HeldError that names who has it.
func TakeLock(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, LockName), os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := flock(f); err != nil {
		defer f.Close() //nolint:errcheck // the file was only read
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock data directory: %w", err)
		}
		return nil, readHolder(f)
	}
	l := &Lock{file: f}
	return l, l.SetAddress("")
}

// flock tries for a moment: Holder holds the lock for an instant when it looks.
func flock(f *os.File) (err error) {
	for range 20 {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		<-time.After(5 * time.Millisecond)
	}
	return err
}

// SetAddress records where the holder listens, for whoever finds the lock held.
func (l *Lock) SetAddress(address string) error {
	content := fmt.Sprintf("%d\n%s\n", os.Getpid(), address)
	if err := l.file.Truncate(0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	if _, err := l.file.WriteAt([]byte(content), 0); err != nil {
		return fmt.Errorf("write lock: %w", err)
	}
	return nil
}

// Release gives the directory back.
func (l *Lock) Release() error { return l.file.Close() }

// Holder gives who holds the data directory, or nil when nobody does.
func Holder(dir string) (*HeldError, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockName), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // nobody and no error is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("look at the lock: %w", err)
	}
	defer f.Close() //nolint:errcheck // the file was only read
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return nil, nil //nolint:nilnil // as above
	}
	return readHolder(f), nil
}

func readHolder(f *os.File) *HeldError {
	b := make([]byte, 256)
	n, _ := f.ReadAt(b, 0)
	lines := strings.Split(string(b[:n])+"\n\n", "\n")
	return &HeldError{PID: lines[0], Address: lines[1]}
}
