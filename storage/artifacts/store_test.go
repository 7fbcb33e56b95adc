package artifacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

func open(tb testing.TB) (*Store, string) {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "artifacts")
	s, err := Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s, dir
}

func put(tb testing.TB, s *Store, content string) Info {
	tb.Helper()
	info, err := s.Put(tb.Context(), strings.NewReader(content))
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

func get(s *Store, d events.Digest) (string, error) {
	r, err := s.Get(d)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(r)
	return string(content), errors.Join(err, r.Close())
}

// file gives the path of an artifact in the documented layout, spelt out here so that the layout cannot drift.
func file(dir string, d events.Digest) string {
	hex := strings.TrimPrefix(d.String(), "sha256:")
	return filepath.Join(dir, "sha256", hex[:2], hex[2:])
}

// problems runs Check and gives "code place" lines.
func problems(tb testing.TB, s *Store) []string {
	tb.Helper()
	var found []string
	if err := s.Check(context.Background(), func(p storage.Problem) { found = append(found, p.Code+" "+p.Place) }); err != nil {
		tb.Fatal(err)
	}
	return found
}

func want(tb testing.TB, got, want any) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("differs (-want +got):\n%s", diff)
	}
}

func TestPutAndGet(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty": "", "small": "hello\n", "as long as the buffer": strings.Repeat("x", small),
		"longer": strings.Repeat("0123456789abcdef", small/8), "binary": "\x00\xff\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := open(t)
			for range 2 {
				info := put(t, s, content)
				want(t, info, Info{Digest: events.DigestOf([]byte(content)), Size: int64(len(content))})
				stat, err := s.Stat(info.Digest)
				want(t, err, nil)
				want(t, stat, info)
				got, err := get(s, info.Digest)
				want(t, err, nil)
				want(t, got == content, true)
			}
			st, err := os.Lstat(file(dir, events.DigestOf([]byte(content))))
			want(t, err, nil)
			want(t, st.Mode(), fs.FileMode(0o444))
			want(t, problems(t, s), []string(nil))
		})
	}
}

func TestModesOfDirectories(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	want(t, os.Chmod(dir, 0o755), nil)
	s, err := Open(dir)
	want(t, err, nil)
	put(t, s, "x")
	want(t, s.Close(), nil)
	_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if info, _ := e.Info(); err == nil && e.IsDir() && info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", p, info.Mode())
		}
		return err
	})
}

func TestMissing(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	d := events.DigestOf([]byte("never stored"))
	_, statErr := s.Stat(d)
	_, getErr := s.Get(d)
	root, _ := os.OpenRoot(t.TempDir())
	defer root.Close()
	copyErr := s.CopyTo(t.Context(), d, root, "x")
	for _, err := range []error{statErr, getErr, copyErr} {
		if !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	}
	want(t, s.Has(d), false)
}

// memory gives a directory where a sync costs nothing, if this machine has one.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// TestModel compares the store with a map under random operations.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(memory(), "artifacts") //nolint:usetesting // one for each of the many checks
		if err != nil {
			r.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s, err := Open(dir)
		if err != nil {
			r.Fatal(err)
		}
		model := map[events.Digest]string{}
		content := rapid.SampledFrom([]string{"", "a", "b", "c", strings.Repeat("d", small+1)})
		r.Repeat(map[string]func(*rapid.T){
			"put": func(r *rapid.T) {
				c := content.Draw(r, "content")
				info, err := s.Put(context.Background(), strings.NewReader(c))
				if err != nil || info.Digest != events.DigestOf([]byte(c)) {
					r.Fatal(info, err)
				}
				model[info.Digest] = c
			},
			"reopen": func(r *rapid.T) {
				if err := s.Close(); err != nil {
					r.Fatal(err)
				}
				if s, err = Open(dir); err != nil {
					r.Fatal(err)
				}
			},
			"truncate, then put again": func(r *rapid.T) {
				c := content.Draw(r, "content")
				d := events.DigestOf([]byte(c))
				if c == "" || model[d] == "" {
					return
				}
				_ = os.Chmod(file(dir, d), 0o600)
				if err := os.Truncate(file(dir, d), int64(len(c)/2)); err != nil {
					r.Fatal(err)
				}
				if _, err := get(s, d); !errors.Is(err, storage.ErrCorrupt) {
					r.Fatal("a truncated artifact was read without an error")
				}
				if _, err := s.Put(context.Background(), strings.NewReader(c)); err != nil {
					r.Fatal(err)
				}
			},
			"read and check": func(r *rapid.T) {
				for d, c := range model {
					if got, err := get(s, d); err != nil || got != c {
						r.Fatalf("%v: %v", d, err)
					}
				}
				if err := s.Check(context.Background(), func(p storage.Problem) { r.Fatal(p) }); err != nil {
					r.Fatal(err)
				}
			},
		})
		if err := s.Close(); err != nil {
			r.Fatal(err)
		}
	})
}

