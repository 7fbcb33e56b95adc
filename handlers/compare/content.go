package compare

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// errNoArtifacts says that a side has none.
var errNoArtifacts = errors.New("its artifacts are not there")

// Content is what differs inside an output.
type Content struct {
	Format  string  `json:"format"`                           // text, csv, tsv, json, ndjson, binary, directory, value
	Text    string  `json:"diff,omitempty"`                   // unified, or what the external program says
	Table   *Table  `json:"table,omitempty"`                  // csv, tsv, ndjson with a key
	Changes []Field `json:"changes,omitempty"`                // json, value: by JSON pointer
	Files   []File  `json:"files,omitempty"`                  // directory
	Offset  *int64  `json:"first_differing_offset,omitempty"` // binary: bytes
	More    int     `json:"more,omitempty"`                   // differences that are not given
	Partial bool    `json:"partial,omitempty"`                // only the beginning was compared
	Note    string  `json:"note,omitempty"`
}

// File is a file of a directory that differs.
type File struct {
	Path    string   `json:"path"`
	Change  string   `json:"change"` // added, removed, changed
	A       string   `json:"a,omitempty"`
	B       string   `json:"b,omitempty"`
	Content *Content `json:"content,omitempty"`
}

// blobs are the two sides of one content.
type blobs struct {
	name   string
	format string // csv, tsv, json, ndjson, or empty: it is found out
	key    []string
	a, b   events.Digest
	sizes  [2]int64
}

// content compares the contents of an output. What cannot be read is noted, and is no error: the digests differ in any case.
func (c *comparison) content(o *Output, p couple) {
	if o.A == nil || o.B == nil {
		return
	}
	if o.A.Value != nil && o.B.Value != nil {
		o.Content = &Content{Format: "value"}
		o.Content.byPointer(decoded(o.A.Value), decoded(o.B.Value), c.o.Limit)
		return
	}
	both := blobs{name: o.B.Name, sizes: [2]int64{o.A.Size, o.B.Size}}
	if errors.Join(both.a.UnmarshalText([]byte(o.A.Digest)), both.b.UnmarshalText([]byte(o.B.Digest))) != nil {
		return
	}
	declared := c.a.Run.StageOf(p.a).Outputs
	if k := slices.IndexFunc(declared, func(d events.Output) bool { return d.Role == o.Role }); k >= 0 {
		both.format, both.key = declared[k].Format, declared[k].Key
	}
	if strings.HasSuffix(o.A.Name, "/") && strings.HasSuffix(o.B.Name, "/") {
		o.Content = c.directory(&both)
		return
	}
	o.Content = c.file(&both)
}

// file compares two files by their format: the declared one, else that of the name.
func (c *comparison) file(b *blobs) *Content {
	format := b.format
	if format == "" {
		format = strings.TrimPrefix(strings.ToLower(path.Ext(b.name)), ".")
	}
	if format == "jsonl" {
		format = "ndjson"
	}
	found := &Content{Format: format}
	var err error
	switch {
	case format == "csv", format == "tsv", format == "ndjson" && len(b.key) > 0:
		err = c.streams(b, func(x, y io.Reader) (err error) {
			found.Table, err = c.table(format, b.key, x, y)
			return err
		})
		found.Partial = found.Table != nil && found.Table.Partial
	case format == "json" && max(b.sizes[0], b.sizes[1]) <= maxJSON:
		x, y := c.a.bytes(b.a), c.b.bytes(b.b)
		if !json.Valid(x) || !json.Valid(y) {
			err = errUnreadable
			break
		}
		found.byPointer(decoded(x), decoded(y), c.o.Limit)
	default:
		return c.plain(b, format)
	}
	if err != nil || found.empty() { // no table, no JSON, or the same in other bytes
		plain := c.plain(b, "")
		if err != nil {
			plain.Note = err.Error()
		}
		return plain
	}
	return found
}

var errUnreadable = errors.New("it is no JSON")

// empty reports whether nothing differs but the bytes.
func (c *Content) empty() bool {
	return len(c.Changes) == 0 && (c.Table == nil || c.Table.Added+c.Table.Removed+c.Table.Changed+len(c.Table.NewColumns)+len(c.Table.GoneColumns) == 0 && !c.Table.Partial)
}

// byPointer gives the places in which two JSON values differ.
func (c *Content) byPointer(a, b any, limit int) {
	all := changes(a, b)
	for i := range all {
		if i == limit {
			c.More = len(all) - limit
			return
		}
		c.Changes = append(c.Changes, Field{Field: all[i].pointer(), A: all[i].a, B: all[i].b})
	}
}

// plain compares two files as text, or by where they part when they are none.
func (c *comparison) plain(b *blobs, format string) *Content {
	if format != "ndjson" {
		format = "text"
	}
	found := &Content{Format: format}
	var at parting
	err := c.streams(b, func(x, y io.Reader) (err error) {
		at, err = parts(c.ctx, x, y)
		return err
	})
	if err != nil {
		return &Content{Format: "unknown", Note: err.Error()}
	}
	var x, y window
	err = c.streams(b, func(first, second io.Reader) (err error) {
		if x, err = at.window(first); err == nil {
			y, err = at.window(second)
		}
		return err
	})
	if err != nil {
		return &Content{Format: "unknown", Note: err.Error()}
	}
	if !x.text() || !y.text() {
		return c.binary(b, at.offset)
	}
	found.Partial = x.cut || y.cut
	found.Text, found.More = bounded(unified(x.bytes, y.bytes, at.line), c.o.Limit)
	return found
}

func (c *comparison) binary(b *blobs, offset int64) *Content {
	found := &Content{Format: "binary", Offset: &offset}
	if c.o.External == nil {
		return found
	}
	err := c.streams(b, func(x, y io.Reader) error {
		text, err := c.o.External(c.ctx, path.Base(b.name), x, y)
		found.Text, found.More = bounded(text, c.o.Limit)
		return err
	})
	if err != nil {
		found.Note = err.Error()
	}
	return found
}

// streams opens both sides.
func (c *comparison) streams(b *blobs, do func(x, y io.Reader) error) error {
	x, err := c.a.open(b.a)
	if err != nil {
		return err
	}
	defer x.Close()
	y, err := c.b.open(b.b)
	if err != nil {
		return err
	}
	defer y.Close()
	return do(bufio.NewReaderSize(x, buffer), bufio.NewReaderSize(y, buffer))
}

const buffer = 256 << 10
