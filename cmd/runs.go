package cmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/storage"
	"github.com/apollo-11/apollo/storage/sqlite"
)

type runRowJSON struct {
	Run       string `json:"run"`
	Pipeline  string `json:"pipeline"`
	State     string `json:"state"`
	Trigger   string `json:"trigger"`
	CreatedAt string `json:"created_at"`
	StartedAt string `json:"started_at"`
	EndedAt   string `json:"ended_at"`
	Duration  int64  `json:"duration_ms"`
	Stage     string `json:"stage,omitempty"`
	Class     string `json:"class,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

// page adds --limit and --after to a list.
func (a *app) page(c *cobra.Command) (limit *int, after *string) {
	return c.Flags().Int("limit", 50, a.say.T("flag.limit")), c.Flags().String("after", "", a.say.T("flag.after"))
}

func pageOf(limit int, after string) (storage.Page, error) {
	p := storage.Page{Limit: limit}
	if limit < 1 {
		return p, usage("--limit", fmt.Sprint(limit), "a number from 1")
	}
	if after == "" {
		return p, nil
	}
	id, err := events.ParseID(after)
	if err != nil {
		return p, &exitError{exitUsage, "E_USAGE", fmt.Errorf("--after: %w", err)}
	}
	p.After = id
	return p, nil
}

func (a *app) runsCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "runs", Args: cobra.NoArgs}, "runs")
	limit, after := a.page(c)
	pipeline := c.Flags().String("pipeline", "", a.say.T("flag.pipeline"))
	state := c.Flags().String("state", "", a.say.T("flag.state"))
	c.RunE = func(c *cobra.Command, _ []string) error {
		f := storage.RunFilter{Pipeline: *pipeline}
		var err error
		if f.Page, err = pageOf(*limit, *after); err != nil {
			return err
		}
		if *state != "" {
			if f.State, err = events.ParseState(*state); err != nil {
				return usage("--state", *state, "pending, running, completed, failed, cancelled")
			}
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error { return a.listRuns(c.Context(), s, f) })
	}
	return c
}

func (a *app) listRuns(ctx context.Context, s *sqlite.Store, f storage.RunFilter) error {
	rows, err := s.Runs(ctx, f)
	if err != nil {
		return err
	}
	all := make([]runRowJSON, len(rows))
	for i, r := range rows {
		all[i] = runRowJSON{Run: r.ID.String(), Pipeline: r.Pipeline, State: r.State.String(), Trigger: r.Kind, CreatedAt: stamp(r.Created),
			StartedAt: stamp(r.Started), EndedAt: stamp(r.Ended), Stage: r.Stage, Class: string(r.Class), Reason: r.Reason}
		if r.Ended > 0 {
			all[i].Duration = max(0, r.Ended-r.Created) / 1e6
		}
	}
	n := -1
	return list(a, all, a.heads("run", "pipeline", "state", "trigger", "created", "duration", "why"), func(r runRowJSON) []string {
		n++
		why := r.Class
		if r.Stage != "" {
			why = r.Stage + ": " + r.Class
		}
		return []string{r.Run, r.Pipeline, a.state(rows[n].State), r.Trigger, a.ago(rows[n].Created), span(rows[n].Created, rows[n].Ended), why}
	})
}

func (a *app) heads(ids ...string) []string {
	heads := make([]string, len(ids))
	for i, id := range ids {
		heads[i] = a.say.T("head." + id)
	}
	return heads
}

type inboxJSON struct {
	Delivery    string `json:"delivery"`
	Trigger     string `json:"trigger"`
	Pipeline    string `json:"pipeline"`
	Key         string `json:"key"`
	ReceivedAt  string `json:"received_at"`
	Fate        string `json:"fate"`
	Run         string `json:"run"`
	DuplicateOf string `json:"duplicate_of"`
	Code        string `json:"code"`
	Reason      string `json:"reason"`
}

// fates is what may become of a delivery; the empty one means any.
var fates = []string{"", "run", "duplicate", "held", "rejected", "ignored"}

func (a *app) inboxCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "inbox", Args: cobra.NoArgs}, "inbox")
	limit, after := a.page(c)
	pipeline := c.Flags().String("pipeline", "", a.say.T("flag.pipeline"))
	fate := c.Flags().String("fate", "", a.say.T("flag.fate"))
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !slices.Contains(fates, *fate) {
			return usage("--fate", *fate, strings.Join(fates[1:], ", "))
		}
		p, err := pageOf(*limit, *after)
		if err != nil {
			return err
		}
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			return a.listDeliveries(c.Context(), s, storage.DeliveryFilter{Page: p, Pipeline: *pipeline, Fate: *fate})
		})
	}
	return c
}

func (a *app) listDeliveries(ctx context.Context, s *sqlite.Store, f storage.DeliveryFilter) error {
	rows, err := s.Deliveries(ctx, f)
	if err != nil {
		return err
	}
	all := make([]inboxJSON, len(rows))
	received := map[string]int64{}
	for i, d := range rows {
		all[i] = inboxJSON{Delivery: d.ID.String(), Trigger: d.Trigger, Pipeline: d.Pipeline, Key: d.Key, ReceivedAt: stamp(d.Received), Fate: d.Fate,
			Run: d.Run.String(), DuplicateOf: d.First.String(), Code: d.Code, Reason: d.Reason}
		received[all[i].Delivery] = d.Received
	}
	return list(a, all, a.heads("delivery", "trigger", "pipeline", "received", "fate", "run", "why"), func(d inboxJSON) []string {
		why := d.Code
		if d.Code == "" && d.DuplicateOf != "" {
			why = a.say.T("duplicate.of", map[string]any{"ID": d.DuplicateOf})
		} else if d.Reason != "" {
			why = d.Code + " " + d.Reason
		}
		return []string{d.Delivery, d.Trigger, d.Pipeline, a.ago(received[d.Delivery]), a.say.T("fate." + d.Fate), d.Run, why}
	})
}

func (a *app) eventsCommand() *cobra.Command {
	c := a.describe(&cobra.Command{Use: "events RUN", Args: cobra.ExactArgs(1)}, "events")
	follow := c.Flags().BoolP("follow", "f", false, a.say.T("flag.follow"))
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.reading(c.Context(), func(s *sqlite.Store) error {
			id, err := a.findRun(c.Context(), s, args[0])
			if err != nil {
				return err
			}
			return a.printEvents(c.Context(), s, id, *follow)
		})
	}
	return c
}

func (a *app) printEvents(ctx context.Context, s *sqlite.Store, id events.ID, follow bool) error {
	var origin events.Origin
	var after uint64
	for {
		log, err := s.Events(ctx, id, after, viewPage)
		if err != nil {
			return err
		}
		for i := range log {
			e := &log[i].Event
			if e.Sequence == 1 {
				origin = events.Origin{Pipeline: e.Data.Pipeline, Correlation: e.Data.Delivery, Trace: e.Data.Trace}
			}
			b, err := e.CloudEvent(origin)
			if err != nil {
				return err
			}
			if _, err := a.out.Write(append(b, '\n')); err != nil {
				return err
			}
			after = e.Sequence
		}
		if len(log) == viewPage {
			continue
		}
		if !follow {
			return nil
		}
		if row, err := s.Run(ctx, id); err != nil || row.State.Terminal() && len(log) == 0 {
			return err
		}
		if !a.wait(ctx) {
			return silent(exitInterrupted)
		}
	}
}

// wait pauses between two looks at what another process writes.
func (a *app) wait(ctx context.Context) bool {
	select {
	case <-time.After(200 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

type logFlags struct {
	stream  string
	attempt int
	tail    int
	follow  bool
	raw     bool
}

func (a *app) logsCommand() *cobra.Command {
	var f logFlags
	c := a.describe(&cobra.Command{Use: "logs RUN [STAGE]", Args: cobra.RangeArgs(1, 2)}, "logs")
	c.Flags().StringVar(&f.stream, "stream", "", a.say.T("flag.stream"))
	c.Flags().IntVar(&f.attempt, "attempt", 0, a.say.T("flag.attempt"))
	c.Flags().IntVar(&f.tail, "tail", 0, a.say.T("flag.tail"))
	c.Flags().BoolVarP(&f.follow, "follow", "f", false, a.say.T("flag.follow"))
	c.Flags().BoolVar(&f.raw, "raw", false, a.say.T("flag.raw"))
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.stream != "" && f.stream != "stdout" && f.stream != "stderr" {
			return usage("--stream", f.stream, "stdout, stderr")
		}
		if f.tail < 0 || f.attempt < 0 {
			return usage("--tail, --attempt", fmt.Sprint(min(f.tail, f.attempt)), "a number from 1")
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
		if _, ok := v.run.Graph.Index(stage); stage != "" && !ok {
			return &exitError{exitNotFound, "E_REF", fmt.Errorf("the run has no stage %q", stage)}
		}
		ended := v.run.State.Terminal()
		if err := a.printLogFiles(v, stage, f, printed, ended || !f.follow); err != nil {
			return err
		}
		if !f.follow || ended {
			return nil
		}
		if !a.wait(ctx) {
			return silent(exitInterrupted)
		}
	}
}

func (a *app) printLogFiles(v *view, only string, f logFlags, printed map[string]int64, last bool) error {
	for i := range v.run.Stages {
		name := v.run.Graph.Plan.Stages[i].Name
		if only != "" && name != only {
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
			if err := a.printLogFile(v.logFile(name, attempt, stream), name, only == "", f, printed, last); err != nil {
				return err
			}
		}
	}
	return nil
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
		shown := strings.TrimSuffix(string(text), "\n") + "\n"
		if err := a.printLogText(shown, stage, label, false); err != nil {
			return err
		}
	}
}

const longestLine = 64 << 10 // bytes: a longer line is broken
