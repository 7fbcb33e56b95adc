package prune_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/prune"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

// world is a store with runs that are bound to each other, and what a few lines say of them.
type world struct {
	t     *rapid.T
	store *sqlite.Store
	files *artifacts.Store
	m     storetest.Maker
	runs  []*run
	loose map[events.Digest]bool // of deliveries that became no run
}

// run is what the model knows of one: each digest is spelt out, none is found by looking into anything.
type run struct {
	*storetest.Flow
	needs  map[events.Digest]bool
	bound  []*run // forks, parents, children: kept with it and it with them
	origin []*run // whose results it took over: kept with it
}

func newWorld(t *rapid.T, dir string) *world {
	w := &world{t: t, loose: map[events.Digest]bool{}}
	var err error
	if w.store, err = sqlite.Open(filepath.Join(dir, "data"), sqlite.Options{}); err == nil {
		w.files, err = artifacts.Open(filepath.Join(dir, "artifacts"))
	}
	w.must(err)
	return w
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) close() { w.must(errors.Join(w.store.Close(), w.files.Close())) }

// put stores one of few contents, so that runs share artifacts.
func (w *world) put(what string) events.Digest {
	info, err := w.files.Put(context.Background(), bytes.NewReader([]byte(fmt.Sprint(what, rapid.IntRange(0, 3).Draw(w.t, what)))))
	w.must(err)
	return info.Digest
}

func (w *world) document(v any) events.Digest {
	b, err := json.Marshal(v)
	w.must(err)
	info, err := w.files.Put(context.Background(), bytes.NewReader(b))
	w.must(err)
	return info.Digest
}

// tree stores a directory of two files and gives its digest and those of its files.
func (w *world) tree() (events.Digest, []events.Digest) {
	a, b := w.put("tree"), w.put("tree")
	m := artifacts.Manifest{Schema: 1, Entries: []artifacts.Entry{{Path: "a", Type: "file", Digest: a, Size: 5}, {Path: "b", Type: "file", Digest: b, Size: 5}}}
	return w.document(m), []events.Digest{a, b}
}

// pick gives an earlier run, or nil.
func (w *world) pick(what string) *run {
	i := rapid.IntRange(-3, len(w.runs)-1).Draw(w.t, what)
	if i < 0 {
		return nil
	}
	return w.runs[i]
}

func (w *world) add() {
	r := &run{needs: map[events.Digest]bool{}}
	d := events.Data{Kind: "manual"}
	if rapid.Bool().Draw(w.t, "delivery") {
		blob := w.put("blob")
		row, b := w.m.Delivery(events.DeliveryReceived, events.Data{Pipeline: "p", Kind: "webhook", Trigger: "x", Blob: blob, Run: w.m.ID()})
		w.must(w.store.Commit(b))
		d.Delivery, r.needs[blob] = row.ID, true
	}
	bind := func(other *run, id *events.ID) {
		if other != nil {
			*id = other.ID
			r.bound, other.bound = append(r.bound, other), append(other.bound, r)
		}
	}
	bind(w.pick("forked"), &d.Forked)
	bind(w.pick("parent"), &d.Parent)
	g, plan := storetest.Plan("p", 1)
	r.Flow = w.m.BeginFrom(g, plan, d)
	r.Decide()
	if rapid.IntRange(0, 5).Draw(w.t, "goes on") > 0 {
		r.Emit(events.StageCompleted, w.result(r))
		r.Decide()
	}
	w.must(w.store.Commit(r.Take()))
	w.runs = append(w.runs, r)
}

// result makes what a completed stage refers to, in every way that there is.
func (w *world) result(r *run) events.Data {
	need := func(all ...events.Digest) {
		for _, d := range all {
			r.needs[d] = true
		}
	}
	d := events.Data{Stage: "s0", Attempt: 1, Token: r.Stages[0].Token, Evidence: w.put("evidence"), Machine: w.put("machine")}
	file := w.put("file")
	tree, in := w.tree()
	d.Outputs = []events.Result{{Role: "file", Digest: file, Name: "file"}, {Role: "tree", Digest: tree, Name: "tree/"},
		{Role: "value", Digest: events.DigestOf([]byte("1")), Value: json.RawMessage("1")}}
	inputs, listed := w.tree()
	definition, input := w.put("definition"), w.put("input")
	pins := events.Pins{Schema: 1, Definition: definition, Seed: 1, Inputs: []events.PinnedInput{{Role: "dir", Kind: "directory", Digest: inputs}, {Role: "file", Kind: "file", Digest: input}}}
	b, err := events.EncodeDocument(&pins)
	w.must(err)
	if rapid.Bool().Draw(w.t, "long pins") {
		d.PinnedAt = w.document(pins)
		need(d.PinnedAt)
	} else {
		d.Pinned = b
	}
	need(append(append(append(in, listed...), tree, inputs), file, d.Evidence, d.Machine, definition, input)...)
	if origin := w.pick("cached"); origin != nil {
		d.Cached = origin.ID
		r.origin = append(r.origin, origin)
	}
	return d
}

