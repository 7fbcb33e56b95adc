package artifacts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/apollo-11/apollo/events"
)

// Manifest is a directory as an artifact: what lies in it, and nothing of who owns it, when it was written or what its
// modes are, but for the one bit that makes a file a program. Its canonical form is its JSON as encoding/json writes it,
// with the entries in the byte order of their paths; the digest of that is the directory's.
type Manifest struct {
	Schema  int     `json:"schema"` // version of this document, now 1
	Entries []Entry `json:"entries"`
}

// Entry is one path of a directory, without a leading slash. Every directory on the way to it has an entry of its own.
type Entry struct {
	Path   string        `json:"path"`
	Type   string        `json:"type"` // file, dir, link
	Exec   bool          `json:"exec,omitempty"`
	Digest events.Digest `json:"digest,omitzero"`
	Size   int64         `json:"size,omitempty"`
	Target string        `json:"target,omitempty"` // of a link: a relative path that stays in the directory
}

const (
	manifestSchema = 1
	maxManifest    = 64 << 20 // bytes
	// MaxEntries is the most paths that a directory may have.
	MaxEntries = 200_000
)

const (
	typeFile = "file"
	typeDir  = "dir"
	typeLink = "link"
)

// Encode gives the canonical bytes.
func (m *Manifest) Encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return b, nil
}

// Size gives how many files the directory has and their bytes altogether.
func (m *Manifest) Size() (files int, size int64) {
	for i := range m.Entries {
		if m.Entries[i].Type == typeFile {
			files++
			size += m.Entries[i].Size
		}
	}
	return files, size
}

// DecodeManifest reads canonical bytes. It refuses whatever PutDir would not have written: a path or link that leads out
// of the directory, or through a link, an entry twice or out of order, a field of another version.
func DecodeManifest(b []byte) (*Manifest, error) {
	m := new(Manifest)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("decode manifest: %w", err)
	}
	if d.More() {
		return nil, errors.New("decode manifest: something comes after it")
	}
	if err := m.valid(); err != nil {
		return nil, fmt.Errorf("decode manifest: %w", err)
	}
	return m, nil
}

func (m *Manifest) valid() error {
	if m.Schema != manifestSchema {
		return fmt.Errorf("schema %d, this build reads %d", m.Schema, manifestSchema)
	}
	if len(m.Entries) > MaxEntries {
		return fmt.Errorf("%d entries, at most %d are allowed", len(m.Entries), MaxEntries)
	}
	dirs := map[string]bool{".": true}
	for i := range m.Entries {
		e := &m.Entries[i]
		switch {
		case !plainPath(e.Path):
			return fmt.Errorf("the path %q leads out of the directory", e.Path)
		case i > 0 && e.Path <= m.Entries[i-1].Path:
			return fmt.Errorf("the path %q is out of order", e.Path)
		case !dirs[path.Dir(e.Path)]:
			return fmt.Errorf("the path %q lies in no directory", e.Path)
		}
		if err := e.valid(); err != nil {
			return err
		}
		if e.Type == typeDir {
			dirs[e.Path] = true
		}
	}
	return nil
}

func (e *Entry) valid() error {
	var fits bool
	switch e.Type {
	case typeFile:
		fits = !e.Digest.IsZero() && e.Size >= 0 && e.Target == ""
	case typeDir:
		fits = e.Digest.IsZero() && e.Size == 0 && e.Target == "" && !e.Exec
	case typeLink:
		fits = e.Digest.IsZero() && e.Size == 0 && !e.Exec
		if !inside(e.Path, e.Target) {
			return fmt.Errorf("the link %q leads out of the directory", e.Path)
		}
	}
	if !fits {
		return fmt.Errorf("the entry %q is no %q", e.Path, e.Type)
	}
	return nil
}

// plainPath reports whether the path stays below where it starts.
func plainPath(p string) bool {
	return fs.ValidPath(p) && p != "." && !strings.ContainsRune(p, 0)
}

// inside reports whether a link stays in its directory: its target is relative and in its shortest form, so that .. stands
// only at the start of it, where it means the real directories that the link lies in.
func inside(link, target string) bool {
	if target == "" || path.IsAbs(target) || path.Clean(target) != target || !utf8.ValidString(target) || strings.ContainsRune(target, 0) {
		return false
	}
	to := path.Join(path.Dir(link), target)
	return to != ".." && !strings.HasPrefix(to, "../")
}

// Manifest reads the manifest of a directory. The error of one that is not there is storage.ErrNotFound.
func (s *Store) Manifest(ctx context.Context, d events.Digest) (*Manifest, error) {
	r, err := s.Get(d)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // read only
	if r.Size() > maxManifest {
		return nil, fmt.Errorf("read manifest %v: %d bytes, at most %d are allowed", d, r.Size(), maxManifest)
	}
	b, err := io.ReadAll(reader{ctx, r})
	if err != nil {
		return nil, err
	}
	return DecodeManifest(b)
}
