package executor

import (
	"bytes"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what a stage can make the engine remember about its segments.
const (
	maxSegments    = 1000
	maxSegmentName = 128
)

func segmentsPath(c *Call) string { return filepath.Join(c.Dir, "segments") }

// segmentMarks receives the lines that a stage appends to APOLLO_SEGMENTS. That path is a FIFO, so a mark arrives
// when it is written and its instant is the supervisor's own, on the monotonic clock. `echo load >> "$APOLLO_SEGMENTS"`
// begins the segment "load" and ends the one before; the end of the stage ends the last one.
type segmentMarks struct {
	fd    int
	path  string
	line  []byte
	names []string
	at    []time.Time
}

// openSegments makes the FIFO. It is open for reading and writing, so that a stage never waits for a reader and the
// supervisor never sees an end of file.
func openSegments(path string) (*segmentMarks, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &segmentMarks{fd: fd, path: path}, nil
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
	name := strings.ToValidUTF8(strings.TrimSpace(string(s.line)), "\uFFFD")
	s.line = s.line[:0]
	if name != "" && len(s.names) < maxSegments {
		s.names, s.at = append(s.names, name), append(s.at, now)
	}
}

// close removes the FIFO and gives the segments of an attempt that ended at the instant.
func (s *segmentMarks) close(end time.Time) []Segment {
	if len(s.line) > 0 {
		s.mark(end)
	}
	unix.Close(s.fd)
	_ = unix.Unlink(s.path) // a stage may have removed it already
	var list []Segment
	for i, name := range s.names {
		until := end
		if i+1 < len(s.at) {
			until = s.at[i+1]
		}
		list = append(list, Segment{Name: name, Duration: max(0, until.Sub(s.at[i]))})
	}
	return list
}
