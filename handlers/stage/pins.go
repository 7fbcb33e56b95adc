package stage

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
)

// fixedTime is the logical time of a stage with clock: fixed. It is the earliest that every archive format can hold.
var fixedTime = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// clock sets what the stage takes for the time and for chance.
func (w *work) clock() {
	a, c := w.Attempt, &w.call
	if a.Stage.Clock == "fixed" {
		c.LogicalTime, c.Seed = fixedTime, events.SeedOf([]byte(a.Stage.Label(a.Item)))
		return
	}
	c.LogicalTime, c.Seed = a.Logical, seed(a)
}

// definitions are the static halves of pins documents, made once for each stage of a plan and tool chain. Stages that differ
// in nothing but their names share one.
type definitions struct {
	mu   sync.Mutex
	last map[*events.Stage]lastDefinition // found without looking at the tool chain, while it is the very same
	made map[definedBy]*definition
	kept map[events.Digest]bool // that are artifacts
}

type lastDefinition struct {
	tools *events.Pair // the first of the list
	*definition
}

type definedBy struct {
	stage *events.Stage
	tools string
	with  string // the settings with their values, when expressions stand in them: the command is made of those
}

type definition struct {
	digest events.Digest
	bytes  []byte
}

// maxDefinitions bounds how many are kept in memory; they are made again when they are needed.
const maxDefinitions = 1 << 14

// describe asks the executor what it would start; nil when it cannot say.
func (s *Steps) describe(ctx context.Context, w *work) *executor.Program {
	d, ok := s.Executors[w.Stage.Executor].(executor.Describer)
	if !ok {
		return nil
	}
	p, failure := d.Describe(ctx, &w.call)
	if failure != nil {
		return nil // the attempt fails with it, and says more
	}
	return p
}

