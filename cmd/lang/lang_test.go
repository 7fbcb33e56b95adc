package lang_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nicksnyder/go-i18n/v2/i18n"

	"github.com/apollo-11/apollo/cmd/lang"
)

// catalogue gives every text of a language; a plural form is its own text, as id#form.
func catalogue(t *testing.T, tag string) map[string]*i18n.Message {
	t.Helper()
	raw, err := lang.Messages(tag)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*i18n.Message{}
	for id, m := range raw {
		all[id] = m.(*i18n.Message)
	}
	if len(all) < 100 {
		t.Fatalf("%s: only %d messages", tag, len(all))
	}
	return all
}

func TestLanguagesHaveTheSameMessages(t *testing.T) {
	t.Parallel()
	en, zh := catalogue(t, lang.English), catalogue(t, lang.Chinese)
	for id, m := range en {
		other, ok := zh[id]
		if !ok {
			t.Errorf("%s: not in Chinese", id)
			continue
		}
		if a, b := placeholders(m.Other), placeholders(other.Other); !slices.Equal(a, b) {
			t.Errorf("%s: placeholders %v in English, %v in Chinese", id, a, b)
		}
		if m.One == "" && slices.Contains(placeholders(m.Other), "N") {
			t.Errorf("%s: counts something and has no form for one", id)
		}
		if m.One != "" && !slices.Equal(placeholders(m.One), placeholders(m.Other)) {
			t.Errorf("%s: placeholders of the plural forms differ", id)
		}
	}
	for id := range zh {
		if _, ok := en[id]; !ok {
			t.Errorf("%s: not in English", id)
		}
	}
}

var placeholder = regexp.MustCompile(`{{\.(\w+)}}`)

func placeholders(text string) (names []string) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestNoTextIsEmpty(t *testing.T) {
	t.Parallel()
	for _, tag := range lang.Tags() {
		for id, m := range catalogue(t, tag) {
			if strings.TrimSpace(m.Other) == "" {
				t.Errorf("%s: %s is empty", tag, id)
			}
			if strings.Count(m.Other, "{{") != len(placeholder.FindAllString(m.Other, -1)) {
				t.Errorf("%s: %s has a placeholder that is not {{.Name}}: %q", tag, id, m.Other)
			}
		}
	}
}

func TestEveryMessageIsUsedAndThere(t *testing.T) {
	t.Parallel()
	en := catalogue(t, lang.English)
	u := uses(t)
	for id, place := range u.ids {
		if _, ok := en[id]; !ok {
			t.Errorf("%s: no message %q", place, id)
		}
	}
	for id := range en {
		if !u.has(id) && !strings.HasPrefix(id, "code.") { // codes_test.go looks at those
			t.Errorf("message %q is used nowhere", id)
		}
	}
}

// used is what the Go files of the commands ask the catalogue for.
type used struct {
	ids      map[string]string // id to place
	families []string          // prefixes that a value follows, as state. in T("state."+s)
	words    map[string]bool   // every string in the files: an id may reach T through a variable
}

func (u *used) has(id string) bool {
	return u.ids[id] != "" || u.words[id] || slices.ContainsFunc(u.families, func(f string) bool { return strings.HasPrefix(id, f) }) ||
		strings.HasSuffix(id, ".example") && u.ids[strings.TrimSuffix(id, ".example")+".short"] != ""
}

func uses(t *testing.T) *used {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no Go files: %v", err)
	}
	u := &used{ids: map[string]string{}, words: map[string]bool{}}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				u.words[text(n)] = true
			case *ast.CallExpr:
				u.call(n, fmt.Sprint(set.Position(n.Pos())))
			}
			return true
		})
	}
	return u
}

func (u *used) call(c *ast.CallExpr, place string) {
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || len(c.Args) == 0 {
		return
	}
	switch f.Sel.Name {
	case "T":
		if sum, ok := c.Args[0].(*ast.BinaryExpr); ok {
			if prefix := text(sum.X); prefix != "" && prefix != "help." && prefix != "head." {
				u.families = append(u.families, prefix)
			}
		} else if id := text(c.Args[0]); id != "" {
			u.ids[id] = place
		}
	case "usageError", "tell", "helpFlags", "fail":
		for _, arg := range c.Args {
			if id := text(arg); strings.Contains(id, ".") {
				u.ids[id] = place
			}
		}
	case "describe":
		if id := text(c.Args[len(c.Args)-1]); id != "" {
			u.ids["help."+id+".short"], u.ids["help."+id+".long"] = place, place
		}
	case "heads":
		for _, a := range c.Args {
			u.ids["head."+text(a)] = place
		}
	}
}

// text gives a string literal's value, nothing for any other expression.
func text(e ast.Expr) string {
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return ""
	}
	s, _ := strconv.Unquote(l.Value)
	return s
}

func TestMatch(t *testing.T) {
	t.Parallel()
	for locale, want := range map[string]string{"zh_CN.UTF-8": "zh", "zh": "zh", "ZH-hans": "zh", "en_GB": "en", "C.UTF-8": "en", "POSIX": "en"} {
		if got, ok := lang.Match(locale); got != want || !ok {
			t.Errorf("%s: %s, %v", locale, got, ok)
		}
	}
	if got, ok := lang.Match("fr_FR"); got != lang.English || ok {
		t.Errorf("fr: %s, %v; want English, and false", got, ok)
	}
	if got := lang.New("zh").T("no.such"); got != "<no.such>" {
		t.Errorf("a message that is not there is %q", got)
	}
}
