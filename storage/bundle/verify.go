package bundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
)

// Verify looks at every byte: each plan, artifact and the log have their digests, each line is the event that is due and
// written as Apollo writes it, each hash chain holds and ends with the head that the manifest says, everything that an
// event refers to is there or listed as missing, and a replay of each run gives what is recorded, decision for decision,
// and the state of the manifest. Errors that are the file's fault are an *Error.
func (f *File) Verify(ctx context.Context) error {
	for _, p := range f.Manifest.Plans {
		if _, err := f.Plan(ctx, p.Digest); err != nil {
			return err
		}
	}
	for _, a := range f.Manifest.Artifacts {
		if err := f.verifyEntry(ctx, artifactDir+plain(a.Digest), a.Digest); err != nil {
			return err
		}
	}
	if err := f.verifyEntry(ctx, logName, f.Manifest.Log.Digest); err != nil {
		return err
	}
	v := &verifier{File: f, has: map[events.Digest]bool{}, wanted: map[events.Digest]kind{}}
	for _, a := range f.Manifest.Artifacts {
		v.has[a.Digest] = true
	}
	for _, d := range f.Manifest.Missing {
		v.has[d] = true
	}
	for i := range f.Manifest.Runs {
		if _, err := v.run(ctx, &f.Manifest.Runs[i]); err != nil {
			return err
		}
	}
	for i := range f.Manifest.Deliveries {
		if err := v.delivery(ctx, &f.Manifest.Deliveries[i]); err != nil {
			return err
		}
	}
	return v.documents()
}

func (f *File) verifyEntry(ctx context.Context, name string, want events.Digest) error {
	e := f.entries[name]
	r, err := e.Open()
	if err != nil {
		return wrong(CodeZip, name, hintDamage, "%v", err)
	}
	h := sha256.New()
	_, err = io.Copy(h, reading{ctx, r})
	if err = errors.Join(err, r.Close()); ctx.Err() != nil {
		return ctx.Err()
	}
	var got events.Digest
	h.Sum(got[:0])
	switch {
	case got != want:
		return wrong(CodeDigest, name, hintDamage, "it has the content of %s", got)
	case err != nil:
		return wrong(CodeDigest, name, hintDamage, "%v", err)
	}
	return nil
}

type verifier struct {
	*File
	has    map[events.Digest]bool // artifacts that are there, or known to be missing
	wanted map[events.Digest]kind // artifacts that something refers to
}

// documents follows what the documents among the artifacts refer to, and refuses what nothing refers to.
func (v *verifier) documents() error {
	todo, done := v.wanted, map[events.Digest]bool{}
	for len(todo) > 0 {
		v.wanted = map[events.Digest]kind{}
		for digest, k := range todo {
			if done[digest] {
				continue
			}
			done[digest] = true
			name := artifactDir + plain(digest)
			e := v.entries[name]
			if e == nil || k == content || e.UncompressedSize64 > maxDocument {
				continue
			}
			document, err := readAll(e)
			if err != nil {
				return err
			}
			for _, r := range documentRefs(k, document) {
				if !v.has[r.digest] {
					return wrong(CodeMissing, name, hintAgain, "it names the artifact %s, which is neither there nor listed as missing", r.digest)
				}
				v.wanted[r.digest] = max(v.wanted[r.digest], r.kind)
			}
		}
		todo = v.wanted
	}
	for _, a := range v.Manifest.Artifacts {
		if !done[a.Digest] {
			return wrong(CodeEntry, artifactDir+plain(a.Digest), hintAgain, "nothing in the file refers to it")
		}
	}
	return nil
}

