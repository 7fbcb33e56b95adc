package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/configs"
)

func (a *app) schemaCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "schema", Args: a.arguments(0, 0)}, "schema")
	c.RunE = func(*cobra.Command, []string) error {
		b, err := configs.Schema()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, string(b))
		return err
	}
	return c
}
