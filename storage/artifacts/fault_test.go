package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// The tests here run this test binary again as a child that dies, or whose disk is full. children names what a child
// does with the store; its exit code 0 means that it saw what it expected.
var children = map[string]func(dir string) error{
	"killed at sync":    func(dir string) error { return putAndDie(dir, "sync") },
	"killed at rename":  func(dir string) error { return putAndDie(dir, "rename") },
	"killed at syncdir": func(dir string) error { return putAndDie(dir, "syncdir") },
	"file size limit":   limited,
	"disk full":         diskFull,
}

func TestMain(m *testing.M) {
	if child := children[os.Getenv("ARTIFACTS_CHILD")]; child != nil {
		if err := child(os.Getenv("ARTIFACTS_DIR")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func runChild(t *testing.T, what, dir string, prefix ...string) ([]byte, error) {
	t.Helper()
	argv := append(prefix, os.Args[0], "-test.run=^$") //nolint:gocritic // a new slice is meant
	c := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	c.Env = append(os.Environ(), "ARTIFACTS_CHILD="+what, "ARTIFACTS_DIR="+dir)
	return c.CombinedOutput()
}

func putAndDie(dir, step string) error {
	s, err := Open(dir)
	if err != nil {
		return err
	}
	s.fault = func(at string) error {
		if at == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
		return nil
	}
	_, err = s.Put(context.Background(), strings.NewReader("killed"))
	return fmt.Errorf("still alive: %w", err)
}

// TestKilledWhileStoring: whatever the point of death, what is under a final name is whole; what is left in tmp is
// named by Check, never read, and no obstacle to storing the same bytes again.
func TestKilledWhileStoring(t *testing.T) {
	t.Parallel()
	for step, left := range map[string]bool{"sync": true, "rename": true, "syncdir": false} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "artifacts")
			out, err := runChild(t, "killed at "+step, dir)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("the child was not killed: %v\n%s", err, out)
			}
			s, err := Open(dir)
			want(t, err, nil)
			defer s.Close()
			found := problems(t, s)
			if left {
				want(t, len(found), 1)
				want(t, strings.HasPrefix(strings.Join(found, ""), CodeLeftover+" tmp/"), true)
			} else {
				want(t, found, []string(nil))
			}
			want(t, s.Has(events.DigestOf([]byte("killed"))), !left)
			put(t, s, "killed")
			want(t, problems(t, s), found)
		})
	}
}

func limited(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := Open(dir)
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		return err
	}
	return expectFull(s, dir, 2<<20)
}

// TestFileSizeLimit needs no privilege: a write past RLIMIT_FSIZE fails half-way, as on a full disk.
func TestFileSizeLimit(t *testing.T) {
	t.Parallel()
	if out, err := runChild(t, "file size limit", filepath.Join(t.TempDir(), "artifacts")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func diskFull(dir string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	s, err := Open(filepath.Join(dir, "artifacts"))
	if err != nil {
		return err
	}
	if err := expectFull(s, filepath.Join(dir, "artifacts"), 8<<20); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=32m"); err != nil {
		return fmt.Errorf("remount: %w", err)
	}
	if _, err := s.Put(context.Background(), bytes.NewReader(make([]byte, 8<<20))); err != nil {
		return fmt.Errorf("after space came back: %w", err)
	}
	return nil
}

// expectFull stores a little, then too much: the little stays, the error is ErrFull, nothing else is left.
func expectFull(s *Store, dir string, size int) error {
	kept, err := s.Put(context.Background(), strings.NewReader("kept"))
	if err != nil {
		return err
	}
	if _, err = s.Put(context.Background(), bytes.NewReader(make([]byte, size))); !errors.Is(err, storage.ErrFull) {
		return fmt.Errorf("expected ErrFull, got: %w", err)
	}
	if got, err := get(s, kept.Digest); err != nil || got != "kept" {
		return fmt.Errorf("the kept artifact: %q %w", got, err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(left) > 0 {
		return fmt.Errorf("left in tmp: %v %w", left, err)
	}
	if s.Has(events.DigestOf(make([]byte, size))) {
		return errors.New("a final name appeared")
	}
	return s.Check(context.Background(), func(p storage.Problem) { err = errors.Join(err, fmt.Errorf("%+v", p)) })
}

// TestDiskFull mounts a small tmpfs in a user and mount namespace of its own.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "unshare", "-Urm", "true").CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED ON A FULL DISK: no user namespaces here (%v: %s); TestFileSizeLimit stands in", err, out)
	}
	if out, err := runChild(t, "disk full", t.TempDir(), "unshare", "-Urm"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
