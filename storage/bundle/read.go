package bundle

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/apollo-11/apollo/events"
)

// File is a file of runs that is open for reading. It takes the place of a store for a replay. It is safe for concurrent
// use.
type File struct {
	Manifest *Manifest

	entries map[string]*zip.File
	log     *io.SectionReader

	mu        sync.Mutex
	streams   map[events.ID]*stream // nil until the log is read for the first time
	counted   int                   // lines whose instances are counted
	instances uint64                // of foreach stages
}

const (
	maxManifest = 64 << 20 // bytes
	maxPlan     = 64 << 20
	maxLine     = 16 << 20
)

// Open reads what a file holds and refuses one whose entries are not exactly those of its manifest, each once, uncompressed
// and of the size that the manifest says. It believes no header: sizes are compared with each other and with where the bytes
// lie. Verify looks at the bytes themselves. Errors that are the file's fault are an *Error.
func Open(r io.ReaderAt, size int64) (*File, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, wrong(CodeZip, "", hintDamage, "it is no file of runs: %v", err)
	}
	f := &File{entries: map[string]*zip.File{}}
	if err := f.takeEntries(z.File, size); err != nil {
		return nil, err
	}
	entry := f.entries[manifestName]
	if entry == nil {
		return nil, wrong(CodeMissing, manifestName, hintAgain, "it is not there")
	}
	if entry.UncompressedSize64 > maxManifest {
		return nil, wrong(CodeSize, manifestName, hintAgain, "%d bytes; at most %d are allowed", entry.UncompressedSize64, maxManifest)
	}
	b, err := readAll(entry)
	if err != nil {
		return nil, err
	}
	if f.Manifest, err = decodeManifest(b); err != nil {
		return nil, err
	}
	if err := f.agree(); err != nil {
		return nil, err
	}
	at, err := f.entries[logName].DataOffset()
	if err != nil {
		return nil, wrong(CodeZip, logName, hintDamage, "%v", err)
	}
	f.log = io.NewSectionReader(r, at, f.Manifest.Log.Size)
	return f, nil
}

// OpenPath opens a file by its path. The caller closes it once it has done with the runs.
func OpenPath(path string) (*File, *os.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = wrong(CodeZip, "", "name a file that was written by apollo export", "%s is no regular file", path)
	}
	var f *File
	if err == nil {
		f, err = Open(file, info.Size())
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return f, file, nil
}

// takeEntries takes in the directory of the zip file.
func (f *File) takeEntries(entries []*zip.File, size int64) error {
	folded := map[string]bool{}
	for _, e := range entries {
		if why := entryFault(e, size); why != "" {
			return wrong(CodeEntry, printable(e.Name), hintAgain, "%s", why)
		}
		if e.Method != zip.Store {
			return wrong(CodeFormat, e.Name, "pack it again without compression, as zip -0 does", "it is compressed")
		}
		lower := strings.ToLower(e.Name)
		if folded[lower] {
			return wrong(CodeEntry, e.Name, hintAgain, "it is there twice")
		}
		folded[lower] = true
		f.entries[e.Name] = e
	}
	return disjoint(entries)
}

func entryFault(e *zip.File, size int64) string {
	if why := nameFault(e.Name); why != "" {
		return why
	}
	if mode := e.Mode(); !mode.IsRegular() {
		return "it is no plain file: a link, a directory or a device"
	}
	if e.Flags&1 != 0 {
		return "it is encrypted"
	}
	if e.UncompressedSize64 > uint64(size) || e.Method == zip.Store && e.CompressedSize64 != e.UncompressedSize64 { //nolint:gosec // a size is not negative
		return fmt.Sprintf("it says that it has %d bytes, of %d in the file", e.UncompressedSize64, e.CompressedSize64)
	}
	return ""
}

// disjoint refuses entries that share bytes: so the whole can never be larger than the file.
func disjoint(entries []*zip.File) error {
	type part struct {
		at, end int64
		name    string
	}
	parts := make([]part, len(entries))
	for i, e := range entries {
		at, err := e.DataOffset()
		if err != nil {
			return wrong(CodeZip, e.Name, hintDamage, "%v", err)
		}
		parts[i] = part{at, at + int64(e.CompressedSize64), e.Name} //nolint:gosec // it is at most the size of the file
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.end, b.end)) })
	for i := 1; i < len(parts); i++ {
		if parts[i].at < parts[i-1].end {
			return wrong(CodeEntry, parts[i].name, hintAgain, "it shares bytes with %s", parts[i-1].name)
		}
	}
	return nil
}

// agree compares the entries with the manifest.
func (f *File) agree() error {
	due := f.Manifest.contents()
	for name, size := range due {
		switch e := f.entries[name]; {
		case e == nil:
			return wrong(CodeMissing, name, hintDamage, "the manifest lists it and it is not there")
		case e.UncompressedSize64 != uint64(size): //nolint:gosec // the manifest has no negative one
			return wrong(CodeSize, name, hintDamage, "%d bytes where the manifest says %d", e.UncompressedSize64, size)
		}
	}
	for name := range f.entries {
		if _, known := due[name]; !known && name != manifestName {
			return wrong(CodeEntry, name, hintAgain, "the manifest does not list it")
		}
	}
	return nil
}

// printable gives a name as it can be shown.
func printable(name string) string {
	if len(name) > 200 {
		name = name[:200]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, name)
}

// readAll reads a small entry and checks its CRC.
func readAll(e *zip.File) ([]byte, error) {
	r, err := e.Open()
	if err != nil {
		return nil, wrong(CodeZip, e.Name, hintDamage, "%v", err)
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, wrong(CodeDigest, e.Name, hintDamage, "%v", err)
	}
	return b, nil
}

// Artifact opens an artifact. Its bytes are only what the digest says if Verify has said so.
func (f *File) Artifact(d events.Digest) (io.ReadCloser, error) {
	e := f.entries[artifactDir+plain(d)]
	if e == nil {
		return nil, wrong(CodeMissing, artifactDir+plain(d), hintAgain, "it is not there")
	}
	return e.Open()
}