func TestConcurrentPutsOfTheSameBytes(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	contents := []string{"one", strings.Repeat("two", small), strings.Repeat("three", small)}
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			c := contents[i%len(contents)]
			if info, err := s.Put(context.Background(), strings.NewReader(c)); err != nil || !s.Has(info.Digest) {
				t.Errorf("put: %v", err)
			}
			if got, err := get(s, events.DigestOf([]byte(c))); err != nil || got != c {
				t.Errorf("get: %v", err)
			}
		})
	}
	wg.Wait()
	want(t, problems(t, s), []string(nil))
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	want(t, err, nil)
	want(t, len(left), 0)
}

func TestReaderSeek(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	info := put(t, s, "0123456789")
	damage(t, file(dir, info.Digest), func(b []byte) []byte { b[9] = 'X'; return b })
	r, err := s.Get(info.Digest)
	want(t, err, nil)
	defer r.Close()
	want(t, r.Size(), int64(10))
	_, err = r.Seek(5, io.SeekStart)
	want(t, err, nil)
	part, err := io.ReadAll(r)
	want(t, err, nil) // a part cannot be checked
	want(t, string(part), "5678X")
	_, err = r.Seek(0, io.SeekStart)
	want(t, err, nil)
	if _, err = io.ReadAll(r); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("got %v", err)
	}
}

func damage(tb testing.TB, name string, change func([]byte) []byte) {
	tb.Helper()
	content, err := os.ReadFile(name)
	if err == nil {
		err = os.Chmod(name, 0o600)
	}
	if err == nil {
		err = os.WriteFile(name, change(content), 0o600)
	}
	if err == nil {
		err = os.Chmod(name, blobMode)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// TestDamageIsNamed flips and cuts bytes at random places: each damaged artifact is named by Check, refused by a reader
// and never copied.
func TestDamageIsNamed(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	random := rand.New(rand.NewPCG(1, 2))
	root, err := os.OpenRoot(t.TempDir())
	want(t, err, nil)
	defer root.Close()
	for i := range 60 {
		info := put(t, s, fmt.Sprintf("artifact %d %s", i, strings.Repeat("x", random.IntN(5000))))
		path := file(dir, info.Digest)
		whole, _ := os.ReadFile(path)
		damage(t, path, func(b []byte) []byte {
			at := random.IntN(len(b))
			if i%2 == 0 {
				return b[:at]
			}
			b[at] ^= 1 << random.IntN(8)
			return b
		})
		place, _ := filepath.Rel(dir, path)
		want(t, problems(t, s), []string{CodeCorrupt + " " + place})
		if _, err := get(s, info.Digest); !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("get: %v", err)
		}
		if err := s.CopyTo(t.Context(), info.Digest, root, "in"); !errors.Is(err, storage.ErrCorrupt) {
			t.Fatalf("copy: %v", err)
		}
		if _, err := root.Lstat("in"); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal("a damaged copy was left behind")
		}
		damage(t, path, func([]byte) []byte { return whole })
	}
}

func TestCheckNamesWhatDoesNotBelong(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	kept := put(t, s, "kept")
	writable := file(dir, put(t, s, "writable").Digest)
	sub := filepath.Dir(file(dir, kept.Digest))
	none := strings.Repeat("0", 62)
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, "stray"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "tmp", "left"), []byte("half"), 0o600),
		os.WriteFile(filepath.Join(dir, "sha256", "zz"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "sha256", "00"), nil, 0o600),
		os.WriteFile(filepath.Join(sub, "short"), nil, 0o600),
		os.Symlink("/etc/passwd", filepath.Join(sub, none)),
		os.Chmod(writable, 0o644),
	)
	want(t, err, nil)
	rel := func(p string) string { r, _ := filepath.Rel(dir, p); return r }
	got := map[string]bool{}
	for _, p := range problems(t, s) {
		got[p] = true
	}
	want(t, got, map[string]bool{
		CodeMisnamed + " stray": true, CodeLeftover + " tmp/left": true, CodeMisnamed + " sha256/zz": true,
		CodeType + " sha256/00": true, CodeMisnamed + " " + rel(filepath.Join(sub, "short")): true,
		CodeType + " " + rel(filepath.Join(sub, none)): true, CodeWritable + " " + rel(writable): true,
	})
}

