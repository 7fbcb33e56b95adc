package contract

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxRecord is the size in bytes of the longest CSV record and of the longest NDJSON line.
const MaxRecord = 16 << 20

// CheckCSV reads a CSV file with commas and a header in constant memory and compares each row, as an object, with the
// contract. Records are the rows below the header; blank lines do not count. What is wrong with the file as CSV (E_CSV)
// ends the check, except for a row with too few or too many fields: that one is reported and the check goes on.
func (c *Contract) CheckCSV(ctx context.Context, r io.Reader) (*Report, error) {
	return c.checkCSV(ctx, r, ',', MaxRecord)
}

// window is how much is read ahead of the record that is being parsed.
const window = 64 << 10

func (c *Contract) checkCSV(ctx context.Context, r io.Reader, comma rune, maxRecord int64) (*Report, error) {
	g := &guard{ctx: ctx, r: r, max: maxRecord, limit: maxRecord + window}
	rows := csv.NewReader(bufio.NewReaderSize(g, window)) // this size makes csv use the buffer and not one of its own
	rows.Comma, rows.ReuseRecord = comma, true
	report := &Report{}
	err := c.rows(rows, report, func() { g.limit = rows.InputOffset() + maxRecord + window })
	report.Bytes = g.read
	if err != nil && !unreadable(report, err) {
		return nil, fmt.Errorf("check csv: %w", err)
	}
	return report, nil
}

// rows reads the header and all rows; next is called before each.
func (c *Contract) rows(rows *csv.Reader, report *Report, next func()) error {
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return &csvError{line: 1, column: 1, what: "no header: the file is empty"}
	}
	if err != nil {
		return err
	}
	if err := checkHeader(header, rows); err != nil {
		return err
	}
	t := newTable(c, header)
	t.checkColumns(report)
	for {
		next()
		record, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, csv.ErrFieldCount):
			report.Records++
			report.add(func() Violation { return ragged(rows, report.Records+1, len(record), len(t.columns)) })
		case err != nil:
			return err
		default:
			report.Records++
			t.row = row{number: report.Records + 1, cells: record, reader: rows}
			t.check(report)
		}
	}
}

// checkHeader refuses names that cannot tell columns apart.
func checkHeader(header []string, rows *csv.Reader) error {
	seen := make(map[string]bool, len(header))
	for i, name := range header {
		what := ""
		switch {
		case strings.TrimSpace(name) == "":
			what = fmt.Sprintf("column %d has no name in the header", i+1)
		case seen[name]:
			what = fmt.Sprintf("the header has the column %s twice", shorten(name))
		}
		if what != "" {
			line, column := rows.FieldPos(i)
			return &csvError{line: line, column: column, what: what}
		}
		seen[name] = true
	}
	return nil
}

func ragged(rows *csv.Reader, number int64, got, want int) Violation {
	line, _ := rows.FieldPos(0)
	return Violation{Row: number, Line: line, Pointer: fmt.Sprintf("%d:1", line), Rule: CodeCSV,
		Expected: fmt.Sprintf("%d fields as in the header", want), Actual: fmt.Sprintf("%d fields", got)}
}

// unreadable adds the error that ends a check, if it is the file's and not the machine's.
func unreadable(report *Report, err error) bool {
	var syntax *csv.ParseError
	var bad *csvError
	switch {
	case errors.As(err, &bad):
	case errors.As(err, &syntax):
		bad = &csvError{line: syntax.Line, column: syntax.Column, what: quoteFault(syntax.Err)}
	default:
		return false
	}
	report.add(func() Violation {
		return Violation{Line: bad.line, Pointer: fmt.Sprintf("%d:%d", bad.line, bad.column), Rule: CodeCSV,
			Expected: "readable CSV", Actual: fmt.Sprintf("%s, at %d:%d", bad.what, bad.line, bad.column)}
	})
	return true
}

func quoteFault(err error) string {
	switch {
	case errors.Is(err, csv.ErrBareQuote):
		return `a bare " in a field without quotes`
	case errors.Is(err, csv.ErrQuote):
		return `a quoted field does not end, or something follows its closing "`
	}
	return err.Error()
}
