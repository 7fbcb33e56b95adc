package cmd_test

import (
	"context"

	"github.com/apollo-11/apollo/cmd"
	"github.com/apollo-11/apollo/handlers/executor"
)

// A main function of one's own adds tasks: Go functions that a pipeline uses as stages, `task: greet`.
func Example() { //nolint:testableexamples // testdata/script/misc.txtar runs it as a program
	cmd.Main(cmd.Task("greet", func(_ context.Context, c *executor.TaskCall) error {
		return c.SetOutput("greeting", "hello")
	}))
}
