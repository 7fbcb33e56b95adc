package executor

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// logPart is how many bytes of a log's head, and how many of its tail, are kept.
const logPart = 5 << 20

// capture owns the log file of one stream. What the stage writes is kept as raw bytes: the head at once, in the file,
// so that it can be followed; what comes after the head goes round and round a second file that becomes the tail. No
// amount of output makes it block or grow.
type capture struct {
	path  string
	mask  *masker
	part  int64 // bytes of head, and of tail
	head  *os.File
	tail  *os.File
	total int64 // bytes that came, after masking
	lost  int64 // bytes that could not be written
}

// write takes what the stage wrote.
func (c *capture) write(p []byte) {
	if c.mask != nil {
		p = c.mask.mask(p)
	}
	c.keep(p)
}

func (c *capture) keep(p []byte) {
	if room := c.part - c.total; room > 0 && len(p) > 0 {
		n := min(int(room), len(p))
		c.writeHead(p[:n])
		p = p[n:]
	}
	for len(p) > 0 {
		at := (c.total - c.part) % c.part
		n := min(int(c.part-at), len(p))
		c.writeTail(p[:n], at)
		p = p[n:]
	}
}

func (c *capture) writeHead(p []byte) {
	c.total += int64(len(p))
	if c.head == nil && !c.open(&c.head, c.path) {
		c.lost += int64(len(p))
		return
	}
	n, err := c.head.Write(p)
	if err != nil {
		c.lost += int64(len(p) - n)
	}
}

func (c *capture) writeTail(p []byte, at int64) {
	c.total += int64(len(p))
	if c.tail == nil && !c.open(&c.tail, c.path+".tail") {
		return
	}
	_, _ = c.tail.WriteAt(p, at) // what is missing is found when the tail is joined
}

// open makes a log file, and the directory above it when that is missing. Only the engine's user can read it.
func (c *capture) open(f **os.File, path string) bool {
	const flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	file, err := os.OpenFile(path, flags, 0o600)
	if os.IsNotExist(err) && os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		file, err = os.OpenFile(path, flags, 0o600)
	}
	*f = file
	return err == nil
}

// close joins head and tail with a mark of what was dropped in between, and describes the log.
func (c *capture) close() Log {
	if c.mask != nil {
		c.keep(c.mask.flush())
	}
	kept := min(c.total, c.part) - c.lost
	if c.tail != nil {
		kept += c.join()
		_ = c.tail.Close() // it was only kept to be joined
		_ = os.Remove(c.tail.Name())
	}
	log := Log{Bytes: c.total, Kept: kept, Dropped: c.total - kept}
	if c.head != nil {
		_ = c.head.Close() // the log is told of as far as it was written
		log.Path = c.path
	}
	return log
}

// join appends the tail to the head and gives its number of bytes.
func (c *capture) join() (kept int64) {
	after := c.total - c.part
	if c.head == nil {
		return 0
	}
	if after > c.part {
		fmt.Fprintf(c.head, "\n[apollo: %d bytes dropped here]\n", after-c.part)
		at := after % c.part
		n, _ := io.Copy(c.head, io.NewSectionReader(c.tail, at, c.part-at))
		kept, after = n, at
	}
	n, _ := io.Copy(c.head, io.NewSectionReader(c.tail, 0, after))
	return kept + n
}
