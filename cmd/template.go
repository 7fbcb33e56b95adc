package cmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
)

// templateSource is where a template comes from.
type templateSource struct {
	kind  string // own, builtin, plugin
	files fs.FS  // its folder
	file  string // in the folder
	shown string // for messages
	dir   string // the name that it is listed under when it can't be read
	about string // when it does not say itself
}

// namedTemplate is a template that was read, and where from.
type namedTemplate struct {
	*configs.Template
	source templateSource
}

func (a *app) templateCommand() *cobra.Command {
	root := a.describe(&cobra.Command{Use: "template", Args: a.arguments(0, 0), RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}, "template")
	dir := root.PersistentFlags().String("templates", "", "flag.templates")
	listing := a.describe(&cobra.Command{Use: "list", Args: a.arguments(0, 0)}, "template.list")
	listing.RunE = func(*cobra.Command, []string) error { return a.listTemplates(*dir) }
	show := a.describe(&cobra.Command{Use: "show NAME", Args: a.arguments(1, 1)}, "template.show")
	source := show.Flags().Bool("source", false, "flag.source")
	show.RunE = func(_ *cobra.Command, args []string) error { return a.showTemplate(*dir, args[0], *source) }
	use := a.describe(&cobra.Command{Use: "use NAME", Args: a.arguments(1, 1)}, "template.use")
	var f useFlags
	use.Flags().StringArrayVar(&f.set, "set", nil, "flag.set")
	use.Flags().StringVar(&f.name, "name", "", "flag.name")
	use.Flags().StringVar(&f.out, "out", "", "flag.out")
	use.Flags().BoolVar(&f.force, "force", false, "flag.force")
	use.RunE = func(_ *cobra.Command, args []string) error { return a.useTemplate(*dir, args[0], f) }
	for _, c := range []*cobra.Command{show, use} {
		c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			all, _ := a.templates(*dir)
			names := make([]string, len(all))
			for i, t := range all {
				names[i] = t.Name
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		}
	}
	root.AddCommand(listing, show, use)
	return root
}

// templateSources gives every place that holds a template, in the order in which a name is looked up: a person's own, those
// of this build, those of plug-ins.
func (a *app) templateSources(dir string) []templateSource {
	dir = orText(dir, filepath.Join(a.pipelines, "templates"))
	sources := foldersIn("own", os.DirFS(dir), dir)
	sources = append(sources, foldersIn("builtin", configs.BuiltinTemplates(), "builtin")...)
	for _, p := range a.pluginSet().Templates() {
		sources = append(sources, templateSource{"plugin", os.DirFS(filepath.Dir(p.File)), filepath.Base(p.File), p.File, p.Name, p.Description})
	}
	return sources
}

func foldersIn(kind string, files fs.FS, shown string) []templateSource {
	entries, _ := fs.ReadDir(files, ".") // a folder that is not there holds none
	var sources []templateSource
	for _, e := range entries {
		sub, err := fs.Sub(files, e.Name())
		if err != nil {
			continue
		}
		if _, err := fs.Stat(sub, configs.TemplateFile); err == nil {
			sources = append(sources, templateSource{kind, sub, configs.TemplateFile, filepath.Join(shown, e.Name(), configs.TemplateFile), e.Name(), ""})
		}
	}
	return sources
}

// templates reads every template, sorted by name. Of two with one name the first source wins; what is wrong with the others
// comes beside them.
func (a *app) templates(dir string) ([]namedTemplate, configs.Problems) {
	var all []namedTemplate
	var problems configs.Problems
	for _, s := range a.templateSources(dir) {
		t, found := configs.LoadTemplate(s.files, s.file, s.shown)
		problems = append(problems, found...)
		if t != nil && !slices.ContainsFunc(all, func(other namedTemplate) bool { return other.Name == t.Name }) {
			all = append(all, namedTemplate{t, s})
		}
	}
	slices.SortStableFunc(all, func(x, y namedTemplate) int { return strings.Compare(x.Name, y.Name) })
	return all, problems
}

