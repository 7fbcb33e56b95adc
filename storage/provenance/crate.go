package provenance

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/bundle"
)

// The profiles that a crate conforms to.
const (
	crateSpec       = "https://w3id.org/ro/crate/1.1"
	workflowProfile = "https://w3id.org/workflowhub/workflow-ro-crate/1.0"
	runProfiles     = "https://w3id.org/ro/wfrun/"
	profileVersion  = "0.5"
	runContext      = "https://w3id.org/ro/terms/workflow-run/context"
	parameterType   = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
	metadataName    = "ro-crate-metadata.json"
	planName        = "pipeline.json"
)

type object map[string]any

func ref(id string) object { return object{"@id": id} }

// crate is a graph that grows.
type crate struct {
	*facts
	graph []object
	known map[string]bool
}

// Crate writes a run that has ended as a Provenance Run Crate, a zip file: its description, the plan, and every artifact
// that the store still has. It gives what the run is made of.
func Crate(ctx context.Context, to io.Writer, from bundle.Source, files bundle.Artifacts, o bundle.Options) (*bundle.Manifest, error) {
	f, err := collect(ctx, from, files, o)
	if err != nil {
		return nil, err
	}
	c := &crate{facts: f, known: map[string]bool{}}
	c.describe()
	var metadata bytes.Buffer
	e := json.NewEncoder(&metadata)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(object{"@context": []string{crateSpec + "/context", runContext}, "@graph": c.graph}); err != nil {
		return nil, err
	}
	z := zip.NewWriter(to)
	err = errors.Join(put(z, metadataName, &metadata), put(z, planName, bytes.NewReader(f.plan)))
	for _, a := range f.m.Artifacts {
		if err == nil {
			err = f.carry(ctx, z, a)
		}
	}
	return f.m, errors.Join(err, z.Close())
}

func put(z *zip.Writer, name string, from io.Reader) error {
	w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)})
	if err == nil {
		_, err = io.Copy(w, from)
	}
	return err
}

// carry copies an artifact.
func (f *facts) carry(ctx context.Context, z *zip.Writer, a bundle.Content) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r, err := f.open(a.Digest)
	if err != nil {
		return err
	}
	return errors.Join(put(z, fileID(a.Digest), r), r.Close())
}

func fileID(d events.Digest) string { return "artifacts/sha256/" + plain(d) }

// add adds an entity, once. It gives a reference to it.
func (c *crate) add(id string, kind any, more object) object {
	if !c.known[id] {
		c.known[id] = true
		more["@id"], more["@type"] = id, kind
		c.graph = append(c.graph, more)
	}
	return ref(id)
}

func (c *crate) describe() {
	r := c.run
	name := fmt.Sprintf("Run %s of the pipeline %s", r.ID, r.Graph.Plan.Pipeline)
	c.add(metadataName, "CreativeWork", object{"about": ref("./"), "conformsTo": []object{ref(crateSpec), ref(workflowProfile)}})
	profiles := []object{}
	for _, p := range []string{"process", "workflow", "provenance"} {
		profiles = append(profiles, c.add(runProfiles+p+"/"+profileVersion, "CreativeWork", object{"name": p + " run crate", "version": profileVersion}))
	}
	profiles = append(profiles, c.add(workflowProfile, "CreativeWork", object{"name": "Workflow RO-Crate", "version": "1.0"}))
	attempts, controls := c.actions()
	run := c.add("#run/"+r.ID.String(), "CreateAction", c.timed(object{"name": name, "instrument": ref(planName), "object": c.given(), "result": c.made()},
		r.Started, r.Ended, r.State == events.Completed, r.Reason))
	c.workflow()
	engine := c.add("#engine", "SoftwareApplication", object{"name": "Apollo-11", "url": builderID, "softwareVersion": c.version()})
	organize := c.add("#organize/"+r.ID.String(), "OrganizeAction", c.timed(object{"name": "Apollo-11 organizes the run", "instrument": engine,
		"object": controls, "result": run}, r.Started, r.Ended, r.State == events.Completed, r.Reason))
	parts := []object{ref(planName)}
	for _, a := range c.m.Artifacts {
		if c.known[fileID(a.Digest)] {
			continue
		}
		c.file(a.Digest, a.Size, "")
	}
	for _, e := range c.graph {
		if id, _ := e["@id"].(string); len(id) > 17 && id[:17] == "artifacts/sha256/" {
			parts = append(parts, ref(id))
		}
	}
	c.add("./", "Dataset", object{"name": name, "description": r.Graph.Plan.Pipeline + ": what was run, on what, and what came of it, as the log of the run says it",
		"datePublished": instant(r.Ended), "license": "not stated: ask whoever exported the run", "conformsTo": profiles, "hasPart": parts,
		"mainEntity": ref(planName), "mentions": slices.Concat([]object{run, organize}, attempts)})
}

