package artifacts

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

func workDir(tb testing.TB) (*os.Root, string) {
	tb.Helper()
	dir := tb.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = root.Close() })
	return root, dir
}

func TestPutFileMoves(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	root, work := workDir(t)
	content := strings.Repeat("row\n", 1000)
	for round := range 2 { // the second finds the artifact there
		want(t, os.MkdirAll(filepath.Join(work, "sub"), 0o700), nil)
		want(t, os.WriteFile(filepath.Join(work, "sub", "a.csv"), []byte(content), 0o644), nil)
		var before unix.Stat_t
		want(t, unix.Stat(filepath.Join(work, "sub", "a.csv"), &before), nil)
		info, err := s.PutFile(t.Context(), root, "sub/a.csv")
		want(t, err, nil)
		want(t, info, Info{Digest: events.DigestOf([]byte(content)), Size: int64(len(content))})
		var after unix.Stat_t
		want(t, unix.Stat(file(dir, info.Digest), &after), nil)
		if round == 0 && before.Ino != after.Ino {
			t.Error("the file was copied")
		}
		if _, err := root.Lstat("sub/a.csv"); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the caller still has the file")
		}
		want(t, after.Mode&0o777, uint32(0o444))
	}
	want(t, problems(t, s), []string(nil))
}

// TestPutFileNeverSharesAnInode: a file with a second hard link is copied, because the other name stays writable.
func TestPutFileNeverSharesAnInode(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	root, work := workDir(t)
	name, other := filepath.Join(work, "a"), filepath.Join(work, "b")
	want(t, errors.Join(os.WriteFile(name, []byte("before"), 0o600), os.Link(name, other)), nil)
	info, err := s.PutFile(t.Context(), root, "a")
	want(t, err, nil)
	want(t, os.WriteFile(other, []byte("AFTER!"), 0o600), nil)
	got, err := get(s, info.Digest)
	want(t, err, nil)
	want(t, got, "before")
}

func TestPutFileFromAnotherFileSystem(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	dir, err := os.MkdirTemp("/dev/shm", "artifacts") //nolint:usetesting // another file system is the point
	if err != nil {
		t.Skip("no second file system: ", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root, err := os.OpenRoot(dir)
	want(t, err, nil)
	defer root.Close()
	want(t, os.WriteFile(filepath.Join(dir, "a"), []byte("far"), 0o600), nil)
	info, err := s.PutFile(t.Context(), root, "a")
	want(t, err, nil)
	want(t, s.Has(info.Digest), true)
	if _, err := root.Lstat("a"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the caller still has the file")
	}
}

func TestPutFileRefuses(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "outside")
	want(t, os.WriteFile(outside, []byte("secret"), 0o600), nil)
	for name, plant := range map[string]func(path string) error{
		"link out":  func(p string) error { return os.Symlink(outside, p) },
		"link in":   func(p string) error { return errors.Join(os.WriteFile(p+"2", nil, 0o600), os.Symlink("x2", p)) },
		"fifo":      func(p string) error { return syscall.Mkfifo(p, 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
		"nothing":   func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := open(t)
			root, work := workDir(t)
			want(t, plant(filepath.Join(work, "x")), nil)
			for _, name := range []string{"x", "../outside", "/etc/hosts"} {
				if info, err := s.PutFile(t.Context(), root, name); err == nil {
					t.Errorf("%s was taken: %v", name, info)
				}
			}
			want(t, problems(t, s), []string(nil))
		})
	}
}

// TestPutFileGivesTheFileBack: after a failure the caller still has the file.
func TestPutFileGivesTheFileBack(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"sync", "rename", "syncdir"} {
		s, _ := open(t)
		root, work := workDir(t)
		want(t, os.WriteFile(filepath.Join(work, "a"), []byte("mine"), 0o600), nil)
		s.fault = func(at string) error {
			if at == step {
				return syscall.EIO
			}
			return nil
		}
		if _, err := s.PutFile(t.Context(), root, "a"); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", step, err)
		}
		content, err := root.ReadFile("a")
		want(t, err, nil)
		want(t, string(content), "mine")
		want(t, problems(t, s), []string(nil))
	}
}

func TestCopyTo(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	root, work := workDir(t)
	info := put(t, s, strings.Repeat("in", small))
	want(t, root.Mkdir("in", 0o700), nil)
	want(t, s.CopyTo(t.Context(), info.Digest, root, "in/a"), nil)
	content, err := root.ReadFile("in/a")
	want(t, err, nil)
	want(t, events.DigestOf(content), info.Digest)
	var st unix.Stat_t
	want(t, unix.Stat(filepath.Join(work, "in/a"), &st), nil)
	want(t, st.Mode&0o777, uint32(0o444))
	want(t, uint64(st.Nlink), uint64(1)) //nolint:unconvert // 32 bits elsewhere
	// The copy is the stage's own: even a stage that makes it writable does not reach the artifact.
	want(t, errors.Join(root.Chmod("in/a", 0o600), root.WriteFile("in/a", []byte("spoilt"), 0o600)), nil)
	_, err = get(s, info.Digest)
	want(t, err, nil)
	for _, name := range []string{"in/a", "../a", "/tmp/a", "no/a"} {
		if s.CopyTo(t.Context(), info.Digest, root, name) == nil {
			t.Errorf("copied to %s", name)
		}
	}
	want(t, root.Symlink("../../gone", "link"), nil)
	if s.CopyTo(t.Context(), info.Digest, root, "link") == nil {
		t.Error("copied through a link")
	}
}
