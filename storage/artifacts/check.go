package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Codes of the problems that Check reports.
const (
	CodeCorrupt  = "E_ARTIFACT_CORRUPT"  // the bytes are not those of the name
	CodeMisnamed = "E_ARTIFACT_MISNAMED" // no name that the store gives
	CodeType     = "E_ARTIFACT_TYPE"     // a link, a device, a directory: not what belongs there
	CodeWritable = "E_ARTIFACT_WRITABLE" // its mode lets it be changed
	CodeLeftover = "E_ARTIFACT_LEFTOVER" // left in tmp/ by a process that died; safe to remove
	CodeRead     = "E_ARTIFACT_READ"     // the machine cannot read it
)

// Check reads every artifact again and reports each file that is not what its name says, each name that does not belong,
// and what dead processes left in tmp/. It changes nothing. Places are relative to the store's directory. The error is
// only that of a check which could not go on.
func (s *Store) Check(ctx context.Context, report func(storage.Problem)) error {
	c := &check{ctx: ctx, store: s, report: report, buffer: make([]byte, 1<<20)}
	for _, step := range []func() error{c.top, c.temps, c.blobs} {
		if err := step(); err != nil {
			return fmt.Errorf("check artifacts: %w", err)
		}
	}
	return nil
}

type check struct {
	ctx    context.Context //nolint:containedctx // of one check
	store  *Store
	report func(storage.Problem)
	buffer []byte
}

func (c *check) problemf(code, place, format string, args ...any) {
	c.report(storage.Problem{Code: code, Place: place, What: fmt.Sprintf(format, args...)})
}

// list reads a directory in the order of names and asks the context first.
func (c *check) list(root *os.Root, name string) ([]fs.DirEntry, error) {
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	all, err := f.ReadDir(-1)
	sort.Slice(all, func(i, j int) bool { return all[i].Name() < all[j].Name() })
	return all, errors.Join(err, f.Close())
}

func (c *check) top() error {
	all, err := c.list(c.store.root, ".")
	for _, e := range all {
		if e.Name() != "sha256" && e.Name() != "tmp" {
			c.problemf(CodeMisnamed, e.Name(), "the store has no such name")
		}
	}
	return err
}

func (c *check) temps() error {
	all, err := c.list(c.store.temps, ".")
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	for _, e := range all {
		if !c.store.live[e.Name()] {
			c.problemf(CodeLeftover, "tmp/"+e.Name(), "left by a process that died; safe to remove")
		}
	}
	return err
}

func (c *check) blobs() error {
	all, err := c.list(c.store.blobs, ".")
	if err != nil {
		return err
	}
	for _, e := range all {
		place := "sha256/" + e.Name()
		switch {
		case !isHex(e.Name(), 2):
			c.problemf(CodeMisnamed, place, "expected two hexadecimal digits")
		case !e.IsDir():
			c.problemf(CodeType, place, "expected a directory, found %v", e.Type())
		default:
			if err := c.shard(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *check) shard(dir string) error {
	all, err := c.list(c.store.blobs, dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		place := "sha256/" + dir + "/" + e.Name()
		switch {
		case !isHex(e.Name(), 62):
			c.problemf(CodeMisnamed, place, "expected 62 hexadecimal digits")
		case !e.Type().IsRegular():
			c.problemf(CodeType, place, "expected a regular file, found %v", e.Type())
		default:
			if err := c.blob(dir, e, place); err != nil {
				return err
			}
		}
	}
	return nil
}

// blob compares one file with its name. Only the end of the context stops the whole check.
func (c *check) blob(dir string, e fs.DirEntry, place string) error {
	if info, err := e.Info(); err == nil && info.Mode().Perm()&0o222 != 0 {
		c.problemf(CodeWritable, place, "mode %v, expected %v", info.Mode().Perm(), fs.FileMode(blobMode))
	}
	f, err := c.store.blobs.Open(dir + "/" + e.Name())
	if err != nil {
		c.problemf(CodeRead, place, "%v", err)
		return nil
	}
	defer f.Close() //nolint:errcheck // read only
	h := sha256.New()
	size, err := io.CopyBuffer(h, reader{c.ctx, f}, c.buffer)
	if c.ctx.Err() != nil {
		return c.ctx.Err()
	}
	var want, got events.Digest
	_, _ = hex.Decode(want[:], []byte(dir+e.Name())) // isHex has seen it
	h.Sum(got[:0])
	switch {
	case err != nil:
		c.problemf(CodeRead, place, "%v", err)
	case got != want:
		c.problemf(CodeCorrupt, place, "its %d bytes are %v", size, got)
	}
	return nil
}

func isHex(s string, length int) bool {
	for _, b := range []byte(s) {
		if (b < '0' || b > '9') && (b < 'a' || b > 'f') {
			return false
		}
	}
	return len(s) == length
}
