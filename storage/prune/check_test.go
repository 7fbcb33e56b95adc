package prune_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/prune"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

// TestWhatIsMissingIsNamed: once each, with the place that refers to it, and not what may be no artifact or was pruned.
func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	must(t, err)
	files, err := artifacts.Open(t.TempDir())
	must(t, err)
	defer func() { must(t, errors.Join(s.Close(), files.Close())) }()
	digest := func(name string) events.Digest { return events.DigestOf([]byte(name)) }
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 1)
	tree := artifacts.Manifest{Schema: 1, Entries: []artifacts.Entry{{Path: "a", Type: "file", Digest: digest("in the tree")}}}
	b, err := tree.Encode()
	must(t, err)
	info, err := files.Put(t.Context(), strings.NewReader(string(b)))
	must(t, err)
	run := func() *storetest.Flow {
		f := m.Begin(g, plan, m.ID())
		f.Decide()
		f.Emit(events.StageCompleted, events.Data{Stage: "s0", Attempt: 1, Token: f.Stages[0].Token, Evidence: digest("evidence"),
			Pinned:  []byte(`{"schema":1,"inputs":[{"role":"a","kind":"file","digest":"` + digest("inline").String() + `"}]}`),
			Outputs: []events.Result{{Role: "a", Digest: info.Digest, Name: "t/"}}})
		f.Decide()
		must(t, s.Commit(f.Take()))
		return f
	}
	flows := []*storetest.Flow{run(), run()}
	_, d := m.Delivery(events.DeliveryRejected, events.Data{Pipeline: "p", Kind: "webhook", Trigger: "x", Blob: digest("inline")})
	must(t, s.Commit(d))
	named := func() (all []string) {
		must(t, prune.Check(t.Context(), s, files, func(p storage.Problem) {
			if p.Code != prune.CodeMissing {
				t.Errorf("%+v", p)
			}
			all = append(all, p.Place+" "+strings.TrimSuffix(strings.TrimPrefix(p.What, "refers to artifact "), ", which is not there"))
		}))
		return all
	}
	first := "run " + flows[0].ID.String() + " event 4 stage s0 "
	want := []string{first + digest("evidence").String(), first + digest("in the tree").String(), "delivery " + d.Events[0].Stream.String() + " event 1 " + digest("inline").String()}
	if got := named(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, f := range flows {
		f.Emit(events.RunPruned, events.Data{})
		must(t, s.Commit(f.Take()))
	}
	if got := named(); len(got) != 1 || !strings.HasPrefix(got[0], "delivery") {
		t.Errorf("after the pruning: %q", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingGoesBeforeTheLogSaysSo: when the log cannot be written, every artifact stays.
func TestNothingGoesBeforeTheLogSaysSo(t *testing.T) {
	t.Parallel()
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	must(t, err)
	files, err := artifacts.Open(t.TempDir())
	must(t, err)
	defer func() { must(t, errors.Join(s.Close(), files.Close())) }()
	info, err := files.Put(t.Context(), strings.NewReader("output"))
	must(t, err)
	m := &storetest.Maker{}
	g, plan := storetest.Plan("p", 1)
	f := m.Begin(g, plan, m.ID())
	f.Decide()
	f.Emit(events.StageCompleted, events.Data{Stage: "s0", Attempt: 1, Token: f.Stages[0].Token, Outputs: []events.Result{{Role: "a", Digest: info.Digest, Name: "t"}}})
	f.Decide()
	must(t, s.Commit(f.Take()))
	o := options(m, f.Ended+1)
	if _, err := prune.Prune(context.Background(), s, full{}, files, o); !errors.Is(err, storage.ErrFull) || !files.Has(info.Digest) {
		t.Errorf("%v, there %v", err, files.Has(info.Digest))
	}
	o.Began = o.Began.AddDate(-1, 0, 0) // before the artifact came in
	r, err := prune.Prune(context.Background(), s, s, files, o)
	if err != nil || r.Artifacts != 0 || !files.Has(info.Digest) {
		t.Errorf("a new artifact: %+v, %v, there %v", r, err, files.Has(info.Digest))
	}
}

type full struct{}

func (full) Commit(*storage.Batch) error { return storage.ErrFull }