// tools gives the tool chain of an attempt: what was described, and what the executor has found besides.
func tools(p *executor.Program, found []events.Pair) []events.Pair {
	if p != nil && len(found) == 0 {
		return p.Toolchain
	}
	var all []events.Pair
	if p != nil {
		all = append(all, p.Toolchain...)
	}
	for _, pair := range found {
		if pair.Name == "run" {
			continue // that a pipeline stage has started: another one each time, of the plan that the settings hold
		}
		if i := slices.IndexFunc(all, func(t events.Pair) bool { return t.Name == pair.Name }); i >= 0 {
			all[i].Value = pair.Value
		} else {
			all = append(all, pair)
		}
	}
	slices.SortFunc(all, func(a, b events.Pair) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// define gives the static half of the attempt's pins.
func (s *Steps) define(w *work, p *executor.Program, tools []events.Pair) (*definition, error) {
	quick := len(tools) > 0 && !hasExpression(w.Stage.With)
	if quick {
		s.definitions.mu.Lock()
		last := s.definitions.last[w.Stage]
		s.definitions.mu.Unlock()
		if last.tools == &tools[0] {
			return last.definition, nil
		}
	}
	d, err := s.defineAnew(w, p, tools)
	if quick && err == nil {
		s.definitions.mu.Lock()
		defer s.definitions.mu.Unlock()
		if s.definitions.last == nil || len(s.definitions.last) >= maxDefinitions {
			s.definitions.last = map[*events.Stage]lastDefinition{}
		}
		s.definitions.last[w.Stage] = lastDefinition{&tools[0], d}
	}
	return d, err
}

func (s *Steps) defineAnew(w *work, p *executor.Program, tools []events.Pair) (*definition, error) {
	var by strings.Builder
	for _, t := range tools {
		fmt.Fprintf(&by, "%d:%s=%d:%s,", len(t.Name), t.Name, len(t.Value), t.Value)
	}
	key := definedBy{stage: w.Stage, tools: by.String()}
	if hasExpression(w.Stage.With) {
		key.with = string(w.call.With)
	}
	s.definitions.mu.Lock()
	defer s.definitions.mu.Unlock()
	if d := s.definitions.made[key]; d != nil {
		return d, nil
	}
	b, err := events.EncodeDocument(newDefinition(w, p, tools))
	if err != nil {
		return nil, err
	}
	d := &definition{digest: events.DigestOf(b), bytes: b}
	if len(s.definitions.made) >= maxDefinitions || s.definitions.made == nil {
		s.definitions.made = map[definedBy]*definition{}
	}
	s.definitions.made[key] = d
	return d, nil
}

func newDefinition(w *work, p *executor.Program, tools []events.Pair) *events.Definition {
	st := w.Stage
	d := &events.Definition{Schema: events.DocumentSchema, Executor: st.Executor, With: st.With, Toolchain: tools,
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Inputs: st.Inputs, Outputs: st.Outputs, Reconcile: st.Reconcile, Gate: st.Gate,
		Network: st.Network, Isolation: st.Isolation, Readable: st.Readable}
	if st.Resources != nil {
		d.CPU = st.Resources.CPU
	}
	d.Contracts = contractsOf(w.Plan, st)
	literals := map[string]string{}
	for name, text := range st.Env {
		if _, is := configs.Expression(text); !is {
			literals[name] = text
		}
	}
	if p == nil {
		d.Env = literals
		return d
	}
	symbols := map[string]string{w.call.Dir: "$WORK"}
	maps.Copy(symbols, p.Symbols)
	if len(p.Args) > 0 {
		d.Umask, d.Env = "022", executor.BaseEnv()
		d.Command = make([]string, len(p.Args))
		for i, arg := range p.Args {
			d.Command[i] = symbolic(arg, symbols)
		}
	}
	if d.Env == nil {
		d.Env = map[string]string{}
	}
	maps.Copy(d.Env, literals)
	for name, value := range p.Env {
		d.Env[name] = symbolic(value, symbols)
	}
	for path, text := range p.Files {
		if d.Files == nil {
			d.Files = map[string]string{}
		}
		below, err := filepath.Rel(w.call.Dir, path)
		if err != nil {
			below = symbolic(path, symbols)
		}
		d.Files[below] = events.DigestOf([]byte(text)).String()
	}
	return d
}

// contractsOf gives the digests of the contracts that a stage names, by name.
func contractsOf(p *events.Plan, st *events.Stage) (digests map[string]string) {
	name := func(contract string) {
		if known, ok := p.Contracts[contract]; ok {
			if digests == nil {
				digests = map[string]string{}
			}
			digests[contract] = events.DigestOf(known.Schema).String()
		}
	}
	for i := range st.Inputs {
		name(st.Inputs[i].Contract)
	}
	for i := range st.Outputs {
		name(st.Outputs[i].Contract)
	}
	return digests
}

// symbolic puts names in the place of directories that are other ones on another machine.
func symbolic(text string, symbols map[string]string) string {
	for _, dir := range slices.Sorted(maps.Keys(symbols)) {
		if dir != "" {
			text = strings.ReplaceAll(text, dir, symbols[dir])
		}
	}
	return text
}

// pins gives the attempt's pins document in its canonical bytes.
func (s *Steps) pins(w *work, d *definition) ([]byte, error) {
	c := &w.call
	p := events.Pins{Schema: events.DocumentSchema, Stage: w.Stage.Name, Definition: d.digest, Number: w.Item, Item: events.Pinned(w.Value),
		Time: c.LogicalTime.UTC().Format(time.RFC3339Nano), Seed: c.Seed}
	p.Params = pinnedParams(c.Params)
	if hasExpression(w.Stage.With) {
		p.With = events.Pinned(c.With)
	}
	for i := range w.Stage.Inputs {
		role := w.Stage.Inputs[i].Role
		from, ok := w.sources[role]
		if !ok {
			return nil, errors.New("the input " + role + " was not read")
		}
		p.Inputs = append(p.Inputs, pinInput(role, &from))
	}
	for name, text := range w.Stage.Env {
		if _, is := configs.Expression(text); is {
			if p.Env == nil {
				p.Env = map[string]string{}
			}
			p.Env[name] = events.PinnedText(c.Env[name])
		}
	}
	for name, value := range c.Secrets {
		if p.Secrets == nil {
			p.Secrets = map[string]string{}
		}
		p.Secrets[name] = s.concealed(name, value)
	}
	return p.Encode()
}

// pinnedParams gives parameters as they stand in a pins document; the very same map when none is long.
func pinnedParams(params map[string]json.RawMessage) map[string]json.RawMessage {
	pinned, own := params, false
	for name, value := range params {
		p := events.Pinned(value)
		if len(p) == len(value) && (len(p) == 0 || &p[0] == &value[0]) {
			continue
		}
		if !own {
			pinned, own = maps.Clone(params), true
		}
		pinned[name] = p
	}
	return pinned
}

// concealed tells secrets apart and says nothing of them: an HMAC under the data directory's own key.
func (s *Steps) concealed(name, value string) string {
	h := hmac.New(sha256.New, s.PinKey)
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(value))
	return hex.EncodeToString(h.Sum(nil))
}

func pinInput(role string, from *source) events.PinnedInput {
	p := events.PinnedInput{Role: role}
	switch {
	case from.file != nil:
		p.Kind, p.Digest, p.Size, p.Name = "file", from.file.content(), from.file.length(), safeName(from.file.name)
		if from.file.dir() {
			p.Kind = "directory"
		}
	case from.list != nil:
		p.Kind = "files"
		var list bytes.Buffer
		for _, f := range from.list {
			if f == nil {
				list.WriteString("null\n")
				continue
			}
			p.Size += f.length()
			fmt.Fprintf(&list, "%s %d %s\n", f.content(), f.length(), safeName(f.name))
		}
		p.Digest = events.DigestOf(list.Bytes())
	default:
		p.Kind, p.Value = "value", events.Pinned(from.value)
	}
	return p
}

func (f *file) content() events.Digest {
	if f.inline != nil {
		return events.DigestOf(f.inline)
	}
	return f.digest
}

func (f *file) length() int64 {
	if f.inline != nil {
		return int64(len(f.inline))
	}
	return f.size
}

// pin puts the pins document of an attempt that is over into its event, and says whether others may take the result over.
func (s *Steps) pin(ctx context.Context, w *work, failed bool) {
	if w.result == nil {
		return // nothing was executed
	}
	ctx = context.WithoutCancel(ctx)
	chain := tools(w.program, w.result.Pins)
	share := !failed && Shareable(w.Stage) && w.result.Hermetic && w.program != nil
	if !s.steady(ctx, w, chain, share) { // nobody knows which of the two has carried it out
		chain, share = append(slices.Clip(chain), events.Pair{Name: "replaced", Value: "while the attempt ran"}), false
	}
	d, err := s.define(w, w.program, chain)
	var document []byte
	if err == nil {
		document, err = s.pins(w, d)
	}
	if err == nil {
		err = s.keepDefinition(ctx, d)
	}
	if err == nil && len(document) > events.MaxInline {
		w.out.PinnedAt, err = s.store(ctx, document)
	} else {
		w.out.Pinned = document
	}
	if err != nil {
		s.Logger.Warn().Err(err).Msg("pin an attempt")
		w.out.Pinned, w.out.PinnedAt = nil, events.Digest{}
		return
	}
	if w.Stage.Executor != "task" {
		w.out.Machine = s.machine(ctx)
	}
	if share {
		w.out.Shared = 1
	}
}

// steady reports whether the tool chain is still what it was before the attempt began. An executor that says itself what it
// has found is asked again only for the sake of others.
func (s *Steps) steady(ctx context.Context, w *work, chain []events.Pair, share bool) bool {
	if !share && (w.program == nil || w.program.Path == "" || len(w.result.Pins) > 0) {
		return true
	}
	now := s.describe(ctx, w)
	return now != nil && slices.Equal(chain, tools(now, w.result.Pins))
}

// Shareable reports whether a stage's result may be taken over by another attempt with the same pins: its author says that
// it is deterministic, and it is kept from everything that is not pinned.
func Shareable(st *events.Stage) bool {
	return st.Same != nil && *st.Same && st.Isolation == "enforce" && st.Network == "none" && len(st.Readable) == 0 && judgedByPins(st)
}

// judgedByPins reports whether the stage's criteria read nothing that is not pinned: what they say of a result holds for
// whoever takes it over.
func judgedByPins(st *events.Stage) bool {
	pinned := []string{"inputs", "outputs", "metrics", "params", "item", "from", "to"}
	holds := func(expr string) bool {
		return !slices.ContainsFunc(configs.Paths(expr), func(path string) bool {
			end := strings.IndexFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == '?' })
			if end < 0 {
				end = len(path)
			}
			return !slices.Contains(pinned, path[:end])
		})
	}
	for i := range st.Gate {
		if !holds(st.Gate[i].Check) {
			return false
		}
	}
	for i := range st.Reconcile {
		if !holds(st.Reconcile[i].Expect) {
			return false
		}
	}
	return true
}