// keep gives the runs that stay, by going round until nothing changes.
func (w *world) keep(before int64) map[*run]bool {
	kept := map[*run]bool{}
	for _, r := range w.runs {
		if r.Pruned == 0 && (!r.State.Terminal() || r.Ended >= before) {
			kept[r] = true
		}
	}
	for changed := true; changed; {
		changed = false
		for _, r := range w.runs {
			for _, other := range slices.Concat(r.bound, r.origin) {
				if kept[r] && !kept[other] && other.Pruned == 0 {
					kept[other], changed = true, true
				}
			}
		}
	}
	return kept
}

func (w *world) there() map[events.Digest]bool {
	all := map[events.Digest]bool{}
	w.must(w.files.Each(context.Background(), func(f artifacts.Found) error {
		all[f.Digest] = true
		return nil
	}))
	return all
}

func options(m *storetest.Maker, before int64) prune.Options {
	return prune.Options{Before: before, Began: time.Now().Add(time.Hour), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }, NewID: m.ID, Actor: "me", Reason: "old"}
}

// sound: fsck finds nothing, in the store, in the artifacts, and between them.
func (w *world) sound() {
	ctx := context.Background()
	report := func(p storage.Problem) { w.t.Errorf("%+v", p) }
	w.must(errors.Join(w.store.Check(ctx, report), w.files.Check(ctx, report), prune.Check(ctx, w.store, w.files, report)))
}

var errCrash = errors.New("crash")

// dying is an artifact store whose process dies at one of the removals.
type dying struct {
	*artifacts.Store
	left int
}

func (d *dying) Remove(digest events.Digest) error {
	if d.left--; d.left < 0 {
		return errCrash
	}
	return d.Store.Remove(digest)
}

// TestPruneKeepsWhatIsNeeded: whatever runs there are and however they are bound to each other, what a kept run needs stays,
// everything else goes, the log says of which runs, and a crash in the middle changes nothing about that.
func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("/dev/shm", "prune") //nolint:usetesting // in memory: no sync is waited for
	if err != nil {
		base = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(base, strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			rt.Fatal(err)
		}
		w := newWorld(rt, dir)
		defer w.close()
		for range rapid.IntRange(0, 7).Draw(rt, "runs") {
			w.add()
		}
		_, b := w.m.Delivery(events.DeliveryRejected, events.Data{Pipeline: "p", Kind: "webhook", Trigger: "x", Blob: w.put("loose"), Reason: "bad"})
		w.must(w.store.Commit(b))
		w.loose[b.Events[0].Data.Blob] = true
		w.put("orphan")
		for range rapid.IntRange(1, 2).Draw(rt, "prunings") {
			w.prune(rapid.Int64Range(0, 200).Draw(rt, "before"), rapid.IntRange(-1, 8).Draw(rt, "crash"))
		}
	})
}

func (w *world) prune(before int64, crash int) {
	if before > 0 {
		before += 1_700_000_000_000_000_000
	}
	ctx, kept, there := context.Background(), w.keep(before), w.there()
	needed := map[events.Digest]bool{}
	for d := range w.loose {
		needed[d] = true
	}
	for r := range kept {
		for d := range r.needs {
			needed[d] = true
		}
	}
	gone := map[*run]bool{}
	for _, r := range w.runs {
		for d := range r.needs {
			if !kept[r] && r.Pruned == 0 && there[d] && !needed[d] {
				gone[r] = true
			}
		}
	}
	o := options(&w.m, before)
	o.Dry = true
	would, err := prune.Prune(ctx, w.store, w.store, w.files, o)
	w.must(err)
	if now := w.there(); len(now) != len(there) {
		w.t.Fatalf("a dry run removed %d artifacts", len(there)-len(now))
	}
	o.Dry = false
	if crash >= 0 {
		if _, err := prune.Prune(ctx, w.store, w.store, &dying{w.files, crash}, o); err != nil && !errors.Is(err, errCrash) {
			w.t.Fatal(err)
		}
		w.sound()
	}
	did, err := prune.Prune(ctx, w.store, w.store, w.files, o)
	w.must(err)
	if crash < 0 && (did.Artifacts != would.Artifacts || did.Bytes != would.Bytes || len(did.Runs) != len(would.Runs)) {
		w.t.Fatalf("announced %+v, did %+v", would, did)
	}
	now := w.there()
	for d := range there {
		if needed[d] != now[d] {
			w.t.Fatalf("artifact %v: needed %v, there %v", d, needed[d], now[d])
		}
	}
	if len(would.Runs) != len(gone) {
		w.t.Fatalf("%d runs lose artifacts, %d should", len(would.Runs), len(gone))
	}
	for _, r := range w.runs {
		row, err := w.store.Run(ctx, r.ID)
		w.must(err)
		if (row.Pruned > 0) != (r.Pruned > 0 || gone[r]) {
			w.t.Fatalf("run %s: pruned %d, should be %v", r.ID, row.Pruned, gone[r])
		}
		r.Pruned = row.Pruned
	}
	w.sound()
	if again, err := prune.Prune(ctx, w.store, w.store, w.files, o); err != nil || again.Artifacts != 0 || len(again.Runs) != 0 {
		w.t.Fatalf("the next one found %+v, %v", again, err)
	}
}
