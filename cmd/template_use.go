package cmd

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
)

type useFlags struct {
	set       []string
	name, out string
	force     bool
}

type usedJSON struct {
	Template string           `json:"template"`
	Pipeline string           `json:"pipeline"`
	Files    []string         `json:"files"`
	Problems configs.Problems `json:"problems"` // what is still missing on this machine
}

var pipelineName = regexp.MustCompile(configs.NamePattern)

// useTemplate fills a template and writes what comes out, all of it or nothing.
func (a *app) useTemplate(dir, name string, f useFlags) error {
	t, err := a.template(dir, name)
	if err != nil {
		return err
	}
	f.name = orText(f.name, t.Name)
	if !pipelineName.MatchString(f.name) {
		return a.usageError("usage.name", lang.Data{"Name": f.name})
	}
	given, err := a.blanks(t, f.set)
	if err != nil {
		return err
	}
	values, problems := t.Values(given)
	if problems.HasErrors() {
		return a.refuse(problems, exitUsage)
	}
	files, problems := t.Fill(f.name, values)
	if problems.HasErrors() {
		return a.refuse(problems, exitInvalid)
	}
	path := a.definitionPath(f, len(files) > 1)
	if problems := a.tryDefinition(files, path, f.name); problems.HasErrors() {
		return a.refuse(problems, exitInvalid)
	}
	written := make([]newFile, len(files))
	for i, file := range files {
		written[i] = newFile{path, file.Content}
		if file.Path != "" {
			written[i].path = filepath.Join(filepath.Dir(path), filepath.FromSlash(file.Path))
		}
	}
	if err := install(written, f.force); err != nil {
		if there, ok := errors.AsType[*existsError](err); ok {
			return a.fail(exitConflict, "E_EXISTS", "error.exists_force", lang.Data{"File": there.path})
		}
		return err
	}
	return a.used(t, f.name, path, written)
}

// blanks reads --set, and asks a person at a terminal for what has no default.
func (a *app) blanks(t namedTemplate, set []string) (map[string]json.RawMessage, error) {
	given := map[string]json.RawMessage{}
	for _, s := range set {
		name, text, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, a.usageError("usage.set", lang.Data{"Set": s})
		}
		given[name] = t.FromText(name, text)
	}
	if in, ok := a.in.(*os.File); ok && a.output == "text" && isTerminal(in) && isTerminal(a.err) {
		a.ask(bufio.NewReader(in), t, given)
	}
	return given, nil
}

// maxAsked is how often a person may answer one question wrongly.
const maxAsked = 3

// ask asks for each blank without a default that takes one simple value. What stays open is refused later, by name.
func (a *app) ask(in *bufio.Reader, t namedTemplate, given map[string]json.RawMessage) {
	for _, b := range t.Blanks {
		kind := typeOf(b.Schema)
		if _, there := given[b.Name]; there || !b.Required || kind != "string" && kind != "integer" && kind != "number" && kind != "boolean" {
			continue
		}
		for range maxAsked {
			fmt.Fprintf(a.err, "%s (%s): ", line(orText(a.localize(b.Title), b.Name)), b.Name)
			text, err := in.ReadString('\n')
			text = strings.TrimRight(text, "\r\n")
			if text == "" && err != nil {
				return
			}
			value := t.FromText(b.Name, text)
			wrong := b.Wrong(value)
			if wrong == "" {
				given[b.Name] = value
				break
			}
			a.put(a.paint(bad, clean(wrong)))
		}
	}
}

// refuse prints problems, as validate does.
func (a *app) refuse(problems configs.Problems, exit int) error {
	var err error
	if a.output != "text" {
		err = writeJSON(a.out, map[string]any{"problems": problems}, a.output == "json")
	} else {
		err = a.printProblems(problems, 0)
	}
	return errors.Join(err, silent(exit))
}

// definitionPath says where the definition goes: a pipeline with files of its own gets a folder, any other one file.
func (a *app) definitionPath(f useFlags, folder bool) string {
	if strings.HasSuffix(f.out, ".yaml") || strings.HasSuffix(f.out, ".yml") {
		return f.out
	}
	out := orText(f.out, a.pipelines)
	if folder {
		return filepath.Join(out, f.name, "pipeline.yaml")
	}
	return filepath.Join(out, f.name+".yaml")
}

// tryDefinition checks what would be written, in a folder that nobody sees: nothing that validate refuses is left behind.
func (a *app) tryDefinition(files []configs.Filled, path, name string) configs.Problems {
	broken := func(err error) configs.Problems {
		return configs.Problems{{File: path, Code: "E_FILE", Severity: configs.SeverityError, Message: err.Error(), Expected: "a folder that can be written"}}
	}
	dir, err := os.MkdirTemp("", "apollo-template-")
	if err != nil {
		return broken(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of ours in the system's place for such
	var text []byte
	for _, file := range files {
		if file.Path == "" {
			text = file.Content
			continue
		}
		to := filepath.Join(dir, filepath.FromSlash(file.Path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, file.Content, 0o600)); err != nil {
			return broken(err)
		}
	}
	o := a.checkOptions()
	o.CheckFiles, o.LookPath, o.DataDir = false, nil, ""
	_, problems := configs.Parse(path, text, dir, o)
	others, _ := configs.LoadDir(a.pipelines, configs.Options{})
	for _, p := range others {
		if p.Name == name && filepath.Clean(p.File) != filepath.Clean(path) {
			problems = append(problems, configs.Problem{File: path, Code: "E_DUP_PIPELINE", Severity: configs.SeverityError,
				Message: "the pipeline " + name + " is defined in " + p.File + " already", Expected: "a name of its own", Hint: "--name NAME"})
		}
	}
	return problems
}

// used says what was written and what comes next.
func (a *app) used(t namedTemplate, name, path string, files []newFile) error {
	p, problems := configs.LoadFile(path, a.checkOptions())
	made := usedJSON{Template: t.Name, Pipeline: name, Files: make([]string, len(files)), Problems: append(configs.Problems{}, problems...)}
	for i, f := range files {
		made.Files[i] = f.path
	}
	if a.output != "text" {
		return writeJSON(a.out, made, a.output == "json")
	}
	for _, f := range made.Files {
		fmt.Fprintln(a.out, a.paint(good, "✔ ")+a.say.T("template.wrote", lang.Data{"File": f}))
	}
	for _, problem := range problems {
		fmt.Fprintln(a.out, a.paint(warn, "! ")+clean(problem.Text()))
	}
	target := name
	if rel, err := filepath.Rel(a.pipelines, path); err != nil || strings.HasPrefix(rel, "..") {
		target = path
	}
	input := ""
	if p != nil && readsFile(p.Plan()) {
		input = " --input FILE"
	}
	fmt.Fprintln(a.out, a.say.T("template.next", lang.Data{"Command": "apollo run " + target + input}))
	if tests, err := configs.TestFiles(path); err == nil && len(tests) > 0 {
		fmt.Fprintln(a.out, a.say.T("template.next", lang.Data{"Command": "apollo test " + target}))
	}
	return nil
}
