package cmd

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
)

// A command is built alone when the arguments begin with its name: the list must name it as it names itself.
func TestCommandsAreListedByTheirNames(t *testing.T) {
	t.Parallel()
	a, _ := textApp(lang.English, "never")
	for _, e := range a.commands() {
		if got := e.build().Name(); got != e.name {
			t.Errorf("the command %s is listed as %s", got, e.name)
		}
		if n := len(a.root([]string{e.name, "x"}).Commands()); n != 1 {
			t.Errorf("%s: %d commands were built", e.name, n)
		}
	}
	if n := len(a.root([]string{"--data", "x", "runs"}).Commands()); n != len(a.commands()) {
		t.Errorf("%d commands were built where any may be meant", n)
	}
}

// Every command that help lists has a summary, a text and examples in every language.
func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	t.Parallel()
	for _, tag := range lang.Tags() {
		a, _ := textApp(tag, "never")
		var look func(c *cobra.Command)
		look = func(c *cobra.Command) {
			for _, part := range []string{"short", "long", "example"} {
				if id := "help." + c.Annotations[helpID] + "." + part; !c.Hidden && !c.HasSubCommands() && !a.say.Has(id) {
					t.Errorf("%s: %s has no %s", tag, c.CommandPath(), id)
				}
			}
			for _, sub := range c.Commands() {
				look(sub)
			}
		}
		for _, sub := range a.root(nil).Commands() {
			if sub.Name() != "help" {
				look(sub)
			}
		}
	}
}
