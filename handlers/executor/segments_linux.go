package executor

import (
	"bytes"
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what a stage can make the engine remember about its segments.
const (
	maxSegments    = 1000
	maxSegmentName = 128
)

// fifo is an open named pipe. It is open for reading and writing, so that a stage never waits for a reader and the
// supervisor never sees an end of file.
type fifo struct {
	fd   int
	path string
	real string // without symbolic links
}

// openFIFO makes the pipe, or takes over the one of an engine that has died.
func openFIFO(path string) (fifo, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return fifo{fd: -1}, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	return fifo{fd: fd, path: path, real: pathOf(fd)}, err
}

// drain reads what is there, which is never more than a pipe can hold.
func (f fifo) drain(buf []byte, use func([]byte)) {
	for range 1 + 1<<20/len(buf) {
		n, _ := unix.Read(f.fd, buf)
		if n <= 0 {
			return
		}
		use(buf[:n])
	}
}

// segmentMarks receives the lines that a stage appends to APOLLO_SEGMENTS. That path is a named pipe, so a mark
// arrives when it is written and its instant is the supervisor's own, on the monotonic clock.
// `echo load >> "$APOLLO_SEGMENTS"` begins the segment "load" and ends the one before; the end of the stage ends the
// last one.
type segmentMarks struct {
	mask  *masker
	line  []byte
	names []string
	at    []time.Time
}

func (s *segmentMarks) receive(p []byte, now time.Time) {
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			s.extend(p)
			return
		}
		s.extend(p[:end])
		s.mark(now)
		p = p[end+1:]
	}
}

func (s *segmentMarks) extend(p []byte) {
	s.line = append(s.line, p[:min(len(p), maxSegmentName-len(s.line))]...)
}

func (s *segmentMarks) mark(now time.Time) {
	name := string(s.line)
	s.line = s.line[:0]
	s.add(name, now)
}

func (s *segmentMarks) add(name string, now time.Time) {
	name = strings.ToValidUTF8(strings.TrimSpace(s.masked(name)), "\uFFFD")
	if name != "" && len(s.names) < maxSegments {
		s.names, s.at = append(s.names, name), append(s.at, now)
	}
}

// masked hides secrets in a name. At the end of one that may have been cut, that is also what may begin a secret.
func (s *segmentMarks) masked(name string) string {
	if s.mask == nil {
		return name
	}
	text := string(s.mask.mask([]byte(name)))
	if rest := s.mask.flush(); len(name) < maxSegmentName {
		text += string(rest)
	}
	return text
}

// until gives the segments of an attempt that ended at the instant.
func (s *segmentMarks) until(end time.Time) []Segment {
	if len(s.line) > 0 {
		s.mark(end)
	}
	var list []Segment
	for i, name := range s.names {
		stop := end
		if i+1 < len(s.at) {
			stop = s.at[i+1]
		}
		list = append(list, Segment{Name: name, Duration: max(0, stop.Sub(s.at[i]))})
	}
	return list
}
