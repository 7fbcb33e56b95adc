package configs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apollo-11/apollo/events"
)

// TestFile holds the tests of a pipeline.
type TestFile struct {
	File    string
	Tests   []Test
	checker *checker
}

// Test starts one run and says how it must end.
type Test struct {
	Name      string
	Params    map[string]string // as text, as on a command line
	Secrets   map[string]string // by name: values for this test only
	Input     []byte            // nil is none
	InputName string
	Mocks     map[string]Mock // by stage
	Sample    int
	Timeout   time.Duration // of the whole run
	Expect    TestExpect

	node *node
}

// Mock stands in for the body of a stage: the stage's inputs, contracts and outputs are handled as ever.
type Mock struct {
	Files  map[string][]byte          // content of file outputs, by role
	Values map[string]json.RawMessage // small outputs, by role
	Fail   *events.Failure            // nil is success
	Fails  int                        // attempts that fail; 0 is all
}

// TestExpect is how a run must end. What is not said is not looked at.
type TestExpect struct {
	State  string // of the run
	Class  string
	Stages map[string]StageExpect
}

// StageExpect is how a stage must end.
type StageExpect struct {
	State, Class string
	Attempt      int
	Outputs      map[string]OutputExpect
}

// OutputExpect is what an output must be. Every part that is set must hold.
type OutputExpect struct {
	Value    json.RawMessage // JSON that means the same
	Text     *string         // the whole text
	Digest   string
	Records  *int64
	Contains []string
}

const testTimeout = time.Minute // of a run, unless a test says another

func testSpec() *spec {
	outputs := dict("What an output must be, by role.", object("Every part must hold.",
		key("value", as(anyForm, "The JSON that a small output or a JSON file means.")),
		key("text", as(textForm, "The whole text.")),
		key("equals_file", as(fileForm, "A file with the same bytes, relative to the tests.")),
		key("digest", as(textForm, "sha256:<hex>.")),
		key("records", number(integerForm, 0, 1e15, "Records of a file with a format.")),
		key("contains", choice("Text inside it.", as(textForm, "A text."), list("Several texts.", as(textForm, "A text."))))))
	stages := dict("How stages must end, by name.", object("One stage.",
		key("state", oneOf("Its state.", "completed", "failed", "cancelled", "skipped", "pending")),
		key("class", oneOf("The class of its failure.", classes()...)),
		key("attempt", number(integerForm, 0, 1001, "The number of its last attempt.")),
		key("outputs", outputs)))
	mock := object("What stands in for a stage's body.",
		key("outputs", dict("Its outputs: JSON for a small one; for a file its text, or {file: PATH}.", as(anyForm, "The output."))),
		key("fail", choice("How it fails.", oneOf("The class.", mockable()...), object("A failure.",
			must("class", oneOf("The class.", mockable()...)),
			key("reason", as(textForm, "What it says.")),
			key("exit", number(integerForm, 0, 255, "The exit code.")),
			key("attempts", number(integerForm, 1, 1001, "How many attempts fail; else all."))))))
	test := object("One run and how it must end.",
		must("name", as(textForm, "What is tested.")),
		key("params", dict("Parameters.", as(anyForm, "A value."))),
		key("secrets", dict("Values of secrets, for this test only.", as(textForm, "A made-up value of at least 8 characters."))),
		key("input", &spec{form: objectForm, one: true, doc: "What trigger.file or trigger.body stands for.", fields: []field{
			key("file", as(fileForm, "A file, relative to the tests.")),
			key("body", as(anyForm, "Its text.")),
			key("payload", as(anyForm, "JSON."))}}),
		key("mocks", dict("What stands in for the bodies of stages.", mock)),
		key("sample", number(integerForm, 1, 1e9, "The input is cut to this many records.")),
		key("timeout", as(durationForm, "A run that takes longer is cancelled, and the test fails.")),
		key("expect", object("How the run must end.",
			preset("state", "completed", oneOf("The run's state.", "completed", "failed", "cancelled")),
			key("class", oneOf("The class of its failure.", classes()...)),
			key("stages", stages))))
	return object("Tests of a pipeline.", must("tests", list("The tests.", test)))
}

// mockable are the classes that a body can fail with.
func mockable() []string {
	return slices.DeleteFunc(classes(), func(c string) bool { return c == string(events.Aborted) })
}

func classes() []string {
	var all []string
	for _, c := range events.Classes() {
		all = append(all, string(c))
	}
	return all
}

// IsTests tells the tests of a pipeline from a definition by the file's name: <pipeline>.test.yaml.
func IsTests(path string) bool {
	return strings.HasSuffix(path, ".test.yaml") || strings.HasSuffix(path, ".test.yml")
}

