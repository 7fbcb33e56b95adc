package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/apollo-11/apollo/cmd/lang"
	"github.com/apollo-11/apollo/configs"
	"github.com/apollo-11/apollo/events"
	"github.com/apollo-11/apollo/handlers/executor"
	"github.com/apollo-11/apollo/handlers/plugin"
)

// loadPlugins reads the plug-ins. A data directory without any is no fault.
func (a *app) loadPlugins() *plugin.Set {
	dir := orText(a.plugins, filepath.Join(a.data, "plugins"))
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if _, err := os.Stat(dir); a.plugins == "" && errors.Is(err, os.ErrNotExist) {
		return &plugin.Set{Dir: dir}
	}
	return plugin.Load(dir)
}

// tellSkipped names what was left out, for people.
func (a *app) tellSkipped() {
	s := a.pluginSet()
	if s.Fault != nil {
		a.tell("plugin.none_read", lang.Data{"Why": s.Fault.Error()})
	}
	for _, p := range s.Plugins {
		if p.Fault != nil {
			a.tell("plugin.skipped", lang.Data{"Name": p.Name, "Why": p.Fault.Error()})
		}
	}
}

// logPlugins names what was loaded and what was left out, for the log of a server.
func (s *server) logPlugins() {
	set, count := s.app.pluginSet(), 0
	if set.Fault != nil {
		s.logger.Error().Str("plugins", set.Dir).Str("code", set.Fault.Code).Msg(set.Fault.Reason)
	}
	for _, p := range set.Plugins {
		if p.Fault != nil {
			s.logger.Error().Str("plugin", p.Name).Str("code", p.Fault.Code).Str("hint", p.Fault.Hint).Msg("plug-in skipped: " + p.Fault.Reason)
			continue
		}
		s.logger.Info().Str("plugin", p.Pin()).Str("kind", p.Kind).Msg("plug-in loaded")
		count++
	}
	if len(set.Plugins) > 0 {
		s.logger.WithLevel(zerolog.InfoLevel).Int("loaded", count).Int("skipped", len(set.Plugins)-count).Msg("plug-ins read")
	}
}

func (a *app) pluginCommand() *cobra.Command {
	root := a.describe(&cobra.Command{Use: "plugin", Args: a.arguments(0, 0), RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}, "plugin")
	all := a.describe(&cobra.Command{Use: "list", Args: a.arguments(0, 0)}, "plugin.list")
	all.RunE = func(*cobra.Command, []string) error { return a.listPlugins() }
	test := a.describe(&cobra.Command{Use: "test NAME", Args: a.arguments(1, 1), ValidArgsFunction: a.completePlugins}, "plugin.test")
	with := test.Flags().String("with", "{}", "flag.with")
	test.RunE = func(c *cobra.Command, args []string) error { return a.testPlugin(c.Context(), args[0], *with) }
	root.AddCommand(all, test)
	return root
}

