package bundle

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// stream is where the events of a run or delivery are.
type stream struct {
	line   int     // of its first event in the log, from 1
	events uint64  // how many
	marks  []int64 // where every stride-th event begins, from the first
	origin events.Origin
	first  bool // origin is known
	run    *Run // nil for a delivery
}

const stride = 1000 // events between two marks

// index finds where each stream begins. The caller holds the lock.
func (f *File) index() error {
	if f.streams != nil {
		return nil
	}
	var all []*stream
	streams := map[events.ID]*stream{}
	line := 1
	add := func(id events.ID, n uint64, run *Run) {
		s := &stream{line: line, events: n, run: run}
		line += int(n) //nolint:gosec // the lines of a file that fits on a disk
		streams[id] = s
		all = append(all, s)
	}
	for i := range f.Manifest.Runs {
		add(f.Manifest.Runs[i].Run, f.Manifest.Runs[i].Events, &f.Manifest.Runs[i])
	}
	for i := range f.Manifest.Deliveries {
		add(f.Manifest.Deliveries[i].Delivery, f.Manifest.Deliveries[i].Events, nil)
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f.log, 0, f.log.Size()), 1<<20)
	at := int64(0)
	for _, s := range all {
		for n := range s.events {
			if n%stride == 0 {
				s.marks = append(s.marks, at)
			}
			length, err := skipLine(r)
			if err != nil {
				return wrongLine(CodeEvent, s.line+int(n), hintDamage, "%v", err)
			}
			at += length
		}
	}
	if at != f.log.Size() {
		return wrongLine(CodeEvent, line, hintDamage, "the log goes on where the manifest says that it ends")
	}
	f.streams = streams
	return nil
}

// skipLine passes over a line and gives its length in bytes.
func skipLine(r *bufio.Reader) (length int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		length += int64(len(part))
		switch {
		case length > maxLine:
			return length, fmt.Errorf("the line is longer than %d bytes", maxLine)
		case err == nil:
			return length, nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return length, errors.New("the log ends where the manifest says that it goes on")
		}
	}
}

// Events gives a stream's events after a sequence, in order, as a store does.
func (f *File) Events(ctx context.Context, id events.ID, after uint64, limit int) (log []storage.Sealed, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.index(); err != nil {
		return nil, err
	}
	s := f.streams[id]
	if s == nil || after >= s.events {
		return nil, nil
	}
	mark := after / stride
	r := bufio.NewReaderSize(io.NewSectionReader(f.log, s.marks[mark], f.log.Size()-s.marks[mark]), 1<<16)
	for range after % stride {
		if _, err := skipLine(r); err != nil {
			return nil, err
		}
	}
	lines := make([][]byte, min(s.events-after, uint64(max(0, limit))))
	for i := range lines {
		line, err := readLine(r)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		lines[i] = bytes.Clone(line)
	}
	return f.parse(s, id, after, lines)
}

// parsed is a line that was read, before it is compared with what is due.
type parsed struct {
	sealed storage.Sealed
	origin events.Origin
	err    error
}

// parse reads the lines behind a sequence. Reading one takes longer than replaying it: that is shared among the cores.
func (f *File) parse(s *stream, id events.ID, after uint64, lines [][]byte) ([]storage.Sealed, error) {
	all := make([]parsed, len(lines))
	share := max(64, len(lines)/runtime.GOMAXPROCS(0)+1)
	var readers sync.WaitGroup
	for from := 0; from < len(lines); from += share {
		readers.Go(func() {
			for i := from; i < min(from+share, len(lines)); i++ {
				p := &all[i]
				p.sealed.Event, p.origin, p.err = events.ParseCloudEvent(lines[i])
				p.sealed.Encoded = p.sealed.Data.AppendEncoded(nil)
			}
		})
	}
	readers.Wait()
	log := make([]storage.Sealed, len(all))
	for i := range all {
		if err := f.check(s, id, after+uint64(i)+1, &all[i]); err != nil {
			return nil, err
		}
		log[i] = all[i].sealed
	}
	return log, nil
}

func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err == nil {
		return line, nil
	}
	whole := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) { // index has seen that it ends in time
		line, err = r.ReadSlice('\n')
		whole = append(whole, line...)
	}
	return whole, err
}

// check compares a line with the event that is due there, as Apollo writes it.
func (f *File) check(s *stream, id events.ID, sequence uint64, p *parsed) error {
	place, e := s.line+int(sequence)-1, &p.sealed.Event //nolint:gosec // small
	switch {
	case p.err != nil:
		return wrongLine(CodeEvent, place, hintDamage, "%v", p.err)
	case e.Stream != id || e.Sequence != sequence:
		return wrongLine(CodeEvent, place, hintDamage, "event %d of %s where event %d of %s is due", e.Sequence, e.Stream, sequence, id)
	case (e.Type.Entity() == "delivery") != (s.run == nil):
		return wrongLine(CodeEvent, place, hintDamage, "an event %s in the log of another thing", e.Type.Short())
	}
	if sequence == 1 {
		s.origin, s.first = originOf(e), true
	}
	if s.first && p.origin != s.origin {
		return wrongLine(CodeEvent, place, hintDamage, "its source, correlation or trace is not that of its first event")
	}
	return f.count(place, e)
}

// count keeps a log of few lines from asking for memory for very many instances of foreach stages: each of them has a
// line, once the run has ended.
func (f *File) count(line int, e *events.Event) error {
	if line <= f.counted || e.Data.Count <= 0 {
		return nil
	}
	f.counted = line
	f.instances += uint64(e.Data.Count)
	if most := 10*f.Manifest.Log.Lines + events.MaxItems; f.instances > most {
		return wrongLine(CodeSize, line, hintAgain, "its foreach stages have more than %d instances, and the log only %d lines", most, f.Manifest.Log.Lines)
	}
	return nil
}

// Plan gives a plan's bytes.
func (f *File) Plan(_ context.Context, d events.Digest) ([]byte, error) {
	name := planDir + plain(d)
	e := f.entries[name]
	switch {
	case e == nil:
		return nil, wrong(CodeMissing, name, hintAgain, "a run has this plan and it is not there")
	case e.UncompressedSize64 > maxPlan:
		return nil, wrong(CodeSize, name, hintAgain, "%d bytes; at most %d are allowed", e.UncompressedSize64, maxPlan)
	}
	b, err := readAll(e)
	if err == nil && events.DigestOf(b) != d {
		err = wrong(CodeDigest, name, hintDamage, "it has the content of %s", events.DigestOf(b))
	}
	return b, err
}

// Run gives a run's row as the manifest says it: plan, state, and how far the log went. The error of one that is not there
// is storage.ErrNotFound.
func (f *File) Run(_ context.Context, id events.ID) (storage.RunRow, error) {
	for i := range f.Manifest.Runs {
		if r := &f.Manifest.Runs[i]; r.Run == id {
			return storage.RunRow{ID: r.Run, Pipeline: r.Pipeline, Plan: r.Plan, State: r.State, Sequence: r.Mark, Head: r.MarkHead,
				Delivery: r.Delivery, Forked: r.Forked, Parent: r.Parent}, nil
		}
	}
	return storage.RunRow{}, fmt.Errorf("run %s: %w", id, storage.ErrNotFound)
}