// LoadTests reads tests strictly against the plan of their pipeline, with every problem at once.
func LoadTests(path string, plan *events.Plan) (*TestFile, Problems) {
	c := &checker{file: path, dir: filepath.Dir(path), subject: "the file"}
	src, err := readDefinition(path)
	if err != nil {
		return nil, Problems{{File: path, Code: "E_FILE", Severity: SeverityError, Message: "the file can't be read: " + reasonOf(err), Expected: "a file of tests"}}
	}
	f := &TestFile{File: path, checker: c}
	f.read(src, plan)
	if problems := c.problems.sorted(); problems.HasErrors() {
		return nil, problems
	}
	return f, nil
}

func (f *TestFile) read(src []byte, plan *events.Plan) {
	c := f.checker
	tokens, ok := c.guard(src)
	c.checkSecrets()
	if !ok {
		return
	}
	root := c.parseTree(tokens)
	if root == nil {
		return
	}
	c.reportDuplicates(root)
	if c.check(root, testSpec(), ""); c.problems.HasErrors() {
		return
	}
	names := map[string]bool{}
	for _, n := range root.get("tests").items {
		t := Test{Name: n.str("name"), node: n, Sample: int(intOf(n.get("sample"), 0)), Timeout: durationOf(n.get("timeout"), testTimeout)}
		if names[t.Name] {
			c.at(n.get("name"), "E_YAML_DUP", "two tests are called "+shortened(t.Name), "a name of its own", "")
		}
		names[t.Name] = true
		f.given(&t, plan)
		f.mocks(&t, plan)
		f.expected(&t, plan)
		f.Tests = append(f.Tests, t)
	}
}

// given reads what a run is started with.
func (f *TestFile) given(t *Test, plan *events.Plan) {
	c := f.checker
	if n := t.node.get("params"); n != nil {
		t.Params = map[string]string{}
		for _, e := range n.entries {
			if _, known := plan.Params[e.key.text]; !known {
				c.at(e.key, "E_PARAM", "the pipeline has no parameter "+e.key.text, "one of "+strings.Join(sortedKeys(plan.Params), ", "),
					didYouMean(e.key.text, sortedKeys(plan.Params)))
			}
			t.Params[e.key.text] = e.value.asText()
		}
	}
	if n := t.node.get("secrets"); n != nil {
		t.Secrets = map[string]string{}
		for _, e := range n.entries {
			t.Secrets[e.key.text] = e.value.text
		}
	}
	input := t.node.get("input")
	if file := input.get("file"); file != nil {
		t.Input, t.InputName = f.file(file), filepath.Base(file.text)
	}
	if body := input.get("body"); body != nil {
		t.Input, t.InputName = []byte(body.asText()), "body"
	}
	if payload := input.get("payload"); payload != nil {
		t.Input, t.InputName = payload.encodeJSON(), "payload.json"
	}
}

// asText gives a scalar's text and any other value's JSON.
func (n *node) asText() string {
	if n.kind == scalarNode && !n.isNull() {
		return n.text
	}
	return string(n.encodeJSON())
}

// file reads a file beside the tests; one that can't be read is reported.
func (f *TestFile) file(n *node) []byte {
	path := n.text
	if !filepath.IsAbs(path) {
		path = filepath.Join(f.checker.dir, path)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		f.checker.at(n, "E_FILE", "the file "+n.text+" can't be read: "+reasonOf(err), "a file relative to the tests", "")
	}
	return append([]byte{}, content...)
}

// stage finds a stage of the plan; a name that is none is reported.
func (f *TestFile) stage(n *node, plan *events.Plan) *events.Stage {
	var names []string
	for i := range plan.Stages {
		if plan.Stages[i].Name == n.text {
			return &plan.Stages[i]
		}
		names = append(names, plan.Stages[i].Name)
	}
	f.checker.at(n, "E_REF", "the pipeline has no stage "+n.text, "one of "+strings.Join(first(names, 20), ", "), didYouMean(n.text, names))
	return nil
}

// output finds an output of a stage; a role that is none is reported.
func (f *TestFile) output(n *node, s *events.Stage) *events.Output {
	var roles []string
	for i := range s.Outputs {
		if s.Outputs[i].Role == n.text {
			return &s.Outputs[i]
		}
		roles = append(roles, s.Outputs[i].Role)
	}
	f.checker.at(n, "E_REF", "the stage "+s.Name+" has no output "+n.text, "one of "+strings.Join(roles, ", "), didYouMean(n.text, roles))
	return nil
}