func (s *Steps) keepDefinition(ctx context.Context, d *definition) error {
	s.definitions.mu.Lock()
	kept := s.definitions.kept[d.digest]
	s.definitions.mu.Unlock()
	if kept {
		return nil
	}
	if _, err := s.store(ctx, d.bytes); err != nil {
		return err
	}
	s.definitions.mu.Lock()
	defer s.definitions.mu.Unlock()
	if s.definitions.kept == nil || len(s.definitions.kept) >= maxDefinitions {
		s.definitions.kept = map[events.Digest]bool{}
	}
	s.definitions.kept[d.digest] = true
	return nil
}

func (s *Steps) store(ctx context.Context, content []byte) (events.Digest, error) {
	info, err := s.Artifacts.Put(ctx, bytes.NewReader(content))
	return info.Digest, err
}

// machine gives the artifact that says what attempts run on here; zero when it cannot be kept.
func (s *Steps) machine(ctx context.Context) events.Digest {
	if s.Machine == nil {
		return events.Digest{}
	}
	s.machineOnce.Do(func() {
		b, err := events.EncodeDocument(s.Machine())
		if err == nil {
			s.machineAt, err = s.store(ctx, b)
		}
		if err != nil {
			s.Logger.Warn().Err(err).Msg("describe the machine")
		}
	})
	return s.machineAt
}

// Key gives the pins document that an attempt would have now, without beginning it. It gives false when that is not known
// before, or when nobody may take the stage's result over.
func (s *Steps) Key(ctx context.Context, a *Attempt) (document json.RawMessage, ok bool) {
	if !Shareable(a.Stage) || a.Broken != "" || readsMachine(a.Stage) {
		return nil, false
	}
	w := &work{Attempt: a}
	if w.begin(s) != nil || w.resolve(ctx, s) != nil {
		return nil, false
	}
	p := s.describe(ctx, w)
	if p == nil {
		return nil, false
	}
	d, err := s.define(w, p, tools(p, nil))
	if err != nil {
		return nil, false
	}
	document, err = s.pins(w, d)
	return document, err == nil
}
