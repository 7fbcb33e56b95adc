package cmd_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor/enginetest"
	"github.com/apollo-11/apollo/storage/artifacts"
)

// expectation is an example's expect.yaml; configs/examples/README.md describes it.
type expectation struct {
	Start struct {
		Manual  *struct{ Params map[string]string }
		File    *struct{ Drop, Into string }
		Webhook *struct {
			Path, Body string
			Headers    map[string]string
		}
	}
	Answers      []answering // of people, in the order in which they are asked
	Images       []string    // that the container engine has, which is imitated
	State, Class string
	Stages       map[string]struct {
		State, Class string
		Attempts     int
	}
	Outputs map[string]map[string]string
}

// TestExamples runs every example as a user would, and holds what comes out against its expect.yaml.
func TestExamples(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("../configs/examples/*/expect.yaml")
	if err != nil || len(found) < 10 {
		t.Fatalf("%d examples found, %v", len(found), err)
	}
	for _, path := range found {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			runExample(t, dir)
		})
	}
}

func runExample(t *testing.T, source string) {
	t.Helper()
	s := emptySite(t)
	dir := filepath.Join(s.pipelines, "example")
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "expect.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want expectation
	if err := yaml.UnmarshalWithOptions(text, &want, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	s.compare(s.show(s.carryOut(dir, &want)), &want)
}

// carryOut starts the pipeline in the directory as the example says, answers for people, waits for its end and gives the
// run.
func (s *site) carryOut(dir string, want *expectation) (run string) {
	s.t.Helper()
	if len(want.Images) > 0 {
		s.env = map[string]string{"APOLLO_CONTAINER_HOST": engineWith(s.t, want.Images)}
	}
	if want.Start.File != nil || want.Start.Webhook != nil {
		s.serve()
		s.arrives(dir, want)
		runs := slices.DeleteFunc(s.runs(), func(r runView) bool { return r.Parent != "" }) // those are runs of its stages
		if len(runs) != 1 {
			s.t.Fatalf("%d runs", len(runs))
		}
		return runs[0].Run
	}
	var params []string
	if want.Start.Manual != nil {
		for k, v := range want.Start.Manual.Params {
			params = append(params, "--param", k+"="+v)
		}
	}
	definition := filepath.Join(dir, "pipeline.yaml")
	if len(want.Answers) > 0 {
		s.serve()
		run = s.detach(definition, params...)
		s.answers(run, want)
		return run
	}
	out, errs, code := s.apollo(append([]string{"run", definition, "-o", "json"}, params...)...)
	if errs != "" {
		s.t.Logf("apollo run: exit %d\n%s", code, errs)
	}
	return decode[runView](s.t, out).Run
}

// answering is what a person says to an approval.
type answering struct {
	Stage   string
	Approve bool
	Fields  map[string]string
	Reason  string
}

// engineWith imitates a container engine that has the images, and gives its address.
func engineWith(t *testing.T, images []string) string {
	t.Helper()
	e := enginetest.New(t)
	for _, reference := range images {
		e.Images[reference] = enginetest.Image{ID: "sha256:" + strings.Repeat("1d", 32), Digests: []string{reference}}
	}
	return e.Host
}

// arrives makes what the example expects arrive at the server, and waits for the run's end and the server's.
func (s *site) arrives(dir string, want *expectation) {
	s.t.Helper()
	if f := want.Start.File; f != nil {
		if err := os.Rename(filepath.Join(dir, f.Drop), filepath.Join(dir, f.Into)); err != nil {
			s.t.Fatal(err)
		}
	} else {
		hook := want.Start.Webhook
		body, err := os.ReadFile(filepath.Join(dir, hook.Body))
		if err != nil {
			s.t.Fatal(err)
		}
		if status, answer := s.postAs(hook.Path, hook.Headers, body); status != http.StatusAccepted {
			s.t.Fatalf("post: %d %s", status, answer)
		}
	}
	if len(want.Answers) > 0 {
		eventually(s.t, "there is a run", func() bool { return len(s.runs()) > 0 })
		s.answers(s.runs()[0].Run, want)
	}
	eventually(s.t, "the run has ended", func() bool {
		rows := s.runs()
		return len(rows) > 0 && !slices.ContainsFunc(rows, func(r runView) bool { return r.EndedAt == "" })
	})
	if code := s.stop(); code != 0 {
		s.t.Fatalf("serve: exit %d\n%s", code, s.stderr)
	}
}

// answers gives the answers of the example when they are asked for, and waits for the run's end.
func (s *site) answers(run string, want *expectation) {
	s.t.Helper()
	for _, a := range want.Answers {
		s.waits(run, a.Stage)
		args := []string{"reject", run, a.Stage, "--reason", a.Reason}
		if a.Approve {
			args[0] = "approve"
			for k, v := range a.Fields {
				args = append(args, "--field", k+"="+v)
			}
		}
		s.must(args...)
	}
	s.ends(run)
}

func (s *site) compare(got runView, want *expectation) {
	s.t.Helper()
	if got.State != want.State || got.Class != want.Class {
		s.t.Errorf("run: %s %s (%s), want %s %s", got.State, got.Class, got.Reason, want.State, want.Class)
	}
	stages := map[string]stageView{}
	for _, st := range got.Stages {
		stages[(&events.Stage{Name: st.Stage}).Label(st.Item)] = st
	}
	for name, w := range want.Stages {
		st := stages[name]
		if st.State != w.State || w.Class != "" && st.Class != w.Class || w.Attempts > 0 && st.Attempt != w.Attempts {
			s.t.Errorf("stage %s: %s %s attempt %d (%s), want %+v", name, st.State, st.Class, st.Attempt, st.Reason, w)
		}
	}
	for name, outputs := range want.Outputs {
		for role, text := range outputs {
			if content := s.output(stages[name].Outputs[role]); content != text {
				s.t.Errorf("output %s of %s: %q, want %q", role, name, content, text)
			}
		}
	}
	for _, args := range [][]string{{"replay", got.Run}, {"store", "fsck"}} {
		if out, errs, code := s.apollo(args...); code != 0 {
			s.t.Errorf("%v: exit %d, %s%s", args, code, out, errs)
		}
	}
}

// output gives an output's value, or the content of its file.
func (s *site) output(o outputView) string {
	s.t.Helper()
	if len(o.Value) > 0 {
		return string(o.Value)
	}
	d, err := events.ParseDigest(o.Digest)
	if err != nil {
		return fmt.Sprintf("no output: %v", err)
	}
	store, err := artifacts.Open(filepath.Join(s.data, "artifacts"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer store.Close()
	r, err := store.Get(d)
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}
