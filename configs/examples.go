package configs

import (
	"embed"
	"io/fs"
)

//go:embed all:examples/demo-push all:examples/demo-weather
var demo embed.FS

// DemoExamples gives the two examples that `apollo demo` runs, each in its own folder with its input.
func DemoExamples() fs.FS {
	sub, err := fs.Sub(demo, "examples")
	if err != nil {
		panic(err) // the path is a constant
	}
	return sub
}
