package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/handlers/trigger"
	"github.com/apollo-11/apollo/router"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/bundle"
	"github.com/apollo-11/apollo/storage/sqlite"
)

// exitError is an error with an exit code and a code that `apollo explain` knows. An empty code means that the text
// says it already; no error at all, that nothing more is to be said.
type exitError struct {
	exit int
	code string
	err  error
}

// Error gives "CODE: what; hint".
func (e *exitError) Error() string {
	switch {
	case e.err == nil:
		return ""
	case e.code == "":
		return e.err.Error()
	}
	return e.code + ": " + e.err.Error()
}

// Unwrap gives the error inside.
func (e *exitError) Unwrap() error { return e.err }

// silent ends with an exit code and no message: what there is to say was said.
func silent(exit int) error { return &exitError{exit: exit} }

// fail makes an error of a message of the catalogue.
func (a *app) fail(exit int, code, id string, data ...lang.Data) error {
	return &exitError{exit, code, errors.New(a.say.T(id, data...))}
}

func (a *app) usageError(id string, data ...lang.Data) error {
	return a.fail(exitUsage, "E_USAGE", id, data...)
}

// choice refuses a value that is not among those allowed.
func (a *app) choice(flag, got, want string) error {
	return a.usageError("usage.choice", lang.Data{"Flag": flag, "Value": got, "Choices": want})
}

// tell prints a message of the catalogue for people.
func (a *app) tell(id string, data ...lang.Data) { fmt.Fprintln(a.err, clean(a.say.T(id, data...))) }

// put prints a line for people that holds data already made safe.
func (a *app) put(text string) { fmt.Fprintln(a.err, text) }

// flagError says in the user's language what is wrong with a flag.
func (a *app) flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var bad *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return a.usageError("usage.unknown_flag", lang.Data{"Flag": dashed(unknown.GetSpecifiedName()), "Command": c.CommandPath()})
	case errors.As(err, &bare):
		return a.usageError("usage.bare_flag", lang.Data{"Flag": dashed(bare.GetSpecifiedName())})
	case errors.As(err, &bad):
		return a.usageError("usage.flag_value", lang.Data{"Flag": "--" + bad.GetFlag().Name, "Value": bad.GetValue(), "Type": bad.GetFlag().Value.Type()})
	}
	return &exitError{exitUsage, "E_USAGE", err}
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// arguments bounds how many arguments a command takes; most below 0 is no bound.
func (a *app) arguments(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		use := strings.TrimSuffix(c.UseLine(), " [flags]")
		if len(args) < least {
			return a.usageError("usage.too_few", lang.Data{"Use": use})
		}
		if most >= 0 && len(args) > most {
			return a.usageError("usage.too_many", lang.Data{"Use": use, "Arg": args[most]})
		}
		return nil
	}
}

// unknownCommand refuses what is no command, and names the one that may be meant.
func (a *app) unknownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		return a.usageError("usage.unknown_command_near", lang.Data{"Name": args[0], "Near": near[0]})
	}
	return a.usageError("usage.unknown_command", lang.Data{"Name": args[0]})
}

var codePattern = regexp.MustCompile(`\bE_[A-Z_]+\b`)

// classify gives an error that brought no exit code one, and a code when its text has none.
func (a *app) classify(err error) *exitError {
	var held *sqlite.HeldError
	var file *bundle.Error
	e := &exitError{exit: exitInternal, err: err}
	switch {
	case errors.As(err, &held):
		e.exit = exitBusy
		id := "error.held"
		if held.Address != "" {
			id = "error.held_at"
		}
		e.code, e.err = "E_STORE_HELD", errors.New(a.say.T(id, lang.Data{"Data": a.data, "PID": held.PID, "Address": held.Address}))
	case errors.As(err, &file):
		e.exit = exitInvalid
	case errors.Is(err, trigger.ErrBusy):
		e.exit = exitBusy
	case errors.Is(err, storage.ErrNotFound):
		e.exit, e.code = exitNotFound, "E_NOT_FOUND"
	case errors.Is(err, router.ErrEnded), errors.Is(err, storage.ErrConflict):
		e.exit, e.code = exitConflict, "E_RUN_ENDED"
	case errors.Is(err, os.ErrExist):
		e.exit, e.code = exitConflict, "E_EXISTS"
	case errors.Is(err, errGone):
		e.exit, e.code = exitUnreachable, "E_UNREACHABLE"
	default:
		e.code = "E_INTERNAL"
	}
	if codePattern.MatchString(e.err.Error()) {
		e.code = ""
	}
	return e
}

func (a *app) exitOfError(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.exit
	}
	return a.classify(err).exit
}

// exit says what went wrong and gives the exit code.
func (a *app) exit(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	var e *exitError
	if !errors.As(err, &e) {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return exitInterrupted
		}
		e = a.classify(err)
	}
	if e.err != nil {
		fmt.Fprintf(a.err, "apollo: %s\n", clean(e.Error()))
	}
	return e.exit
}
