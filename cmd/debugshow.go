package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/web"
)

// The JSON shape of debug.
type debugJSON struct {
	Run      string            `json:"run"`
	Pipeline string            `json:"pipeline"`
	Stage    string            `json:"stage"`
	Item     int               `json:"item,omitempty"`
	Attempt  int               `json:"attempt"`
	Attempts int               `json:"attempts"`
	Outcome  *outcomeJSON      `json:"recorded"` // null: the attempt goes on
	Logs     string            `json:"logs,omitempty"`
	Cached   string            `json:"cached_from,omitempty"`
	Dir      string            `json:"dir"`
	Inputs   []debugInputJSON  `json:"inputs"`
	Secrets  []debugSecretJSON `json:"secrets"`
	Pins     debugPinsJSON     `json:"pins"`
	Unbuilt  bool              `json:"unbuilt,omitempty"` // what the command needs is not there yet
	Command  string            `json:"command"`
	Args     []string          `json:"args"`
	Env      map[string]string `json:"env"` // empty: the person's own
	Result   *outcomeJSON      `json:"result,omitempty"`
	Compared *comparedJSON     `json:"compared,omitempty"`
}

type outcomeJSON struct {
	State    string                `json:"state"`
	Class    string                `json:"class,omitempty"`
	Reason   string                `json:"reason,omitempty"`
	Exit     int                   `json:"exit,omitempty"`
	Signal   string                `json:"signal,omitempty"`
	Evidence string                `json:"evidence,omitempty"`
	Outputs  map[string]outputJSON `json:"outputs"`
}

