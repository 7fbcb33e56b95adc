package artifacts

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeBack tells the kernel to begin with writing a range of the file, to its end when n is 0, so that the sync which
// follows has less to wait for. It is a wish: the sync says what became of it.
func writeBack(f *os.File, offset, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE)
}
