// Package cmd is the command line: one file a command, flags, wiring and signals. Only here is the environment read.
// Main builds a whole apollo; a program of yours calls it with its own tasks.
package cmd
