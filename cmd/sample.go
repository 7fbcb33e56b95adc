package cmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
)

// formatsByExtension are the kinds of file that a sample can be cut from.
var formatsByExtension = map[string]string{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson"}

// sampleFormat says how the records of a run's input are told apart: by the format of the first stage input that reads what
// the trigger brought, else by the name of the file. Empty is not at all: such an input is never cut.
func sampleFormat(plan *events.Plan, name string) string {
	for i := range plan.Stages {
		for _, in := range plan.Stages[i].Inputs {
			if whole := in.From == "trigger.file" || in.From == "trigger.body"; in.Expr && whole && in.Format != "" {
				return in.Format
			}
		}
	}
	if format, known := formatsByExtension[strings.ToLower(filepath.Ext(name))]; known {
		return format
	}
	if !readsFile(plan) && (name == "" || name == stdinName) {
		return "json" // a body without a name; what is no JSON array stays whole
	}
	return ""
}

// sampled reads an input up to its first n records, byte for byte as they were written: the rows below the header of CSV and
// TSV, the lines of NDJSON that are not blank, the items of a JSON array. What is none of these is read to its end.
func sampled(r io.Reader, format string, n int) io.Reader {
	if n <= 0 {
		return r
	}
	switch format {
	case "csv", "tsv":
		comma := byte(',')
		if format == "tsv" {
			comma = '\t'
		}
		return &rowCutter{r: bufio.NewReaderSize(r, 64<<10), left: n + 1, comma: comma, fieldStart: true}
	case "ndjson":
		return &rowCutter{r: bufio.NewReaderSize(r, 64<<10), left: n, lines: true}
	case "json":
		return &arrayCutter{head: bufio.NewReaderSize(r, 64<<10), left: n}
	}
	return r
}

// rowCutter lets the first records of a text of lines through. In CSV a line break between quotes is part of a record, and an
// empty line is none.
type rowCutter struct {
	r          *bufio.Reader
	left       int // records that may still end
	lines      bool
	comma      byte
	fieldStart bool // the next byte begins a field
	quoted     bool // the next byte stands between quotes
	filled     bool // the record has content
	begun      bool // a byte order mark was looked for
	mark       int  // bytes of it that are still to come
}

// Read implements io.Reader.
func (c *rowCutter) Read(p []byte) (int, error) {
	if !c.begun {
		c.begun = true
		if mark, _ := c.r.Peek(len("\ufeff")); string(mark) == "\ufeff" {
			c.mark = len(mark)
		}
	}
	n := 0
	for n < len(p) {
		if c.left <= 0 {
			return n, io.EOF
		}
		b, err := c.r.ReadByte()
		if err != nil {
			return n, err
		}
		p[n] = b
		n++
		if c.mark > 0 {
			c.mark--
			continue
		}
		c.see(b)
	}
	return n, nil
}

func (c *rowCutter) see(b byte) {
	switch {
	case b == '\n' && !c.quoted:
		if c.filled {
			c.left--
		}
		c.fieldStart, c.filled = true, false
		return
	case b == '\r' || c.lines && (b == ' ' || b == '\t'):
		return // what only they make up is an empty line
	case c.lines:
	case b == '"' && (c.fieldStart || c.quoted):
		c.quoted = !c.quoted
		// A quote that follows the closing one is a doubled one, and opens the field again.
		c.fieldStart, c.filled = !c.quoted, true
		return
	case b == c.comma && !c.quoted:
		c.fieldStart, c.filled = true, true
		return
	}
	c.fieldStart, c.filled = false, true
}

// arrayCutter lets the first items of a JSON array through. Anything else passes whole.
type arrayCutter struct {
	head *bufio.Reader
	left int
	dec  *json.Decoder
	out  bytes.Buffer
	rest io.Reader // what passes as it is
	done bool
}

// Read implements io.Reader.
func (c *arrayCutter) Read(p []byte) (int, error) {
	if c.dec == nil && c.rest == nil {
		c.begin()
	}
	if c.rest != nil {
		return c.rest.Read(p)
	}
	for c.out.Len() == 0 {
		if c.done {
			return 0, io.EOF
		}
		if err := c.item(); err != nil {
			return 0, err
		}
	}
	return c.out.Read(p)
}

// begin finds out whether an array comes.
func (c *arrayCutter) begin() {
	var lead bytes.Buffer
	for {
		b, err := c.head.ReadByte()
		switch {
		case err == nil && strings.IndexByte(" \t\r\n\xef\xbb\xbf", b) >= 0:
			lead.WriteByte(b)
			continue
		case err == nil && b == '[':
			_ = c.head.UnreadByte() // it was just read
			c.dec = json.NewDecoder(c.head)
			_, _ = c.dec.Token() // the bracket
			c.out.WriteString(lead.String() + "[")
		case err == nil:
			_ = c.head.UnreadByte()
			fallthrough
		default:
			c.rest = io.MultiReader(&lead, c.head)
		}
		return
	}
}

// item takes the next item over, or ends the array. Text that is no JSON is an error: half of it would look like a sample.
func (c *arrayCutter) item() error {
	if c.left == 0 || !c.dec.More() {
		if c.left > 0 {
			if _, err := c.dec.Token(); err != nil {
				return fmt.Errorf("%w: %w", errNoArray, err)
			}
		}
		c.out.WriteString("]")
		c.done = true
		return nil
	}
	var raw json.RawMessage
	if err := c.dec.Decode(&raw); err != nil {
		return fmt.Errorf("%w: %w", errNoArray, err)
	}
	c.out.Write(raw)
	c.left--
	if c.left > 0 && c.dec.More() {
		c.out.WriteByte(',')
	}
	return nil
}

var errNoArray = errors.New("E_JSON: the input begins like a JSON array and is none")

// stdinName is what an input from standard input is called.
const stdinName = "stdin"

// readInput reads what --input names: a file, "-" for standard input, or a directory, which stands for the list of its
// files. A sample is cut while it is read, so that a file may be larger than memory; plan is nil when only a server knows it,
// and the server cuts then.
func (a *app) readInput(path string, plan *events.Plan, sample int) (content []byte, name string, err error) {
	r, name := a.in, stdinName
	switch path {
	case "":
		return nil, "", nil
	case "-":
	default:
		f, err := os.Open(path)
		if err != nil {
			return nil, "", a.usageError("usage.input", lang.Data{"File": path, "Error": err.Error()})
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.IsDir() {
			content, err := fileList(path, sample)
			return content, filepath.Base(path) + ".json", err
		}
		r, name = f, filepath.Base(path)
	}
	if plan != nil {
		r = sampled(r, sampleFormat(plan, name), sample)
	}
	if content, err = io.ReadAll(r); err != nil {
		return nil, "", a.usageError("usage.input", lang.Data{"File": path, "Error": err.Error()})
	}
	if plan != nil && sample > 0 && sampleFormat(plan, name) == "" {
		a.tell("run.sample_whole", lang.Data{"Name": name})
	}
	return append([]byte{}, content...), name, nil // an empty input is an input too
}

// fileList is the input that a directory stands for: a JSON array of the absolute paths of its files, sorted by name, the
// first n of them when n is not 0. Hidden files and directories are left out.
func fileList(dir string, n int) ([]byte, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	paths := []string{}
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") && (n == 0 || len(paths) < n) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return json.Marshal(paths)
}
