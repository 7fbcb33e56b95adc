package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/router"
)

// Exit codes.
const (
	exitOK          = 0
	exitInternal    = 1
	exitUsage       = 2
	exitInvalid     = 3
	exitNotFound    = 5
	exitConflict    = 6
	exitUnreachable = 7
	exitBusy        = 8
	exitFailed      = 10
	exitCancelled   = 11
	exitTimedOut    = 12
	exitGate        = 13
	exitDiffers     = 14
	exitInterrupted = 130
)

// Option changes what Main builds.
type Option func(*app)

// Task registers a Go function as a task: a pipeline names it in a stage's `task:`.
func Task(name string, t executor.Task) Option {
	return func(a *app) { a.tasks[name] = t }
}

// app is one call of the program.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	tasks    map[string]executor.Task
	say      *lang.Printer
	tune     func(*stage.Steps, *router.Options) // the benchmark's hooks; nil otherwise

	data      string // directory
	pipelines string // directory
	output    string // text, json, jsonl
	color     string // auto, always, never
	langTag   string
}

// Main runs the command line of this process and ends it with the exit code.
func Main(opts ...Option) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, opts...)
	stop()
	os.Exit(code)
}

// Run runs one command and gives its exit code. Everything that it reads and writes is handed in.
func Run(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env func(string) string, opts ...Option) int {
	a := &app{in: in, out: out, err: err, env: env, tasks: map[string]executor.Task{}}
	for _, o := range opts {
		o(a)
	}
	a.say = lang.New(a.language(args))
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(err)
	c, failed := root.ExecuteContextC(ctx)
	return a.exit(ctx, c, failed)
}

// language looks for --lang before the flags are parsed: the help is in that language too.
func (a *app) language(args []string) string {
	for i, arg := range args {
		if v, ok := strings.CutPrefix(arg, "--lang="); ok {
			return v
		}
		if arg == "--lang" && i+1 < len(args) {
			return args[i+1]
		}
	}
	for _, name := range []string{"LC_ALL", "LC_MESSAGES", "LANG"} {
		if v := a.env(name); v != "" {
			return v
		}
	}
	return lang.English
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{Use: "apollo", SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	a.describe(root, "root")
	f := root.PersistentFlags()
	f.StringVar(&a.data, "data", orText(a.env("APOLLO_DATA"), "apollo-data"), a.say.T("flag.data"))
	f.StringVar(&a.pipelines, "pipelines", "pipelines", a.say.T("flag.pipelines"))
	f.StringVarP(&a.output, "output", "o", "text", a.say.T("flag.output"))
	f.StringVar(&a.color, "color", "auto", a.say.T("flag.color"))
	f.StringVar(&a.langTag, "lang", "", a.say.T("flag.lang"))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, "E_USAGE", err} })
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return a.checkFlags() }
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(a.commands()...)
	a.localize(root)
	return root
}

// commands is the list of commands.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.demoCommand(), a.initCommand(), a.validateCommand(), a.schemaCommand(), a.explainCommand(),
		a.serveCommand(), a.runCommand(), a.runsCommand(), a.showCommand(), a.logsCommand(), a.eventsCommand(),
		a.cancelCommand(), a.replayCommand(), a.graphCommand(), a.inboxCommand(), a.storeCommand(),
		a.benchCommand(), a.subjectCommand(), a.completionCommand(), a.versionCommand(),
	}
}

// describe fills a command's help from the catalogue.
func (a *app) describe(c *cobra.Command, id string) *cobra.Command {
	c.Short, c.Long = a.say.T("help."+id+".short"), a.say.T("help."+id+".long")
	if a.say.Has("help." + id + ".example") {
		c.Example = a.say.T("help." + id + ".example")
	}
	return c
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (a *app) checkFlags() error {
	if a.output != "text" && a.output != "json" && a.output != "jsonl" {
		return usage("--output", a.output, "text, json, jsonl")
	}
	if a.color != "auto" && a.color != "always" && a.color != "never" {
		return usage("--color", a.color, "auto, always, never")
	}
	if _, ok := lang.Match(orText(a.langTag, lang.English)); !ok {
		return usage("--lang", a.langTag, "en, zh")
	}
	return nil
}

// exitError is an error with an exit code and a code that `apollo explain` knows. An empty code means that the text
// says it already.
type exitError struct {
	exit int
	code string
	err  error
}

func (e *exitError) Error() string {
	if e.code == "" {
		return e.err.Error()
	}
	return e.code + ": " + e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func usage(flag, got, want string) error {
	return &exitError{exitUsage, "E_USAGE", fmt.Errorf("%s %q; expected one of %s", flag, got, want)}
}

// errSilent ends with an exit code and no message: what there is to say was said.
func silent(exit int) error { return &exitError{exit: exit} }

// exit says what went wrong and gives the exit code.
func (a *app) exit(ctx context.Context, c *cobra.Command, err error) int {
	if err == nil {
		return exitOK
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{exit: classify(err), err: err}
		if strings.HasPrefix(err.Error(), "unknown command") || strings.Contains(err.Error(), "arg(s)") || strings.Contains(err.Error(), "required flag") {
			e.exit, e.code = exitUsage, "E_USAGE"
		}
	}
	if ctx.Err() != nil && e.exit == exitInternal {
		e.exit = exitInterrupted
	}
	if e.err != nil {
		fmt.Fprintf(a.err, "apollo: %s\n", clean(e.Error()))
		if e.exit == exitUsage {
			fmt.Fprintln(a.err, a.usageHint(c))
		}
	}
	return e.exit
}
