package configs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxCompanion bounds a file that a plan embeds, in bytes.
const maxCompanion = 1 << 20

// readCompanion reads a file beside the definition, which the plan embeds.
func (c *checker) readCompanion(n *node) ([]byte, bool) {
	path := n.text
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.dir, path)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		c.at(n, "E_FILE", "the file "+n.text+" can't be read: "+reasonOf(err), "a file relative to the definition", "")
	case !info.Mode().IsRegular():
		c.at(n, "E_FILE", n.text+" is not a regular file", "a file relative to the definition", "")
	case info.Size() > maxCompanion:
		c.at(n, "E_FILE", fmt.Sprintf("the file %s has %d bytes", n.text, info.Size()), fmt.Sprintf("at most %d bytes", maxCompanion), "")
	default:
		b, err := os.ReadFile(path)
		if err != nil {
			c.at(n, "E_FILE", "the file "+n.text+" can't be read: "+reasonOf(err), "a readable file", "")
		}
		return b, err == nil
	}
	return nil, false
}

// reasonOf leaves the path out of a file error, since the message names the file as the definition does.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

var (
	shellTemplate  = regexp.MustCompile(`\$\{\{|\{\{-?\s*\.?(?i:params|trigger|stages|inputs?|outputs?|item|env|secrets|event)\b|\$\{(?i:params|trigger|stages|inputs|outputs|item|event|secrets)\.`)
	pythonTemplate = regexp.MustCompile(`\$\{\{`)
)

// checkScript looks through a script's text, inline or from a file, for what can't work.
func (c *checker) checkScript(n *node, text string, inline bool, template *regexp.Regexp) {
	if at := template.FindStringIndex(text); at != nil {
		line, col, where := n.line, n.col, ""
		if inline {
			line, col = c.locate(n, len([]rune(text[:at[0]])))
		} else {
			where = fmt.Sprintf(" in line %d of %s", 1+strings.Count(text[:at[0]], "\n"), n.text)
		}
		c.report(line, col, "E_TEMPLATE_IN_SHELL", "the script holds the template "+shortened(lineAt(text, at[0]))+where, "a script without templates",
			`hand the value over by inputs: or env: and read it as "$NAME"; parameters are in $APOLLO_PARAM_<NAME>`)
	}
	if inline {
		c.checkInlineEndings(n)
	} else if before, _, found := strings.Cut(text, "\r\n"); found {
		c.at(n, "E_CRLF", fmt.Sprintf("Windows line endings in %s, line %d", n.text, 1+strings.Count(before, "\n")), "lines that end in LF",
			"convert it with dos2unix or your editor")
		return
	}
	if !inline && secretIn(text) != nil {
		c.at(n, "E_SECRET_INLINE", "a secret is written into "+n.text, "a reference", "keep it out of the file: secrets: {NAME: secret://name}")
	}
}

func lineAt(text string, offset int) string {
	line, _, _ := strings.Cut(text[offset:], "\n")
	return line
}

// checkInlineEndings looks at the source, since YAML itself turns CRLF into LF.
func (c *checker) checkInlineEndings(n *node) {
	from, to := n.line, n.line
	if n.block {
		from = n.line + 1
		to = from + strings.Count(strings.TrimSuffix(n.text, "\n"), "\n")
	}
	escaped := strings.Contains(n.text, "\r")
	for line := from; line <= to && line <= len(c.lines); line++ {
		if n.block && strings.HasSuffix(c.lines[line-1], "\r") || escaped {
			col := len([]rune(strings.TrimSuffix(c.lines[line-1], "\r"))) + 1
			if escaped {
				line, col = n.line, n.col
			}
			c.report(line, col, "E_CRLF",
				fmt.Sprintf("Windows line endings in a script, line %d", line), "lines that end in LF", "convert the file with dos2unix or your editor")
			return
		}
	}
}

// interpreter gives the program of a script's first line, or "".
func interpreter(script string) string {
	first, _, _ := strings.Cut(script, "\n")
	rest, found := strings.CutPrefix(first, "#!")
	if !found {
		return ""
	}
	return strings.TrimSpace(rest)
}

// programOf gives the program that an interpreter line starts: that of env is env's argument.
func programOf(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return ""
	}
	if filepath.Base(words[0]) == "env" {
		for _, w := range words[1:] {
			if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
				return w
			}
		}
	}
	return words[0]
}

// checkProgram is the preflight: the program must be found before any stage runs.
func (c *checker) checkProgram(n *node, program string) {
	if c.options.LookPath == nil || program == "" {
		return
	}
	if _, err := c.options.LookPath(program); err != nil {
		c.at(n, "E_EXEC_NOTFOUND", "the program "+shortened(program)+" is not on this machine", "a program in PATH or an absolute path", "")
	}
}

// checkSecrets finds credentials anywhere in the file, comments included. Their text is never repeated.
func (c *checker) checkSecrets() {
	for i, line := range c.lines {
		if at := secretIn(line); at != nil {
			c.report(i+1, 1+len([]rune(line[:at[0]])), "E_SECRET_INLINE", "a secret is written into the file", "a reference",
				"store it with the server, revoke this one, and write secret://name")
		}
	}
}