func (a *app) completePlugins(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, p := range a.pluginSet().Plugins {
		names = append(names, p.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

type pluginJSON struct {
	Name        string          `json:"name"`
	Kind        string          `json:"kind"`
	Version     string          `json:"version"`
	Description string          `json:"description"`
	Dir         string          `json:"dir"`
	Digest      string          `json:"digest"` // of the file as it is
	HashOK      bool            `json:"hash_ok"`
	With        json.RawMessage `json:"with,omitempty"`
	Code        string          `json:"code,omitempty"`
	Problem     string          `json:"problem,omitempty"`
	Hint        string          `json:"hint,omitempty"`
}

func (a *app) listPlugins() error {
	set := a.pluginSet()
	if set.Fault != nil {
		return &exitError{exitNotFound, "", set.Fault}
	}
	rows := make([]pluginJSON, 0, len(set.Plugins))
	for _, p := range set.Plugins {
		row := pluginJSON{Name: p.Name, Kind: p.Kind, Version: p.Version, Description: p.Description, Dir: p.Dir, Digest: p.Digest,
			HashOK: p.Digest != "" && p.Digest == "sha256:"+p.SHA256}
		if p.Kind == configs.PluginExecutor {
			row.With = p.With
		}
		if p.Fault != nil {
			row.Code, row.Problem, row.Hint = p.Fault.Code, p.Fault.Reason, p.Fault.Hint
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 && a.output == "text" {
		a.tell("plugin.none", lang.Data{"Dir": set.Dir})
		return nil
	}
	return list(a, rows, a.heads("name", "kind", "version", "hash", "problem"), a.pluginCells)
}

func (a *app) pluginCells(p pluginJSON) []string {
	hash := a.paint(good, a.say.T("plugin.hash_ok"))
	switch {
	case p.Digest == "":
		hash = a.paint(dim, "–")
	case !p.HashOK:
		hash = a.paint(bad, a.say.T("plugin.hash_bad"))
	}
	problem := ""
	if p.Code != "" {
		problem = strings.TrimSuffix(p.Code+": "+p.Problem+"; "+p.Hint, "; ")
	}
	return []string{p.Name, p.Kind, p.Version, hash, problem}
}

type trialJSON struct {
	Name    string          `json:"name"`
	Kind    string          `json:"kind"`
	Version string          `json:"version"`
	OK      bool            `json:"ok"`
	Sent    json.RawMessage `json:"sent"`
	Answers []string        `json:"answers"`
	Log     string          `json:"log"`
	Failure *events.Failure `json:"failure,omitempty"`
}

// testPlugin sends a plug-in a sample request and shows what came back.
func (a *app) testPlugin(ctx context.Context, name, with string) error {
	set := a.pluginSet()
	p := set.Get(name)
	switch {
	case set.Fault != nil:
		return &exitError{exitNotFound, "", set.Fault}
	case p == nil:
		return a.fail(exitNotFound, "E_NOT_FOUND", "error.no_plugin", lang.Data{"Name": name, "Dir": set.Dir})
	case p.Fault != nil:
		return &exitError{exitInvalid, "", p.Fault}
	case !json.Valid([]byte(with)):
		return a.usageError("usage.with", lang.Data{"With": with})
	}
	t, err := p.Try(ctx, executor.Settings{Owner: fmt.Sprintf("plugin-test-%d", os.Getpid())},
		plugin.Sample{Run: newID(), With: json.RawMessage(with), Now: time.Now()})
	if err != nil {
		return err
	}
	row := trialJSON{Name: p.Name, Kind: p.Kind, Version: p.Version, OK: t.Failure == nil, Sent: t.Sent, Answers: append([]string{}, t.Answers...),
		Log: t.Log, Failure: t.Failure}
	if a.output != "text" {
		err = writeJSON(a.out, row, a.output == "json")
	} else {
		err = a.printTrial(row)
	}
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return silent(exitInterrupted)
	case t.Failure == nil:
		return nil
	case t.Failure.Class == events.Timeout:
		return silent(exitTimedOut)
	}
	return silent(exitFailed)
}

func (a *app) printTrial(t trialJSON) error {
	var b strings.Builder
	if t.Sent != nil {
		fmt.Fprintf(&b, "%s %s\n", a.paint(accent, "→"), line(string(t.Sent)))
	}
	for _, answer := range t.Answers {
		fmt.Fprintf(&b, "%s %s\n", a.paint(accent, "←"), line(answer))
	}
	for l := range strings.Lines(clean(t.Log)) {
		fmt.Fprintf(&b, "  %s\n", a.paint(dim, strings.TrimRight(l, "\n")))
	}
	data := lang.Data{"Name": t.Name + "@" + t.Version}
	if t.OK {
		b.WriteString(a.paint(good, "✔ ") + a.say.T("plugin.answered", data))
	} else {
		data["Class"], data["Reason"] = t.Failure.Class, line(t.Failure.Reason)
		b.WriteString(a.paint(bad, "✖ ") + a.say.T("plugin.failed", data))
	}
	_, err := fmt.Fprintln(a.out, b.String())
	return err
}
