package artifacts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// tree makes a directory of files by path: a path that ends with a slash is a directory, a content that begins with -> a
// link, one that begins with #! a program.
func tree(tb testing.TB, dir string, files map[string]string) {
	tb.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		want(tb, os.MkdirAll(filepath.Dir(path), 0o700), nil)
		target, link := strings.CutPrefix(content, "->")
		switch {
		case strings.HasSuffix(name, "/"):
			want(tb, os.MkdirAll(path, 0o700), nil)
		case link:
			want(tb, os.Symlink(target, path), nil)
		case strings.HasPrefix(content, "#!"):
			want(tb, os.WriteFile(path, []byte(content), 0o700), nil)
		default:
			want(tb, os.WriteFile(path, []byte(content), 0o600), nil)
		}
	}
}

var sample = map[string]string{"parts/b.csv": "b\n", "parts/a.csv": "a\n", "parts/a/deep/x": "x", "parts/a-b": "same", "parts/empty/": "",
	"parts/run.sh": "#!/bin/sh\n", "parts/a/up": "->../b.csv", "parts/dangling": "->nothing/there", "parts/copy": "same"}

const sampleManifest = `{"schema":1,"entries":[{"path":"a","type":"dir"},` +
	`{"path":"a-b","type":"file","digest":"sha256:0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5","size":4},` +
	`{"path":"a.csv","type":"file","digest":"sha256:87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7","size":2},` +
	`{"path":"a/deep","type":"dir"},` +
	`{"path":"a/deep/x","type":"file","digest":"sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881","size":1},` +
	`{"path":"a/up","type":"link","target":"../b.csv"},` +
	`{"path":"b.csv","type":"file","digest":"sha256:0263829989b6fd954f72baaf2fc64bc2e2f01d692d4de72986ea808f6e99813f","size":2},` +
	`{"path":"copy","type":"file","digest":"sha256:0967115f2813a3541eaef77de9d9d5773f1c0c04314b0bbfe4ff3b3b1c55b5d5","size":4},` +
	`{"path":"dangling","type":"link","target":"nothing/there"},` +
	`{"path":"empty","type":"dir"},` +
	`{"path":"run.sh","type":"file","exec":true,"digest":"sha256:a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf","size":10}]}`

// TestPutDirIsCanonical: the manifest of a directory is these bytes, in whatever order it was written, whatever its modes
// and times are; and what is placed from it is the same directory again.
func TestPutDirIsCanonical(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	root, work := workDir(t)
	for round := range 2 {
		tree(t, work, sample)
		if round == 1 {
			want(t, os.Chtimes(filepath.Join(work, "parts", "a.csv"), time.Unix(1, 0), time.Unix(1, 0)), nil)
			want(t, os.Chmod(filepath.Join(work, "parts", "b.csv"), 0o066), nil)
			want(t, os.Chmod(filepath.Join(work, "parts", "a"), 0o077), nil)
		}
		info, err := s.PutDir(t.Context(), root, "parts")
		want(t, err, nil)
		got, err := get(s, info.Digest)
		want(t, err, nil)
		want(t, got, sampleManifest)
		want(t, info, DirInfo{Info: Info{Digest: events.DigestOf([]byte(sampleManifest)), Size: 23}, Files: 6})
		want(t, os.RemoveAll(filepath.Join(work, "parts")), nil)
	}
	at := time.Unix(1_000_000, 0)
	want(t, s.Place(t.Context(), events.DigestOf([]byte(sampleManifest)), root, "again", Placing{Time: at, Dir: true}), nil)
	st, err := os.Stat(filepath.Join(work, "again", "a"))
	want(t, err, nil)
	want(t, []any{st.Mode().Perm(), st.ModTime().Equal(at)}, []any{fs.FileMode(0o500), true})
	st, err = os.Stat(filepath.Join(work, "again", "run.sh"))
	want(t, err, nil)
	want(t, []any{st.Mode().Perm(), st.ModTime().Equal(at)}, []any{fs.FileMode(0o555), true})
	want(t, problems(t, s), []string(nil))
	info, err := s.PutDir(t.Context(), root, "again")
	want(t, err, nil)
	want(t, info.Digest, events.DigestOf([]byte(sampleManifest)))
}

