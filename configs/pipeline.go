package configs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apollo-11/apollo/events"
)

// Pipeline is a definition that was read without an error.
type Pipeline struct {
	Name        string
	Description string
	File        string // as given to LoadFile or Parse
	canonical   []byte // the plan's canonical bytes
	places      places
}

// places are where cross-file checks report.
type places struct {
	lines []string
	name  *node
	hooks map[string]*node
	after map[string]*node // pipeline triggers by the pipeline they wait for
	runs  map[string]*node // pipeline stages by the pipeline they start
}

// LoadFile reads one definition. The pipeline is nil when there is an error among the problems.
func LoadFile(path string, o Options) (*Pipeline, Problems) {
	src, err := readDefinition(path)
	if large := (*sizeError)(nil); errors.As(err, &large) {
		c := &checker{file: path}
		c.refuseSize(large.size)
		return nil, c.problems
	}
	if err != nil {
		return nil, Problems{{File: path, Code: "E_FILE", Severity: SeverityError, Message: "the file can't be read: " + reasonOf(err), Expected: "a pipeline file"}}
	}
	return Parse(path, src, filepath.Dir(path), o)
}

// sizeError says that a file was not even read.
type sizeError struct{ size int64 }

func (e *sizeError) Error() string { return fmt.Sprintf("%d bytes", e.size) }

var errNotRegular = errors.New("not a regular file")

func readDefinition(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &os.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	if info.Size() > MaxFileSize {
		return nil, &sizeError{info.Size()}
	}
	return os.ReadFile(path)
}

// Parse reads a definition from memory. Files that belong to it are looked up in dir. The pipeline is nil when there is
// an error among the problems; warnings may accompany a pipeline.
func Parse(name string, src []byte, dir string, o Options) (*Pipeline, Problems) {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	c := &checker{file: name, dir: dir, options: o}
	p := c.parse(src)
	problems := c.problems.sorted()
	if problems.HasErrors() {
		return nil, problems
	}
	return p, problems
}

func (c *checker) parse(src []byte) *Pipeline {
	tokens, ok := c.guard(src)
	c.checkSecrets()
	if !ok {
		return nil
	}
	root := c.parseTree(tokens)
	if root == nil {
		return nil
	}
	if root.isNull() {
		c.refuseEmpty(root.line, root.col, "the file holds no pipeline")
		return nil
	}
	c.reportDuplicates(root)
	c.check(root, language, "")
	if root.kind != mapNode {
		return nil
	}
	b := &builder{checker: c, root: root}
	b.build()
	if c.problems.HasErrors() {
		return nil
	}
	canonical, err := b.plan.Encode()
	if err != nil {
		c.at(root, "E_TYPE", "the plan can't be written: "+err.Error(), "data that JSON can hold", "")
		return nil
	}
	return &Pipeline{Name: b.plan.Pipeline, Description: b.plan.Description, File: c.file, canonical: canonical, places: b.places()}
}

// Plan gives the frozen plan: a copy of its own for each caller. It does not depend on the parameters of a run.
func (p *Pipeline) Plan() *events.Plan {
	plan, err := events.DecodePlan(p.canonical)
	if err != nil {
		panic("configs: a plan that was just encoded can't be decoded: " + err.Error())
	}
	return plan
}

// Freeze gives the plan of a run, which embeds every contract and script, and the run's parameters with their defaults
// filled in. The plan is the same, byte for byte, for each run of the same definition; only the parameters differ.
func (p *Pipeline) Freeze(params map[string]json.RawMessage) (*events.Plan, map[string]json.RawMessage, Problems) {
	plan := p.Plan()
	resolved, problems := ResolveParams(plan, params)
	for i := range problems {
		problems[i].File = p.File
	}
	if problems.HasErrors() {
		return nil, nil, problems
	}
	return plan, resolved, problems
}

func (b *builder) places() places {
	p := places{lines: b.lines, name: b.root.get("name"), hooks: map[string]*node{}, after: map[string]*node{}, runs: map[string]*node{}}
	if on := b.root.get("on"); on != nil {
		for _, item := range on.items {
			if hook := item.get("webhook"); hook != nil {
				p.hooks[hook.str("path")] = hook.get("path")
			}
			if other := item.get("pipeline"); other != nil {
				p.after[other.str("name")] = other.get("name")
			}
		}
	}
	for _, s := range b.stages {
		if n := s.body.get("pipeline"); n != nil {
			if n.kind == mapNode {
				n = n.get("name")
			}
			p.runs[n.text] = n
		}
	}
	return p
}

// LoadDir reads every *.yaml and *.yml in a directory, in the order of their names, and checks them against each other:
// names, webhook paths, and pipelines that trigger each other in a circle. Pipelines without an error are returned even
// when others have some.
func LoadDir(dir string, o Options) ([]*Pipeline, Problems) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, Problems{{File: dir, Code: "E_FILE", Severity: SeverityError, Message: "the directory can't be read: " + reasonOf(err), Expected: "a directory of pipeline files"}}
	}
	var pipelines []*Pipeline
	var problems Problems
	for _, e := range entries {
		path := definition(dir, e)
		if path == "" {
			continue
		}
		p, found := LoadFile(path, o)
		problems = append(problems, found...)
		if p != nil {
			pipelines = append(pipelines, p)
		}
	}
	problems = append(problems, crossCheck(pipelines)...)
	bad := map[string]bool{}
	for _, p := range problems {
		bad[p.File] = bad[p.File] || isError(p)
	}
	pipelines = slices.DeleteFunc(pipelines, func(p *Pipeline) bool { return bad[p.File] })
	return pipelines, problems.sorted()
}

// definition gives the pipeline file that an entry of the directory is, or holds as pipeline.yaml; else nothing.
func definition(dir string, e os.DirEntry) string {
	path := filepath.Join(dir, e.Name())
	ext := strings.ToLower(filepath.Ext(e.Name()))
	switch {
	case strings.HasPrefix(e.Name(), "."), IsTests(e.Name()):
	case e.IsDir():
		path = filepath.Join(path, "pipeline.yaml")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	case ext == ".yaml" || ext == ".yml":
		return path
	}
	return ""
}
