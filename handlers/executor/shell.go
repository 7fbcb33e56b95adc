package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/apollo-11/apollo/events"
)

// Shell runs a script. Which program reads it:
//
//   - the `interpreter` setting, found in PATH; a bare shell name gets the strict options of the default shell;
//   - else the script's own first line, `#!program argument`, exactly as it says;
//   - else the default shell: bash with `-e -o pipefail` where bash is installed, or sh with `-e`, and with pipefail
//     where it has that. So a script stops at the first command that fails, and `false | tee log` fails.
//
// A script of plain commands only, without anything that sh and bash may understand differently, is handed to /bin/sh
// in the default case: the meaning is the same, and it starts in half the time.
type Shell struct {
	supervisor *supervisor
	tools      binaries
}

// NewShell makes the executor.
func NewShell(s Settings) *Shell { return &Shell{supervisor: newSupervisor(s)} }

// Spec implements Executor.
func (s *Shell) Spec() Spec {
	return Spec{
		Name: "shell",
		Doc:  "Runs a script with the shell, or with the interpreter that its first line names.",
		With: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["script"],"properties":{
"script":{"type":"string","minLength":1,"description":"The text of the script; values reach it as variables, never as text."},
"interpreter":{"type":"string","description":"The program that reads the script, with its options; found in PATH."}}}`),
	}
}

type shellSettings struct {
	Script      string `json:"script"`
	Interpreter string `json:"interpreter"`
}

// Execute implements Executor.
func (s *Shell) Execute(ctx context.Context, c *Call) (*Result, *events.Failure) {
	var settings shellSettings
	if failure := decodeSettings(c.With, &settings); failure != nil {
		return new(Result), failure
	}
	p, failure := interpret(c, settings)
	if failure != nil {
		return new(Result), failure
	}
	if err := p.write(); err != nil {
		return new(Result), systemFailure("write the script", err)
	}
	return s.supervisor.supervise(ctx, c, p)
}

// decodeSettings reads an executor's own settings and refuses what it does not know.
func decodeSettings(with json.RawMessage, into any) *events.Failure {
	dec := json.NewDecoder(bytes.NewReader(with))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return &events.Failure{Class: events.ExecFailed, Reason: fmt.Sprintf("the stage's settings cannot be read: %v", err)}
	}
	return nil
}

// interpret finds the program that reads the script, and hands the script to it.
func interpret(c *Call, s shellSettings) (program, *events.Failure) {
	if failure := checkScript(s.Script); failure != nil {
		return program{}, failure
	}
	path := stagePath
	if declared, ok := c.Env["PATH"]; ok {
		path = declared
	}
	switch line, hasLine := strings.CutPrefix(s.Script, "#!"); {
	case s.Interpreter != "":
		return byName(c, strings.Fields(s.Interpreter), s.Script, path)
	case hasLine:
		line, _, _ = strings.Cut(line, "\n")
		return byFirstLine(c, strings.TrimSpace(line), s.Script, path)
	case plain(s.Script):
		return scriptArgument(c, []string{"/bin/sh", "-e"}, s.Script)
	}
	return scriptArgument(c, defaultShell(), s.Script)
}

// checkScript refuses what no interpreter would report clearly.
func checkScript(script string) *events.Failure {
	before, _, found := strings.Cut(script, "\r\n")
	switch {
	case strings.TrimSpace(script) == "":
		return &events.Failure{Class: events.ExecFailed, Pointer: "/script", Reason: "the script is empty"}
	case found:
		return &events.Failure{Class: events.ExecFailed, Expected: "lines that end with LF", Actual: "CRLF",
			Pointer: fmt.Sprintf("/script:%d", 1+strings.Count(before, "\n")),
			Reason:  "E_SCRIPT_CRLF: the script has Windows line endings; save it with Unix ones (LF)"}
	case strings.Contains(script, "\x00"):
		return &events.Failure{Class: events.ExecFailed, Pointer: "/script", Reason: "the script holds a NUL byte"}
	}
	return nil
}

// strictOptions are added to a shell that is named without options, or by default.
var strictOptions = map[string][]string{
	"bash": {"-e", "-o", "pipefail"}, "zsh": {"-e", "-o", "pipefail"}, "ksh": {"-e", "-o", "pipefail"},
	"sh": {"-e"}, "dash": {"-e"}, "ash": {"-e"},
}

func byName(c *Call, words []string, script, path string) (program, *events.Failure) {
	if len(words) == 0 {
		return program{}, &events.Failure{Class: events.ExecFailed, Pointer: "/interpreter", Reason: "the interpreter is empty"}
	}
	if len(words) == 1 {
		words = slices.Concat(words, strictOptions[words[0]])
	}
	return scriptFile(c, words, script, path)
}

// byFirstLine does what the kernel does with a script's first line: one program, and the rest as one argument. It is
// done here since the kernel says "no such file" of the script when it means the interpreter.
func byFirstLine(c *Call, line, script, path string) (program, *events.Failure) {
	name, argument, _ := strings.Cut(line, " ")
	argument = strings.TrimSpace(argument)
	switch {
	case name == "":
		return program{}, &events.Failure{Class: events.ExecFailed, Pointer: "/script:1", Reason: "the script's first line names no interpreter"}
	case argument == "":
		return scriptFile(c, []string{name}, script, path)
	case filepath.Base(name) == "env" && !strings.ContainsAny(argument, " \t=") && argument[0] != '-':
		return scriptFile(c, []string{argument}, script, path)
	}
	return scriptFile(c, []string{name, argument}, script, path)
}

// maxScriptArgument is the longest script that is handed over as an argument; the kernel's limit is 128 KiB.
const maxScriptArgument = 96 << 10

// scriptArgument hands the script over with -c, which saves a file.
func scriptArgument(c *Call, shell []string, script string) (program, *events.Failure) {
	if len(script) > maxScriptArgument {
		return scriptFile(c, shell, script, stagePath)
	}
	return program{path: shell[0], args: slices.Concat(shell, []string{"-c", script, "script"})}, nil
}

// scriptFile hands the script over as a file in the work directory, which write makes.
func scriptFile(c *Call, words []string, script, path string) (program, *events.Failure) {
	found, ok := lookPath(words[0], path)
	if !ok {
		return program{}, &events.Failure{Class: events.ExecFailed, Expected: "in " + path, Actual: "missing",
			Reason: fmt.Sprintf("E_EXEC_NOTFOUND: the interpreter %q is not installed", words[0])}
	}
	file := filepath.Join(c.Dir, "script")
	return program{path: found, args: slices.Concat(words, []string{file}), file: file, text: script}, nil
}

// lookPath finds a program by its absolute path, or by name in a PATH.
func lookPath(name, path string) (string, bool) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); filepath.IsAbs(dir) && executable(file) {
			return file, true
		}
	}
	return "", false
}

func executable(file string) bool {
	var st unix.Stat_t
	return filepath.IsAbs(file) && unix.Stat(file, &st) == nil &&
		st.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(file, unix.X_OK) == nil
}

// defaultShell is found once.
var defaultShell = sync.OnceValue(func() []string {
	if bash, ok := lookPath("bash", stagePath); ok {
		return slices.Concat([]string{bash}, strictOptions["bash"])
	}
	strict := []string{"/bin/sh", "-e", "-o", "pipefail"}
	probe := exec.Command(strict[0], "-o", "pipefail", "-c", ":")
	probe.Env = []string{}
	if probe.Run() == nil {
		return strict
	}
	return strict[:2]
})

// plainText is a script without any operator, expansion, quoting rule or pattern that shells differ in.
var plainText = regexp.MustCompile(`^(?:[\w \t\n./:,@%;'"-]|[\w-]=[\w./:,@%'"]|\$(?:APOLLO_\w+|HOME|TMPDIR))*$`)

// negativeExit is 255 to bash and an error to sh.
var negativeExit = regexp.MustCompile(`exit\s+-`)

// plain reports whether sh and bash run the script alike: plain text, and no word that is a keyword or builtin command
// of either, except those that behave alike.
func plain(script string) bool {
	if len(script) > 4096 || !plainText.MatchString(script) || negativeExit.MatchString(script) {
		return false
	}
	for _, word := range strings.FieldsFunc(script, func(r rune) bool { return strings.ContainsRune(" \t\n;'\"", r) }) {
		if shellWords[word] {
			return false
		}
	}
	return true
}

// shellWords are the keywords and builtin commands of bash, but for `:`, true, false, exit and cd.
var shellWords = func() map[string]bool {
	words := make(map[string]bool)
	for word := range strings.FieldsSeq(`. alias bg bind break builtin caller case command compgen complete compopt
		continue coproc declare dirs disown do done echo elif else enable esac eval exec export fc fg fi for
		function getopts hash help history if in jobs kill let local logout mapfile popd printf pushd pwd read
		readarray readonly return select set shift shopt source suspend test then time times trap type typeset
		ulimit umask unalias unset until wait while chdir`) {
		words[word] = true
	}
	return words
}()
