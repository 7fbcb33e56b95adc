package artifacts

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/apollo-11/apollo/events"
)

// Found is an artifact as a walk over all of them finds it.
type Found struct {
	Info
	Since time.Time // when it came in or was last linked: its modification time is that of every artifact
}

// Each gives every artifact in the order of the digests. What does not belong into the store is passed over; Check names it.
func (s *Store) Each(ctx context.Context, give func(Found) error) error {
	c := &check{ctx: ctx, store: s}
	shards, err := c.list(s.blobs, ".")
	if err != nil {
		return fmt.Errorf("list artifacts: %w", err)
	}
	for _, shard := range shards {
		if !isHex(shard.Name(), 2) || !shard.IsDir() {
			continue
		}
		all, err := c.list(s.blobs, shard.Name())
		if err != nil {
			return fmt.Errorf("list artifacts: %w", err)
		}
		for _, e := range all {
			if !isHex(e.Name(), 62) || !e.Type().IsRegular() {
				continue
			}
			var f Found
			_, _ = hex.Decode(f.Digest[:], []byte(shard.Name()+e.Name())) // isHex has seen it
			info, err := e.Info()
			switch {
			case errors.Is(err, fs.ErrNotExist):
				continue
			case err != nil:
				return fmt.Errorf("list artifacts: %w", err)
			}
			f.Size, f.Since = info.Size(), changed(info)
			if err := give(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes an artifact that nothing needs. That it is not there is storage.ErrNotFound. Nobody else may store the same
// bytes meanwhile: the caller holds the lock of the data directory.
func (s *Store) Remove(d events.Digest) error {
	sh := &s.shards[d[0]]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if _, err := s.lookup(d); err != nil {
		return fmt.Errorf("remove artifact %v: %w", d, err)
	}
	_, name := place(d)
	if err := errors.Join(s.step("remove"), s.blobs.Remove(name)); err != nil {
		return fmt.Errorf("remove artifact %v: %w", d, err)
	}
	return nil
}

// changed gives when the file's inode last changed.
func changed(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return info.ModTime()
}
