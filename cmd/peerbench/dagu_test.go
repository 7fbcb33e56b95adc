package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDaguGetsItsHome(t *testing.T) {
	t.Parallel()
	results, err := daguChain5(fakeDagu(t))(t.Context(), t.TempDir(), effort{chains: 3, patience: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].name != "dagu_chain5_ms" || results[0].samples != 3 || results[0].value <= 0 {
		t.Errorf("results = %+v", results)
	}
}

// fakeDagu writes a stand-in that refuses to run without what a real Dagu needs from us.
func fakeDagu(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dagu")
	script := `#!/bin/sh
set -e
[ "$*" = "start -q chain5" ]
grep -q 'host: 127.0.0.1' "$DAGU_HOME/config.yaml"
grep -q 'check_updates: false' "$DAGU_HOME/config.yaml"
[ "$(grep -c 'command: /bin/true' "$DAGU_HOME/dags/chain5.yaml")" = 5 ]
[ "$(grep -c 'depends: ' "$DAGU_HOME/dags/chain5.yaml")" = 4 ]
[ "$HOME" = "$DAGU_HOME" ]
`
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
