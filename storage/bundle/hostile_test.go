package bundle_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/storetest"
)

// entry is an entry of a file that is packed by hand.
type entry struct {
	name    string
	body    []byte
	method  uint16
	mode    fs.FileMode
	claimed uint64 // size that the headers say; 0 is the true one
}

func unpack(t testing.TB, b []byte) (all []entry) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, entry{name: f.Name, body: body})
	}
	return all
}

func pack(t testing.TB, all []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range all {
		h := &zip.FileHeader{Name: e.name, Method: e.method}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		var w io.Writer
		var err error
		if e.claimed > 0 {
			h.CompressedSize64, h.UncompressedSize64, h.CRC32 = uint64(len(e.body)), e.claimed, crc32.ChecksumIEEE(e.body)
			w, err = z.CreateRaw(h)
		} else {
			w, err = z.CreateHeader(h)
		}
		if err == nil {
			_, err = w.Write(e.body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// find gives the first entry whose name begins so.
func find(all []entry, prefix string) *entry {
	for i := range all {
		if strings.HasPrefix(all[i].name, prefix) {
			return &all[i]
		}
	}
	return nil
}

// manifestOf changes the manifest, and keeps what it says of the log's bytes true.
func manifestOf(t testing.TB, all []entry, change func(*bundle.Manifest)) []entry {
	t.Helper()
	m := new(bundle.Manifest)
	at := find(all, "manifest.json")
	if err := json.Unmarshal(at.body, m); err != nil {
		t.Fatal(err)
	}
	log := find(all, "events.jsonl").body
	m.Log.Digest, m.Log.Size, m.Log.Lines = events.DigestOf(log), int64(len(log)), uint64(bytes.Count(log, []byte("\n")))
	if change != nil {
		change(m)
	}
	var err error
	if at.body, err = json.Marshal(m); err != nil {
		t.Fatal(err)
	}
	return all
}

// line changes a line of the log, from 1.
func line(t testing.TB, all []entry, n int, old, with string) []entry {
	t.Helper()
	log := find(all, "events.jsonl")
	lines := strings.SplitAfter(string(log.body), "\n")
	if !strings.Contains(lines[n-1], old) {
		t.Fatalf("line %d has no %q: %s", n, old, lines[n-1])
	}
	lines[n-1] = strings.Replace(lines[n-1], old, with, 1)
	log.body = []byte(strings.Join(lines, ""))
	return all
}

// TestHostileFiles: whatever is wrong with a file is found before anything of it is used, and named.
func TestHostileFiles(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	x := s.trade()
	good, m := s.export(x.main)
	hexadecimal := strings.Repeat("ab", 32)
	add := func(e entry) func([]entry) []entry { return func(all []entry) []entry { return append(all, e) } }
	edit := func(change func(*bundle.Manifest)) func([]entry) []entry {
		return func(all []entry) []entry { return manifestOf(t, all, change) }
	}
	for name, c := range map[string]struct {
		change func([]entry) []entry
		want   string // code and place
	}{
		"a traversal":              {add(entry{name: "../../etc/passwd"}), "E_BUNDLE_ENTRY: ../../etc/passwd: its name leads out"},
		"a traversal inside":       {add(entry{name: "artifacts/../x"}), "E_BUNDLE_ENTRY: artifacts/../x: its name leads out"},
		"an absolute path":         {add(entry{name: "/etc/passwd"}), "E_BUNDLE_ENTRY: /etc/passwd: its name is an absolute"},
		"a drive":                  {add(entry{name: "c:/x"}), "E_BUNDLE_ENTRY: c:/x: its name is an absolute"},
		"a backslash":              {add(entry{name: `artifacts\sha256\x`}), "E_BUNDLE_ENTRY"},
		"a directory":              {add(entry{name: "artifacts/"}), "E_BUNDLE_ENTRY: artifacts/: it is a directory"},
		"a link":                   {add(entry{name: "plans/" + hexadecimal, body: []byte("/etc/passwd"), mode: fs.ModeSymlink | 0o777}), "E_BUNDLE_ENTRY: plans/" + hexadecimal + ": it is no plain file"},
		"a device":                 {add(entry{name: "plans/" + hexadecimal, mode: fs.ModeDevice | 0o600}), "it is no plain file"},
		"a strange name":           {add(entry{name: "readme.txt"}), "E_BUNDLE_ENTRY: readme.txt: nothing of that name"},
		"a digest in capitals":     {add(entry{name: "plans/" + strings.ToUpper(hexadecimal)}), "E_BUNDLE_ENTRY"},
		"a short digest":           {add(entry{name: "plans/abcd"}), "E_BUNDLE_ENTRY: plans/abcd: nothing of that name"},
		"an entry nobody lists":    {add(entry{name: "plans/" + hexadecimal}), "E_BUNDLE_ENTRY: plans/" + hexadecimal + ": the manifest does not list it"},
		"an entry twice":           {func(all []entry) []entry { return append(all, *find(all, "plans/")) }, "it is there twice"},
		"a manifest twice":         {func(all []entry) []entry { return append(all, *find(all, "manifest")) }, "E_BUNDLE_ENTRY: manifest.json: it is there twice"},
		"a compressed entry":       {func(all []entry) []entry { find(all, "artifacts/").method = zip.Deflate; return all }, "E_BUNDLE_FORMAT"},
		"a bomb":                   {add(entry{name: "artifacts/sha256/" + hexadecimal, method: zip.Deflate, body: make([]byte, 50<<20)}), "E_BUNDLE_ENTRY: artifacts/sha256/" + hexadecimal + ": it says that it has 52428800 bytes"},
		"a size that is a lie":     {func(all []entry) []entry { find(all, "artifacts/").claimed = 3; return all }, "E_BUNDLE_ENTRY"},
		"a size beyond everything": {func(all []entry) []entry { find(all, "artifacts/").claimed = 1 << 62; return all }, "E_BUNDLE_ENTRY"},
		"no manifest":              {func(all []entry) []entry { return all[1:] }, "E_BUNDLE_MISSING: manifest.json"},
		"no log":                   {func(all []entry) []entry { return append(all[:1:1], all[2:]...) }, "E_BUNDLE_MISSING: events.jsonl"},
		"no plan":                  {func(all []entry) []entry { return append(all[:2:2], all[3:]...) }, "E_BUNDLE_MISSING: plans/"},
		"no artifact":              {func(all []entry) []entry { return all[:len(all)-1] }, "E_BUNDLE_MISSING: artifacts/sha256/"},
		"no JSON":                  {func(all []entry) []entry { find(all, "manifest").body = []byte("{"); return all }, "E_BUNDLE_FORMAT: manifest.json"},
		"a later format":           {edit(func(m *bundle.Manifest) { m.Format = 2 }), "E_BUNDLE_FORMAT: manifest.json: format 2; this build reads 1; use the version"},
		"an unknown member": {func(all []entry) []entry {
			e := find(all, "manifest")
			e.body = append([]byte(`{"x":1,`), e.body[1:]...)
			return all
		}, `E_BUNDLE_FORMAT: manifest.json: json: unknown field "x"`},
		"text behind the manifest": {func(all []entry) []entry { e := find(all, "manifest"); e.body = append(e.body, '{'); return all }, "E_BUNDLE_FORMAT"},
		"a run twice":              {edit(func(m *bundle.Manifest) { m.Runs = append(m.Runs, m.Runs[0]) }), "E_BUNDLE_FORMAT: manifest.json: the stream"},
		"no run":                   {edit(func(m *bundle.Manifest) { m.Runs = nil }), "it names no run"},
		"more events than there":   {edit(func(m *bundle.Manifest) { m.Runs[0].Events++; m.Log.Lines++ }), "E_BUNDLE_EVENT"},
		"more than can be counted": {edit(func(m *bundle.Manifest) { m.Runs[0].Events = 1<<64 - 1; m.Log.Lines = 0 }), "E_BUNDLE_FORMAT"},
		"fewer events than there":  {edit(func(m *bundle.Manifest) { m.Deliveries = nil; m.Log.Lines-- }), "E_BUNDLE_EVENT: events.jsonl"},
		"another order":            {edit(func(m *bundle.Manifest) { m.Runs[0], m.Runs[1] = m.Runs[1], m.Runs[0] }), "E_BUNDLE_EVENT: events.jsonl:1: event 1 of"},
		"plans out of order":       {edit(func(m *bundle.Manifest) { m.Plans[0], m.Plans[1] = m.Plans[1], m.Plans[0] }), "E_BUNDLE_FORMAT: manifest.json: plans"},
		"a negative size":          {edit(func(m *bundle.Manifest) { m.Artifacts[0].Size = -1 }), "E_BUNDLE_FORMAT: manifest.json: artifacts"},
		"another size":             {edit(func(m *bundle.Manifest) { m.Artifacts[0].Size++ }), "E_BUNDLE_SIZE: artifacts/sha256/"},
		"another artifact":         {func(all []entry) []entry { find(all, "artifacts/").body[0] ^= 1; return all }, "E_BUNDLE_DIGEST: artifacts/sha256/"},
		"another plan":             {func(all []entry) []entry { find(all, "plans/").body[3] ^= 1; return all }, "E_BUNDLE_DIGEST: plans/"},
		"another log":              {func(all []entry) []entry { return line(t, all, 2, "run.started", "run.stopped") }, "E_BUNDLE_DIGEST: events.jsonl"},
		"no event":                 {func(all []entry) []entry { return manifestOf(t, line(t, all, 2, "{", "["), nil) }, "E_BUNDLE_EVENT: events.jsonl:2"},
		"an unknown type":          {func(all []entry) []entry { return manifestOf(t, line(t, all, 2, "run.started", "run.stopped"), nil) }, "E_BUNDLE_EVENT: events.jsonl:2"},
		"another time":             {func(all []entry) []entry { return manifestOf(t, line(t, all, 2, `"time":"2023`, `"time":"2024`), nil) }, "E_BUNDLE_CHAIN: events.jsonl:3"},
		"another last event": {func(all []entry) []entry {
			return manifestOf(t, line(t, all, int(m.Runs[0].Events), `"time":"2023`, `"time":"2024`), nil)
		}, "E_BUNDLE_CHAIN: events.jsonl:"},
		"another pipeline's source": {func(all []entry) []entry {
			return manifestOf(t, line(t, all, 2, "/pipelines/trade", "/pipelines/other"), nil)
		}, "E_BUNDLE_EVENT: events.jsonl:2: its source"},
		"another head":               {edit(func(m *bundle.Manifest) { m.Runs[1].Head[0] ^= 1 }), "E_BUNDLE_CHAIN: events.jsonl:"},
		"another head of a delivery": {edit(func(m *bundle.Manifest) { m.Deliveries[0].Head[0] ^= 1 }), "E_BUNDLE_CHAIN: events.jsonl:"},
		"another state":              {edit(func(m *bundle.Manifest) { m.Runs[0].State = events.Failed }), "E_BUNDLE_REPLAY: manifest.json: run"},
		"another mark":               {edit(func(m *bundle.Manifest) { m.Runs[0].Mark-- }), "E_BUNDLE_REPLAY: manifest.json: run"},
		"another delivery":           {edit(func(m *bundle.Manifest) { m.Runs[0].Delivery = x.child }), "E_BUNDLE_REPLAY: manifest.json: run"},
		"another plan of the run":    {edit(func(m *bundle.Manifest) { m.Runs[0].Plan = m.Runs[1].Plan }), "E_BUNDLE_REPLAY: events.jsonl:1: recorded run.created with plan"},
		"an artifact less":           {func(all []entry) []entry { return without(t, all, x.named("a file of the directory")) }, "E_BUNDLE_MISSING: artifacts/sha256/"},
		"a definition less":          {func(all []entry) []entry { return without(t, all, x.named("definition")) }, "E_BUNDLE_MISSING: events.jsonl:"},
		"pins less":                  {func(all []entry) []entry { return without(t, all, x.named("pins in the event")) }, "E_BUNDLE_MISSING: events.jsonl:"},
		"an artifact of nobody's": {func(all []entry) []entry {
			body := []byte("smuggled")
			d := events.DigestOf(body)
			all = append(all, entry{name: "artifacts/sha256/" + strings.TrimPrefix(d.String(), "sha256:"), body: body})
			return manifestOf(t, all, func(m *bundle.Manifest) {
				m.Artifacts = append(m.Artifacts, bundle.Content{Digest: d, Size: int64(len(body))})
				slices.SortFunc(m.Artifacts, func(a, b bundle.Content) int { return bytes.Compare(a.Digest[:], b.Digest[:]) })
			})
		}, "nothing in the file refers to it"},
		"what is missing is not said": {edit(func(m *bundle.Manifest) { m.Missing = nil }), "E_BUNDLE_MISSING: events.jsonl:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, pack(t, c.change(unpack(t, good))), c.want)
		})
	}
	for name, b := range map[string][]byte{"nothing": {}, "text": []byte("hello"), "half a file": good[:len(good)/2], "without its end": good[:len(good)-30]} {
		refused(t, b, "E_BUNDLE_ZIP")
		_ = name
	}
}

// without takes an artifact out of a file, and out of its manifest.
func without(t testing.TB, all []entry, d events.Digest) []entry {
	t.Helper()
	name := "artifacts/sha256/" + strings.TrimPrefix(d.String(), "sha256:")
	if find(all, name) == nil {
		t.Fatalf("%s is not there", name)
	}
	all = slices.DeleteFunc(all, func(e entry) bool { return e.name == name })
	return manifestOf(t, all, func(m *bundle.Manifest) {
		m.Artifacts = slices.DeleteFunc(m.Artifacts, func(c bundle.Content) bool { return c.Digest == d })
	})
}

// named gives an artifact of the sample by what it is.
func (x *sample) named(what string) events.Digest {
	for d, is := range x.want {
		if is == what {
			return d
		}
	}
	panic(what)
}

// refused wants a file to be refused, with a code, a place and a hint.
func refused(t *testing.T, b []byte, want string) {
	t.Helper()
	f, err := bundle.Open(bytes.NewReader(b), int64(len(b)))
	if err == nil {
		err = f.Verify(t.Context())
	}
	var e *bundle.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %s", err, want)
	}
	if e.Hint == "" || e.Code == "" {
		t.Errorf("no code or hint: %+v", e)
	}
}

// TestEntriesMayNotShareBytes: the directory may name the same bytes many times, which makes a small file a large one.
func TestEntriesMayNotShareBytes(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("aa", 32), strings.Repeat("bb", 32)
	packed := pack(t, []entry{{name: "manifest.json", body: []byte("{}")}, {name: "plans/" + a, body: bytes.Repeat([]byte("x"), 1000)}, {name: "plans/" + b, body: bytes.Repeat([]byte("x"), 1000)}})
	first := bytes.Index(packed, []byte("plans/"+a)) - 30
	at := bytes.LastIndex(packed, []byte("plans/"+b)) - 4 // where the directory says that the last entry begins
	binary.LittleEndian.PutUint32(packed[at:], uint32(first))
	refused(t, packed, "E_BUNDLE_ENTRY: plans/"+b+": it shares bytes with plans/"+a)
}

// TestFewLinesAskForLittle: an event says that a stage has very many instances; a log of few lines is not believed.
func TestFewLinesAskForLittle(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: "p"}
	for i := range 3 {
		p.Stages = append(p.Stages, events.Stage{Name: string(rune('a' + i)), Executor: "task", Foreach: "params.x"})
	}
	g, plan := frozen(t, p)
	f := s.Begin(g, plan, s.ID())
	f.Emit(events.RunStarted, events.Data{})
	for _, st := range p.Stages {
		f.Emit(events.StageStarted, events.Data{Stage: st.Name, Attempt: 1, Items: []byte("[]"), Count: 90_000})
	}
	batch := f.Take()
	batch.Stages = nil
	s.commit(batch)
	b, _ := s.export(f.ID)
	refused(t, b, "E_BUNDLE_SIZE: events.jsonl:4")
}

// TestEveryByteCounts turns one byte over after the other: the file is refused, or that byte is none of what is carried, as a
// time in a header of the container.
func TestEveryByteCounts(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	g, plan := storetest.Plan("p", 1)
	f := s.Begin(g, plan, s.ID())
	f.Finish()
	s.commit(f.Take())
	good, m := s.export(f.ID)
	want := contentOf(t, open(t, good), m)
	accepted := 0
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x20
		file, err := bundle.Open(bytes.NewReader(bad), int64(len(bad)))
		if err == nil {
			err = file.Verify(t.Context())
		}
		if err != nil {
			mustBeError(t, err)
			continue
		}
		accepted++
		if got := contentOf(t, file, file.Manifest); got != want {
			t.Fatalf("byte %d was changed, and with it what is carried:\n%s\nnot\n%s", i, got, want)
		}
	}
	if accepted > len(good)/5 {
		t.Errorf("%d of %d changes were accepted", accepted, len(good))
	}
}

