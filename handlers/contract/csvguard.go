package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// csvError is what makes a file no readable CSV, with its place.
type csvError struct {
	line, column int // from 1; the column counts bytes
	what         string
}

func (e *csvError) Error() string { return fmt.Sprintf("%d:%d: %s", e.line, e.column, e.what) }

// guard stands between the file and the CSV parser and lets nothing past that the parser would take for text: NUL
// bytes, invalid UTF-8, a carriage return that is no part of CRLF, and records without end. It drops a byte order mark.
type guard struct {
	ctx    context.Context //nolint:containedctx // of one check
	r      io.Reader
	max    int64  // bytes of a record
	limit  int64  // bytes that may have passed before the current record must have ended
	read   int64  // bytes that were read from r
	begun  bool   // the start of the file was looked at
	buffer []byte // of one chunk
	ready  []byte // the part of it that was inspected and not passed yet
	held   []byte // the rest of it, which the next chunk decides: half a character, or a carriage return
	err    error  // after what is ready

	total int64 // bytes that have passed
	line  int   // line of the next byte, from 0
	start int64 // total at the start of that line
}

func (g *guard) Read(p []byte) (int, error) {
	for len(g.ready) == 0 {
		if g.err != nil {
			return 0, g.err
		}
		if err := g.ctx.Err(); err != nil {
			return 0, err
		}
		g.fill()
	}
	n := copy(p, g.ready[:min(int64(len(g.ready)), g.limit-g.total)])
	if n == 0 && len(p) > 0 {
		return 0, g.at(0, fmt.Sprintf("a record is longer than %d bytes", g.max))
	}
	g.pass(n)
	return n, nil
}

// fill reads and inspects the next chunk.
func (g *guard) fill() {
	if g.buffer == nil {
		g.buffer = make([]byte, window)
	}
	had := copy(g.buffer, g.held)
	n, err := g.next(g.buffer[had:])
	g.read += int64(n)
	chunk := g.buffer[:had+n]
	if !g.begun {
		g.begun = true
		if what := foreign(chunk); what != "" {
			chunk, err = nil, g.at(0, "the file looks like "+what+"; expected UTF-8 text")
		}
		chunk = bytes.TrimPrefix(chunk, utf8BOM)
	}
	keep := 0
	if err == nil {
		keep = undecided(chunk)
	}
	g.held = chunk[len(chunk)-keep:]
	g.ready, g.err = chunk[:len(chunk)-keep], err
	if n, what := inspect(g.ready); what != "" {
		g.err = g.at(n, what)
		g.ready = g.ready[:n]
	}
}

// next reads once, but enough at the start to know what the file is.
func (g *guard) next(p []byte) (int, error) {
	if g.begun {
		return g.r.Read(p)
	}
	n, err := io.ReadAtLeast(g.r, p, 4)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// foreign names the kinds of file that are mistaken for CSV most often.
func foreign(head []byte) string {
	for _, f := range [][2]string{{"\xff\xfe", "UTF-16"}, {"\xfe\xff", "UTF-16"}, {"\x1f\x8b", "gzip"}, {"PK\x03\x04", "a zip archive or an Excel workbook"}} {
		if bytes.HasPrefix(head, []byte(f[0])) {
			return f[1]
		}
	}
	return ""
}

// undecided gives how many bytes at the end of a chunk need the next one to be judged.
func undecided(chunk []byte) int {
	if bytes.HasSuffix(chunk, []byte{'\r'}) {
		return 1
	}
	for back := 1; back < utf8.UTFMax && back <= len(chunk); back++ {
		if tail := chunk[len(chunk)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return back
			}
			break
		}
	}
	return 0
}

// inspect gives the first bad byte of a chunk, and why it is bad.
func inspect(chunk []byte) (n int, what string) {
	if n = bytes.IndexByte(chunk, 0); n >= 0 {
		chunk, what = chunk[:n], "a NUL byte"
	}
	if i := loneReturn(chunk); i >= 0 {
		n, chunk, what = i, chunk[:i], "a carriage return without a line feed"
	}
	if !utf8.Valid(chunk) {
		n, what = firstInvalid(chunk), "invalid UTF-8"
	}
	return n, what
}

// loneReturn finds a carriage return that no line feed follows.
func loneReturn(chunk []byte) int {
	for from := 0; ; {
		i := bytes.IndexByte(chunk[from:], '\r')
		if i < 0 {
			return -1
		}
		if i += from; i+1 == len(chunk) || chunk[i+1] != '\n' {
			return i
		}
		from = i + 2
	}
}

func firstInvalid(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(text)
}

// at makes the error of the n-th byte of what is ready.
func (g *guard) at(n int, what string) error {
	line, start := g.place(n)
	return &csvError{line: line + 1, column: int(g.total+int64(n)-start) + 1, what: what}
}

// place gives the line n bytes on, and where it starts.
func (g *guard) place(n int) (line int, start int64) {
	i := bytes.LastIndexByte(g.ready[:n], '\n')
	if i < 0 {
		return g.line, g.start
	}
	return g.line + bytes.Count(g.ready[:n], []byte{'\n'}), g.total + int64(i) + 1
}

func (g *guard) pass(n int) {
	g.line, g.start = g.place(n)
	g.total += int64(n)
	g.ready = g.ready[n:]
}
