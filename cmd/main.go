package cmd

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/plugin"
	"github.com/apollo-11/apollo/handlers/schedule"
	"github.com/apollo-11/apollo/handlers/stage"
	"github.com/apollo-11/apollo/router"
)

// Exit codes.
const (
	exitOK          = 0
	exitInternal    = 1
	exitUsage       = 2
	exitInvalid     = 3
	exitAuth        = 4
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

	pluginSet func() *plugin.Set                  // the plug-ins: read once a process, at the first call
	tune      func(*stage.Steps, *router.Options) // the benchmark's hooks; nil otherwise

	data      string // directory
	pipelines string // directory
	plugins   string // directory; empty is plugins in the data directory
	output    string // text, json, jsonl
	color     string // auto, always, never
	langTag   string
	httpAllow string // hosts and networks besides the public internet that http stages may reach, with commas

	maxRuns    uint            // that go on at once; 0 is no bound
	configured schedule.Budget // what flags and variables say of the budget
}

// Main runs the command line of this process and ends it with the exit code. It keeps the first thread of the process to
// itself: that one cannot be given up to an isolated stage, and to find so takes time.
func Main(opts ...Option) {
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := make(chan int)
	go func() { code <- Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv, opts...) }()
	exit := <-code
	stop()
	os.Exit(exit)
}

// Run runs one command and gives its exit code. Everything that it reads and writes is handed in.
func Run(ctx context.Context, args []string, in io.Reader, out, err io.Writer, env func(string) string, opts ...Option) int {
	a := &app{in: in, out: out, err: err, env: env, tasks: map[string]executor.Task{}}
	for _, o := range opts {
		o(a)
	}
	a.say = lang.New(a.language(args))
	a.pluginSet = sync.OnceValue(a.loadPlugins)
	root := a.root(args)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(err)
	return a.exit(ctx, root.ExecuteContext(ctx))
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

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (a *app) checkFlags() error {
	if a.output != "text" && a.output != "json" && a.output != "jsonl" {
		return a.choice("--output", a.output, "text, json, jsonl")
	}
	if a.color != "auto" && a.color != "always" && a.color != "never" {
		return a.choice("--color", a.color, "auto, always, never")
	}
	if _, ok := lang.Match(orText(a.langTag, lang.English)); !ok {
		return a.choice("--lang", a.langTag, "en, zh")
	}
	return a.checkBudget()
}
