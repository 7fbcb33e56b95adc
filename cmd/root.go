package cmd

import (
	"sync"

	"github.com/spf13/cobra"
)

// entry is one line of the list of commands. A command is built when it is asked for.
type entry struct {
	name  string
	build func() *cobra.Command
}

// commands is the list of commands, in the order in which help shows them.
func (a *app) commands() []entry {
	return []entry{
		{"demo", a.demoCommand},
		{"init", a.initCommand},
		{"template", a.templateCommand},
		{"validate", a.validateCommand},
		{"test", a.testCommand},
		{"graph", a.graphCommand},
		{"schema", a.schemaCommand},
		{"plugin", a.pluginCommand},
		{"run", a.runCommand},
		{"serve", a.serveCommand},
		{"cancel", a.cancelCommand},
		{"resume", a.resumeCommand},
		{"rerun", a.rerunCommand},
		{"approvals", a.approvalsCommand},
		{"approve", a.approveCommand},
		{"reject", a.rejectCommand},
		{"gate", a.gateCommand},
		{"runs", a.runsCommand},
		{"show", a.showCommand},
		{"logs", a.logsCommand},
		{"events", a.eventsCommand},
		{"inbox", a.inboxCommand},
		{"replay", a.replayCommand},
		{"verify", a.verifyCommand},
		{"diff", a.diffCommand},
		{"debug", a.debugCommand},
		{"export", a.exportCommand},
		{"import", a.importCommand},
		{"estimate", a.estimateCommand},
		{"store", a.storeCommand},
		{"explain", a.explainCommand},
		{"bench", a.benchCommand},
		{"bench-subject", a.subjectCommand},
		{"completion", a.completionCommand},
		{"version", a.versionCommand},
	}
}

// keepOrder keeps the commands in the order of the list.
var keepOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

// root builds the command that was asked for, or all of them when the arguments do not begin with one: for help,
// completion and mistakes.
func (a *app) root(args []string) *cobra.Command {
	keepOrder()
	root := &cobra.Command{Use: "apollo", SilenceUsage: true, SilenceErrors: true, Args: a.unknownCommand,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	a.describe(root, "root")
	f := root.PersistentFlags()
	f.StringVar(&a.data, "data", orText(a.env("APOLLO_DATA"), "apollo-data"), "flag.data")
	f.StringVar(&a.pipelines, "pipelines", "pipelines", "flag.pipelines")
	f.StringVar(&a.plugins, "plugins", a.env("APOLLO_PLUGINS"), "flag.plugins")
	f.StringVarP(&a.output, "output", "o", "text", "flag.output")
	f.StringVar(&a.color, "color", "auto", "flag.color")
	f.StringVar(&a.langTag, "lang", "", "flag.lang")
	root.SetFlagErrorFunc(a.flagError)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { a.help(c) })
	root.SetHelpCommand(&cobra.Command{Use: "help", Hidden: true, RunE: a.helpOn})
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return a.checkFlags() }
	root.CompletionOptions.DisableDefaultCmd = true
	all := a.commands()
	for _, e := range all {
		if len(args) > 0 && args[0] == e.name {
			root.AddCommand(e.build())
			return root
		}
	}
	for _, e := range all {
		c := e.build()
		c.Short = a.say.T("help." + c.Annotations[helpID] + ".short")
		root.AddCommand(c)
	}
	return root
}

// helpID is the annotation that holds a command's id in the catalogue. Its texts are read when somebody asks for help.
const helpID = "help"

// describe gives a command its id in the catalogue.
func (a *app) describe(c *cobra.Command, id string) *cobra.Command {
	c.Annotations = map[string]string{helpID: id}
	c.DisableFlagsInUseLine = true
	if c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
	return c
}
