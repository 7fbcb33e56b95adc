package compare

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"
)

const (
	windowSize = 256 << 10 // bytes from where two files part that are compared line by line
	context3   = 3         // lines before the place that are shown with it
	maxLine    = 4 << 10   // bytes of a line that starts before the place
)

// parting is where two files part.
type parting struct {
	offset int64 // of the first byte that differs
	start  int64 // of the window: the beginning of a line, a few lines before
	line   int   // number of that line, from 1
}

// parts finds the first byte that differs, in constant memory.
func parts(ctx context.Context, a, b io.Reader) (p parting, err error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	starts := []int64{0} // of the last lines
	line := 1
	for {
		if err := ctx.Err(); err != nil {
			return p, err
		}
		n, errA := io.ReadFull(a, x)
		m, errB := io.ReadFull(b, y)
		if err := errors.Join(unlessEnd(errA), unlessEnd(errB)); err != nil {
			return p, err
		}
		same := common(x[:n], y[:m])
		for at := 0; ; {
			next := bytes.IndexByte(x[at:same], '\n')
			if next < 0 {
				break
			}
			at += next + 1
			line++
			if starts = append(starts, p.offset+int64(at)); len(starts) > context3+1 {
				starts = append(starts[:0], starts[1:]...)
			}
		}
		p.offset += int64(same)
		if same < max(n, m) || n < len(x) {
			break
		}
	}
	p.start, p.line = starts[0], line-len(starts)+1
	for p.offset-p.start > maxLine && len(starts) > 1 {
		starts = starts[1:]
		p.start, p.line = starts[0], p.line+1
	}
	p.start = max(p.start, p.offset-maxLine)
	return p, nil
}

func unlessEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

func common(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// window is what a file has behind the place where it parts from the other.
type window struct {
	bytes []byte
	cut   bool // there is more
}

// window reads from where the files part, whole lines.
func (p *parting) window(r io.Reader) (w window, err error) {
	buffered, _ := r.(*bufio.Reader)
	if buffered == nil {
		buffered = bufio.NewReader(r)
	}
	if _, err := io.CopyN(io.Discard, buffered, p.start); unlessEnd(err) != nil {
		return w, err
	}
	w.bytes = make([]byte, windowSize)
	n, err := io.ReadFull(buffered, w.bytes)
	w.bytes = w.bytes[:n]
	if err != nil {
		return w, unlessEnd(err)
	}
	if _, err := buffered.ReadByte(); err == nil {
		w.cut = true
		if end := bytes.LastIndexByte(w.bytes, '\n'); end > 0 {
			w.bytes = w.bytes[:end+1]
		}
	}
	return w, nil
}

// text reports whether it may be shown as text. A character that is cut at either end is none to complain of.
func (w *window) text() bool {
	b := w.bytes
	for range utf8.UTFMax - 1 {
		if len(b) == 0 || utf8.RuneStart(b[0]) {
			break
		}
		b = b[1:]
	}
	if w.cut {
		for range utf8.UTFMax - 1 {
			if r, size := utf8.DecodeLastRune(b); r != utf8.RuneError || size != 1 {
				break
			}
			b = b[:len(b)-1]
		}
	}
	return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0
}

var hunk = regexp.MustCompile(`(?m)^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@`)

// unified gives the hunks between two texts that begin at the line; no file names stand above them.
func unified(a, b []byte, line int) string {
	text := diff.Diff("a", a, "b", b)
	for range 3 { // the names
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	if line == 1 {
		return string(text)
	}
	shift := func(n string) int { at, _ := strconv.Atoi(n); return at + line - 1 }
	return hunk.ReplaceAllStringFunc(string(text), func(head string) string {
		m := hunk.FindStringSubmatch(head)
		return fmt.Sprintf("@@ -%d%s +%d%s @@", shift(m[1]), m[2], shift(m[3]), m[4])
	})
}

const shownLine = 400 // bytes

// bounded keeps the first lines of a text, and of each what is readable. more counts the lines that are not kept.
func bounded(text string, limit int) (kept string, more int) {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) > limit {
		lines, more = lines[:limit], len(lines)-limit
	}
	for i, l := range lines {
		if len(l) > shownLine {
			lines[i] = strings.ToValidUTF8(l[:shownLine], "") + "…\n"
		}
	}
	return strings.Join(lines, ""), more
}