// TestSweep: what a killed process left goes, what is being written stays.
func TestSweep(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	kept := put(t, s, "kept")
	for _, name := range []string{"left", "more"} {
		want(t, os.WriteFile(filepath.Join(dir, "tmp", name), []byte("half"), 0o400), nil)
	}
	r, w := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := s.Put(context.Background(), r)
		done <- err
	}()
	_, err := w.Write(make([]byte, small+1))
	want(t, err, nil)
	removed, err := s.Sweep()
	want(t, err, nil)
	want(t, removed, 2)
	want(t, w.Close(), nil)
	want(t, <-done, nil)
	want(t, s.Has(kept.Digest), true)
	want(t, problems(t, s), []string(nil))
}

// TestCheckBesidesAPut: what this process is still writing is no leftover.
func TestCheckBesidesAPut(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	r, w := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := s.Put(context.Background(), r)
		done <- err
	}()
	_, err := w.Write(make([]byte, small+1)) // returns when the last byte has been taken, so the file exists
	want(t, err, nil)
	want(t, problems(t, s), []string(nil))
	want(t, w.CloseWithError(syscall.EPIPE), nil)
	if err := <-done; !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v", err)
	}
	want(t, problems(t, s), []string(nil))
}

func TestCheckStopsWithItsContext(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	put(t, s, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Check(ctx, func(storage.Problem) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Put(ctx, bytes.NewReader(make([]byte, 2*small))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	want(t, problems(t, s), []string(nil))
}

// TestLinksInsideTheTree: a link in the place of an artifact, of its directory or of sha256 is refused, even when it
// leads to the right bytes inside the store.
func TestLinksInsideTheTree(t *testing.T) {
	t.Parallel()
	for name, plant := range map[string]func(dir, blob string) error{
		"file": func(dir, blob string) error {
			return errors.Join(os.Rename(blob, filepath.Join(dir, "aside")), os.Symlink("../../aside", blob))
		},
		"file out of the store": func(_, blob string) error {
			return errors.Join(os.Remove(blob), os.Symlink("/etc/hosts", blob))
		},
		"directory": func(dir, blob string) error {
			sub := filepath.Dir(blob)
			return errors.Join(os.Rename(sub, filepath.Join(dir, "aside")), os.Symlink("../aside", sub))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := open(t)
			info := put(t, s, "linked")
			want(t, plant(dir, file(dir, info.Digest)), nil)
			if _, err := s.Get(info.Digest); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("get: %v", err)
			}
			if _, err := s.Put(t.Context(), strings.NewReader("linked")); err == nil {
				t.Error("put accepted a link as the artifact")
			}
			want(t, s.Has(info.Digest), false)
			want(t, len(problems(t, s)) > 0, true)
		})
	}
	t.Run("sha256", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		want(t, os.Symlink(t.TempDir(), filepath.Join(dir, "sha256")), nil)
		if s, err := Open(dir); err == nil {
			t.Error("opened", s.Close())
		}
	})
}

// TestFaultsLeaveNothingBehind fails each step of storing: the error says why, no final name appears, tmp is empty, and
// the same Put succeeds once the fault is gone.
func TestFaultsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"sync", "rename", "syncdir"} {
		for _, fault := range []error{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprint(step, " ", fault), func(t *testing.T) {
				t.Parallel()
				s, dir := open(t)
				d := events.DigestOf([]byte("content"))
				s.fault = func(at string) error {
					if at == step {
						return fmt.Errorf("%s: %w", at, fault)
					}
					return nil
				}
				_, err := s.Put(t.Context(), strings.NewReader("content"))
				if !errors.Is(err, fault) {
					t.Errorf("got %v", err)
				}
				want(t, s.Has(d), false)
				left, _ := os.ReadDir(filepath.Join(dir, "tmp"))
				want(t, len(left), 0)
				s.fault = nil
				put(t, s, "content")
				want(t, problems(t, s), []string(nil))
			})
		}
	}
}

func BenchmarkPut(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("new/%d", size), func(b *testing.B) {
			s, _ := open(b)
			content := make([]byte, size)
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				copy(content, fmt.Sprint(i))
				if _, err := s.Put(b.Context(), bytes.NewReader(content)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("again/%d", size), func(b *testing.B) {
			s, _ := open(b)
			content := make([]byte, size)
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := s.Put(b.Context(), bytes.NewReader(content)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
