package plugin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxFile is the largest file of a plug-in, in bytes: it is copied into memory for each start.
const maxFile = 256 << 20

// digest copies a file and gives the SHA-256 of what it copied.
func digest(f io.Reader, to io.Writer) (string, error) {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(to, h), io.LimitReader(f, maxFile+1))
	if err == nil && n > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return hex.EncodeToString(h.Sum(nil)), err
}

// sealed gives a copy of the executable that no one can change any more, when it is what the manifest pins. What is
// executed is this copy.
func (p *Plugin) sealed() (*os.File, *Fault) {
	root, err := os.OpenRoot(p.Dir)
	if err != nil {
		return nil, &Fault{"E_PLUGIN_FILE", "the directory cannot be opened: " + err.Error(), ""}
	}
	defer root.Close() //nolint:errcheck // a directory
	f, fault := p.open(root)
	if fault != nil {
		return nil, fault
	}
	defer f.Close() //nolint:errcheck // it was only read
	copied, err := memory(p.Name)
	if err != nil {
		return nil, &Fault{"E_PLUGIN_FILE", "no memory for a copy of the executable: " + err.Error(), ""}
	}
	found, err := digest(f, copied)
	if err == nil {
		_, err = unix.FcntlInt(copied.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if fault = p.compare(found); err != nil {
		fault = &Fault{"E_PLUGIN_FILE", "the executable cannot be copied: " + err.Error(), ""}
	}
	if fault != nil {
		copied.Close() //nolint:errcheck // nobody has seen it
		return nil, fault
	}
	return copied, nil
}

// memory makes a file that is nowhere but in memory. Kernels before 6.3 do not know the flag that says that it will be
// executed, and need none.
func memory(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
