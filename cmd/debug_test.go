package cmd_test

import (
	"bufio"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestDebugShell opens the shell of a failed attempt on a terminal, as a person does: it stands where the attempt worked, with
// the attempt's environment and nothing of the person's own, and ../command fails as the attempt did.
func TestDebugShell(t *testing.T) {
	t.Parallel()
	s := newSite(t, "debug", `name: debug
stages:
  load:
    secrets: {TOKEN: secret://token}
    env: {GREETING: "hello  world"}
    run: |
      echo "failing with $GREETING" >&2
      exit 7
`)
	secret := "APOLLO_SECRET_TOKEN=correct-horse-battery"
	if out, err := s.command([]string{secret}, "run", "debug").CombinedOutput(); err == nil {
		t.Fatalf("the run did not fail: %s", out)
	}
	temp := t.TempDir()
	c := s.command([]string{secret, "TERM=dumb", "MINE=leaks", "TMPDIR=" + temp}, "debug", "latest", "load")
	terminal, err := pty.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	for _, line := range []string{
		`echo "at=$PWD"`, `echo "greeting=$GREETING mine=[$MINE] stage=$APOLLO_STAGE"`, `test "$TOKEN" = correct-horse-"battery" && echo "the secret"" is there"`,
		`../command; echo "exit"=$?`, `exit 3`,
	} {
		if _, err := io.WriteString(terminal, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	_, _ = io.Copy(&said, bufio.NewReader(terminal)) // ends with an error once the other side is closed
	if err := c.Wait(); err != nil {
		t.Errorf("leaving the shell: %v", err)
	}
	text := said.String()
	for _, want := range []string{`at=/\S+/apollo-debug-load-\d+/out\r`, `greeting=hello  world mine=\[\] stage=load`, `the secret is there`,
		`failing with hello  world`, `exit=7`, `[0-9a-f]{8}/load \$ `, `the directory stays`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s is not in what the terminal showed:\n%s", want, text)
		}
	}
	if strings.Contains(text, "correct-horse-battery") {
		t.Error("the secret was shown")
	}
	s.healthy()
	if left, _ := filepath.Glob(filepath.Join(temp, "apollo-debug-load-*", "command")); len(left) != 1 {
		t.Errorf("the laid directory: %v", left)
	}
}
