package sqlite

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// networkFileSystems are the magic numbers of file systems whose locks SQLite cannot trust.
var networkFileSystems = map[int64]string{0x6969: "NFS", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x517b: "SMB", 0x01021997: "9P"}

// refuseLinks refuses a store that has a second name, or lies on a network file system.
func refuseLinks(dir string, info os.FileInfo) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		return errors.New("E_STORE_FILE: the store has a second name (hard link); its journal could be lost")
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return err
	}
	if name := networkFileSystems[int64(fs.Type)]; name != "" { //nolint:unconvert // int32 on some machines
		return fmt.Errorf("E_STORE_FILE: the data directory lies on %s; a store needs a local disk", name)
	}
	return nil
}