// walk gives a stream's events to each.
func (v *verifier) walk(ctx context.Context, id events.ID, each func(*storage.Sealed) error) error {
	for e, err := range storage.Stream(ctx, v, id, 0) {
		if err == nil {
			err = each(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) lineOf(id events.ID, sequence uint64) int {
	return v.streams[id].line + int(sequence) - 1 //nolint:gosec // small
}

// run replays a run and gives it as it stands after its last event.
func (v *verifier) run(ctx context.Context, m *Run) (*events.Run, error) {
	b, err := v.Plan(ctx, m.Plan)
	if err != nil {
		return nil, err
	}
	graph, err := storage.DecodeGraph(b, m.Plan)
	if err != nil {
		return nil, wrong(CodeReplay, planDir+plain(m.Plan), hintAgain, "%v", err)
	}
	p := events.NewReplayer(graph)
	err = v.walk(ctx, m.Run, func(e *storage.Sealed) error {
		line := v.lineOf(m.Run, e.Sequence)
		if e.Prev != p.Run().Chain.Head {
			return wrongLine(CodeChain, line, hintDamage, "event %d of %s does not continue the hash chain", e.Sequence, m.Run)
		}
		if err := v.accounted(graph.Plan, e, line); err != nil {
			return err
		}
		if mismatch := p.Step(&e.Event, e.Encoded); mismatch != nil {
			return wrongLine(CodeReplay, line, "apollo replay FILE shows how far it agrees", "recorded %s, recomputed %s", mismatch.Recorded, mismatch.Recomputed)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := p.Run()
	if r.Chain.Sequence != m.Events || r.Chain.Head != m.Head {
		return nil, wrongLine(CodeChain, v.lineOf(m.Run, m.Events), hintDamage, "the log of %s ends with %s, the manifest says %s", m.Run, r.Chain.Head, m.Head)
	}
	got := Run{Run: r.ID, Pipeline: graph.Plan.Pipeline, State: r.State, Plan: graph.Digest, Events: r.Chain.Sequence, Head: r.Chain.Head,
		Mark: r.Mark.Sequence, MarkHead: r.Mark.Head, Delivery: r.Delivery, Forked: r.Forked, Parent: r.Parent}
	if got != *m {
		return nil, wrong(CodeReplay, manifestName, hintDamage, "run %s: it says %s, the log says %s", m.Run, show(m), show(&got))
	}
	return r, nil
}

func show(r *Run) string {
	return fmt.Sprintf("%s %s, settled by event %d, from delivery %q, run %q, parent %q", r.Pipeline, r.State, r.Mark, r.Delivery, r.Forked, r.Parent)
}

// accounted refuses an event that refers to an artifact of which the manifest knows nothing.
func (v *verifier) accounted(plan *events.Plan, e *storage.Sealed, line int) error {
	for _, r := range eventRefs(plan, &e.Event) {
		if !v.has[r.digest] {
			return wrongLine(CodeMissing, line, hintAgain, "it refers to the artifact %s, which is neither there nor listed as missing", r.digest)
		}
		v.wanted[r.digest] = max(v.wanted[r.digest], r.kind)
	}
	if key := e.Data.StageKey(); !key.IsZero() {
		if !v.has[key] {
			return wrongLine(CodeMissing, line, hintAgain, "its pins document %s is not there", key)
		}
		v.wanted[key] = max(v.wanted[key], pins)
	}
	return nil
}

func (v *verifier) delivery(ctx context.Context, m *Delivery) error {
	var chain events.Chain
	var scratch []byte
	err := v.walk(ctx, m.Delivery, func(e *storage.Sealed) (err error) {
		line := v.lineOf(m.Delivery, e.Sequence)
		if scratch, err = chain.Follow(&e.Event, e.Encoded, scratch); err != nil {
			return wrongLine(CodeChain, line, hintDamage, "%v", err)
		}
		return v.accounted(nil, e, line)
	})
	if err == nil && chain.Head != m.Head {
		err = wrongLine(CodeChain, v.lineOf(m.Delivery, m.Events), hintDamage, "the log of %s ends with %s, the manifest says %s", m.Delivery, chain.Head, m.Head)
	}
	return err
}