func (f *TestFile) mocks(t *Test, plan *events.Plan) {
	mocks := t.node.get("mocks")
	if mocks == nil {
		return
	}
	t.Mocks = map[string]Mock{}
	for _, e := range mocks.entries {
		s := f.stage(e.key, plan)
		if s == nil {
			continue
		}
		m := Mock{Files: map[string][]byte{}, Values: map[string]json.RawMessage{}}
		m.Fail, m.Fails = mockFailure(e.value.get("fail"), s)
		if outputs := e.value.get("outputs"); outputs != nil {
			for _, o := range outputs.entries {
				if out := f.output(o.key, s); out != nil {
					f.mockOutput(&m, out, o.value)
				}
			}
		}
		for _, out := range s.Outputs {
			_, file := m.Files[out.Role]
			_, value := m.Values[out.Role]
			if !file && !value && !out.Optional && (m.Fail == nil || m.Fails > 0) {
				f.checker.at(e.key, "E_REQUIRED", "what stands in for "+s.Name+" has no output "+out.Role, "outputs: {"+out.Role+": …}", "")
			}
		}
		t.Mocks[s.Name] = m
	}
}

func (f *TestFile) mockOutput(m *Mock, out *events.Output, n *node) {
	file := n.get("file")
	switch {
	case out.Path == "":
		m.Values[out.Role] = n.encodeJSON()
	case n.kind == scalarNode && !n.isNull():
		m.Files[out.Role] = []byte(n.text)
	case file != nil && len(n.entries) == 1:
		m.Files[out.Role] = f.file(file)
	default:
		f.checker.at(n, "E_TYPE", "the output "+out.Role+" is a file, and this is "+n.what(), "its text, or {file: PATH}", "")
	}
}

func mockFailure(n *node, s *events.Stage) (*events.Failure, int) {
	if n == nil {
		return nil, 0
	}
	class := n.text
	if n.kind == mapNode {
		class = n.str("class")
	}
	failure := &events.Failure{Class: events.Class(class), Reason: textOr(n, "reason", "the test says that "+s.Name+" fails"), Exit: int(intOf(n.get("exit"), 0))}
	return failure, int(intOf(n.get("attempts"), 0))
}

func (f *TestFile) expected(t *Test, plan *events.Plan) {
	n := t.node.get("expect")
	t.Expect = TestExpect{State: textOr(n, "state", "completed"), Class: n.str("class"), Stages: map[string]StageExpect{}}
	stages := n.get("stages")
	if stages == nil {
		return
	}
	for _, e := range stages.entries {
		s := f.stage(e.key, plan)
		if s == nil {
			continue
		}
		want := StageExpect{State: e.value.str("state"), Class: e.value.str("class"), Attempt: int(intOf(e.value.get("attempt"), 0)), Outputs: map[string]OutputExpect{}}
		if outputs := e.value.get("outputs"); outputs != nil {
			for _, o := range outputs.entries {
				if f.output(o.key, s) != nil {
					want.Outputs[o.key.text] = f.expectedOutput(o.value)
				}
			}
		}
		t.Expect.Stages[s.Name] = want
	}
}

func (f *TestFile) expectedOutput(n *node) OutputExpect {
	want := OutputExpect{Digest: n.str("digest")}
	if value := n.get("value"); value != nil {
		want.Value = value.encodeJSON()
	}
	if text := n.get("text"); text != nil {
		want.Text = &text.text
	}
	if file := n.get("equals_file"); file != nil {
		text := string(f.file(file))
		if want.Text != nil {
			f.checker.at(file, "E_ONE", "text and equals_file say the same thing", "one of them", "")
		}
		want.Text = &text
	}
	if records := n.get("records"); records != nil {
		count := intOf(records, 0)
		want.Records = &count
	}
	if contains := n.get("contains"); contains != nil {
		if want.Contains = texts(contains); contains.kind == scalarNode {
			want.Contains = []string{contains.text}
		}
	}
	if digest := n.get("digest"); digest != nil {
		if _, err := events.ParseDigest(digest.text); err != nil {
			f.checker.at(digest, "E_VALUE", "this is no digest", "sha256:<64 hexadecimal digits>", "")
		}
	}
	return want
}

// TestFiles gives the files that hold tests of a definition: <definition>.test.yaml beside it, and those in the folder tests
// beside it. Where several definitions share a folder, a file in tests belongs to the one whose name it begins with.
func TestFiles(definition string) ([]string, error) {
	dir, base := filepath.Split(definition)
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	var found []string
	for _, ext := range []string{".test.yaml", ".test.yml"} {
		if _, err := os.Stat(filepath.Join(dir, stem+ext)); err == nil {
			found = append(found, filepath.Join(dir, stem+ext))
		}
	}
	entries, err := os.ReadDir(filepath.Join(dir, "tests"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		of, _, _ := strings.Cut(name, ".")
		yaml := strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
		if yaml && e.Type().IsRegular() && !strings.HasPrefix(name, ".") && (stem == "pipeline" || of == stem) {
			found = append(found, filepath.Join(dir, "tests", name))
		}
	}
	slices.Sort(found)
	return found, nil
}
