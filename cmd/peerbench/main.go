// Command peerbench measures, on this machine and in one run, what other durable engines make of the five no-op steps that Apollo's
// own benchmark uses, beside the physical limit S1 (single-row durable SQLite transactions). See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// chainLength is the number of no-op steps in every workflow, chain and DAG.
const chainLength = 5

// effort says how long to measure.
type effort struct {
	probe    time.Duration // one reading of S1
	window   time.Duration // one load on DBOS
	chains   int           // most chains run one at a time on River and Dagu
	patience time.Duration // longest that one River or Dagu measurement may go on
	retry    time.Duration // void figures are measured a second time while the run is younger than this
}

func fullEffort() effort {
	return effort{probe: time.Second, window: 3 * time.Second, chains: 50, patience: 10 * time.Second, retry: 65 * time.Second}
}

func quickEffort() effort {
	return effort{probe: 300 * time.Millisecond, window: 500 * time.Millisecond, chains: 10, patience: 3 * time.Second}
}

// measurement is one load on one peer, run in an empty directory of its own; S1 is read before and after it.
type measurement struct {
	name string
	run  func(ctx context.Context, dir string, e effort) ([]result, error)
}

// measurements is the whole run in order.
func measurements(dagu string) []measurement {
	list := []measurement{
		{"DBOS, 1 caller", dbosCallers(1)},
		{"DBOS, 4 callers", dbosCallers(4)},
		{"DBOS, 64 callers", dbosCallers(64)},
		{"River, one chain", riverChain(riverDefaults())},
		{"River, 400 chains", riverFlight(riverDefaults())},
		{"River tuned, one chain", riverChain(riverTuned())},
		{"River tuned, 400 chains", riverFlight(riverTuned())},
	}
	if dagu != "" {
		list = append(list, measurement{"Dagu, one chain", daguChain5(dagu)})
	}
	return list
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// settings are the flags.
type settings struct {
	output, dagu, dir string
	figures, readme   string
	quick             bool
}

func parseFlags(args []string, stderr io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("peerbench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.output, "o", "text", "print the figures as `text|json`")
	flags.StringVar(&s.dagu, "dagu", "", "measure Dagu too, with the binary at `PATH`; without it there is no dagu row")
	flags.StringVar(&s.dir, "dir", os.TempDir(), "keep the temporary stores under `DIR`; it must be on the disk to be measured, not in memory")
	flags.StringVar(&s.figures, "figures", "", "with --readme: Apollo's own figures, the `FILE` that apollo bench -o json has printed on this machine")
	flags.StringVar(&s.readme, "readme", "", "write Apollo's figures and the peers' into the table of this `FILE`")
	flags.BoolVar(&s.quick, "quick", false, "measure for under 20 s instead of under 90 s")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	var problems []error
	if flags.NArg() > 0 {
		problems = append(problems, fmt.Errorf("unexpected argument %q", flags.Arg(0)))
	}
	if s.output != "text" && s.output != "json" {
		problems = append(problems, fmt.Errorf("-o %s: want text or json", s.output))
	}
	if (s.figures == "") != (s.readme == "") {
		problems = append(problems, errors.New("--figures and --readme go together"))
	}
	if s.dagu != "" {
		path, err := exec.LookPath(s.dagu)
		if err == nil {
			s.dagu, err = filepath.Abs(path)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("--dagu: %w", err))
		}
	}
	return s, errors.Join(problems...)
}

// run is main with its surroundings handed in; it returns the exit code: 0 ok, 1 failed, 2 usage, 130 interrupted.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parseFlags(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "peerbench:", err)
		return 2
	}
	if s.dagu == "" {
		fmt.Fprintln(stderr, "peerbench: no --dagu PATH, so there is no dagu row")
	}
	figures, err := measure(ctx, s, stderr)
	r := report{Machine: thisMachine(time.Now()), Figures: append([]figure{}, figures...)}
	write := r.writeText
	if s.output == "json" {
		write = r.writeJSON
	}
	err = errors.Join(err, write(stdout))
	if err == nil && s.readme != "" {
		err = writeReadme(s.readme, s.figures, r)
	}
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "peerbench: interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(stderr, "peerbench:", err)
		return 1
	}
	return 0
}

// measure makes every measurement and returns the figures in order; those that were measured are returned beside an error too.
func measure(ctx context.Context, s settings, progress io.Writer) (_ []figure, err error) {
	dir, err := os.MkdirTemp(s.dir, "peerbench-")
	if err != nil {
		return nil, fmt.Errorf("create temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := bench{dir: dir, effort: fullEffort(), progress: progress, start: time.Now(), readLimit: probeLimit}
	if s.quick {
		b.effort = quickEffort()
	}
	return b.all(ctx, measurements(s.dagu))
}
