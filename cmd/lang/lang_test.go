package lang_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nicksnyder/go-i18n/v2/i18n"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
)

func catalogue(t *testing.T, tag string) map[string]*i18n.Message {
	t.Helper()
	raw, err := lang.Messages(tag)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*i18n.Message{}
	for id, m := range raw {
		message, ok := m.(*i18n.Message)
		if !ok {
			t.Fatalf("%s: %s is a %T", tag, id, m)
		}
		all[id] = message
	}
	return all
}

var placeholder = regexp.MustCompile(`{{[^}]*}}`)

// Every message is there in every language, says the same things, and comes out without a hole.
func TestEveryMessageIsInEveryLanguage(t *testing.T) {
	t.Parallel()
	en := catalogue(t, lang.English)
	for _, tag := range lang.Tags() {
		other := catalogue(t, tag)
		for id := range maps.Keys(other) {
			if en[id] == nil {
				t.Errorf("%s: %s is not in the English catalogue", tag, id)
			}
		}
		for id, m := range en {
			o := other[id]
			if o == nil {
				t.Errorf("%s: %s is missing", tag, id)
				continue
			}
			if want, got := placeholders(m.Other), placeholders(o.Other); want != got {
				t.Errorf("%s: %s has the placeholders %s, English %s", tag, id, got, want)
			}
			if strings.TrimSpace(o.Other) == "" {
				t.Errorf("%s: %s is empty", tag, id)
			}
		}
	}
	for id, m := range catalogue(t, lang.Chinese) {
		if m.Other == en[id].Other && !strings.HasSuffix(id, ".example") {
			t.Errorf("%s is not translated", id)
		}
	}
}

func placeholders(text string) string {
	all := placeholder.FindAllString(text, -1)
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// The places in the sources where a message is named, and what the name becomes.
var named = []struct {
	pattern *regexp.Regexp
	ids     []string // with %s for what was found
}{
	{regexp.MustCompile(`\.(?:T|Has)\("([a-z_.]+)"[,)]`), []string{"%s"}},
	{regexp.MustCompile(`\b(?:usageError|tell|title|row)\("([a-z_.]+)"`), []string{"%s"}},
	{regexp.MustCompile(`\bfail\(\w+, "\w+", "([a-z_.]+)"`), []string{"%s"}},
	{regexp.MustCompile(`"((?:flag|ago|error|usage|help|demo)\.[a-z_]+)"`), []string{"%s"}},
	{regexp.MustCompile(`describe\(.*"([a-z.]+)"\)\n`), []string{"help.%s.short", "help.%s.long"}},
}

var heads = regexp.MustCompile(`heads\(([^)]*)\)`)

// Every message that the sources name is in the catalogue, and every message of the catalogue is named somewhere.
func TestEveryMessageIsNamed(t *testing.T) {
	t.Parallel()
	known := catalogue(t, lang.English)
	used := map[string]bool{}
	use := func(id, where string) {
		used[id] = true
		if known[id] == nil {
			t.Errorf("%s names %s, which is not in the catalogue", where, id)
		}
	}
	for name, text := range sources(t, "..") {
		for _, n := range named {
			for _, m := range n.pattern.FindAllStringSubmatch(text, -1) {
				for _, id := range n.ids {
					use(fmt.Sprintf(id, m[1]), name)
				}
			}
		}
		for _, m := range heads.FindAllStringSubmatch(text, -1) {
			for _, word := range regexp.MustCompile(`\w+`).FindAllString(m[1], -1) {
				if strings.Contains(m[1], `"`+word+`"`) {
					use("head."+word, name)
				}
			}
		}
	}
	for s := events.None; s <= events.Skipped; s++ {
		use("state."+s.String(), "a state")
	}
	for _, fate := range []string{"run", "duplicate", "rejected", "held", "ignored"} {
		use("fate."+fate, "a fate")
	}
	for _, waits := range []string{"dependency", "slot", "retry", "resources", "concurrency", "approval", "paused"} {
		use("waits."+waits, "a reason to wait")
	}
	for id := range known {
		if !used[id] && !strings.HasPrefix(id, "code.") && !strings.HasSuffix(id, ".example") {
			t.Errorf("nothing names %s", id)
		}
	}
}

// Every code that a user may meet is explained.
func TestEveryCodeIsExplained(t *testing.T) {
	t.Parallel()
	explained := map[string]bool{}
	for _, c := range configs.Codes() {
		explained[c.Name] = true
	}
	for id := range catalogue(t, lang.English) {
		if name, ok := strings.CutPrefix(id, "code."); ok {
			if explained[name] {
				t.Errorf("%s is explained twice", name)
			}
			explained[name] = true
		}
	}
	code := regexp.MustCompile(`["\x60](E_[A-Z_]+)\b`)
	for _, dir := range []string{"..", "../../handlers", "../../router", "../../storage", "../../events", "../../configs"} {
		for name, text := range sources(t, dir) {
			for _, m := range code.FindAllStringSubmatch(text, -1) {
				if !explained[m[1]] {
					t.Errorf("%s: nothing explains %s", name, m[1])
					explained[m[1]] = true
				}
			}
		}
	}
}

// sources gives the Go files below a directory, without tests and without the benchmark's peers.
func sources(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && d.Name() == "peerbench" {
				return filepath.SkipDir
			}
			return err
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			b, err := os.ReadFile(path)
			all[path] = string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestMatchReadsLocales(t *testing.T) {
	t.Parallel()
	for locale, want := range map[string]string{"zh": "zh", "zh_CN.UTF-8": "zh", "zh-Hans-CN": "zh", "en_GB.UTF-8": "en", "C.UTF-8": "en", "POSIX": "en"} {
		if tag, ok := lang.Match(locale); tag != want || !ok {
			t.Errorf("Match(%q) = %q, %v", locale, tag, ok)
		}
	}
	if tag, ok := lang.Match("fr_FR.UTF-8"); ok || tag != lang.English {
		t.Errorf("Match of French = %q, %v", tag, ok)
	}
}

func TestPluralsAndHoles(t *testing.T) {
	t.Parallel()
	en, zh := lang.New("en"), lang.New("zh_CN.UTF-8")
	for n, want := range map[int]string{1: "1 minute ago", 2: "2 minutes ago", 0: "0 minutes ago"} {
		if got := en.T("ago.minutes", lang.Data{"N": n}); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	if got := zh.T("ago.minutes", lang.Data{"N": 1}); got != "1 分钟前" {
		t.Errorf("Chinese: %q", got)
	}
	if got := en.T("no.such.message"); got != "<no.such.message>" {
		t.Errorf("a message that is not there: %q", got)
	}
}
