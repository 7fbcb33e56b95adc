package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "secrets"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"hook": 0o600, "open": 0o640, "world": 0o604, "short": 0o600, "next": 0o600, "next.next": 0o600, "turn": 0o600, "turn.next": 0o600} {
		text := "value-of-" + name + "\n"
		if name == "short" || name == "turn.next" {
			text = "1234567\n"
		}
		path := filepath.Join(dir, "secrets", name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("hook", filepath.Join(dir, "secrets", "link")); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"APOLLO_SECRET_FROM_ENV": "value-of-env", "APOLLO_SECRET_TINY": "tiny", "APOLLO_SECRET_BLANK": "          "}
	a := &app{env: func(name string) string { return env[name] }}
	for _, c := range []struct{ ref, want, code string }{
		{"secret://hook", "value-of-hook", ""},
		{"secret://from-env", "value-of-env", ""},
		{"secret://next", "value-of-next value-of-next.next", ""},
		{"secret://tiny", "", "E_SECRET_SHORT"},
		{"secret://short", "", "E_SECRET_SHORT"},
		{"secret://turn", "", "E_SECRET_SHORT"}, // the one to come would open a hook too
		{"secret://blank", "", "E_SECRET_SHORT"},
		{"secret://open", "", "E_SECRET"},
		{"secret://world", "", "E_SECRET"},
		{"secret://link", "", "E_SECRET"},
		{"secret://missing", "", "E_SECRET"},
		{"secret://../hook", "", "E_SECRET"},
		{"secret://", "", "E_SECRET"},
		{"hook", "", "E_SECRET"},
	} {
		values, err := a.secrets(dir)(c.ref)
		switch {
		case c.code == "" && err != nil:
			t.Errorf("%s: %v", c.ref, err)
		case c.code == "" && strings.Join(values, " ") != c.want:
			t.Errorf("%s: %q", c.ref, values)
		case c.code != "" && (err == nil || !strings.HasPrefix(err.Error(), c.code+":")):
			t.Errorf("%s: %v, want %s", c.ref, err, c.code)
		case err != nil && strings.Contains(err.Error(), "value-of"):
			t.Errorf("%s: the error tells the secret: %v", c.ref, err)
		}
	}
}
