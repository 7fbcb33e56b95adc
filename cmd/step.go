package cmd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/cmd/replay"
	"github.com/apollo-11/apollo/events"
)

// stepper shows a run at one event after the other, forward and back.
type stepper struct {
	*app
	*replay.Walk
	logs  string
	total uint64 // events of a run that has ended, about; 0 is not known
	help  bool   // the keys are explained
	lines int    // of the drawing on the terminal
}

// watched is what a view shows besides the folded state.
type watched struct{ seen }

// See implements replay.Watcher.
func (w *watched) See(e *events.Event, r *events.Run) { w.see(r, e) }

// Clone implements replay.Watcher.
func (w *watched) Clone() replay.Watcher {
	c := &watched{w.seen}
	c.queued, c.opened, c.items = maps.Clone(w.queued), maps.Clone(w.opened), maps.Clone(w.items)
	c.checks = make(map[int][]events.Check, len(w.checks))
	for i, list := range w.checks {
		c.checks[i] = slices.Clip(list)
	}
	return c
}

// step lets a person go through a run: by keys on a terminal, else by commands, one a line. When the commands end, the
// rest of the run is told event by event.
func (a *app) step(ctx context.Context, s replay.Source, id events.ID, until uint64) error {
	row, err := s.Run(ctx, id)
	if err != nil {
		return err
	}
	logs := filepath.Join(a.logsDir(), id.String())
	walk, err := replay.NewWalk(ctx, s, id, &watched{newView(nil, logs).seen})
	if err != nil {
		return err
	}
	st := &stepper{app: a, Walk: walk, logs: logs}
	if row.State.Terminal() {
		st.total = row.Sequence
	}
	if err := st.Goto(ctx, until); err != nil {
		return err
	}
	if in, ok := a.in.(*os.File); ok && term.IsTerminal(int(in.Fd())) && isTerminal(a.out) {
		err = st.byKeys(ctx, in)
	} else {
		err = st.byLines(ctx)
	}
	if err == nil && st.Mismatch() != nil {
		err = silent(exitDiffers)
	}
	return err
}

// obey carries out a command; quit is true when there is nothing more to do.
func (s *stepper) obey(ctx context.Context, command string) (quit bool, err error) {
	word, rest, _ := strings.Cut(strings.TrimSpace(command), " ")
	s.help = false
	switch word {
	case "", "n", "next":
		_, err = s.Forward(ctx)
	case "p", "prev", "b":
		err = s.Back(ctx)
	case "g", "goto":
		at, bad := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
		if bad != nil {
			s.help = true
			break
		}
		err = s.Goto(ctx, at)
	case "e", "end":
		err = s.End(ctx)
	case "q", "quit":
		return true, nil
	default:
		s.help = true
	}
	return false, err
}

func (s *stepper) byLines(ctx context.Context) error {
	scanner := bufio.NewScanner(s.in)
	for scanner.Scan() {
		quit, err := s.obey(ctx, scanner.Text())
		if err != nil || quit {
			return err
		}
		fmt.Fprintln(s.out, strings.Join(s.picture(1<<20), "\n"))
	}
	if err := scanner.Err(); err != nil {
		return err
	}
	for {
		moved, err := s.Forward(ctx)
		if err != nil {
			return err
		}
		if !moved {
			break
		}
		fmt.Fprintln(s.out, s.eventLine())
	}
	s.printVerdict(s.result())
	return nil
}

// result is the verdict as far as the walk has come.
func (s *stepper) result() replay.Result {
	r := replay.Result{Run: s.Run().ID.String(), Events: s.At(), Verdict: replay.Same, Mismatch: s.Mismatch()}
	if r.Mismatch != nil {
		r.Verdict = replay.Differs
	}
	return r
}

// eventLine names the event that was taken last.
func (s *stepper) eventLine() string {
	e := s.Event()
	if e == nil {
		return fmt.Sprintf("%6d  %s", 0, s.say.T("step.before"))
	}
	label := (&events.Stage{Name: e.Data.Stage}).Label(e.Data.Item)
	if e.Data.Stage == "" {
		label = ""
	}
	return fmt.Sprintf("%6d  %s  %s", e.Sequence, e.When().Format("15:04:05.000000"), strings.TrimRight(strings.Join([]string{e.Type.Short() + " " + label,
		s.state(s.Run().State), line(e.Data.Reason)}, "  "), " "))
}

// mostDue is how many of the decisions that are due are named.
const mostDue = 5

