package compare_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/compare"
)

// world keeps the artifacts of both sides.
type world map[events.Digest][]byte

func (w world) Open(d events.Digest) (io.ReadCloser, error) {
	b, ok := w[d]
	if !ok {
		return nil, fmt.Errorf("open %v: %w", d, os.ErrNotExist)
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (w world) put(content string) events.Digest {
	d := events.DigestOf([]byte(content))
	w[d] = []byte(content)
	return d
}

func (w world) file(role, name, content string) events.Result {
	return events.Result{Role: role, Name: name, Digest: w.put(content), Size: int64(len(content)), Records: -1}
}

// pinned is the data of the event that ended a stage, with its documents.
func (w world) pinned(pins events.Pins, definition events.Definition, outputs ...events.Result) *events.Data {
	d, _ := events.EncodeDocument(definition)
	pins.Definition = w.put(string(d))
	p, _ := events.EncodeDocument(pins)
	return &events.Data{Pinned: p, Outputs: outputs}
}

// side makes a completed run: the ends of its stages by their labels. What has no end is pending.
func (w world) side(t testing.TB, plan *events.Plan, ends map[string]*events.Data) *compare.Side {
	t.Helper()
	b, err := plan.Encode()
	if err != nil {
		t.Fatal(err)
	}
	g, err := events.NewGraph(plan, events.DigestOf(b))
	if err != nil {
		t.Fatal(err)
	}
	r := events.NewRun(g)
	r.State, r.Params = events.Completed, json.RawMessage(`{"region":"eu"}`)
	for i := range plan.Stages {
		r.Stages = append(r.Stages, stand(ends[plan.Stages[i].Name], i, 0))
	}
	for i := range plan.Stages {
		var list []json.RawMessage
		if s := &r.Stages[i]; s.Last != nil && len(s.Last.Items) > 0 {
			_ = json.Unmarshal(s.Last.Items, &list)
			s.First, s.Count, s.Items = int32(len(r.Stages)), int32(len(list)), s.Last
		}
		for k := range list {
			r.Stages = append(r.Stages, stand(ends[plan.Stages[i].Label(k+1)], i, k+1))
		}
	}
	return &compare.Side{Name: "run", Run: r, Artifacts: w}
}

func stand(end *events.Data, plan, item int) events.Stand {
	s := events.Stand{State: events.Completed, Last: end, Plan: int32(plan), Item: int32(item), Attempt: 1}
	switch {
	case end == nil:
		s.State = events.Pending
	case end.Class != "":
		s.State = events.Failed
	case end.Code == "skipped":
		s.State = events.Skipped
	}
	return s
}

func chain(names ...string) *events.Plan {
	p := &events.Plan{Schema: 1, Pipeline: "orders"}
	for i, name := range names {
		s := events.Stage{Name: name, Executor: "shell", With: json.RawMessage(`{"script":"true"}`)}
		if i > 0 {
			s.Needs, s.Reads = names[i-1:i], names[i-1:i]
			s.Inputs = []events.Input{{Role: "in", From: "stages." + names[i-1] + ".outputs.out", Expr: true}}
		}
		p.Stages = append(p.Stages, s)
	}
	return p
}

func runs(t testing.TB, a, b *compare.Side, o compare.Options) *compare.Result {
	t.Helper()
	r, err := compare.Runs(context.Background(), a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func told(fields []compare.Field) (all []string) {
	for _, f := range fields {
		all = append(all, fmt.Sprintf("%s|%s|%v|%v", f.Group, f.Field, f.A, f.B))
	}
	return all
}

// pins are those of a usual attempt.
func pins() (events.Pins, events.Definition) {
	return events.Pins{Schema: 1, Params: map[string]json.RawMessage{"region": json.RawMessage(`"eu"`), "deep": json.RawMessage(`{"min":1,"max":2}`)},
			Inputs: []events.PinnedInput{{Role: "a", Kind: "file", Digest: events.DigestOf([]byte("1")), Size: 1, Name: "a.csv"}, {Role: "n", Kind: "value", Value: json.RawMessage(`3`)}},
			Env:    map[string]string{"MODE": "fast"}, Secrets: map[string]string{"TOKEN": "aa"}, Time: "2026-11-30T00:00:00Z", Seed: 1<<63 + 1},
		events.Definition{Schema: 1, Executor: "python", With: json.RawMessage(`{"script":"a\nb\nc\n"}`), Command: []string{"python3", "-I"},
			Files: map[string]string{"script.py": "sha256:1"}, Toolchain: []events.Pair{{Name: "python", Value: "sha256:aa"}, {Name: "version", Value: "3.11"}},
			Platform: "linux/amd64", Env: map[string]string{"PATH": "/usr/bin"}, Outputs: []events.Output{{Role: "out", Path: "o.csv"}}, Network: "none"}
}

func TestBecause(t *testing.T) {
	t.Parallel()
	input := func(content string) []events.PinnedInput {
		return []events.PinnedInput{{Role: "a", Kind: "file", Digest: events.DigestOf([]byte(content)), Size: int64(len(content)), Name: "a.csv"}, {Role: "n", Kind: "value", Value: json.RawMessage(`3`)}}
	}
	for name, test := range map[string]struct {
		change func(p *events.Pins, d *events.Definition)
		want   []string
	}{
		"parameter":      {func(p *events.Pins, _ *events.Definition) { p.Params["region"] = json.RawMessage(`"us"`) }, []string{"params|params.region|eu|us"}},
		"deep parameter": {func(p *events.Pins, _ *events.Definition) { p.Params["deep"] = json.RawMessage(`{"min":1.0,"max":2}`) }, []string{"params|params.deep.min|1|1.0"}},
		"no parameter":   {func(p *events.Pins, _ *events.Definition) { delete(p.Params, "region") }, []string{"params|params.region|eu|–"}},
		"input file": {func(p *events.Pins, _ *events.Definition) { p.Inputs = input("22") },
			[]string{"inputs|inputs.a|" + events.DigestOf([]byte("1")).String() + "|" + events.DigestOf([]byte("22")).String()}},
		"input value": {func(p *events.Pins, _ *events.Definition) { p.Inputs[1].Value = json.RawMessage(`4`) }, []string{"inputs|inputs.n|3|4"}},
		"input name":  {func(p *events.Pins, _ *events.Definition) { p.Inputs[0].Name = "b.csv" }, []string{"inputs|inputs.a.name|a.csv|b.csv"}},
		"item":        {func(p *events.Pins, _ *events.Definition) { p.Item = json.RawMessage(`"x"`) }, []string{"inputs|item|–|x"}},
		"script": {func(_ *events.Pins, d *events.Definition) {
			d.With, d.Files = json.RawMessage(`{"script":"a\nB\nc\n"}`), map[string]string{"script.py": "sha256:2"}
		}, []string{"command|with.script|a\nb\nc\n|a\nB\nc\n", "command|files.script.py|sha256:1|sha256:2"}},
		"command":     {func(_ *events.Pins, d *events.Definition) { d.Command = []string{"python3"} }, []string{"command|command|python3 -I|python3"}},
		"variable":    {func(p *events.Pins, _ *events.Definition) { p.Env["MODE"] = "slow" }, []string{"env|env.MODE|fast|slow"}},
		"fixed env":   {func(_ *events.Pins, d *events.Definition) { d.Env["PATH"] = "/bin" }, []string{"env|env.PATH|/usr/bin|/bin"}},
		"secret":      {func(p *events.Pins, _ *events.Definition) { p.Secrets["TOKEN"] = "bb" }, []string{"env|secrets.TOKEN|aa|bb"}},
		"interpreter": {func(_ *events.Pins, d *events.Definition) { d.Toolchain[0].Value = "sha256:bb" }, []string{"executor|toolchain.python|sha256:aa|sha256:bb"}},
		"platform":    {func(_ *events.Pins, d *events.Definition) { d.Platform = "linux/arm64" }, []string{"executor|platform|linux/amd64|linux/arm64"}},
		"time":        {func(p *events.Pins, _ *events.Definition) { p.Time = "2027-01-01T00:00:00Z" }, []string{"time|time|2026-11-30T00:00:00Z|2027-01-01T00:00:00Z"}},
		"seed":        {func(p *events.Pins, _ *events.Definition) { p.Seed++ }, []string{"time|seed|9223372036854775809|9223372036854775810"}},
		"definition": {func(_ *events.Pins, d *events.Definition) { d.Outputs[0].Path, d.Network = "p.csv", "allow" },
			[]string{"definition|definition.network|none|allow", "definition|definition.outputs.out.path|o.csv|p.csv"}},
		"cause first": {func(p *events.Pins, _ *events.Definition) { p.Seed, p.Params["region"] = 7, json.RawMessage(`"us"`) },
			[]string{"params|params.region|eu|us", "time|seed|9223372036854775809|7"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world{}
			p, d := pins()
			a := w.side(t, chain("one"), map[string]*events.Data{"one": w.pinned(p, d, w.file("out", "o.csv", "x"))})
			p, d = pins()
			test.change(&p, &d)
			b := w.side(t, chain("one"), map[string]*events.Data{"one": w.pinned(p, d, w.file("out", "o.csv", "y"))})
			r := runs(t, a, b, compare.Options{})
			if diff := cmp.Diff(test.want, told(r.Because)); diff != "" || r.Kind != compare.Different || r.First == nil || *r.First != "one" || !r.Stages[0].Pinned {
				t.Errorf("%s first %v kind %s pinned %v", diff, r.First, r.Kind, r.Stages[0].Pinned)
			}
			same := w.side(t, chain("one"), map[string]*events.Data{"one": w.pinned(p, d, w.file("out", "o.csv", "x"))})
			r = runs(t, a, same, compare.Options{}) // the same results: only time and seed alone are no difference
			if want := name == "time" || name == "seed"; (r.Verdict == compare.Same) != want {
				t.Errorf("with the same results the verdict is %s", r.Verdict)
			}
		})
	}
}

func TestScriptsAreShownAsTheyChanged(t *testing.T) {
	t.Parallel()
	w := world{}
	p, d := pins()
	a := w.side(t, chain("one"), map[string]*events.Data{"one": w.pinned(p, d)})
	d.With = json.RawMessage(`{"script":"a\nB\nc\n"}`)
	b := w.side(t, chain("one"), map[string]*events.Data{"one": w.pinned(p, d)})
	if got, want := runs(t, a, b, compare.Options{}).Because[0].Text, "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPinsThatCannotBeHad(t *testing.T) {
	t.Parallel()
	w := world{}
	p, d := pins()
	a := w.side(t, chain("one"), map[string]*events.Data{"one": w.pinned(p, d)})
	d.Platform = "other"
	b := w.side(t, chain("one"), map[string]*events.Data{"one": w.pinned(p, d)})
	a.Artifacts, b.Artifacts = nil, nil
	r := runs(t, a, b, compare.Options{})
	if len(r.Because) != 1 || r.Because[0].Field != "definition" || r.Because[0].A == r.Because[0].B {
		t.Errorf("got %v", told(r.Because))
	}
	a.Run.Stages[0].Last.Pinned, a.Run.Stages[0].Last.PinnedAt = nil, events.DigestOf([]byte("elsewhere"))
	r = runs(t, a, b, compare.Options{})
	if len(r.Because) != 1 || r.Because[0].Field != "pins" {
		t.Errorf("got %v", told(r.Because))
	}
}

// verdicts gives the verdict of each stage, in their order.
func verdicts(r *compare.Result) (all []string) {
	for i := range r.Stages {
		s := &r.Stages[i]
		all = append(all, s.Label()+" "+s.Verdict)
	}
	return all
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	w := world{}
	p, d := pins()
	end := func(content string) *events.Data { return w.pinned(p, d, w.file("out", "o", content)) }
	below := func(in, content string) *events.Data {
		p, d := pins()
		p.Inputs = []events.PinnedInput{{Role: "in", Kind: "file", Digest: w.put(in)}}
		return w.pinned(p, d, w.file("out", "o", content))
	}
	failed := func(class events.Class, reason string) *events.Data {
		d := end("")
		d.Outputs, d.Class, d.Reason = nil, class, reason
		return d
	}
	three := chain("one", "two", "three")
	all := func(one, two, three *events.Data) map[string]*events.Data {
		return map[string]*events.Data{"one": one, "two": two, "three": three}
	}
	base := all(end("1"), below("1", "2"), below("2", "3"))
	ignoring := chain("one", "two", "three")
	ignoring.Stages[0].Compare = &events.Compare{Ignore: []string{"out"}}
	for name, test := range map[string]struct {
		plan *events.Plan
		ends map[string]*events.Data
		want []string
		same bool
	}{
		"same":             {three, base, []string{"one same", "two same", "three same"}, true},
		"nondeterministic": {three, all(end("1"), below("1", "x"), below("x", "3")), []string{"one same", "two nondeterministic", "three same"}, false},
		"inherited":        {three, all(end("x"), below("x", "y"), below("y", "z")), []string{"one nondeterministic", "two inherited", "three inherited"}, false},
		"cut off early":    {three, all(end("x"), below("x", "2"), below("2", "3")), []string{"one nondeterministic", "two same", "three same"}, false},
		"two culprits":     {three, all(end("x"), below("x", "2"), below("2", "z")), []string{"one nondeterministic", "two same", "three nondeterministic"}, false},
		"other class":      {three, all(end("1"), failed(events.Timeout, "late"), &events.Data{Code: "skipped"}), []string{"one same", "two different", "three inherited"}, false},
		"lost":             {three, all(end("1"), below("1", "2"), failed(events.Lost, "gone")), []string{"one same", "two same", "three different"}, false},
		"never ran":        {three, all(end("1"), nil, nil), []string{"one same", "two different", "three inherited"}, false},
		"ignored":          {ignoring, all(end("x"), below("x", "2"), below("2", "3")), []string{"one same", "two same", "three same"}, true},
		"only in one":      {chain("one", "two", "three", "four"), base, []string{"one same", "two same", "three same", "four only_b"}, false},
		"other place":      {chain("zero", "one", "two", "three"), base, []string{"zero only_b", "one same", "two same", "three same"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := three
			if test.plan == ignoring {
				before = ignoring
			}
			a, b := w.side(t, before, base), w.side(t, test.plan, test.ends)
			r := runs(t, a, b, compare.Options{All: true})
			got := verdicts(r)
			if diff := cmp.Diff(test.want, got); diff != "" || (r.Verdict == compare.Same) != test.same {
				t.Errorf("%s verdict %s", diff, r.Verdict)
			}
			own := slices.IndexFunc(got, func(v string) bool { return !strings.HasSuffix(v, " same") && !strings.HasSuffix(v, " inherited") })
			if own >= 0 && (r.First == nil || !strings.HasPrefix(got[own], *r.First+" ")) {
				t.Errorf("first is %v, want that of %s", r.First, got[own])
			}
			if r := runs(t, b, a, compare.Options{All: true}); (r.Verdict == compare.Same) != test.same {
				t.Errorf("the other way round the verdict is %s", r.Verdict)
			}
		})
	}
}

// A parameter that every stage is given does not make each of them a culprit.
func TestParametersOfAllStagesAreToldOnce(t *testing.T) {
	t.Parallel()
	w := world{}
	ends := func(region, first, second string) map[string]*events.Data {
		p, d := pins()
		p.Params["region"] = json.RawMessage(region)
		one := w.pinned(p, d, w.file("out", "o", "same"))
		p.Inputs = []events.PinnedInput{{Role: "in", Kind: "file", Digest: w.put("same")}}
		two := w.pinned(p, d, w.file("out", "o", first))
		p.Inputs = []events.PinnedInput{{Role: "in", Kind: "file", Digest: w.put(first)}}
		return map[string]*events.Data{"one": one, "two": two, "three": w.pinned(p, d, w.file("out", "o", second))}
	}
	plan := chain("one", "two", "three")
	r := runs(t, w.side(t, plan, ends(`"eu"`, "1", "2")), w.side(t, plan, ends(`"us"`, "x", "y")), compare.Options{})
	if diff := cmp.Diff([]string{"one different", "two different", "three inherited"}, verdicts(r)); diff != "" || *r.First != "two" || !r.Stages[0].SameResult {
		t.Errorf("%s first %s", diff, *r.First)
	}
	if len(r.Because) != 1 || r.Because[0].Field != "params.region" {
		t.Errorf("because %v", told(r.Because))
	}
}

func TestItemsAreMatchedByValue(t *testing.T) {
	t.Parallel()
	w := world{}
	plan := chain("each")
	plan.Stages[0].Foreach = "params.all"
	ends := func(items string, contents ...string) map[string]*events.Data {
		all := map[string]*events.Data{"each": {Items: json.RawMessage(items)}}
		for i, content := range contents {
			all[fmt.Sprintf("each#%d", i+1)] = &events.Data{Outputs: []events.Result{w.file("out", "o", content)}}
		}
		return all
	}
	a := w.side(t, plan, ends(`["a","b","c"]`, "1", "2", "3"))
	r := runs(t, a, w.side(t, plan, ends(`["new","a","b","c"]`, "0", "1", "x", "3")), compare.Options{All: true})
	got := map[string]string{}
	for _, s := range r.Stages {
		got[string(s.Value)] = s.Verdict
	}
	// the number is part of the key: an instance that moved was to do something else
	if got[`"new"`] != compare.OnlyB || got[`"b"`] != compare.Different || got[`"a"`] != compare.Different || *r.Stages[0].ItemB != 2 {
		t.Errorf("got %v", got)
	}
	r = runs(t, a, w.side(t, plan, ends(`["a","B","c"]`, "1", "2", "3")), compare.Options{All: true})
	if got := verdicts(r); got[1] != "each#2 different" || told(r.Because)[0] != "inputs|item|b|B" {
		t.Errorf("got %v because %v", got, told(r.Because))
	}
	r = runs(t, w.side(t, plan, ends(`["x","a"]`, "0", "1")), w.side(t, plan, ends(`["a","b"]`, "1", "2")), compare.Options{All: true})
	if diff := cmp.Diff([]string{"each#1 only_a", "each#2 different", "each#2 only_b", "each same"}, verdicts(r)); diff != "" {
		t.Error(diff)
	}
	r = runs(t, a, w.side(t, plan, ends(`["a","b","c"]`, "1", "x", "3")), compare.Options{All: true})
	if diff := cmp.Diff([]string{"each#1 same", "each#2 nondeterministic", "each#3 same", "each same"}, verdicts(r)); diff != "" || *r.First != "each#2" {
		t.Error(diff)
	}
	if r = runs(t, a, a, compare.Options{Stage: "each#2"}); len(r.Stages) != 1 || len(runs(t, a, a, compare.Options{Stage: "each"}).Stages) != 4 {
		t.Errorf("one stage: %v", verdicts(r))
	}
}

func TestUnpinned(t *testing.T) {
	t.Parallel()
	w := world{}
	built := func(script, region string, logical int64, body, out string) *compare.Side {
		plan := chain("one", "two")
		b, _ := json.Marshal(map[string]string{"script": script})
		plan.Stages[0].With = b
		plan.Stages[0].Inputs = []events.Input{{Role: "drop", From: "trigger.body", Expr: true}}
		s := w.side(t, plan, map[string]*events.Data{"one": {Outputs: []events.Result{w.file("out", "o", out)}}, "two": {Outputs: []events.Result{w.file("out", "o", out+"2")}}})
		s.Run.Params, s.Run.Logical, s.Delivery = json.RawMessage(`{"region":"`+region+`"}`), logical, &events.Data{Body: []byte(body)}
		return s
	}
	a := built("s", "eu", 1, "b", "1")
	for name, test := range map[string]struct {
		b     *compare.Side
		field string
	}{
		"script": {built("t", "eu", 1, "b", "x"), "with.script"}, "parameter": {built("s", "us", 1, "b", "x"), "params.region"},
		"input": {built("s", "eu", 1, "c", "x"), "inputs.drop"}, "time": {built("s", "eu", 2, "b", "x"), "time"}, "nothing": {built("s", "eu", 1, "b", "x"), ""},
	} {
		r := runs(t, a, test.b, compare.Options{})
		if test.field == "" && r.Kind != compare.Nondeterministic || test.field != "" && (len(r.Because) == 0 || r.Because[0].Field != test.field) {
			t.Errorf("%s: %s because %v", name, r.Kind, told(r.Because))
		}
		if *r.First != "one" || r.Inherited != 1 || r.Stages[0].Pinned {
			t.Errorf("%s: first %s, inherited %d", name, *r.First, r.Inherited)
		}
	}
	if r := runs(t, a, built("s", "eu", 2, "b", "1"), compare.Options{}); r.Verdict != compare.Same {
		t.Errorf("another time with the same results %s", r.Verdict)
	}
}

func TestRecordedAndAccesses(t *testing.T) {
	t.Parallel()
	w := world{}
	machine := func(kernel string) events.Digest {
		b, _ := events.EncodeDocument(events.Machine{Schema: 1, Kernel: kernel, CPUs: 2})
		return w.put(string(b))
	}
	p, d := pins()
	x, y := w.pinned(p, d, w.file("out", "o", "1")), w.pinned(p, d, w.file("out", "o", "2"))
	x.Machine, y.Machine = machine("6.1"), machine("6.18")
	x.Isolation, y.Isolation, x.Exit, y.Out = "env", "landlock", 3, w.put("said")
	x.Accesses = []events.Pair{{Name: "read", Value: "/etc/hosts"}, {Name: "read", Value: "/a"}}
	y.Accesses = []events.Pair{{Name: "read", Value: "/etc/hosts"}, {Name: "write", Value: "/b"}}
	a, b := w.side(t, chain("one"), map[string]*events.Data{"one": x}), w.side(t, chain("one"), map[string]*events.Data{"one": y})
	b.Run.Stages[0].Attempt = 2
	s := runs(t, a, b, compare.Options{}).Stages[0]
	var names []string
	for _, f := range s.Recorded {
		names = append(names, f.Field)
	}
	if diff := cmp.Diff([]string{"attempt", "exit", "isolation", "stdout", "machine.kernel"}, names); diff != "" || s.Verdict != compare.Nondeterministic {
		t.Error(diff, s.Verdict)
	}
	want := &compare.Accesses{A: []events.Pair{{Name: "read", Value: "/a"}}, B: []events.Pair{{Name: "write", Value: "/b"}}}
	if diff := cmp.Diff(want, s.Accesses); diff != "" {
		t.Error(diff)
	}
	y.Outputs = x.Outputs
	if r := runs(t, a, b, compare.Options{}); r.Verdict != compare.Same {
		t.Errorf("what is only recorded makes a difference: %s", r.Verdict)
	}
}

func TestEndsOfTheRunsCount(t *testing.T) {
	t.Parallel()
	w := world{}
	a, b := w.side(t, chain("one"), nil), w.side(t, chain("one"), nil)
	b.Run.State = events.Cancelled
	if r := runs(t, a, b, compare.Options{}); r.Verdict != compare.Differs || r.First != nil || told(r.Because)[0] != "|state|completed|cancelled" {
		t.Errorf("%s %v %v", r.Verdict, r.First, told(r.Because))
	}
}

func BenchmarkTenThousandStages(b *testing.B) {
	w := world{}
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("s%d", i)
	}
	plan := chain(names...)
	ends := func(time string) map[string]*events.Data {
		all := map[string]*events.Data{}
		for _, name := range names {
			p, d := pins()
			p.Time, p.Stage = time, name
			all[name] = w.pinned(p, d, w.file("out", "o", time))
		}
		return all
	}
	x, y := w.side(b, plan, ends("2026-01-01T00:00:00Z")), w.side(b, plan, ends("2026-01-02T00:00:00Z"))
	b.ResetTimer()
	for b.Loop() {
		runs(b, x, y, compare.Options{})
	}
}