// version gives the version that ran the attempts, else the one that exports.
func (c *crate) version() string {
	for _, a := range c.attempts {
		if a.machine != nil {
			return a.machine.Apollo
		}
	}
	return c.apollo
}

func (*crate) timed(o object, from, to int64, done bool, why string) object {
	if from > 0 {
		o["startTime"] = instant(from)
	}
	if to > 0 {
		o["endTime"] = instant(to)
	}
	if done {
		o["actionStatus"] = ref("http://schema.org/CompletedActionStatus")
		return o
	}
	o["actionStatus"] = ref("http://schema.org/FailedActionStatus")
	if why != "" {
		o["error"] = why
	}
	return o
}

func toolID(stage string) string { return "#tool/" + url.PathEscape(stage) }
func stepID(stage string) string { return "#step/" + url.PathEscape(stage) }

// workflow describes the plan: its tools, its steps and its parameters.
func (c *crate) workflow() {
	tools, steps, inputs, outputs := []object{}, []object{}, []object{}, []object{}
	for i := range c.run.Graph.Plan.Stages {
		s := &c.run.Graph.Plan.Stages[i]
		tools = append(tools, c.tool(s))
		steps = append(steps, c.add(stepID(s.Name), "HowToStep", object{"name": s.Name, "position": fmt.Sprint(i + 1), "workExample": ref(toolID(s.Name))}))
		for _, o := range s.Outputs {
			outputs = append(outputs, c.formal(s.Name+"/"+o.Role, map[bool]string{true: "File", false: "PropertyValue"}[o.Path != ""]))
		}
	}
	for _, name := range c.paramNames() {
		inputs = append(inputs, c.formal("params/"+name, "PropertyValue"))
	}
	if c.delivered() {
		inputs = append(inputs, c.formal("trigger", "File"))
	}
	language := c.add("#plan-language", "ComputerLanguage", object{"name": "Apollo-11 plan", "url": builderID})
	c.add(planName, []string{"File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"}, object{"name": c.run.Graph.Plan.Pipeline, "encodingFormat": "application/json",
		"sha256": plain(c.run.Graph.Digest), "contentSize": fmt.Sprint(len(c.plan)), "programmingLanguage": language, "hasPart": tools, "step": steps, "input": inputs, "output": outputs})
}

// tool describes what carries a stage out.
func (c *crate) tool(s *events.Stage) object {
	o := object{"name": s.Name, "description": "executor " + s.Executor}
	for _, a := range c.attempts {
		if a.stage != s || len(a.tools) == 0 {
			continue
		}
		var versions []string
		for _, t := range a.tools {
			versions = append(versions, t.Name+"="+t.Value)
		}
		o["softwareVersion"] = strings.Join(versions, " ")
		break
	}
	return c.add(toolID(s.Name), "SoftwareApplication", o)
}

