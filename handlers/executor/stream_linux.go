package executor

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"
)

// stream is one output of the stage: the end of the pipe to read, and the log.
type stream struct {
	fd      int // -1 at the end
	capture capture
	hear    func([]byte) // gets what the stage writes, in place of the log; nil is the log
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

func (s *stream) close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
}

// receive reads once, so that no stream can keep the supervisor from the others.
func (s *stream) receive(buf []byte) {
	n, err := unix.Read(s.fd, buf)
	switch {
	case n > 0 && s.hear != nil:
		s.hear(buf[:n])
	case n > 0:
		s.capture.write(buf[:n])
	case err == nil || !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR):
		s.close()
	}
}
