package cmd_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// screenOf gives what a terminal shows after it was sent the bytes, as far as the program uses it: moves up, and clears
// below.
func screenOf(sent string) string {
	lines, at := []string{""}, 0
	for sent != "" {
		if m := regexp.MustCompile(`^\x1b\[(\d*)([A-Za-z])`).FindStringSubmatch(sent); m != nil {
			sent = sent[len(m[0]):]
			switch m[2] {
			case "A":
				n := 0
				for _, c := range m[1] {
					n = n*10 + int(c-'0')
				}
				at = max(0, at-n)
			case "J":
				lines = lines[:at+1]
				lines[at] = ""
			}
			continue
		}
		switch c := sent[0]; c {
		case '\r':
		case '\n':
			if at++; at == len(lines) {
				lines = append(lines, "")
			}
		default:
			lines[at] += string(c)
		}
		sent = sent[1:]
	}
	return strings.Join(lines, "\n")
}

// TestStepOnATerminal goes through a run by keys, as a person does.
func TestStepOnATerminal(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs("testdata/exports/v1-chain.apollo")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "apollo", "replay", file, "--step", "--color", "never")
	c.Dir, c.Env = t.TempDir(), append(os.Environ(), "LANG=C", "LC_ALL=C")
	terminal, err := pty.StartWithSize(c, &pty.Winsize{Rows: 20, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	shown := new(safeBuffer)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(shown, terminal) // it ends with an error once the program is gone
	}()
	for _, k := range []struct{ keys, shows, hides string }{
		{"", "before the first event", "run.created"},
		{"n", "1  ", "before the first"},
		{" ", "run.started", "run.created"},
		{"\x1b[C", "stage.started take", ""},
		{"\x1b[D", "next: stage.queued take", "stage.started take"},
		{"g", "go to event:", ""},
		{"7", "go to event: 7", ""},
		{"\x7f6\r", "(6 of 9)", "go to event"},
		{"?", "Home beginning", ""},
		{"e", "the run has ended", "Home beginning"},
		{"n", "(9 of 9)", ""},
		{"p", "next: run.completed", ""},
		{"\x1b[H", "before the first event", "completed"},
	} {
		if _, err := terminal.WriteString(k.keys); err != nil {
			t.Fatal(err)
		}
		eventually(t, k.keys+" shows "+k.shows, func() bool {
			s := screenOf(shown.String())
			return strings.Contains(s, k.shows) && (k.hides == "" || !strings.Contains(s, k.hides)) && strings.Count(s, "n forward") == 1
		})
	}
	if _, err := terminal.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, shown.String())
	}
	<-read
}