// template finds one by its name. One that can't be read is refused with its problems.
func (a *app) template(dir, name string) (namedTemplate, error) {
	all, problems := a.templates(dir)
	var names []string
	for _, t := range all {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	for _, s := range a.templateSources(dir) {
		own := slices.DeleteFunc(slices.Clone(problems), func(p configs.Problem) bool { return p.File != s.shown })
		if s.dir == name && own.HasErrors() {
			return namedTemplate{}, errors.Join(a.printProblems(own, 0), silent(exitInvalid))
		}
	}
	return namedTemplate{}, a.fail(exitNotFound, "E_REF", "error.no_template", lang.Data{"Name": name, "Names": strings.Join(names, ", ")})
}

type templateJSON struct {
	Template    string            `json:"template"`
	Title       configs.Localized `json:"title"`
	Description configs.Localized `json:"description"`
	Source      string            `json:"source"`
	Blanks      []configs.Blank   `json:"blanks"`
	Files       []string          `json:"files"`
}

func (t namedTemplate) json() templateJSON {
	j := templateJSON{Template: t.Name, Title: t.Title, Description: t.Description, Source: t.source.kind, Blanks: t.Blanks, Files: t.Companions()}
	if j.Description == (configs.Localized{}) {
		j.Description = configs.Localized{English: t.source.about, Chinese: t.source.about}
	}
	if j.Blanks == nil {
		j.Blanks = []configs.Blank{}
	}
	if j.Files == nil {
		j.Files = []string{}
	}
	return j
}

// localize gives a text in the language of the program.
func (a *app) localize(text configs.Localized) string {
	if a.say.Tag() == lang.Chinese {
		return text.Chinese
	}
	return text.English
}

func (a *app) listTemplates(dir string) error {
	a.tellSkipped()
	all, problems := a.templates(dir)
	if problems.HasErrors() { // a broken one is named, and the others are listed
		if err := a.printProblems(problems, 0); err != nil {
			return err
		}
	}
	rows := make([]templateJSON, len(all))
	for i, t := range all {
		rows[i] = t.json()
	}
	return list(a, rows, a.heads("template", "what", "blanks", "source"), func(t templateJSON) []string {
		var needed []string
		for _, b := range t.Blanks {
			if b.Required {
				needed = append(needed, b.Name)
			}
		}
		return []string{t.Template, a.localize(t.Title), strings.Join(needed, ", "), a.say.T("source." + t.Source)}
	})
}

func (a *app) showTemplate(dir, name string, source bool) error {
	t, err := a.template(dir, name)
	if err != nil {
		return err
	}
	if source {
		_, err := fmt.Fprint(a.out, t.Source())
		return err
	}
	if a.output != "text" {
		return writeJSON(a.out, t.json(), a.output == "json")
	}
	fmt.Fprintf(a.out, "%s  %s\n%s\n\n", a.paint(bold, t.Name), line(a.localize(t.Title)), line(a.localize(t.json().Description)))
	return list(a, t.Blanks, a.heads("blank", "type", "default", "what"), func(b configs.Blank) []string {
		value := string(b.Default)
		if b.Required {
			value = a.paint(warn, a.say.T("blank.required"))
		}
		return []string{b.Name, typeOf(b.Schema), value, a.localize(b.Title)}
	})
}

// typeOf says in a word what a schema takes.
func typeOf(schema json.RawMessage) string {
	var s struct {
		Type any   `json:"type"`
		Enum []any `json:"enum"`
	}
	_ = json.Unmarshal(schema, &s) // the schema was compiled before
	if len(s.Enum) > 0 {
		return joinAny(s.Enum)
	}
	if types, several := s.Type.([]any); several {
		return joinAny(types)
	}
	if s.Type == nil {
		return "any"
	}
	return fmt.Sprint(s.Type)
}

func joinAny(values []any) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, "|")
}
