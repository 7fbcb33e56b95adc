package executor

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestADirectoryIsReadToItsEnd: the kernel may give a directory in any number of pieces. One that was taken for empty went
// to the next attempt, and took the outputs in it along.
func TestADirectoryIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "out"} {
		dir := t.TempDir()
		if name != "" {
			if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, size := range []int{24, 32, 48, 1024} { // an entry with a name of up to five bytes takes 24
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := holdsNothing(fd, make([]byte, size)); got != (name == "") {
				t.Errorf("with %q in it, read %d bytes at once: empty %v", name, size, got)
			}
			if err := unix.Close(fd); err != nil {
				t.Fatal(err)
			}
		}
	}
}
