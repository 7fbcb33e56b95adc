package configs

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	schemakind "github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Plugin is a further executor, as far as definitions are concerned with it.
type Plugin struct {
	Name    string
	Pin     string          // goes into the plan: name@version sha256:<hex>
	With    json.RawMessage // JSON Schema of its settings; nil takes any
	Timeout time.Duration   // of a stage that has none; 0 is none
	Skipped string          // why it can't be used, in one sentence; empty when it can
}

func (o Options) plugin(name string) *Plugin {
	if i := slices.IndexFunc(o.Plugins, func(p Plugin) bool { return p.Name == name }); i >= 0 {
		return &o.Plugins[i]
	}
	return nil
}

func (o Options) pluginNames() []string {
	names := make([]string, len(o.Plugins))
	for i := range o.Plugins {
		names[i] = o.Plugins[i].Name
	}
	return names
}

// StageKeys are the keys of a stage: no plug-in may have such a name.
func StageKeys() []string { return stageLanguage.names() }

// The kinds of a plug-in.
const (
	PluginExecutor = "executor" // carries out stages
	PluginAlert    = "alert"    // sends alerts
	PluginTemplate = "template" // offers a template of pipelines; nothing of it is executed
)

// PluginProtocol is the version of the protocol that this build speaks with plug-ins.
const PluginProtocol = 1

// Manifest describes a plug-in: its plugin.yaml.
type Manifest struct {
	Name        string
	Kind        string
	Version     string
	Description string
	Command     []string        // the executable, relative to the manifest, and its arguments; none of a template
	Template    string          // the file of a template, relative to the manifest
	SHA256      string          // of the executable or template, 64 hexadecimal digits
	With        json.RawMessage // JSON Schema of an executor's settings
	Timeout     time.Duration   // 0 is none
}

// File is the file that the plug-in is made of, which its digest pins.
func (m *Manifest) File() string {
	if m.Kind == PluginTemplate {
		return m.Template
	}
	return m.Command[0]
}

// noSettings is the schema of an executor whose manifest has none.
const noSettings = `{"type":"object","additionalProperties":false}`

var manifestLanguage = object("A plug-in.",
	must("name", as(nameForm, "The directory's name.")),
	must("kind", oneOf("What it is.", PluginExecutor, PluginAlert, PluginTemplate)),
	must("version", as(textForm, "Its own version, as 1.0.2.")),
	key("description", as(textForm, "One sentence.")),
	key("command", list("The executable beside the manifest and its arguments; no shell reads them.", as(textForm, "Text."))),
	key("template", as(textForm, "The template beside the manifest.")),
	must("sha256", as(textForm, "Of the executable or the template, as sha256sum prints it.")),
	key("protocol", number(integerForm, PluginProtocol, PluginProtocol, "The version of the protocol that it speaks.")),
	key("with", as(schemaForm, "JSON Schema of an executor's settings.")),
	key("timeout", as(durationForm, "Of a stage or an alert that has none.")))

// ParseManifest reads a plug-in's manifest as strictly as a definition. It is nil when there is an error among the
// problems.
func ParseManifest(name string, src []byte) (*Manifest, Problems) {
	c := &checker{file: name, subject: "a plug-in's manifest"}
	m := c.manifest(src)
	if problems := c.problems.sorted(); problems.HasErrors() {
		return nil, problems
	}
	return m, nil
}

func (c *checker) manifest(src []byte) *Manifest {
	tokens, ok := c.guard(src)
	if !ok {
		return nil
	}
	root := c.parseTree(tokens)
	if root == nil {
		return nil
	}
	c.reportDuplicates(root)
	c.check(root, manifestLanguage, "")
	m := &Manifest{Name: root.str("name"), Kind: root.str("kind"), Version: root.str("version"), Description: root.str("description"),
		Command: texts(root.get("command")), Template: root.str("template"), SHA256: root.str("sha256"), Timeout: durationOf(root.get("timeout"), 0)}
	if m.With = c.schema(root.get("with")); m.With == nil {
		m.With = json.RawMessage(noSettings)
	}
	if !c.problems.HasErrors() {
		c.checkManifest(root, m)
	}
	return m
}