func TestPutDirRefuses(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	for name, spoil := range map[string]func(string) error{
		"fifo":           func(d string) error { return unix.Mkfifo(filepath.Join(d, "f"), 0o600) },
		"absolute link":  func(d string) error { return os.Symlink("/etc/passwd", filepath.Join(d, "f")) },
		"link that goes": func(d string) error { return os.Symlink("../../f", filepath.Join(d, "a", "f")) },
		"link around":    func(d string) error { return os.Symlink("a/../../f", filepath.Join(d, "f")) },
		"link through a link": func(d string) error { // a/l is the directory itself, and a/l/.. is above it
			return errors.Join(os.Symlink("..", filepath.Join(d, "a", "l")), os.Symlink("a/l/../f", filepath.Join(d, "f")))
		},
		"name": func(d string) error { return os.WriteFile(filepath.Join(d, "a\xff"), nil, 0o600) },
		"socket": func(d string) error {
			return unix.Mknod(filepath.Join(d, "s"), unix.S_IFSOCK|0o600, 0)
		},
	} {
		root, work := workDir(t)
		tree(t, work, map[string]string{"d/a/b": "b " + name})
		want(t, spoil(filepath.Join(work, "d")), nil)
		if _, err := s.PutDir(t.Context(), root, "d"); !errors.Is(err, ErrSpecial) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := root.Lstat("d/a/b"); err != nil {
			t.Errorf("%s: a file was moved before the refusal: %v", name, err)
		}
	}
	root, work := workDir(t)
	tree(t, work, map[string]string{"d": "a file"})
	want(t, os.Symlink(".", filepath.Join(work, "l")), nil)
	for _, name := range []string{"d", "l"} {
		if _, err := s.PutDir(t.Context(), root, name); !errors.Is(err, ErrSpecial) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, _ := os.ReadDir(filepath.Join(dir, "sha256")); len(n) > 0 {
		t.Errorf("%d shards were made", len(n))
	}
}

func TestManifestsThatAreRefused(t *testing.T) {
	t.Parallel()
	d := events.DigestOf(nil).String()
	entry := func(rest string) string { return `{"schema":1,"entries":[` + rest + `]}` }
	file := func(path string) string { return `{"path":"` + path + `","type":"file","digest":"` + d + `"}` }
	if _, err := DecodeManifest([]byte(entry(`{"path":"a","type":"dir"},` + file("a/b") + `,{"path":"a/l","type":"link","target":"../a"}`))); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]string{
		"up":                entry(file("../a")),
		"up within":         entry(`{"path":"a","type":"dir"},` + file("a/../../b")),
		"absolute":          entry(file("/a")),
		"nothing":           entry(file("")),
		"itself":            entry(file(".")),
		"nul":               entry(file(`a\u0000b`)),
		"twice":             entry(file("a") + "," + file("a")),
		"order":             entry(file("b") + "," + file("a")),
		"no parent":         entry(file("a/b")),
		"below a file":      entry(file("a") + "," + file("a/b")),
		"below a link":      entry(`{"path":"a","type":"link","target":"b"},` + file("a/b")),
		"link up":           entry(`{"path":"a","type":"link","target":"../b"}`),
		"link around":       entry(`{"path":"a","type":"link","target":"b/../../c"}`),
		"link absolute":     entry(`{"path":"a","type":"link","target":"/etc/passwd"}`),
		"link nowhere":      entry(`{"path":"a","type":"link"}`),
		"file without":      entry(`{"path":"a","type":"file"}`),
		"file with target":  entry(`{"path":"a","type":"file","digest":"` + d + `","target":"b"}`),
		"negative":          entry(`{"path":"a","type":"file","digest":"` + d + `","size":-1}`),
		"dir with digest":   entry(`{"path":"a","type":"dir","digest":"` + d + `"}`),
		"device":            entry(`{"path":"a","type":"device"}`),
		"mode":              entry(`{"path":"a","type":"dir","mode":511}`),
		"newer":             `{"schema":2,"entries":[]}`,
		"none":              ``,
		"something follows": entry(file("a")) + `{}`,
	} {
		if _, err := DecodeManifest([]byte(m)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestDirectoriesComeBack: any directory that is stored is placed as it was, by copies and by links, and has the same digest
// again.
func TestDirectoriesComeBack(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	base, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		work := filepath.Join(base, strconv.Itoa(n))
		want(t, os.Mkdir(work, 0o700), nil)
		root, err := os.OpenRoot(work)
		want(t, err, nil)
		defer root.Close()
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`d(/[ab.é ]{1,2}[xy]){1,4}`), 1, 7, rapid.ID[string]).Draw(rt, "names")
		slices.Sort(names)
		want(t, os.Mkdir(filepath.Join(work, "d"), 0o700), nil)
		for _, name := range names {
			if os.MkdirAll(filepath.Join(work, filepath.Dir(name)), 0o700) != nil {
				continue // one of the others is a file there
			}
			switch kind := rapid.IntRange(0, 4).Draw(rt, "kind"); kind {
			case 0:
				_ = os.Symlink(rapid.SampledFrom([]string{"x", ".", "no/where"}).Draw(rt, "target"), filepath.Join(work, name))
			case 1:
				_ = os.Mkdir(filepath.Join(work, name), 0o700)
			default:
				_ = os.WriteFile(filepath.Join(work, name), []byte(rapid.StringN(0, 4, -1).Draw(rt, "content")), fs.FileMode([]uint32{0o600, 0o700}[kind%2]))
			}
		}
		first, err := s.PutDir(context.Background(), root, "d")
		if err != nil {
			rt.Fatal(err)
		}
		for _, p := range []Placing{{Dir: true}, {Dir: true, Shared: true}, {Dir: true, Time: time.Unix(5, 0)}} {
			if err := s.Place(context.Background(), first.Digest, root, "e", p); err != nil {
				rt.Fatal(err)
			}
			if err := s.Restore(context.Background(), first.Digest, p); err != nil {
				rt.Fatal(err)
			}
			copied, err := s.CopyDir(context.Background(), root, "e")
			hashed, err2 := HashDir(context.Background(), root, "e")
			if err != nil || err2 != nil || copied != first || hashed != first.Digest {
				rt.Fatalf("%+v copied %+v, %v, hashed %v, %v", first, copied, err, hashed, err2)
			}
			second, err := s.PutDir(context.Background(), root, "e")
			if err != nil || second != first {
				rt.Fatalf("%+v %+v %v", first, second, err)
			}
			want(t, removeAll(filepath.Join(work, "e")), nil)
		}
	})
	want(t, problems(t, s), []string(nil))
}

