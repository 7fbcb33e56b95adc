package cmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/apollo-11/apollo/cmd/lang"
)

// help prints the help of a command: what it does, how it is written, examples, commands below it, flags.
func (a *app) help(c *cobra.Command) {
	w := c.OutOrStdout()
	id := "help." + c.Annotations[helpID]
	fmt.Fprintf(w, "%s\n\n%s\n  %s\n", a.say.T(id+".long"), a.say.T("help.usage"), c.UseLine())
	if a.say.Has(id + ".example") {
		fmt.Fprintf(w, "\n%s\n%s\n", a.say.T("help.examples"), a.say.T(id+".example"))
	}
	a.helpCommands(w, c)
	a.helpFlags(w, "help.flags", c.NonInheritedFlags())
	a.helpFlags(w, "help.shared_flags", c.InheritedFlags())
	if c.HasSubCommands() {
		fmt.Fprintf(w, "\n%s\n", a.say.T("help.more", lang.Data{"Command": c.CommandPath()}))
	}
	if !c.HasParent() {
		fmt.Fprintf(w, "\n%s\n", a.say.T("help.exit_codes"))
	}
}

func (a *app) helpCommands(w io.Writer, c *cobra.Command) {
	heading := "\n" + a.say.T("help.commands") + "\n"
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			fmt.Fprintf(w, "%s  %-12s%s\n", heading, sub.Name(), a.say.T("help."+sub.Annotations[helpID]+".short"))
			heading = ""
		}
	}
}

// helpFlags lists flags. The text of a flag is a message of the catalogue, looked up here.
func (a *app) helpFlags(w io.Writer, heading string, flags *pflag.FlagSet) {
	var lines [][2]string
	width := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		left := "      --" + f.Name
		if f.Shorthand != "" {
			left = "  -" + f.Shorthand + ", --" + f.Name
		}
		if kind := f.Value.Type(); kind != "bool" {
			left += " " + strings.ToUpper(strings.TrimSuffix(kind, "Array"))
		}
		right := f.Usage
		if strings.HasPrefix(right, "flag.") {
			right = a.say.T(right)
		}
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" {
			right = a.say.T("help.default", lang.Data{"Text": right, "Default": d})
		}
		width = max(width, screen.StringWidth(left))
		lines = append(lines, [2]string{left, right})
	})
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", a.say.T(heading))
	for _, l := range lines {
		fmt.Fprintf(w, "%s   %s\n", screen.FillRight(l[0], width), l[1])
	}
}

// helpOn is `apollo help COMMAND`.
func (a *app) helpOn(c *cobra.Command, args []string) error {
	target, rest, err := c.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return a.unknownCommand(c.Root(), args)
	}
	return target.Help()
}
