package artifacts

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// small is the size up to which bytes are hashed in memory first, so that an artifact which is there already costs no
// write at all.
const small = 256 << 10

// Put stores what the reader gives and returns after it is durable. A full disk is storage.ErrFull, a failed sync
// storage.ErrFsync; after any error nothing new is under a final name.
func (s *Store) Put(ctx context.Context, r io.Reader) (Info, error) {
	info, err := s.put(ctx, reader{ctx, r})
	if err != nil {
		return Info{}, fmt.Errorf("put artifact: %w", err)
	}
	return info, nil
}

func (s *Store) put(ctx context.Context, r io.Reader) (Info, error) {
	var head bytes.Buffer
	n, err := io.CopyN(&head, r, small)
	switch {
	case errors.Is(err, io.EOF):
		info := Info{Digest: events.DigestOf(head.Bytes()), Size: n}
		if there, err := s.durable(info); there || err != nil {
			return info, err
		}
	case err != nil:
		return Info{}, err
	}
	t, err := s.newTemp()
	if err != nil {
		return Info{}, full(err)
	}
	defer t.drop()
	h := sha256.New()
	size, err := copyBuffered(io.MultiWriter(&writer{file: t.file}, h), io.MultiReader(&head, r))
	if err != nil {
		return Info{}, full(err)
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	return s.seal(t, h, size)
}

// seal gives the temporary file its final name.
func (s *Store) seal(t *temp, h hash.Hash, size int64) (Info, error) {
	info := Info{Size: size}
	h.Sum(info.Digest[:0])
	if there, err := s.durable(info); there || err != nil {
		return info, err
	}
	if err := errors.Join(t.file.Chmod(blobMode), s.temps.Chtimes(t.name, Stored, Stored)); err != nil {
		return Info{}, full(err)
	}
	if err := errors.Join(s.step("sync"), syncFile(t.file)); err != nil {
		return Info{}, full(err)
	}
	return info, s.rename(t, info)
}

// rename moves the file to its place and makes the name durable; it takes the name back when that fails.
func (s *Store) rename(t *temp, info Info) error {
	dir, name := place(info.Digest)
	sh := &s.shards[info.Digest[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if there, err := s.settle(sh, info); there || err != nil {
		return err // another Put was faster, and its name must not be put at risk
	}
	if err := s.makeShard(sh, dir); err != nil {
		return full(err)
	}
	if err := s.step("rename"); err != nil {
		return err
	}
	sh.synced = false
	if err := s.root.Rename("tmp/"+t.name, "sha256/"+name); err != nil {
		return full(err)
	}
	if err := errors.Join(s.step("syncdir"), syncDir(s.blobs, dir)); err != nil {
		return errors.Join(full(err), s.root.Rename("sha256/"+name, "tmp/"+t.name))
	}
	sh.synced = true
	return nil
}

// makeShard makes the directory of a shard once, durably. The caller holds the shard's lock.
func (s *Store) makeShard(sh *shard, dir string) error {
	if sh.made {
		return nil
	}
	if err := s.blobs.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := mustBeDir(s.blobs, dir); err != nil {
		return err
	}
	sh.made = true
	return syncDir(s.blobs, ".")
}

// durable reports whether the artifact is there for good.
func (s *Store) durable(info Info) (bool, error) {
	sh := &s.shards[info.Digest[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return s.settle(sh, info)
}

// settle reports whether the artifact is there with the right size, and makes its name durable if that is in doubt: an
// earlier process may have died between the rename and the sync. A file of another size is broken and will be replaced.
// The caller holds the shard's lock.
func (s *Store) settle(sh *shard, info Info) (bool, error) {
	size, err := s.lookup(info.Digest)
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && size != info.Size:
		return false, nil
	case err != nil:
		return false, err
	case sh.synced:
		return true, nil
	}
	dir, _ := place(info.Digest)
	if err := syncDir(s.blobs, dir); err != nil {
		return false, err
	}
	sh.synced = true
	return true, nil
}

// temp is a file in tmp/ that is not yet an artifact.
type temp struct {
	store *Store
	name  string
	file  *os.File
}

func (s *Store) newTemp() (*temp, error) {
	t := &temp{store: s, name: rand.Text()}
	s.mark(t.name, true)
	f, err := s.temps.OpenFile(t.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		s.mark(t.name, false)
		return nil, err
	}
	t.file = f
	return t, nil
}

// drop closes the file and removes its temporary name, if it still has that.
func (t *temp) drop() {
	if t.file != nil {
		_ = t.file.Close() // its bytes are synced, or thrown away
	}
	_ = t.store.temps.Remove(t.name) // gone after a success; else fsck names it
	t.store.mark(t.name, false)
}

func (s *Store) mark(name string, live bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if live {
		s.live[name] = true
	} else {
		delete(s.live, name)
	}
}

func (s *Store) step(name string) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(name)
}

// reader stops a copy when the context ends.
type reader struct {
	ctx context.Context //nolint:containedctx // of one copy
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// early is the size from which it pays to have a file written before it is synced.
const early = 8 << 20

// writer has what was written to a file brought to the disk bit by bit.
type writer struct {
	file          *os.File
	written, told int64
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if w.written += int64(n); w.written-w.told >= early {
		writeBack(w.file, w.told, w.written-w.told)
		w.told = w.written
	}
	return n, err
}

// buffers are for copies of large files.
var buffers = sync.Pool{New: func() any { b := make([]byte, 1<<20); return &b }}

// syncFile marks a failed sync as what stops the process: after it nobody knows what the disk holds.
func syncFile(f *os.File) error {
	if err := f.Sync(); err != nil {
		return fmt.Errorf("%w: %w", storage.ErrFsync, err)
	}
	return nil
}

// full marks the errors of a disk or quota without room.
func full(err error) error {
	for _, no := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, no) {
			return fmt.Errorf("%w: %w", storage.ErrFull, err)
		}
	}
	return err
}
