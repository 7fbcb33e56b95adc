package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/handlers/web"
	"github.com/apollo-11/apollo/storage/sqlite"
)

type debugFlags struct {
	attempt int
	item    int
	dir     string
	run     bool
	print   bool
}

func (a *app) debugCommand() *cobra.Command {
	var f debugFlags
	c := a.describe(&cobra.Command{Use: "debug RUN STAGE[#ITEM]", Args: a.arguments(2, 2), ValidArgsFunction: a.completeRuns}, "debug")
	c.Flags().IntVar(&f.attempt, "attempt", 0, "flag.attempt")
	c.Flags().IntVar(&f.item, "item", 0, "flag.item")
	c.Flags().StringVar(&f.dir, "dir", "", "flag.debug_dir")
	c.Flags().BoolVar(&f.run, "run", false, "flag.debug_run")
	c.Flags().BoolVar(&f.print, "print", false, "flag.debug_print")
	c.RunE = func(c *cobra.Command, args []string) error {
		at, err := a.debugPlace(args[1], f)
		if err != nil {
			return err
		}
		var open func() error // once nothing is read any more
		err = a.reading(c.Context(), func(s *sqlite.Store) error {
			id, err := a.findRun(c.Context(), s, args[0])
			if err != nil {
				return err
			}
			files, closeFiles, err := a.stored()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, closeFiles()) }()
			p, err := a.findPast(c.Context(), s, files, id, at, f.attempt)
			if err == nil {
				open, err = a.debug(c.Context(), p, f)
			}
			return err
		})
		if err == nil && open != nil {
			err = open()
		}
		return err
	}
	return c
}

// debugPlace reads STAGE, STAGE#ITEM, or STAGE with --item.
func (a *app) debugPlace(text string, f debugFlags) (web.Place, error) {
	at, err := a.place(text)
	switch {
	case err != nil:
	case f.run && f.print:
		err = a.usageError("usage.debug")
	case f.attempt < 0:
		err = a.usageError("usage.positive", lang.Data{"Flag": "--attempt", "Value": f.attempt})
	case f.item < 0 || f.item > 0 && at.Item > 0 && at.Item != f.item:
		err = a.usageError("usage.positive", lang.Data{"Flag": "--item", "Value": f.item})
	case f.item > 0:
		at.Item = f.item
	}
	return at, err
}

func labelOf(at web.Place) string { return (&events.Stage{Name: at.Stage}).Label(at.Item) }

// rehearsal is an attempt of a stored run that is laid out anew.
type rehearsal struct {
	app     *app
	past    *past
	dir     string
	steps   *stage.Steps
	laid    *stage.Laid
	missing map[string]string // reference of each secret that cannot be read here, and why
	manual  *executor.Manual  // what a person types, when the executor starts nothing itself
	unbuilt bool              // what the command needs was not built
}

// debug lays an attempt out and shows it; then it runs the command, or gives what opens a shell, or neither.
func (a *app) debug(ctx context.Context, p *past, f debugFlags) (open func() error, err error) {
	if err := a.mustHaveCommand(p); err != nil {
		return nil, err
	}
	r := &rehearsal{app: a, past: p, missing: map[string]string{}}
	if r.dir, err = a.debugDir(f.dir, p); err != nil {
		return nil, err
	}
	shell := !f.run && !f.print && a.output == "text"
	if err := r.lay(ctx, f.run || shell); err != nil {
		return nil, err
	}
	if f.run {
		return nil, r.carryOut(ctx)
	}
	if err := r.show(a.out, nil); err != nil || !shell {
		return nil, err
	}
	if in, ok := a.in.(*os.File); !ok || !isTerminal(in) || !isTerminal(a.out) {
		a.tell("debug.no_terminal", lang.Data{"Dir": r.dir})
		return nil, nil //nolint:nilnil // documented: there is nothing to open
	}
	return r.shell, nil
}

// mustHaveCommand refuses stages that start nothing which a person could start.
func (a *app) mustHaveCommand(p *past) error {
	st := p.run.StageOf(p.place)
	data := lang.Data{"Stage": st.Name, "Run": p.run.ID.String()}
	switch st.Executor {
	case "task":
		return a.fail(exitNotFound, "E_NO_COMMAND", "error.debug_task", data)
	case "pipeline":
		return a.fail(exitNotFound, "E_NO_COMMAND", "error.debug_pipeline", data)
	case "approval":
		return a.fail(exitNotFound, "E_NO_COMMAND", "error.debug_approval", data)
	}
	return nil
}

