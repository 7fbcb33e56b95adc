package cmd

import (
	"fmt"
	"io"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
)

// The groups in which apollo --help shows the commands.
const (
	groupBegin = "begin"
	groupLook  = "look"
	groupKeep  = "keep"
	groupOther = "other"
)

var groups = []struct {
	id       string
	commands string
}{
	{groupBegin, "demo init validate run serve"},
	{groupLook, "runs show logs events inbox graph"},
	{groupKeep, "cancel replay store bench"},
	{groupOther, ""},
}

// localize makes cobra's own words ours: its usage text, its help command and the help flag.
func (a *app) localize(root *cobra.Command) {
	root.PersistentFlags().BoolP("help", "h", false, a.say.T("flag.help"))
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		c.GroupID = groupOther
		for _, g := range groups {
			if strings.Contains(" "+g.commands+" ", " "+c.Name()+" ") {
				c.GroupID = g.id
			}
		}
		if c.Name() == "help" {
			c.Use = "help [COMMAND]"
			a.describe(c, "help")
		}
	}
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: a.say.T("help.group." + g.id)})
	}
	root.SetUsageFunc(func(c *cobra.Command) error {
		_, err := io.WriteString(c.OutOrStderr(), a.usageText(c))
		return err
	})
}

// usageText is what the help says after the description.
func (a *app) usageText(c *cobra.Command) string {
	var b strings.Builder
	section := func(title, text string) {
		if text = strings.TrimRight(text, "\n "); text != "" {
			fmt.Fprintf(&b, "%s\n%s\n\n", title, text)
		}
	}
	use := c.UseLine()
	if c.HasAvailableSubCommands() {
		use = c.CommandPath() + " COMMAND"
	}
	section(a.say.T("help.usage"), "  "+use)
	section(a.say.T("help.examples"), c.Example)
	if groups := c.Groups(); len(groups) > 0 {
		for _, g := range groups {
			section(g.Title, commandList(c, g.ID))
		}
	} else {
		section(a.say.T("help.commands"), commandList(c, ""))
	}
	if c.HasParent() {
		section(a.say.T("help.flags"), a.flagText(c.LocalNonPersistentFlags().FlagUsages()))
		section(a.say.T("help.global"), a.flagText(c.InheritedFlags().FlagUsages()))
	} else {
		section(a.say.T("help.flags"), a.flagText(c.PersistentFlags().FlagUsages()))
	}
	if c.HasAvailableSubCommands() {
		b.WriteString(a.say.T("help.more", lang.Data{"Command": c.CommandPath()}) + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func commandList(c *cobra.Command, group string) string {
	var b strings.Builder
	for _, sub := range c.Commands() {
		if sub.GroupID == group && !sub.Hidden {
			fmt.Fprintf(&b, "  %s  %s\n", runewidth.FillRight(sub.Name(), 10), sub.Short)
		}
	}
	return b.String()
}

// flagText puts the one English word of the flag list into the language.
func (a *app) flagText(text string) string {
	if a.say.Tag() == lang.English {
		return text
	}
	return strings.NewReplacer("(default ", "("+a.say.T("help.default")+" ").Replace(text)
}

// usageHint shows the way out of a wrong command line.
func (a *app) usageHint(c *cobra.Command) string {
	path := c.CommandPath()
	if !c.HasParent() || c.HasAvailableSubCommands() {
		return a.say.T("usage.hint", lang.Data{"Command": path})
	}
	return a.say.T("usage.line", lang.Data{"Line": c.UseLine()}) + "\n" + a.say.T("usage.hint", lang.Data{"Command": path})
}
