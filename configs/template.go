package configs

import (
	"embed"
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed all:templates
var builtinTemplates embed.FS

// BuiltinTemplates gives the templates of this build, each in its own folder.
func BuiltinTemplates() fs.FS {
	sub, err := fs.Sub(builtinTemplates, "templates")
	if err != nil {
		panic(err) // the path is a constant
	}
	return sub
}

// TemplateFile is what a template's file is called in its folder.
const TemplateFile = "template.yaml"

// Localized is a text in English and Chinese. Where it is written in one language only, both are that.
type Localized struct {
	English string `json:"en"`
	Chinese string `json:"zh"`
}

// Blank is a typed place in a template.
type Blank struct {
	Name        string          `json:"blank"`
	Title       Localized       `json:"title"`
	Description Localized       `json:"description"`
	Schema      json.RawMessage `json:"schema"`
	Default     json.RawMessage `json:"default,omitempty"` // null: without a value, what holds the blank is left out
	Required    bool            `json:"required"`          // it has no default
}

// Template is a pipeline with blanks: a definition with a header under the key template, in which a value that is exactly
// <<blank>> stands for the blank's value, and <<name>> for the pipeline's name. Filling replaces whole values, so a value is
// one value whatever it holds, and it never becomes part of a script or an expression. A blank whose value is null takes what
// holds it with it: the key, and every map and list that has nothing left. Files beside template.yaml belong to the pipeline.
type Template struct {
	Name        string
	Title       Localized
	Description Localized
	Blanks      []Blank // in the order of the file

	files  fs.FS
	shown  string // the file, for messages
	text   string
	root   *node // without the header
	header span  // lines of the header
	lines  []string
	beside []string // the companions
}

// span is a run of lines or bytes: from the first up to, and without, the last.
type span struct{ from, to int }

// nameBlank is the blank that every template has: the pipeline's name.
const nameBlank = "name"

func templateSpec() *spec {
	text := func(doc string) *spec {
		return choice(doc, as(textForm, doc), object(doc, must("en", as(textForm, "In English.")), must("zh", as(textForm, "In Chinese."))))
	}
	return object("What makes a definition a template.",
		must("name", as(nameForm, "The template's name, and that of the pipeline unless another is asked for.")),
		must("title", text("What it makes, in a few words.")),
		key("description", text("What it does, and what one must know.")),
		key("blanks", dict("The blanks by name: a JSON Schema each, whose default makes it optional.", as(schemaForm, "The schema of the value."))))
}

// LoadTemplate reads a template strictly, with every problem at once. files is its folder and file its name in there; shown
// names it in problems. A template in a file that is not called template.yaml stands alone: nothing beside it belongs to it.
func LoadTemplate(files fs.FS, file, shown string) (*Template, Problems) {
	src, err := fs.ReadFile(files, file)
	if err != nil {
		return nil, Problems{{File: shown, Code: "E_FILE", Severity: SeverityError, Message: "the file can't be read: " + reasonOf(err), Expected: "a template"}}
	}
	t := &Template{files: files, shown: shown, text: strings.TrimPrefix(string(src), "\ufeff")}
	r := &templateReader{checker: &checker{file: shown, subject: "the template"}, template: t}
	r.read(src)
	if file == TemplateFile && !r.problems.HasErrors() {
		r.companions()
	}
	if problems := r.problems.sorted(); problems.HasErrors() {
		return nil, problems
	}
	return t, nil
}

// Companions are the paths of the files that belong to the pipeline, relative to it and sorted.
func (t *Template) Companions() []string { return slices.Clone(t.beside) }

// Source is the template as it is written.
func (t *Template) Source() string { return t.text }

// templateReader finds what is wrong with a template before anybody fills it.
type templateReader struct {
	*checker
	template *Template
	used     map[string]bool
}

func (r *templateReader) read(src []byte) {
	tokens, ok := r.guard(src)
	r.checkSecrets()
	if !ok {
		return
	}
	root := r.parseTree(tokens)
	if root == nil {
		return
	}
	r.reportDuplicates(root)
	header := root.get("template")
	if header == nil {
		r.at(root, "E_REQUIRED", "the file has no template:", "template: "+templateSpec().expects(), "")
		return
	}
	r.check(header, templateSpec(), "template")
	if r.problems.HasErrors() {
		return
	}
	t := r.template
	t.lines, t.Name = r.lines, header.str("name")
	t.Title, t.Description = localized(header.get("title")), localized(header.get("description"))
	r.cutHeader(root)
	if blanks := header.get("blanks"); blanks != nil {
		for _, e := range blanks.entries {
			r.blank(e.key, e.value)
		}
	}
	r.used = map[string]bool{}
	r.walk(t.root, language)
	if blanks := header.get("blanks"); blanks != nil {
		for _, e := range blanks.entries {
			if !r.used[e.key.text] {
				r.at(e.key, "E_TEMPLATE", "the blank "+e.key.text+" stands nowhere in the pipeline", "a value <<"+e.key.text+">>", "")
			}
		}
	}
	if name := t.root.get("name"); name == nil || name.text != "<<"+nameBlank+">>" {
		r.at(root, "E_TEMPLATE", "the pipeline's name is not open", "name: <<name>>", "the name is given when the template is used")
	}
}

// cutHeader finds the lines of the header, and the tree without it.
func (r *templateReader) cutHeader(root *node) {
	t := r.template
	t.root = &node{kind: mapNode, line: root.line, col: root.col}
	for i, e := range root.entries {
		if e.key.text != "template" {
			t.root.entries = append(t.root.entries, e)
			continue
		}
		if e.key.col != 1 || e.value.line == e.key.line {
			r.at(e.key, "E_TEMPLATE", "the header can't be told from the pipeline", "template: with its keys on lines of their own", "")
		}
		t.header = span{e.key.line - 1, len(r.lines)}
		if i+1 < len(root.entries) {
			t.header.to = root.entries[i+1].key.line - 1
		}
		for t.header.to > t.header.from+1 && strings.HasPrefix(r.lines[t.header.to-1], "#") {
			t.header.to-- // a comment belongs to what follows it
		}
	}
}

func localized(n *node) Localized {
	switch {
	case n == nil:
		return Localized{}
	case n.kind == mapNode:
		return Localized{n.str("en"), n.str("zh")}
	}
	return Localized{n.text, n.text}
}

// blank reads one blank. Its title and description may be in two languages, which a schema's may not.
func (r *templateReader) blank(name, n *node) {
	b := Blank{Name: name.text, Title: localized(n.get("title")), Description: localized(n.get("description"))}
	if b.Name == nameBlank {
		r.at(name, "E_TEMPLATE", "every template has the blank name already: it is the pipeline's", "another name", "")
	}
	plain := &node{kind: mapNode, line: n.line, col: n.col}
	for _, e := range n.entries {
		if text := localized(e.value); (e.key.text == "title" || e.key.text == "description") && e.value.kind == mapNode {
			e.value = &node{line: e.value.line, col: e.value.col, text: text.English}
		}
		plain.entries = append(plain.entries, e)
	}
	if b.Schema = r.schema(plain); b.Schema == nil {
		return
	}
	value := plain.get("default")
	if b.Required = value == nil; value != nil {
		b.Default = value.encodeJSON()
		if compiled, err := CompileSchema(b.Schema); err == nil {
			if wrong := violation(compiled, b.Default); wrong != "" {
				r.at(value, "E_DEFAULT", "the default breaks the blank's own schema: "+wrong, "a default that the schema allows", "")
			}
		}
	}
	r.template.Blanks = append(r.template.Blanks, b)
}

func isExample(file string) bool {
	ok, _ := path.Match("example*.yaml", file)
	return ok
}

// companions finds the files that belong to the pipeline: all but the template itself and what its example needs.
func (r *templateReader) companions() {
	t := r.template
	err := fs.WalkDir(t.files, ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file == "example":
			return fs.SkipDir
		case d.IsDir(), file == TemplateFile, isExample(file):
			return nil
		case !d.Type().IsRegular():
			r.report(0, 0, "E_TEMPLATE", "beside the template, "+file+" is no regular file", "files only", "")
			return nil
		}
		t.beside = append(t.beside, file)
		content, err := fs.ReadFile(t.files, file)
		if err != nil {
			return err
		}
		for _, b := range t.Blanks {
			if strings.Contains(string(content), "<<"+b.Name+">>") {
				r.report(0, 0, "E_TEMPLATE_IN_SHELL", "the file "+path.Clean(file)+" holds the blank <<"+b.Name+">>", "blanks in template.yaml only",
					"hand the value over as a parameter, by inputs: or by env:")
			}
		}
		return nil
	})
	if err != nil {
		r.report(0, 0, "E_FILE", "the files beside the template can't be read: "+reasonOf(err), "a readable folder", "")
	}
}
