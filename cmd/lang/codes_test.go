package lang_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
)

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

// What is the same in both languages was forgotten.
func TestEveryMessageIsTranslated(t *testing.T) {
	t.Parallel()
	en := catalogue(t, lang.English)
	for id, m := range catalogue(t, lang.Chinese) {
		if m.Other == en[id].Other && !strings.HasSuffix(id, ".example") {
			t.Errorf("%s is not translated", id)
		}
	}
}

func TestPluralsAndHoles(t *testing.T) {
	t.Parallel()
	en, zh := lang.New("en"), lang.New("zh_CN.UTF-8")
	for n, want := range map[int]string{1: "1 problem", 2: "2 problems", 0: "0 problems"} {
		if got := en.T("validate.bad", lang.Data{"N": n}); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
	if got := zh.T("validate.bad", lang.Data{"N": 1}); got != "共 1 个问题" {
		t.Errorf("Chinese: %q", got)
	}
	if got := en.T("no.such.message"); got != "<no.such.message>" {
		t.Errorf("a message that is not there: %q", got)
	}
}
