package contract

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// MaxJSON is the size in bytes of the longest JSON document that is checked; it is read whole.
const MaxJSON = 64 << 20

// The codes of data that is no readable CSV, of JSON that is too long, and of a format that has no contracts.
const (
	CodeCSV    = "E_CSV"
	CodeSize   = "E_JSON_SIZE"
	CodeFormat = "E_FORMAT"
)

// Check reads data of a format and compares it with a contract, which may be nil. The formats are csv, tsv, json, ndjson
// and jsonl; of any other only the bytes are counted, and Records is -1: a contract for one is broken by it, never passed
// over in silence. Whatever is wrong with the data is in the report; the error is that of reading it, or of the context.
func Check(ctx context.Context, format string, c *Contract, r io.Reader) (*Report, error) {
	switch format {
	case "csv":
		return c.CheckCSV(ctx, r)
	case "tsv":
		return c.checkCSV(ctx, r, '\t', MaxRecord)
	case "json":
		return c.CheckJSON(ctx, r)
	case "ndjson", "jsonl":
		return c.CheckNDJSON(ctx, r)
	}
	n, err := io.Copy(io.Discard, reader{ctx, r})
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", format, err)
	}
	report := &Report{Records: -1, Bytes: n}
	if c != nil {
		report.add(func() Violation {
			return Violation{Rule: CodeFormat, Expected: "csv, tsv, json, ndjson or jsonl",
				Actual: fmt.Sprintf("no contract can be checked on the format %q", shorten(format))}
		})
	}
	return report, nil
}

// CheckValue compares a decoded value with the contract.
func (c *Contract) CheckValue(v any) *Report {
	report := &Report{Records: 1}
	if items, ok := v.([]any); ok {
		report.Records = int64(len(items))
	}
	c.check(report, v)
	return report
}

// CheckJSON reads one JSON document, at most MaxJSON bytes. Records is the length of an array, else 1.
func (c *Contract) CheckJSON(ctx context.Context, r io.Reader) (*Report, error) {
	text, err := io.ReadAll(io.LimitReader(reader{ctx, r}, MaxJSON+1))
	if err != nil {
		return nil, fmt.Errorf("check json: %w", err)
	}
	if len(text) > MaxJSON {
		report := &Report{Records: -1, Bytes: int64(len(text))}
		report.add(func() Violation {
			return Violation{Rule: CodeSize, Expected: fmt.Sprintf("at most %d bytes", MaxJSON), Actual: "more"}
		})
		return report, nil
	}
	v, err := DecodeStrict(text)
	report := &Report{Records: -1}
	if err != nil {
		report.add(func() Violation { return malformed(err, text) })
	} else {
		report = c.CheckValue(v)
	}
	report.Bytes = int64(len(text))
	return report, nil
}

// malformed makes a violation of what DecodeStrict refused.
func malformed(err error, text []byte) Violation {
	var bad *DecodeError
	if !errors.As(err, &bad) {
		return Violation{Rule: CodeSyntax, Expected: "JSON", Actual: shorten(err.Error())}
	}
	before := text[:bad.Offset]
	line := bytes.Count(before, []byte{'\n'}) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	return Violation{Pointer: shorten(bad.Pointer), Line: line, Rule: bad.Code, Expected: "strict JSON",
		Actual: fmt.Sprintf("%s, at %d:%d", bad.What, line, column)}
}

// CheckNDJSON reads one JSON value a line, each against the contract, in constant memory. Blank lines are passed over.
// A pointer is that of an array of the lines: /0/price is in the first one.
func (c *Contract) CheckNDJSON(ctx context.Context, r io.Reader) (*Report, error) {
	report := &Report{}
	counted := &counter{r: reader{ctx, r}}
	lines := bufio.NewScanner(counted)
	lines.Buffer(make([]byte, 0, 64<<10), MaxRecord)
	number := 0
	for lines.Scan() {
		number++
		text := lines.Bytes()
		if number == 1 {
			text = bytes.TrimPrefix(text, utf8BOM)
		}
		if len(bytes.TrimSpace(text)) > 0 {
			c.line(report, number, text)
		}
	}
	report.Bytes = counted.n
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		report.add(func() Violation {
			return Violation{Line: number + 1, Rule: CodeSize, Expected: fmt.Sprintf("lines of at most %d bytes", MaxRecord), Actual: "more"}
		})
	} else if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("check ndjson: %w", err)
	}
	return report, nil
}

func (c *Contract) line(report *Report, number int, text []byte) {
	prefix := fmt.Sprintf("/%d", report.Records)
	report.Records++
	one := &Report{}
	if v, err := DecodeStrict(text); err != nil {
		one.add(func() Violation { return malformed(err, text) })
	} else {
		c.check(one, v)
	}
	for _, v := range one.Violations {
		v.Line, v.Pointer = number, prefix+v.Pointer
		report.add(func() Violation { return v })
	}
	report.Total += one.Total - int64(len(one.Violations))
}

// reader stops reading when the context ends.
type reader struct {
	ctx context.Context //nolint:containedctx // of one copy
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