// debugDir makes the directory of the attempt: a fresh one below the system's directory for such, or the one that was asked
// for, which must be empty and no part of the data directory.
func (a *app) debugDir(dir string, p *past) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("", "apollo-debug-"+p.run.StageOf(p.place).Name+"-")
		if err == nil {
			made, err = filepath.EvalSymlinks(made)
		}
		return made, err
	}
	abs, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(abs, 0o700)
	}
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", err
	}
	data, err := filepath.EvalSymlinks(a.data)
	if err == nil {
		data, err = filepath.Abs(data)
	}
	if err != nil {
		return "", err
	}
	if below, err := filepath.Rel(data, abs); err == nil && filepath.IsLocal(below) {
		_ = os.Remove(abs) // stays when something is in it
		return "", a.usageError("usage.debug_dir", lang.Data{"Dir": dir})
	}
	entries, err := os.ReadDir(abs)
	if err == nil && len(entries) > 0 {
		return "", a.fail(exitConflict, "E_EXISTS", "error.debug_dir", lang.Data{"Dir": dir})
	}
	return abs, err
}

// lay makes the directory ready. build lets what the command needs be built where it is missing.
func (r *rehearsal) lay(ctx context.Context, build bool) error {
	if err := r.prepare(); err != nil {
		return err
	}
	attempt, err := r.past.attempt()
	if err != nil {
		return err
	}
	var failure *events.Failure
	if r.laid, failure = r.steps.Lay(ctx, attempt, r.dir); failure != nil {
		return r.notLaid(failure)
	}
	x := r.steps.Executors[attempt.Stage.Executor]
	if by, is := x.(executor.ByHand); is {
		call := *r.laid.Call
		call.Secrets = r.tokens()
		if r.manual, failure = by.ByHand(ctx, &call); failure != nil {
			return r.notLaid(failure)
		}
	}
	b, is := x.(executor.Builder)
	if !is {
		return nil
	}
	built, failure := b.Built(ctx, r.laid.Call)
	if failure == nil && !built && build {
		r.app.tell("debug.building")
		if _, failure = b.Build(ctx, r.laid.Call); failure == nil {
			built = true
		}
	}
	if failure != nil {
		return r.notLaid(failure)
	}
	r.unbuilt = !built
	return nil
}

// notLaid says that the attempt would end before its command, and how.
func (r *rehearsal) notLaid(f *events.Failure) error {
	_ = os.Remove(r.dir) // stays when something is in it
	return r.app.fail(exitOfClass(f.Class), "E_NOT_LAID", "error.not_laid", lang.Data{"Stage": r.past.run.StageOf(r.past.place).Name, "Class": string(f.Class),
		"Reason": f.Reason})
}

// prepare makes the steps that only read the data directory. A secret that is not there has a placeholder.
func (r *rehearsal) prepare() error {
	a := r.app
	data, err := filepath.Abs(a.data)
	if err != nil {
		return err
	}
	allow, err := a.allowedHosts()
	if err != nil {
		return err
	}
	build, _ := version()
	settings := executor.Settings{Owner: r.dir, Tasks: a.tasks, HTTPAllow: allow, Version: build, Cache: filepath.Join(data, "cache"), Pip: pipSettings(a.env),
		ContainerHost: containerHost(a.env)}
	key, err := os.ReadFile(filepath.Join(data, pinKeyFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the key of the pins: %w", err)
	}
	read := a.secrets(data)
	r.steps = &stage.Steps{Artifacts: scratch{r.past.files}, Executors: a.executors(settings), Logger: a.quietLogger(), PinKey: key,
		Secrets: func(ref string) (string, error) {
			value, err := firstOf(read(ref))
			if err != nil {
				r.missing[ref] = err.Error()
				value = placeholderOf(ref)
			}
			return value, nil
		}}
	return nil
}

func placeholderOf(ref string) string {
	return "missing-secret-" + strings.TrimPrefix(ref, "secret://")
}

// tokens stand for the secrets in what is printed, where the command line has $NAME. They are like nothing else, and mean
// the same in a URL, a header and JSON.
func (r *rehearsal) tokens() map[string]string {
	tokens := map[string]string{}
	for name := range r.past.run.StageOf(r.past.place).Secrets {
		tokens[name] = "s" + strings.TrimPrefix(events.DigestOf([]byte("token of "+name)).String(), "sha256:")[:20]
	}
	return tokens
}

// exitOfClass gives the exit code of a failure.
func exitOfClass(c events.Class) int {
	switch c {
	case events.Timeout:
		return exitTimedOut
	case events.GateRejected:
		return exitGate
	case events.Aborted:
		return exitCancelled
	default:
		return exitFailed
	}
}