func removeAll(dir string) error {
	return errors.Join(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	}), os.RemoveAll(dir))
}

// TestPlaceLinksOnlyWhereAllowed: a hard link is made only when the caller says that nobody writes through it, and never of
// what is broken.
func TestPlaceLinksOnlyWhereAllowed(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	root, work := workDir(t)
	info := put(t, s, "bytes")
	links := func() uint64 {
		var st unix.Stat_t
		want(t, unix.Stat(file(dir, info.Digest), &st), nil)
		return st.Nlink
	}
	at := time.Unix(77, 0)
	want(t, s.Place(t.Context(), info.Digest, root, "own", Placing{Time: at}), nil)
	want(t, links(), uint64(1))
	st, err := root.Stat("own")
	want(t, err, nil)
	want(t, []any{st.Mode().Perm(), st.ModTime().Equal(at)}, []any{fs.FileMode(0o444), true})
	want(t, s.Place(t.Context(), info.Digest, root, "shared", Placing{Time: at, Shared: true}), nil)
	if !s.clones() {
		want(t, links(), uint64(2))
		st, err = root.Stat("shared")
		want(t, err, nil)
		want(t, []any{st.Mode().Perm(), st.ModTime().Equal(Stored)}, []any{fs.FileMode(0o444), true})
		want(t, errors.Join(root.Chmod("shared", 0o600), root.Chtimes("shared", at, at)), nil)
		want(t, problems(t, s), []string{CodeWritable + " sha256/" + info.Digest.String()[7:9] + "/" + info.Digest.String()[9:]})
		want(t, s.Restore(t.Context(), info.Digest, Placing{}), nil)
	}
	want(t, problems(t, s), []string(nil))
	if err := s.Place(t.Context(), info.Digest, root, "shared", Placing{Shared: true}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a name that is taken: %v", err)
	}
	taken, err := s.PutFile(t.Context(), root, "shared") // a stage hands its input on
	want(t, err, nil)
	want(t, taken, info)
	want(t, links(), uint64(1))
	want(t, os.Chmod(file(dir, info.Digest), 0o600), nil)
	want(t, os.WriteFile(file(dir, info.Digest), []byte("BYTES"), 0o600), nil)
	for _, p := range []Placing{{}, {Shared: true}} {
		if err := s.Place(t.Context(), info.Digest, root, "broken", p); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("a broken artifact: %v", err)
		}
		if _, err := os.Lstat(filepath.Join(work, "broken")); !errors.Is(err, fs.ErrNotExist) {
			t.Error("a broken artifact was placed")
		}
	}
	if err := s.Restore(t.Context(), events.DigestOf([]byte("nobody")), Placing{}); !errors.Is(err, storage.ErrNotFound) {
		t.Error(err)
	}
}

// TestArtifactsHaveOneTime: when they were stored tells nothing apart.
func TestArtifactsHaveOneTime(t *testing.T) {
	t.Parallel()
	s, dir := open(t)
	root, work := workDir(t)
	large := strings.Repeat("x", 3*early)
	tree(t, work, map[string]string{"a": "small", "b": large})
	var all []Info
	for _, name := range []string{"a", "b"} {
		info, err := s.PutFile(t.Context(), root, name)
		want(t, err, nil)
		all = append(all, info)
	}
	for _, info := range append(all, put(t, s, "read"), put(t, s, large+"y")) {
		st, err := os.Stat(file(dir, info.Digest))
		want(t, err, nil)
		if !st.ModTime().Equal(Stored) {
			t.Errorf("%v", st.ModTime())
		}
	}
	want(t, problems(t, s), []string(nil))
}
