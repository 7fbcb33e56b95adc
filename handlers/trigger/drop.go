package trigger

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// outcome is what came of the attempt to take a file.
type outcome uint8

const (
	again outcome = iota // look again: it changed, it is gone, or something failed
	open                 // somebody has it open for writing
	taken                // the inbox has it, or its refusal
)

// deliver seals the bytes, makes sure that they were not written meanwhile, and waits until the inbox has them.
func (w *Watcher) deliver(ctx context.Context, name string, mark Fingerprint) outcome {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.Logger.Error().Err(err).Str("file", name).Msg("open a dropped file; it is tried again")
			w.pause(ctx)
		}
		return again
	}
	defer f.Close()
	if beingWritten(f) {
		return open
	}
	if mark.Size == 0 && !w.Trigger.AllowEmpty {
		if !unchanged(f, mark) {
			return again
		}
		return w.accept(ctx, w.refusal(name, mark, &Refusal{"E_DROP_EMPTY", "the file has no bytes; allow_empty takes such files"}))
	}
	digest, size, err := w.Sealer.Seal(ctx, f)
	if err != nil {
		w.Logger.Error().Err(err).Str("file", name).Msg("keep a dropped file; it is tried again")
		w.pause(ctx)
		return again
	}
	if size != mark.Size || !unchanged(f, mark) {
		return again // written while it was read: it has to stand still first
	}
	// A name has no slash, so that no other name and digest make the same key.
	return w.accept(ctx, &Delivery{Kind: "file", Trigger: w.name(), Pipeline: w.Pipeline, Key: name + "/" + digest.String(),
		File: &File{Name: name, Digest: digest, Size: size}})
}

func unchanged(f *os.File, mark Fingerprint) bool {
	info, err := f.Stat()
	return err == nil && fingerprint(info) == mark
}

// beingWritten says whether a process on this machine has the file open for writing, however long it has written
// nothing. The kernel gives a read lease on a file only when nobody has; the lease is given back at once. Where there
// are no leases (network file systems, other people's files) the answer is no, and settle alone decides.
func beingWritten(f *os.File) (writing bool) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	_ = conn.Control(func(fd uintptr) {
		_, err := unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK)
		writing = errors.Is(err, unix.EAGAIN)
		if err == nil {
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	return writing
}

// wrongType says why something in the folder is no file to take: only plain files with one name are.
func wrongType(info fs.FileInfo) *Refusal {
	if !info.Mode().IsRegular() {
		return &Refusal{Code: "E_DROP_TYPE", Reason: "only plain files are taken, not " + info.Mode().Type().String()}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		return &Refusal{Code: "E_DROP_TYPE", Reason: "the file has a second name (hard link) and could change after it was read"}
	}
	return nil
}

func (w *Watcher) refusal(name string, mark Fingerprint, why *Refusal) *Delivery {
	return &Delivery{Kind: "file", Trigger: w.name(), Pipeline: w.Pipeline, File: &File{Name: name, Size: mark.Size}, Refused: why}
}

// accept brings a delivery to the inbox; a full queue or disk delays it and does not lose it. After another error the
// file is looked at again, behind the others: one that can never be stored must not hold a place.
func (w *Watcher) accept(ctx context.Context, d *Delivery) outcome {
	for {
		_, err := w.Inbox.Accept(ctx, d)
		if err == nil {
			return taken
		}
		if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrClosed) && ctx.Err() == nil {
			w.Logger.Error().Err(err).Str("file", d.File.Name).Msg("store a dropped file; it is tried again")
		}
		if !w.pause(ctx) || !errors.Is(err, ErrBusy) && !errors.Is(err, ErrFull) {
			return again
		}
	}
}
