// Command apollo runs pipelines: see package cmd.
package main

import "github.com/apollo-11/apollo/cmd"

func main() { cmd.Main() }
