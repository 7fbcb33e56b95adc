package cmd

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage/sqlite"
)

type logFlags struct {
	stream  string
	attempt int
	tail    int
	follow  bool
	raw     bool
}

func (a *app) logsCommand() *cobra.Command {
	var f logFlags
	c := a.describe(&cobra.Command{Use: "logs RUN [STAGE[#ITEM]]", Args: a.arguments(1, 2), ValidArgsFunction: a.completeRuns}, "logs")
	c.Flags().StringVar(&f.stream, "stream", "", "flag.stream")
	c.Flags().IntVar(&f.attempt, "attempt", 0, "flag.attempt")
	c.Flags().IntVar(&f.tail, "tail", 0, "flag.tail")
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, "flag.follow")
	c.Flags().BoolVar(&f.raw, "raw", false, "flag.raw")
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.stream != "" && f.stream != "stdout" && f.stream != "stderr" {
			return a.choice("--stream", f.stream, "stdout, stderr")
		}
		for _, n := range []struct {
			flag  string
			value int
		}{{"--tail", f.tail}, {"--attempt", f.attempt}} {
			if n.value < 0 {
				return a.usageError("usage.positive", lang.Data{"Flag": n.flag, "Value": n.value})
			}
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			id, err := a.findRun(c.Context(), s, args[0])
			if err != nil {
				return err
			}
			stage := ""
			if len(args) == 2 {
				stage = args[1]
			}
			return a.printLogs(c.Context(), s, id, stage, f)
		})
	}
	return c
}

func (a *app) printLogs(ctx context.Context, s *sqlite.Store, id events.ID, stage string, f logFlags) error {
	printed := map[string]int64{}
	for {
		v, err := loadView(ctx, s, id, a.logsDir())
		if err != nil {
			return err
		}
		if err := a.mustHave(v, stage); err != nil {
			return err
		}
		ended := v.run.State.Terminal()
		if err := a.printLogFiles(v, stage, f, printed, ended || !f.follow); err != nil {
			return err
		}
		if !f.follow || ended {
			return nil
		}
		if err := pause(ctx, maxGap); err != nil { // files grow without an event
			return err
		}
	}
}

// printLogFiles prints the logs of a stage with its instances, of one instance, or of all.
func (a *app) printLogFiles(v *view, only string, f logFlags, printed map[string]int64, last bool) error {
	for _, i := range v.byStage() {
		label := v.label(i)
		if only != "" && label != only && v.run.StageOf(i).Name != only {
			continue
		}
		attempt := f.attempt
		if attempt == 0 {
			attempt = v.run.Stages[i].Attempt
		}
		for _, stream := range []string{"stdout", "stderr"} {
			if f.stream != "" && f.stream != stream {
				continue
			}
			if err := a.printLogFile(v.logFile(i, attempt, stream), label, label != only, f, printed, last); err != nil {
				return err
			}
		}
	}
	return nil
}

// byStage gives every place of the run, the instances of a foreach stage behind it.
func (v *view) byStage() (places []int) {
	for i := range v.run.Graph.Plan.Stages {
		places = append(places, i)
		if s := &v.run.Stages[i]; s.First > 0 {
			for k := s.First; k < s.First+s.Count; k++ {
				places = append(places, int(k))
			}
		}
	}
	return places
}

func (a *app) printLogFile(path, stage string, label bool, f logFlags, printed map[string]int64, last bool) error {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if f.tail > 0 && printed[path] == 0 {
		if info, err := file.Stat(); err == nil {
			printed[path] = info.Size()
		}
		if tail := lastLines(path, f.tail); tail != "" {
			return a.printLogText(tail+"\n", stage, label, f.raw)
		}
		return nil
	}
	section := io.NewSectionReader(file, printed[path], 1<<62)
	if f.raw {
		n, err := io.Copy(a.out, section)
		printed[path] += n
		return err
	}
	r := bufio.NewReaderSize(section, longestLine)
	for {
		text, err := r.ReadSlice('\n')
		whole := err == nil || errors.Is(err, bufio.ErrBufferFull)
		if !whole && (!errors.Is(err, io.EOF) || len(text) == 0 || !last) { // what is not a line yet comes with the next look
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		printed[path] += int64(len(text))
		if err := a.printLogText(strings.TrimSuffix(string(text), "\n")+"\n", stage, label, false); err != nil {
			return err
		}
	}
}

const longestLine = 64 << 10 // bytes: a longer line is broken

// printLogText prints part of a log, each line with its stage when several are printed.
func (a *app) printLogText(text, stage string, label, raw bool) error {
	if !raw {
		text = clean(text)
	}
	if label {
		lines := strings.SplitAfter(text, "\n")
		var b strings.Builder
		for _, l := range lines {
			if l != "" {
				b.WriteString(a.paint(dim, stage+" │ ") + l)
			}
		}
		text = b.String()
	}
	_, err := io.WriteString(a.out, text)
	return err
}
