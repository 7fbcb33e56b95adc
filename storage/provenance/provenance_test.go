package provenance_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/artifacts"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/provenance"
	"github.com/apollo-11/apollo/storage/sqlite"
	"github.com/apollo-11/apollo/storage/storetest"
)

// history is a store with a run: a retry, an input by pins and one by the plan, a file, a value, evidence and a machine.
type history struct {
	store *sqlite.Store
	files *artifacts.Store
	run   events.ID
	rows  events.Digest
}

func record(t *testing.T, pinned bool) *history {
	t.Helper()
	dir := t.TempDir()
	store, err := sqlite.Open(dir, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	files, err := artifacts.Open(filepath.Join(dir, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(store.Close(), files.Close()) })
	h := &history{store: store, files: files}
	keep := func(text string) events.Digest {
		info, err := files.Put(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return info.Digest
	}
	h.rows = keep("a\n1\n")
	p := &events.Plan{Schema: events.PlanSchema, Pipeline: "sums", Stages: []events.Stage{
		{Name: "read", Executor: "shell", Outputs: []events.Output{{Role: "rows", Path: "rows.csv"}, {Role: "n"}}, Inputs: []events.Input{{Role: "drop", From: "trigger.file", Expr: true}}},
		{Name: "sum", Executor: "shell", Needs: []string{"read"}, Inputs: []events.Input{{Role: "n", From: "stages.read.outputs.n", Expr: true}, {Role: "rows", From: "stages.read.outputs.rows", Expr: true}}},
	}}
	b, err := p.Encode()
	if err != nil {
		t.Fatal(err)
	}
	g, err := events.NewGraph(p, events.DigestOf(b))
	if err != nil {
		t.Fatal(err)
	}
	m := &storetest.Maker{}
	row, delivered := m.Delivery(events.DeliveryReceived, events.Data{Kind: "file", Pipeline: "sums", File: "in.csv", Blob: keep("drop"), Size: 4})
	_, plan := storetest.Plan("x", 1)
	plan.Digest, plan.Pipeline, plan.Bytes = g.Digest, "sums", b
	f := m.Begin(g, plan, row.ID)
	f.Decide()
	d := events.Data{Stage: "read", Attempt: 1, Token: f.Stages[0].Token, Outputs: []events.Result{
		{Role: "n", Digest: events.DigestOf([]byte("1")), Size: 1, Records: -1, Value: []byte("1")}, {Role: "rows", Digest: h.rows, Size: 4, Records: 1, Name: "rows.csv"}}}
	if pinned {
		d.Pinned, err = events.EncodeDocument(events.Pins{Schema: 1, Definition: keep(`{"schema":1,"toolchain":[{"name":"shell","value":"sha256:` + strings.Repeat("cd", 32) + `"}]}`), Time: "2026-01-01T00:00:00Z",
			Inputs: []events.PinnedInput{{Role: "drop", Kind: "file", Digest: keep("drop"), Size: 4, Name: "in.csv"}}})
		if err != nil {
			t.Fatal(err)
		}
		d.Machine = keep(`{"schema":1,"apollo":"0.9","go":"go1.26"}`)
		d.Pins = []events.Pair{{Name: "interpreter", Value: "/bin/sh sha256:" + strings.Repeat("ab", 32)}}
	}
	f.Emit(events.StageCompleted, d)
	f.Decide()
	failed := events.Data{Stage: "sum", Attempt: 1, Token: f.Stages[1].Token, Class: events.ExecFailed, Reason: "exit code 3", Exit: 3, Evidence: keep("it broke")}
	f.Emit(events.StageFailed, failed)
	f.Decide()
	for _, batch := range []error{store.Commit(delivered), store.Commit(f.Take())} {
		if batch != nil {
			t.Fatal(batch)
		}
	}
	h.run = f.ID
	return h
}

func (h *history) write(t *testing.T, as func(context.Context, io.Writer, bundle.Source, bundle.Artifacts, bundle.Options) (*bundle.Manifest, error)) []byte {
	t.Helper()
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if _, err := as(t.Context(), b, h.store, h.files, bundle.Options{Run: h.run, Apollo: "0.1"}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same run gave another document")
	}
	return first.Bytes()
}

// statementSchema holds what https://in-toto.io/Statement/v1 and https://slsa.dev/spec/v1.1/provenance ask for, written down
// as a JSON Schema: the types of each field, which are required, and that a subject has a digest.
const statementSchema = `{
"type":"object","additionalProperties":false,"required":["_type","subject","predicateType","predicate"],
"$defs":{"descriptor":{"type":"object","additionalProperties":false,"anyOf":[{"required":["uri"]},{"required":["digest"]},{"required":["content"]}],
 "properties":{"name":{"type":"string"},"uri":{"type":"string"},"mediaType":{"type":"string"},"content":{"type":"string"},"downloadLocation":{"type":"string"},
  "annotations":{"type":"object"},"digest":{"type":"object","minProperties":1,"properties":{"sha256":{"type":"string","pattern":"^[0-9a-f]{64}$"}},"additionalProperties":{"type":"string"}}}},
 "time":{"type":"string","pattern":"^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\dZ$"}},
"properties":{"_type":{"const":"https://in-toto.io/Statement/v1"},"predicateType":{"const":"https://slsa.dev/provenance/v1"},
"subject":{"type":"array","minItems":1,"items":{"allOf":[{"$ref":"#/$defs/descriptor"},{"required":["digest"]}]}},
"predicate":{"type":"object","additionalProperties":false,"required":["buildDefinition","runDetails"],"properties":{
 "buildDefinition":{"type":"object","additionalProperties":false,"required":["buildType","externalParameters"],"properties":{"buildType":{"type":"string","format":"uri","pattern":":"},
  "externalParameters":{"type":"object"},"internalParameters":{"type":"object"},"resolvedDependencies":{"type":"array","items":{"$ref":"#/$defs/descriptor"}}}},
 "runDetails":{"type":"object","additionalProperties":false,"required":["builder"],"properties":{
  "builder":{"type":"object","additionalProperties":false,"required":["id"],"properties":{"id":{"type":"string","pattern":":"},"version":{"type":"object","additionalProperties":{"type":"string"}},
   "builderDependencies":{"type":"array","items":{"$ref":"#/$defs/descriptor"}}}},
  "metadata":{"type":"object","additionalProperties":false,"properties":{"invocationId":{"type":"string"},"startedOn":{"$ref":"#/$defs/time"},"finishedOn":{"$ref":"#/$defs/time"}}},
  "byproducts":{"type":"array","items":{"$ref":"#/$defs/descriptor"}}}}}}}}`

func TestStatementMeetsTheSpecification(t *testing.T) {
	t.Parallel()
	for _, pinned := range []bool{false, true} {
		t.Run(fmt.Sprint(pinned), func(t *testing.T) {
			t.Parallel()
			h := record(t, pinned)
			b := h.write(t, provenance.Statement)
			var schema, document any
			if err := errors.Join(json.Unmarshal([]byte(statementSchema), &schema), json.Unmarshal(b, &document)); err != nil {
				t.Fatal(err)
			}
			c := jsonschema.NewCompiler()
			if err := c.AddResource("urn:statement", schema); err != nil {
				t.Fatal(err)
			}
			compiled, err := c.Compile("urn:statement")
			if err != nil {
				t.Fatal(err)
			}
			if err := compiled.Validate(document); err != nil {
				t.Errorf("%v\n%s", err, b)
			}
			var s struct {
				Subject   []struct{ Name string }
				Predicate struct {
					BuildDefinition struct {
						InternalParameters   struct{ Stages map[string]any }
						ResolvedDependencies []struct{ Name string }
					}
					RunDetails struct {
						Builder    struct{ Version map[string]string }
						Byproducts []struct{ Name string }
					}
				}
			}
			if err := json.Unmarshal(b, &s); err != nil {
				t.Fatal(err)
			}
			want := []string{"plan", "trigger"}
			if pinned {
				want = append(want, "read/definition", "read/shell", "read/interpreter")
				if s.Predicate.RunDetails.Builder.Version["apollo"] != "0.9" || s.Predicate.BuildDefinition.InternalParameters.Stages["read"] == nil {
					t.Errorf("%+v", s.Predicate)
				}
			}
			var names []string
			for _, d := range s.Predicate.BuildDefinition.ResolvedDependencies {
				names = append(names, d.Name)
			}
			if !slices.Equal(names, want) || len(s.Subject) != 2 || s.Subject[1].Name != "read/rows" {
				t.Errorf("dependencies %v, want %v; subjects %v", names, want, s.Subject)
			}
			if !strings.Contains(fmt.Sprint(s.Predicate.RunDetails.Byproducts), "evidence/sum/1") {
				t.Errorf("byproducts %v", s.Predicate.RunDetails.Byproducts)
			}
		})
	}
}

type entity = map[string]any

// crateOf reads a crate and gives its entities by id, and its files.
func crateOf(t *testing.T, b []byte) (graph map[string]entity, files map[string][]byte) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		if files[f.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	var document struct {
		Context []string `json:"@context"`
		Graph   []entity `json:"@graph"`
	}
	if err := json.Unmarshal(files["ro-crate-metadata.json"], &document); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(document.Context, []string{"https://w3id.org/ro/crate/1.1/context", "https://w3id.org/ro/terms/workflow-run/context"}) {
		t.Errorf("context %v", document.Context)
	}
	graph = map[string]entity{}
	for _, e := range document.Graph {
		id, _ := e["@id"].(string)
		if id == "" || graph[id] != nil || e["@type"] == nil {
			t.Errorf("entity without an id of its own or a type: %v", e)
		}
		graph[id] = e
	}
	return graph, files
}

// ids gives what a property refers to.
func ids(v any) (all []string) {
	switch v := v.(type) {
	case map[string]any:
		id, _ := v["@id"].(string)
		return []string{id}
	case []any:
		for _, one := range v {
			all = append(all, ids(one)...)
		}
	}
	return all
}

func has(e entity, kind string) bool {
	switch v := e["@type"].(type) {
	case string:
		return v == kind
	case []any:
		return slices.Contains(v, any(kind))
	}
	return false
}

// TestCrateMeetsTheProfiles holds a crate to what RO-Crate 1.1 and the Process, Workflow and Provenance Run Crate profiles,
// version 0.5, say with MUST, and to the SHOULDs that apply.
func TestCrateMeetsTheProfiles(t *testing.T) {
	t.Parallel()
	for _, pinned := range []bool{false, true} {
		t.Run(fmt.Sprint(pinned), func(t *testing.T) {
			t.Parallel()
			h := record(t, pinned)
			graph, files := crateOf(t, h.write(t, provenance.Crate))
			must := func(holds bool, what string, more ...any) {
				t.Helper()
				if !holds {
					t.Errorf("%s %v", what, more)
				}
			}
			// RO-Crate 1.1: the descriptor, the root, and every reference inside the crate leads somewhere.
			must(slices.Equal(ids(graph["ro-crate-metadata.json"]["about"]), []string{"./"}), "the descriptor is about the root")
			must(slices.Contains(ids(graph["ro-crate-metadata.json"]["conformsTo"]), "https://w3id.org/ro/crate/1.1"), "the descriptor conforms to RO-Crate")
			root := graph["./"]
			must(has(root, "Dataset") && root["name"] != nil && root["description"] != nil && root["license"] != nil, "the root says what it is")
			published, _ := root["datePublished"].(string)
			_, err := time.Parse(time.RFC3339Nano, published)
			must(err == nil, "datePublished", err)
			for id, e := range graph {
				for property, v := range e {
					if property == "@id" {
						continue
					}
					for _, to := range ids(v) {
						must(graph[to] != nil || strings.HasPrefix(to, "http"), id+" "+property+" leads nowhere:", to)
					}
				}
			}
			for _, part := range ids(root["hasPart"]) {
				must(files[part] != nil, "a part is a file of the crate", part)
				must(has(graph[part], "File"), "a part is a File", part)
				must(graph[part]["sha256"] == hex.EncodeToString(sum(files[part])), "its digest is its own", part)
				must(graph[part]["contentSize"] == fmt.Sprint(len(files[part])), "its size is its own", part, graph[part]["contentSize"])
			}
			must(len(ids(root["hasPart"])) == len(files)-1, "every file is a part", len(files))
			for _, p := range []string{"process", "workflow", "provenance"} {
				must(slices.Contains(ids(root["conformsTo"]), "https://w3id.org/ro/wfrun/"+p+"/0.5"), "the root conforms to", p)
			}
			// Workflow Run Crate: the main entity is the workflow; an action of the whole run has it as its instrument.
			main := graph[ids(root["mainEntity"])[0]]
			for _, kind := range []string{"File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"} {
				must(has(main, kind), "the workflow is a", kind)
			}
			must(len(ids(main["programmingLanguage"])) == 1, "the workflow has a language")
			var runs, attempts, controls, organizes []entity
			for _, e := range graph {
				switch {
				case has(e, "CreateAction") && slices.Equal(ids(e["instrument"]), []string{main["@id"].(string)}):
					runs = append(runs, e)
				case has(e, "CreateAction"):
					attempts = append(attempts, e)
				case has(e, "ControlAction"):
					controls = append(controls, e)
				case has(e, "OrganizeAction"):
					organizes = append(organizes, e)
				}
			}
			must(len(runs) == 1 && len(attempts) == 2 && len(controls) == 2 && len(organizes) == 1, "actions", len(runs), len(attempts), len(controls), len(organizes))
			must(slices.Contains(ids(root["mentions"]), runs[0]["@id"].(string)), "the root mentions the run")
			must(slices.Contains(ids(runs[0]["result"]), "artifacts/sha256/"+strings.TrimPrefix(h.rows.String(), "sha256:")), "the run has its results", runs[0]["result"])
			// Provenance Run Crate: tools are parts of the workflow, steps are said with their tools, control actions bind both.
			tools, steps := ids(main["hasPart"]), ids(main["step"])
			for _, a := range attempts {
				must(len(ids(a["instrument"])) == 1 && slices.Contains(tools, ids(a["instrument"])[0]), "an attempt has a tool of the workflow", a["@id"])
				must(a["startTime"] != nil && a["endTime"] != nil && len(ids(a["actionStatus"])) == 1, "an attempt has times and a status", a["@id"])
				must(len(ids(a["object"])) > 0, "an attempt has what it used", a["@id"])
			}
			for _, c := range controls {
				must(slices.Contains(steps, ids(c["instrument"])[0]), "a control action has a step of the workflow", c["@id"])
				must(has(graph[ids(c["object"])[0]], "CreateAction"), "and the action that it controls", c["@id"])
			}
			for _, s := range steps {
				must(has(graph[s], "HowToStep") && slices.Contains(tools, ids(graph[s]["workExample"])[0]) && graph[s]["position"] != nil, "a step has its tool", s)
			}
			o := organizes[0]
			must(has(graph[ids(o["instrument"])[0]], "SoftwareApplication") && slices.Equal(ids(o["result"]), []string{runs[0]["@id"].(string)}) &&
				len(ids(o["object"])) == len(controls), "the engine organizes the run", o)
			must(pinned == strings.Contains(fmt.Sprint(graph["#tool/read"]["softwareVersion"]), "shell=sha256:cdcd"), "the tool's version", graph["#tool/read"])
			version := map[bool]string{true: "0.9", false: "0.1"}[pinned]
			must(graph["#engine"]["softwareVersion"] == version, "version", graph["#engine"]["softwareVersion"])
			for _, a := range attempts {
				if strings.HasPrefix(a["@id"].(string), "#attempt/sum") {
					must(a["error"] == "exit code 3" && ids(a["actionStatus"])[0] == "http://schema.org/FailedActionStatus", "the failed attempt says why", a)
				}
			}
		})
	}
}

func sum(b []byte) []byte {
	d := events.DigestOf(b)
	return d[:]
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	h := record(t, false)
	m := &storetest.Maker{Salt: 3}
	g, plan := storetest.Plan("p", 1)
	f := m.Begin(g, plan, m.ID())
	f.Decide()
	if err := h.store.Commit(f.Take()); err != nil {
		t.Fatal(err)
	}
	o := bundle.Options{Run: f.ID}
	if _, err := provenance.Statement(t.Context(), io.Discard, h.store, h.files, o); !errors.Is(err, provenance.ErrNotEnded) {
		t.Errorf("a run that goes on: %v", err)
	}
	if _, err := provenance.Crate(t.Context(), io.Discard, h.store, h.files, o); !errors.Is(err, provenance.ErrNotEnded) {
		t.Errorf("a run that goes on: %v", err)
	}
	f.Finish()
	if err := h.store.Commit(f.Take()); err != nil {
		t.Fatal(err)
	}
	if _, err := provenance.Statement(t.Context(), io.Discard, h.store, h.files, o); !errors.Is(err, provenance.ErrNoSubject) {
		t.Errorf("a run without outputs: %v", err)
	}
}
