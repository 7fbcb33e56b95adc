package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// Bounds of what a plug-in may say.
const (
	maxLine     = 1 << 20  // bytes of a line
	maxValues   = 64 << 10 // bytes of all values together, as of APOLLO_OUTPUTS
	maxText     = 2000     // bytes of each text of a failure
	maxEvidence = 4 << 10  // bytes of a line that broke the protocol
)

// message is every answer that this build knows; each type has its own fields.
type message struct {
	Type     string          `json:"type"`
	Stream   string          `json:"stream"`   // log: stdout, stderr
	Text     string          `json:"text"`     // log
	Fraction *float64        `json:"fraction"` // progress: 0 to 1
	Message  string          `json:"message"`  // progress
	Name     string          `json:"name"`     // segment
	Role     string          `json:"role"`     // output
	Value    json.RawMessage `json:"value"`    // output
	OK       bool            `json:"ok"`       // result
	Class    string          `json:"class"`    // failure
	Reason   string          `json:"reason"`
	Pointer  string          `json:"pointer"`
	Expected string          `json:"expected"`
	Actual   string          `json:"actual"`
}

// answers reads what a plug-in says, line by line, up to its one result.
type answers struct {
	secrets map[string]string
	heard   func(line []byte) // each line as it came, secrets masked; may be nil

	line     []byte // begun
	number   int    // of the last whole line
	over     bool   // a result or failure came
	failed   *events.Failure
	values   map[string]json.RawMessage
	size     int
	broken   *events.Failure // how the protocol was broken
	evidence string          // the line that did
}

// take reads the next bytes. It is an executor.Dialogue's Answer.
func (a *answers) take(p []byte, notes executor.Notes) (over bool, failure *events.Failure) {
	for len(p) > 0 && a.broken == nil {
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		if len(a.line)+len(line) > maxLine {
			a.number++
			a.line = append(a.line, line[:maxLine-len(a.line)]...)
			a.violate(a.line, "is too long", fmt.Sprintf("at most %d bytes", maxLine), "more")
			break
		}
		if a.line = append(a.line, line...); !whole {
			break
		}
		a.number++
		a.read(a.line, notes)
		a.line, p = a.line[:0], rest
	}
	return a.over, a.broken
}

// end reads a last line without its line break. A plug-in that ended well must have given a result; of one that did not,
// the last line may be cut off.
func (a *answers) end(well bool) {
	if len(a.line) > 0 && a.broken == nil {
		a.number++
		if a.read(a.line, executor.Notes{}); !well {
			a.broken, a.evidence = nil, ""
		}
	}
	if well && a.broken == nil && !a.over {
		a.broken = &events.Failure{Class: events.BadOutput, Expected: "one line of type result or failure", Actual: fmt.Sprintf("%d lines without one", a.number),
			Reason: "E_PLUGIN_PROTOCOL: the plug-in ended without a result"}
	}
}

// violate says how a line breaks the protocol.
func (a *answers) violate(line []byte, how, expected, actual string) {
	masked := executor.Mask(withEscaped(a.secrets), line)
	a.evidence = strings.ToValidUTF8(string(masked[:min(len(masked), maxEvidence)]), "\uFFFD")
	a.broken = &events.Failure{Class: events.BadOutput, Pointer: fmt.Sprintf("line %d", a.number), Expected: expected, Actual: a.text(actual),
		Reason: fmt.Sprintf("E_PLUGIN_PROTOCOL: line %d of the plug-in's answers %s", a.number, how)}
}

// withEscaped adds what the secrets look like inside JSON.
func withEscaped(secrets map[string]string) map[string]string {
	all := make(map[string]string, 2*len(secrets))
	for name, value := range secrets {
		all[name] = value
		if b, err := encode(value); err == nil {
			all[name+"\x00"] = string(b[1 : len(b)-2]) // without the quotes and the line break
		}
	}
	return all
}

// text bounds and masks a text from the plug-in.
func (a *answers) text(s string) string {
	masked := strings.ToValidUTF8(string(executor.Mask(a.secrets, []byte(s))), "\uFFFD")
	if len(masked) > maxText {
		masked = strings.ToValidUTF8(masked[:maxText], "") + "…"
	}
	return masked
}

const objectExpected = `an object with a type, as {"type":"result","ok":true}`

