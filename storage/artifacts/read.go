package artifacts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Reader reads one artifact. Reading it from the start to the end compares it with its digest: the last Read then gives
// storage.ErrCorrupt instead of io.EOF. A Seek to anywhere but the start gives that check up until the next one to it.
type Reader struct {
	file    *os.File
	digest  events.Digest
	hash    hash.Hash
	checked bool // every byte since the start went through hash
	size    int64
}

// Get opens an artifact for reading. The error of one that is not there is storage.ErrNotFound.
func (s *Store) Get(d events.Digest) (*Reader, error) {
	f, size, err := s.open(d)
	if err != nil {
		return nil, fmt.Errorf("get artifact %v: %w", d, err)
	}
	return &Reader{file: f, digest: d, hash: sha256.New(), checked: true, size: size}, nil
}

func (s *Store) open(d events.Digest) (*os.File, int64, error) {
	size, err := s.lookup(d)
	if err != nil {
		return nil, 0, err
	}
	_, name := place(d)
	f, err := s.blobs.Open(name)
	return f, size, missing(err)
}

// Size gives the artifact's size in bytes.
func (r *Reader) Size() int64 { return r.size }

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	if r.checked {
		r.hash.Write(p[:n])
		if errors.Is(err, io.EOF) {
			if bad := compare(r.digest, r.hash); bad != nil {
				return n, fmt.Errorf("read artifact: %w", bad)
			}
		}
	}
	return n, err
}

// Seek implements io.Seeker.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	at, err := r.file.Seek(offset, whence)
	r.checked = err == nil && at == 0
	r.hash.Reset()
	return at, err
}

// Close implements io.Closer.
func (r *Reader) Close() error { return r.file.Close() }

func compare(want events.Digest, h hash.Hash) error {
	var got events.Digest
	h.Sum(got[:0])
	if got != want {
		return fmt.Errorf("%w: artifact %v has the content of %v", storage.ErrCorrupt, want, got)
	}
	return nil
}

// CopyTo makes a read-only file of the artifact below root, as the input of a stage. It clones the bytes where the file
// system can (no space, no copy), else copies them; either way it reads them and compares them with the digest. The
// name must be free. After an error there is no file.
func (s *Store) CopyTo(ctx context.Context, d events.Digest, root *os.Root, name string) error {
	if err := s.copyTo(ctx, d, root, name, blobMode); err != nil {
		return fmt.Errorf("copy artifact %v: %w", d, err)
	}
	return nil
}

func (s *Store) copyTo(ctx context.Context, d events.Digest, root *os.Root, name string, mode fs.FileMode) (err error) {
	source, _, err := s.open(d)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // read only
	// The mode holds for later opens; this descriptor can write.
	dest, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return full(err)
	}
	defer func() {
		if err = errors.Join(err, dest.Close()); err != nil {
			err = errors.Join(full(err), root.Remove(name))
		}
	}()
	h := sha256.New()
	if clone(dest, source) {
		_, err = copyBuffered(h, reader{ctx, dest})
	} else {
		_, err = copyBuffered(io.MultiWriter(dest, h), reader{ctx, source})
	}
	if err == nil {
		err = compare(d, h)
	}
	if err == nil {
		err = dest.Chmod(mode) // whatever the umask left
	}
	return err
}