// picture draws the place: the event, the run's stages in at most so many rows, and what comes next.
func (s *stepper) picture(rows int) []string {
	head := s.eventLine()
	if s.total > 0 {
		head += "  " + s.paint(dim, s.say.T("step.of", lang.Data{"At": s.At(), "Total": s.total}))
	}
	drawing := []string{head}
	if s.At() > 0 {
		v := &view{run: s.Run(), logs: s.logs, at: s.Event().Time, seen: s.Watcher().(*watched).seen} //nolint:forcetypeassert // step made it
		tree := s.treeLines(v, false)
		if room := max(2, rows-4); len(tree) > room {
			tree = append(tree[:room-1:room-1], s.say.T("more.alike", lang.Data{"N": len(tree) - room + 1}))
		}
		drawing = append(drawing, tree...)
	}
	return append(drawing, s.next())
}

// next says what follows: a difference, what is due, or that the world has the next word.
func (s *stepper) next() string {
	if m := s.Mismatch(); m != nil {
		return s.paint(bad, "✖ ") + line(s.say.T("replay.differs", lang.Data{"Run": s.Run().ID.String(), "Sequence": m.Sequence, "Recorded": m.Recorded,
			"Recomputed": m.Recomputed}))
	}
	if s.Run().State.Terminal() {
		return s.say.T("step.ended")
	}
	due := s.Due()
	if s.At() == 0 || len(due) == 0 {
		return s.say.T("step.world")
	}
	names := make([]string, 0, mostDue)
	for _, d := range due[:min(mostDue, len(due))] {
		names = append(names, line(d.Describe(s.Run())))
	}
	if len(due) > mostDue {
		names = append(names, s.say.T("more.alike", lang.Data{"N": len(due) - mostDue}))
	}
	return s.say.T("step.due", lang.Data{"Due": strings.Join(names, ", ")})
}

// byKeys draws the place anew at each key. The terminal is as it was afterwards.
func (s *stepper) byKeys(ctx context.Context, in *os.File) (err error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return err
	}
	defer func() {
		if restored := term.Restore(int(in.Fd()), before); err == nil {
			err = restored
		}
	}()
	keys := make(chan []byte)
	go readKeys(ctx, in, keys)
	number, typing := "", false
	for {
		s.draw(number, typing)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case key, open := <-keys:
			if !open {
				return nil
			}
			command := commandOf(key)
			switch {
			case command == "ctrl-c":
				return nil
			case typing:
				number, typing, command = digit(number, key)
			case command == "g":
				number, typing, command = "", true, "none"
			}
			if command == "none" {
				continue
			}
			if quit, err := s.obey(ctx, command); err != nil || quit {
				return err
			}
		}
	}
}

// digit takes a key while the number of an event is typed.
func digit(number string, key []byte) (now string, typing bool, command string) {
	switch k := string(key); {
	case k == "\r" || k == "\n":
		return "", false, "g " + number
	case k == "\x7f" || k == "\b":
		return number[:max(0, len(number)-1)], true, "none"
	case len(k) == 1 && k >= "0" && k <= "9" && len(number) < 19:
		return number + k, true, "none"
	case k == "\x1b":
		return "", false, "none"
	}
	return number, true, "none"
}

// commandOf gives what a key means.
func commandOf(key []byte) string {
	switch string(key) {
	case "\x03", "\x04":
		return "ctrl-c"
	case " ", "\x1b[C", "\x1bOC", "\r", "\n":
		return "n"
	case "\x1b[D", "\x1bOD":
		return "p"
	case "n", "p", "g", "e", "q", "?":
		return string(key)
	case "\x1b[H", "\x1bOH":
		return "g 0"
	case "\x1b[F", "\x1bOF":
		return "e"
	}
	return "none"
}

// readKeys gives one key after the other; an arrow is three bytes.
func readKeys(ctx context.Context, in io.Reader, keys chan<- []byte) {
	defer close(keys)
	b := make([]byte, 64)
	for {
		n, err := in.Read(b)
		for rest := b[:n]; len(rest) > 0; {
			length := 1
			if rest[0] == '\x1b' && len(rest) > 2 && (rest[1] == '[' || rest[1] == 'O') {
				length = 3
			}
			select {
			case keys <- slices.Clone(rest[:length]):
			case <-ctx.Done():
				return
			}
			rest = rest[length:]
		}
		if err != nil {
			return
		}
	}
}

// draw puts the place where the last drawing is.
func (s *stepper) draw(number string, typing bool) {
	width, height := 80, 24
	if f, ok := s.out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	rows := append(s.picture(height-2), s.paint(dim, s.say.T("step.keys")))
	if s.help {
		rows = append(rows, strings.Split(s.say.T("step.help"), "\n")...)
	}
	if typing {
		rows = append(rows, s.say.T("step.goto", lang.Data{"Number": number}))
	}
	var b strings.Builder
	if s.lines > 1 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines-1)
	}
	b.WriteString("\r\x1b[J")
	for i := range rows {
		rows[i] = cut(rows[i], width-1)
	}
	b.WriteString(strings.Join(rows, "\r\n"))
	s.lines = len(rows)
	_, _ = io.WriteString(s.out, b.String()) // a terminal that is gone says so at the next read
}