var (
	sha256Hex   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	versionText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}$`)
)

// manifestKeys are what a kind must have and may have, besides what every kind has.
var manifestKeys = map[string]struct{ must, may []string }{
	PluginExecutor: {[]string{"command", "protocol"}, []string{"with", "timeout"}},
	PluginAlert:    {[]string{"command", "protocol"}, []string{"timeout"}},
	PluginTemplate: {[]string{"template"}, nil},
}

func (c *checker) checkManifest(root *node, m *Manifest) {
	keys := manifestKeys[m.Kind]
	for _, name := range keys.must {
		if root.get(name) == nil {
			c.at(root, "E_REQUIRED", "a plug-in of kind "+m.Kind+" has no "+name, name+": "+manifestLanguage.field(name).spec.expects(), "")
		}
	}
	for _, e := range root.entries {
		field := manifestLanguage.field(e.key.text)
		if !field.required && e.key.text != "description" && !slices.Contains(slices.Concat(keys.must, keys.may), e.key.text) {
			c.at(e.key, "E_FIELD", "a plug-in of kind "+m.Kind+" has no "+e.key.text, "one of "+strings.Join(slices.Concat(keys.must, keys.may), ", "), "")
		}
	}
	if !versionText.MatchString(m.Version) {
		c.at(root.get("version"), "E_VALUE", "the version is "+strconv.Quote(shortened(m.Version)), "1 to 64 letters, digits and . + _ -", "")
	}
	if !sha256Hex.MatchString(m.SHA256) {
		c.at(root.get("sha256"), "E_VALUE", "the digest is "+strconv.Quote(shortened(m.SHA256)), "64 hexadecimal digits in lower case", "sha256sum prints them")
	}
	if template := root.get("template"); template != nil {
		c.checkBeside(template)
	}
	if command := root.get("command"); command != nil && len(command.items) == 0 {
		c.at(command, "E_REQUIRED", "the command is empty", "the executable and its arguments", "")
	} else if command != nil {
		c.checkBeside(command.items[0])
	}
}

// checkBeside wants a path below the manifest's directory.
func (c *checker) checkBeside(n *node) {
	if !filepath.IsLocal(n.text) || filepath.Clean(n.text) == "." || strings.ContainsRune(n.text, 0) {
		c.at(n, "E_PATH", "the path "+strconv.Quote(shortened(n.text))+" is not below the manifest's directory", "a relative path, as ./main", "no shell and no PATH finds it")
	}
}

// checkPlugin checks a plug-in's key of a stage and the settings below it.
func (c *checker) checkPlugin(e entry) {
	p := c.options.plugin(e.key.text)
	if p.Skipped != "" {
		c.at(e.key, "E_PLUGIN_SKIPPED", "the plug-in "+p.Name+" was skipped: "+p.Skipped, "a plug-in that could be loaded", "apollo plugin list shows them all")
		return
	}
	before := len(c.problems)
	if c.checkJSON(e.value, true); len(c.problems) > before || p.With == nil {
		return
	}
	schema := c.settings[p.Name]
	if schema == nil {
		var err error
		if schema, err = CompileSchema(p.With); err != nil {
			return // ParseManifest has compiled it once
		}
		if c.settings == nil {
			c.settings = map[string]*jsonschema.Schema{}
		}
		c.settings[p.Name] = schema
	}
	c.checkSettings(e.value, p.Name, schema)
}

// checkSettings reports how settings break a plug-in's schema. What an expression will give is known to no one yet: it is
// taken as fitting here, and checked when the stage runs.
func (c *checker) checkSettings(n *node, name string, schema *jsonschema.Schema) {
	doc, err := decodeJSON(n.encodeJSON())
	if err != nil {
		return
	}
	detail, wrong := errors.AsType[*jsonschema.ValidationError](schema.Validate(doc))
	if !wrong {
		return
	}
	for _, leaf := range n.broken(detail) {
		at := n.follow(leaf.InstanceLocation)
		if extra, ok := leaf.ErrorKind.(*schemakind.AdditionalProperties); ok {
			at = at.keyOf(extra.Properties[0])
		}
		c.at(at, "E_PLUGIN_WITH", "the settings break the schema of the plug-in "+name+": "+leafMessage(leaf), "settings that its schema allows", "apollo plugin list -o json shows it")
	}
}

// keyOf gives where a key of a map stands, or the map.
func (n *node) keyOf(name string) *node {
	for _, e := range n.entries {
		if e.key.text == name {
			return e.key
		}
	}
	return n
}

// broken gives the leaves of a violation that do not hang on an expression; of alternatives, the first that is left.
func (n *node) broken(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	if len(e.Causes) == 0 {
		if n.follow(e.InstanceLocation).hasExpression(comparesWhole(e.ErrorKind)) {
			return nil
		}
		return []*jsonschema.ValidationError{e}
	}
	var leaves []*jsonschema.ValidationError
	alternatives := false
	switch e.ErrorKind.(type) {
	case *schemakind.AnyOf, *schemakind.OneOf, *schemakind.Contains:
		alternatives = true
	}
	for _, cause := range e.Causes {
		found := n.broken(cause)
		if alternatives && len(found) == 0 {
			return nil // this one may hold yet
		}
		leaves = append(leaves, found...)
	}
	if alternatives {
		return leaves[:1]
	}
	return leaves
}

// comparesWhole reports rules that look at everything below a place and not at the place alone.
func comparesWhole(k jsonschema.ErrorKind) bool {
	switch k.(type) {
	case *schemakind.Enum, *schemakind.Const, *schemakind.UniqueItems, *schemakind.Not, *schemakind.OneOf, *schemakind.FalseSchema, *schemakind.Contains:
		return true
	}
	return false
}

func (n *node) hasExpression(below bool) bool {
	if n.kind == scalarNode {
		_, alone := Expression(n.text)
		return alone
	}
	if !below {
		return false
	}
	return slices.ContainsFunc(n.items, func(i *node) bool { return i.hasExpression(true) }) ||
		slices.ContainsFunc(n.entries, func(e entry) bool { return e.value.hasExpression(true) })
}
