package cmd

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
)

// codePrefix begins the messages that say what a code means which does not come from a definition.
const codePrefix = "code."

func (a *app) explainCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "explain [CODE]", Args: a.arguments(0, 1)}, "explain")
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		codes, _ := a.codes() // nothing to offer is no mistake
		names := make([]string, len(codes))
		for i := range codes {
			names[i] = codes[i].Name
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		codes, err := a.codes()
		if err != nil {
			return err
		}
		if len(args) == 1 {
			name := strings.ToUpper(args[0])
			codes = slices.DeleteFunc(codes, func(c configs.Code) bool { return c.Name != name })
			if len(codes) == 0 {
				return a.fail(exitNotFound, "E_NOT_FOUND", "error.no_code", lang.Data{"Code": name})
			}
		}
		return list(a, codes, a.heads("code", "what"), func(c configs.Code) []string {
			if a.say.Tag() == lang.Chinese {
				return []string{c.Name, c.Chinese}
			}
			return []string{c.Name, c.English}
		})
	}
	return c
}

// codes gives every code, sorted: those of definitions and those of the rest of Apollo.
func (a *app) codes() ([]configs.Code, error) {
	all := configs.Codes()
	messages, err := lang.Messages(lang.English)
	if err != nil {
		return nil, err
	}
	en, zh := lang.New(lang.English), lang.New(lang.Chinese)
	for id := range messages {
		if name, ok := strings.CutPrefix(id, codePrefix); ok {
			all = append(all, configs.Code{Name: name, English: en.T(id), Chinese: zh.T(id)})
		}
	}
	slices.SortFunc(all, func(x, y configs.Code) int { return strings.Compare(x.Name, y.Name) })
	return all, nil
}