// contentOf gives everything that a file carries as text.
func contentOf(t *testing.T, f *bundle.File, m *bundle.Manifest) string {
	t.Helper()
	var all strings.Builder
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	all.Write(b)
	for i := range m.Runs {
		log, err := f.Events(t.Context(), m.Runs[i].Run, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for k := range log {
			all.Write(log[k].AppendCanonical(nil))
		}
		plan, err := f.Plan(t.Context(), m.Runs[i].Plan)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(plan)
	}
	return all.String()
}

// FuzzFile: no bytes make the reader panic or go on for ever, and what it accepts it can read to the end.
func FuzzFile(f *testing.F) {
	s := newShop(f)
	g, plan := storetest.Plan("p", 2)
	flow := s.Begin(g, plan, s.ID())
	flow.Finish()
	s.commit(flow.Take())
	small, _ := s.export(flow.ID)
	f.Add(small)
	f.Add(small[:len(small)-10])
	all := unpack(f, small)
	f.Add(pack(f, line(f, all, 1, "manual", "webhook")))
	golden, err := filepath.Glob("../../cmd/testdata/exports/*.apollo")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range golden {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := bundle.Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			mustBeError(t, err)
			return
		}
		if err := file.Verify(t.Context()); err != nil {
			mustBeError(t, err)
			return
		}
		for i := range file.Manifest.Runs {
			r := &file.Manifest.Runs[i]
			log, err := file.Events(t.Context(), r.Run, r.Events-1, 1)
			if err != nil || len(log) != 1 {
				t.Errorf("a file that was accepted: %d events, %v", len(log), err)
			}
		}
	})
}

func mustBeError(t *testing.T, err error) {
	t.Helper()
	if _, is := errors.AsType[*bundle.Error](err); !is {
		t.Errorf("not an error of the file: %v", err)
	}
}