func (a *answers) read(line []byte, notes executor.Notes) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return
	}
	if a.heard != nil {
		a.heard(executor.Mask(withEscaped(a.secrets), line))
	}
	var kind struct {
		Type *string `json:"type"`
	}
	if err := json.Unmarshal(line, &kind); err != nil || kind.Type == nil || !utf8.Valid(line) {
		a.violate(line, "is no JSON object with a type", objectExpected, "another text")
		return
	}
	handle := messages[*kind.Type]
	if handle == nil {
		return // of a later protocol
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		a.violate(line, "has a field of the wrong type", "the fields of a "+m.Type, err.Error())
		return
	}
	if a.over && m.Type != "log" && m.Type != "progress" {
		a.violate(line, "comes after the result", "nothing but log lines after it", "a "+m.Type)
		return
	}
	handle(a, line, &m, notes)
}

// messages are the types of answers that this build knows.
var messages = map[string]func(a *answers, line []byte, m *message, notes executor.Notes){
	"log":      (*answers).log,
	"progress": (*answers).progress,
	"segment":  (*answers).segment,
	"output":   (*answers).output,
	"result":   (*answers).result,
	"failure":  (*answers).failure,
}

func (a *answers) log(line []byte, m *message, notes executor.Notes) {
	if m.Stream != "" && m.Stream != "stdout" && m.Stream != "stderr" {
		a.violate(line, "names no stream", "stdout or stderr", m.Stream)
		return
	}
	notes.Log(m.Stream == "stderr", m.Text)
}

func (a *answers) progress(line []byte, m *message, notes executor.Notes) {
	if m.Fraction == nil || *m.Fraction < 0 || *m.Fraction > 1 {
		a.violate(line, "has no fraction", "a fraction from 0 to 1", "another value, or none")
		return
	}
	notes.Log(false, strings.TrimSpace(fmt.Sprintf("progress %.0f %% %s", 100**m.Fraction, m.Message)))
}

func (a *answers) segment(line []byte, m *message, notes executor.Notes) {
	name := strings.Join(strings.Fields(m.Name), " ")
	if name == "" {
		a.violate(line, "names no segment", "a name", "none")
		return
	}
	notes.Segment(name)
}

func (a *answers) output(line []byte, m *message, _ executor.Notes) {
	_, twice := a.values[m.Role]
	switch {
	case m.Role == "" || m.Value == nil:
		a.violate(line, "sets no output", "a role and a value", "one of them, or none")
	case twice:
		a.violate(line, "sets the output "+a.text(m.Role)+" again", "each output once", "twice")
	case a.size+len(m.Value) > maxValues:
		a.violate(line, "makes the values too large", fmt.Sprintf("at most %d bytes together", maxValues), "more; a file output has no such limit")
	default:
		if a.values == nil {
			a.values = map[string]json.RawMessage{}
		}
		if _, failure := executor.ParseOutputs(fmt.Appendf(nil, `{"value":%s}`, m.Value)); failure != nil {
			a.violate(line, "has a value that is not strict JSON", failure.Expected, failure.Actual)
			return
		}
		a.values[m.Role] = m.Value
		a.size += len(m.Value)
	}
}

func (a *answers) result(line []byte, m *message, _ executor.Notes) {
	if !m.OK {
		a.violate(line, "is a result without ok", `"ok": true; what went wrong is said by a line of type failure`, "something else")
		return
	}
	a.over = true
}

func (a *answers) failure(line []byte, m *message, _ executor.Notes) {
	class, err := events.ParseClass(m.Class)
	switch {
	case err != nil || class == events.Lost || class == events.Aborted: // those two are for the engine to say
		a.violate(line, "has no class of failure", "one of "+strings.Join(classes(), ", "), m.Class)
	case strings.TrimSpace(m.Reason) == "":
		a.violate(line, "gives no reason", "one sentence", "none")
	default:
		a.over = true
		a.failed = &events.Failure{Class: class, Reason: a.text(strings.Join(strings.Fields(m.Reason), " ")), Pointer: a.text(m.Pointer),
			Expected: a.text(m.Expected), Actual: a.text(m.Actual)}
	}
}

// classes are those that a plug-in may give.
func classes() []string {
	var list []string
	for _, c := range events.Classes() {
		if c != events.Lost && c != events.Aborted {
			list = append(list, string(c))
		}
	}
	return list
}