func (c *crate) formal(name, kind string) object {
	return c.add("#formal/"+url.PathEscape(name), "FormalParameter", object{"name": name, "additionalType": kind, "conformsTo": c.add(parameterType, "CreativeWork", object{"name": "FormalParameter"})})
}

func (c *crate) params() (all map[string]json.RawMessage) {
	_ = json.Unmarshal(c.run.Params, &all) // none are none
	return all
}

func (c *crate) paramNames() (names []string) {
	for name := range c.params() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (c *crate) delivered() bool {
	in, is := c.brought()
	return is && (c.has(in.Digest) || !c.delivery.Blob.IsZero())
}

// given gives what the run began with.
func (c *crate) given() []object {
	all := []object{}
	params := c.params()
	for _, name := range c.paramNames() {
		all = append(all, c.add("#param/"+url.PathEscape(name), "PropertyValue", object{"name": name, "value": string(params[name]), "exampleOfWork": ref("#formal/" + url.PathEscape("params/"+name))}))
	}
	if c.delivered() {
		in, _ := c.brought()
		all = append(all, c.file(in.Digest, in.Size, in.Name, "trigger"))
	}
	return all
}

// made gives what the run has made.
func (c *crate) made() []object {
	all := []object{}
	c.outputs(func(label string, r *events.Result) { all = append(all, c.result(label, r)) })
	return all
}

func (c *crate) result(label string, r *events.Result) object {
	stage, _, _ := bytes.Cut([]byte(label), []byte("#"))
	if len(r.Value) > 0 {
		return c.add("#value/"+url.PathEscape(label+"/"+r.Role), "PropertyValue", object{"name": r.Role, "value": string(r.Value),
			"exampleOfWork": ref("#formal/" + url.PathEscape(string(stage)+"/"+r.Role))})
	}
	return c.file(r.Digest, r.Size, r.Name, string(stage)+"/"+r.Role)
}

// file gives an artifact: a file of the crate, or one that could not be had any more.
func (c *crate) file(d events.Digest, size int64, name string, formal ...string) object {
	id, kind := fileID(d), "File"
	if !c.has(d) {
		id, kind = "#missing/"+plain(d), "CreativeWork"
	}
	o := object{"sha256": plain(d), "contentSize": fmt.Sprint(size)}
	if name != "" {
		o["name"] = name
	}
	for _, f := range formal {
		o["exampleOfWork"] = ref("#formal/" + url.PathEscape(f))
	}
	return c.add(id, kind, o)
}

// actions describes every attempt.
func (c *crate) actions() (attempts, controls []object) {
	attempts, controls = []object{}, []object{}
	for _, a := range c.attempts {
		used, results := []object{}, []object{}
		for i := range a.inputs {
			switch in := &a.inputs[i]; {
			case in.Kind == "value" || in.Digest.IsZero():
				used = append(used, c.add("#input/"+url.PathEscape(a.id()+"/"+in.Role), "PropertyValue", object{"name": in.Role, "value": string(in.Value)}))
			default:
				used = append(used, c.file(in.Digest, in.Size, in.Name))
			}
		}
		why := "it did not end"
		if a.data != nil {
			why = a.data.Reason
			for k := range a.data.Outputs {
				results = append(results, c.result(a.label, &a.data.Outputs[k]))
			}
		}
		action := object{"name": fmt.Sprintf("attempt %d of %s", a.number, a.label), "instrument": ref(toolID(a.stage.Name)), "object": used, "result": results}
		if !a.key.IsZero() {
			action["identifier"] = a.key.String()
		}
		attempts = append(attempts, c.add("#attempt/"+url.PathEscape(a.id()), "CreateAction", c.timed(action, a.started, a.ended, a.done, why)))
		controls = append(controls, c.add("#control/"+url.PathEscape(a.id()), "ControlAction", object{"name": "orchestrate " + a.label, "instrument": ref(stepID(a.stage.Name)),
			"object": attempts[len(attempts)-1]}))
	}
	return attempts, controls
}