type debugInputJSON struct {
	Role   string          `json:"role"`
	Kind   string          `json:"kind"`
	Digest string          `json:"digest,omitempty"`
	Size   int64           `json:"size,omitempty"`
	Path   string          `json:"path,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
}

type debugSecretJSON struct {
	Name    string `json:"name"`
	Ref     string `json:"ref"`
	Missing string `json:"missing,omitempty"` // why
}

type debugPinsJSON struct {
	Recorded string   `json:"recorded,omitempty"` // stage key
	Now      string   `json:"now,omitempty"`
	Differ   []string `json:"differ"` // fields of the pins document
}

type comparedJSON struct {
	Verdict string         `json:"verdict"` // same or differs
	Outputs []roleVerdict  `json:"outputs"`
	Failure *failedVerdict `json:"failure,omitempty"`
}

type roleVerdict struct {
	Role     string `json:"role"`
	Verdict  string `json:"verdict"` // same, differs, ignored
	Recorded string `json:"recorded"`
	Now      string `json:"now"`
}

type failedVerdict struct {
	Verdict  string `json:"verdict"`
	Recorded string `json:"recorded"`
	Now      string `json:"now"`
}

// document gathers what there is to say of a laid attempt.
func (r *rehearsal) document() (*debugJSON, error) {
	p, run := r.past, r.past.run
	st := run.StageOf(p.place)
	j := &debugJSON{Run: run.ID.String(), Pipeline: run.Graph.Plan.Pipeline, Stage: st.Name, Item: int(run.Stages[p.place].Item), Attempt: p.start.Data.Attempt,
		Attempts: p.last, Dir: r.dir, Inputs: r.inputs(), Secrets: []debugSecretJSON{}, Unbuilt: r.unbuilt, Env: map[string]string{}}
	if p.end != nil {
		j.Outcome = outcomeOf(p.end.Type, &p.end.Data)
	}
	if logs := filepath.Join(r.app.logsDir(), j.Run, st.Label(j.Item), strconv.Itoa(j.Attempt)); exists(logs) {
		j.Logs = logs
	}
	if !p.start.Data.Cached.IsZero() {
		j.Cached = p.start.Data.Cached.String()
	}
	tokens := r.tokens()
	for _, name := range slices.Sorted(maps.Keys(st.Secrets)) {
		j.Secrets = append(j.Secrets, debugSecretJSON{name, st.Secrets[name], r.missing[st.Secrets[name]]})
	}
	var err error
	if j.Pins, err = r.pins(); err != nil {
		return nil, err
	}
	c, err := r.command(tokens)
	if err != nil {
		return nil, err
	}
	shown := tokenPattern(tokens)
	j.Command = c.line(r.dir, tokens)
	for _, arg := range c.args {
		j.Args = append(j.Args, shown.replace(arg, "$"))
	}
	for _, variable := range c.env {
		name, value, _ := strings.Cut(variable, "=")
		j.Env[name] = shown.replace(value, "$")
	}
	return j, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func outcomeOf(t events.Type, d *events.Data) *outcomeJSON {
	o := &outcomeJSON{State: events.Failed.String(), Class: string(d.Class), Reason: d.Reason, Exit: d.Exit, Signal: d.Signal, Outputs: map[string]outputJSON{}}
	switch t {
	case events.StageCompleted:
		o.State = events.Completed.String()
	case events.StageCancelled:
		o.State = events.Cancelled.String()
	default:
	}
	if !d.Evidence.IsZero() {
		o.Evidence = d.Evidence.String()
	}
	var s stageJSON
	s.Outputs = o.Outputs
	s.ended(&events.Data{Outputs: d.Outputs})
	return o
}

// inputs lists the inputs as they lie there.
func (r *rehearsal) inputs() []debugInputJSON {
	var pins events.Pins
	_ = json.Unmarshal(r.laid.Pinned, &pins) // it was made in this process
	list := []debugInputJSON{}
	for _, in := range pins.Inputs {
		j := debugInputJSON{Role: in.Role, Kind: in.Kind, Size: in.Size, Path: r.laid.Call.Inputs[in.Role].Path, Value: in.Value}
		if !in.Digest.IsZero() {
			j.Digest = in.Digest.String()
		}
		if len(in.Value) > 0 && len(r.laid.Call.Secrets) > 0 {
			if masked := executor.Mask(r.laid.Call.Secrets, in.Value); json.Valid(masked) {
				j.Value = masked
			} else {
				j.Value = nil
			}
		}
		list = append(list, j)
	}
	return list
}

// pins holds what the result depends on now against what it depended on then. What an executor does not say before an
// attempt is not compared.
func (r *rehearsal) pins() (debugPinsJSON, error) {
	j := debugPinsJSON{Differ: []string{}}
	if r.past.end == nil {
		return j, nil
	}
	recorded, err := pinned(r.past.files, &r.past.end.Data)
	if err != nil || len(recorded) == 0 {
		return j, err
	}
	j.Recorded = events.DigestOf(recorded).String()
	if r.laid.Program == nil {
		return j, nil
	}
	j.Now = events.DigestOf(r.laid.Pinned).String()
	var then, now map[string]json.RawMessage
	if err := json.Unmarshal(recorded, &then); err != nil {
		return j, fmt.Errorf("read the pins: %w", err)
	}
	if err := json.Unmarshal(r.laid.Pinned, &now); err != nil {
		return j, fmt.Errorf("read the pins: %w", err)
	}
	for name, value := range now {
		if string(then[name]) != string(value) {
			j.Differ = append(j.Differ, name)
		}
		delete(then, name)
	}
	for name := range then {
		j.Differ = append(j.Differ, name)
	}
	slices.Sort(j.Differ)
	return j, nil
}

// typed is a command as a person types it.
type typed struct {
	args  []string
	env   []string // the whole environment; nil is the person's own
	input string
}

// command gives the attempt's command, with tokens in the places of secrets.
func (r *rehearsal) command(tokens map[string]string) (typed, error) {
	if m := r.manual; m != nil {
		return r.hidden(typed{m.Args, m.Env, m.Input}), nil
	}
	env, failure := r.laid.Environ(tokens)
	if failure != nil {
		return typed{}, r.notLaid(failure)
	}
	return r.hidden(typed{args: r.program(), env: env}), nil
}

// program gives the arguments of what the executor starts, with its path at 0.
func (r *rehearsal) program() []string {
	if p := r.laid.Program; p != nil && p.Path != "" {
		return append([]string{p.Path}, p.Args[1:]...)
	}
	return nil
}

// hidden masks secrets that stand in a command by chance, as in a parameter of the same text.
func (r *rehearsal) hidden(c typed) typed {
	mask := func(text string) string { return string(executor.Mask(r.laid.Call.Secrets, []byte(text))) }
	h := typed{input: mask(c.input)}
	for _, arg := range c.args {
		h.args = append(h.args, mask(arg))
	}
	for _, variable := range c.env {
		name, value, _ := strings.Cut(variable, "=")
		h.env = append(h.env, name+"="+mask(value))
	}
	return h
}

// line is the command as text for a POSIX shell.
func (c typed) line(dir string, tokens map[string]string) string {
	var b strings.Builder
	q := tokenPattern(tokens)
	fmt.Fprintf(&b, "(umask 022; cd %s && ", q.quote(filepath.Join(dir, "out")))
	if c.input != "" {
		fmt.Fprintf(&b, "printf %%s %s | ", q.quote(c.input))
	}
	if c.env != nil {
		b.WriteString("env -i ")
		for _, variable := range c.env {
			name, value, _ := strings.Cut(variable, "=")
			b.WriteString(name + "=" + q.quote(value) + " ")
		}
	}
	for i, arg := range c.args {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(q.quote(arg))
	}
	b.WriteByte(')')
	return b.String()
}

// quoter writes words for a POSIX shell, with $NAME where a secret's token stands.
type quoter struct {
	pattern *regexp.Regexp // nil: there are no secrets
	names   map[string]string
}

func tokenPattern(tokens map[string]string) quoter {
	q := quoter{names: map[string]string{}}
	var all []string
	for name, token := range tokens {
		q.names[token] = name
		all = append(all, regexp.QuoteMeta(token))
	}
	if len(all) > 0 {
		q.pattern = regexp.MustCompile(strings.Join(all, "|"))
	}
	return q
}

var plainWord = regexp.MustCompile(`^[\w@%+:,./-][\w@%+=:,./-]*$`)

func (q quoter) quote(word string) string {
	if plainWord.MatchString(word) && (q.pattern == nil || !q.pattern.MatchString(word)) {
		return word
	}
	single := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	if q.pattern == nil {
		return single(word)
	}
	var b strings.Builder
	rest := word
	for at := q.pattern.FindStringIndex(rest); at != nil; at = q.pattern.FindStringIndex(rest) {
		if at[0] > 0 {
			b.WriteString(single(rest[:at[0]]))
		}
		b.WriteString(`"$` + q.names[rest[at[0]:at[1]]] + `"`)
		rest = rest[at[1]:]
	}
	if rest != "" || b.Len() == 0 {
		b.WriteString(single(rest))
	}
	return b.String()
}

// replace writes $NAME where a token stands.
func (q quoter) replace(text, mark string) string {
	if q.pattern == nil {
		return text
	}
	return q.pattern.ReplaceAllStringFunc(text, func(token string) string { return mark + q.names[token] })
}

const shownEvidence = 10 // lines

// show prints the attempt: as JSON, or as a script of comments and the command.
func (r *rehearsal) show(w io.Writer, finish func(*debugJSON)) error {
	j, err := r.document()
	if err != nil {
		return err
	}
	if finish != nil {
		finish(j)
	}
	a := r.app
	if a.output != "text" {
		return writeJSON(w, j, a.output == "json")
	}
	var b strings.Builder
	said := func(text string) {
		for l := range strings.SplitSeq(strings.TrimRight(clean(text), "\n"), "\n") {
			b.WriteString(strings.TrimRight("# "+l, " ") + "\n")
		}
	}
	said(a.say.T("debug.head", lang.Data{"Pipeline": j.Pipeline, "Run": j.Run, "Stage": labelOf(web.Place{Stage: j.Stage, Item: j.Item}), "Number": j.Attempt, "Last": j.Attempts}))
	r.sayOutcome(j, said)
	for _, in := range j.Inputs {
		if in.Path != "" {
			said(a.say.T("debug.input", lang.Data{"Role": in.Role, "Path": in.Path, "Digest": in.Digest, "Size": in.Size}))
		} else {
			said(a.say.T("debug.value", lang.Data{"Role": in.Role, "Value": cut(line(string(in.Value)), 100)}))
		}
	}
	switch {
	case j.Pins.Recorded == "" || j.Pins.Now == "":
	case len(j.Pins.Differ) == 0:
		said(a.say.T("debug.same_pins", lang.Data{"Key": j.Pins.Recorded}))
	default:
		said(a.say.T("debug.other_pins", lang.Data{"Fields": strings.Join(j.Pins.Differ, ", ")}))
	}
	for _, s := range j.Secrets {
		if s.Missing == "" {
			said(a.say.T("debug.secret", lang.Data{"Name": s.Name, "Ref": s.Ref}))
		} else {
			said(a.say.T("debug.secret_missing", lang.Data{"Name": s.Name, "Ref": s.Ref, "Why": line(s.Missing)}))
		}
	}
	if j.Unbuilt {
		said(a.say.T("debug.unbuilt"))
	}
	said(a.say.T("debug.dir", lang.Data{"Dir": j.Dir}))
	b.WriteString(j.Command + "\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// sayOutcome says how the attempt ended, with its evidence and where its logs are.
func (r *rehearsal) sayOutcome(j *debugJSON, said func(string)) {
	a := r.app
	if j.Outcome == nil {
		said(a.say.T("debug.goes_on"))
	} else {
		said(a.describeOutcome(j.Outcome))
	}
	if j.Cached != "" {
		said(a.say.T("stage.cached", lang.Data{"Run": j.Cached}))
	}
	if r.past.end != nil && !r.past.end.Data.Evidence.IsZero() {
		if proof, err := readArtifact(r.past.files, r.past.end.Data.Evidence); err == nil {
			lines := strings.Split(strings.TrimRight(string(proof), "\n"), "\n")
			said(a.say.T("failure.evidence") + " " + j.Outcome.Evidence)
			for _, l := range lines[max(0, len(lines)-shownEvidence):] {
				said("  " + line(l))
			}
		}
	}
	if j.Logs != "" {
		said(a.say.T("debug.logs", lang.Data{"Dir": j.Logs}))
	}
}

// describeOutcome says in a line how an attempt ended.
func (a *app) describeOutcome(o *outcomeJSON) string {
	state, err := events.ParseState(o.State)
	if err != nil {
		return o.State
	}
	text := a.state(state)
	if o.Class != "" {
		text += "  " + o.Class + ": " + line(o.Reason)
	}
	return sgr.ReplaceAllString(text, "")
}
