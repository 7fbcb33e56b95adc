// Package lang holds every sentence that the commands say, in English and 简体中文. A message is looked up by its id in
// the catalogue of one language; a sentence is never put together from parts.
package lang

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/nicksnyder/go-i18n/v2/i18n"
	"golang.org/x/text/language"
)

//go:embed en zh
var files embed.FS

// The languages.
const (
	English = "en"
	Chinese = "zh"
)

// Tags gives the languages that there are.
func Tags() []string { return []string{English, Chinese} }

// Data is what a message's placeholders stand for.
type Data = map[string]any

// Printer gives messages in one language. It reads its catalogue when it is first asked for a message.
type Printer struct {
	tag       string
	localizer func() *i18n.Localizer
}

// New makes the printer of a language, named as a locale is; one that is not there becomes English.
func New(tag string) *Printer {
	tag, _ = Match(tag)
	return &Printer{tag: tag, localizer: sync.OnceValue(func() *i18n.Localizer { return load(tag) })}
}

// Match finds the language for a flag's or LANG's value, as zh, zh_CN.UTF-8 or en-GB; false when it names another one.
func Match(locale string) (tag string, ok bool) {
	base, _, _ := strings.Cut(strings.ToLower(locale), ".")
	base, _, _ = strings.Cut(strings.ReplaceAll(base, "-", "_"), "_")
	switch base {
	case English, "c", "posix":
		return English, true
	case Chinese:
		return Chinese, true
	}
	return English, false
}

// Tag gives the printer's language.
func (p *Printer) Tag() string { return p.tag }

// T gives a message. An id that is not in the catalogue is given back in angle brackets; a test finds those.
func (p *Printer) T(id string, data ...Data) string {
	c := &i18n.LocalizeConfig{MessageID: id}
	if len(data) > 0 {
		c.TemplateData = data[0]
		if n, ok := data[0]["N"]; ok {
			c.PluralCount = fmt.Sprint(n) // any kind of number
		}
	}
	text, err := p.localizer().Localize(c)
	if err != nil {
		return "<" + id + ">"
	}
	return text
}

// Has reports whether the catalogue has the message.
func (p *Printer) Has(id string) bool { return !strings.HasPrefix(p.T(id), "<") }

// Messages gives a language's catalogue as it is written, by id; a message with plural forms is a map.
func Messages(tag string) (map[string]any, error) {
	all := map[string]any{}
	names, err := fs.Glob(files, tag+"/*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		file, err := parse(name)
		if err != nil {
			return nil, err
		}
		for _, m := range file.Messages {
			all[m.ID] = m
		}
	}
	return all, nil
}

func parse(name string) (*i18n.MessageFile, error) {
	b, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	tag, _, _ := strings.Cut(name, "/")
	f, err := i18n.ParseMessageFileBytes(b, tag+".json", nil)
	if err != nil {
		return nil, fmt.Errorf("parse catalogue %s: %w", name, err)
	}
	return f, nil
}

func load(tag string) *i18n.Localizer {
	bundle := i18n.NewBundle(language.Make(tag))
	names, _ := fs.Glob(files, tag+"/*.json")
	for _, name := range names {
		if f, err := parse(name); err == nil { // a test parses every catalogue
			_ = bundle.AddMessages(f.Tag, f.Messages...)
		}
	}
	return i18n.NewLocalizer(bundle, tag)
}
