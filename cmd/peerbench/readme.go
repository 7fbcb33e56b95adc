package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// The table of figures stands between these lines of the README.
const (
	tableBegins = "<!-- figures:begin -->\n"
	tableEnds   = "<!-- figures:end -->"
)

// apolloReport is what "apollo bench -o json" printed.
type apolloReport struct {
	Machine machine `json:"machine"`
	Figures []struct {
		Name     string  `json:"name"`
		Value    float64 `json:"value"`
		Unit     string  `json:"unit"`
		Ratio    float64 `json:"ratio"`
		Required string  `json:"required"`
		Met      bool    `json:"met"`
		Void     string  `json:"void"`
	} `json:"figures"`
}

// writeReadme puts Apollo's figures, read from a file, and the peers' into the README.
func writeReadme(readme, figures string, peers report) error {
	content, err := os.ReadFile(figures)
	if err != nil {
		return err
	}
	var own apolloReport
	if err := json.Unmarshal(content, &own); err != nil {
		return fmt.Errorf("%s: %w", figures, err)
	}
	if len(own.Figures) == 0 {
		return fmt.Errorf("%s: no figures; make it with apollo bench -o json", figures)
	}
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	head, rest, begins := strings.Cut(string(text), tableBegins)
	_, tail, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return errors.New(readme + ": no lines figures:begin and figures:end")
	}
	return os.WriteFile(readme, []byte(head+tableBegins+own.table()+peers.table()+tableEnds+tail), 0o644)
}

func (r apolloReport) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "`apollo bench`, %d × %s, %s, %s:\n\n| figure | measured | ratio to the limit | required | met |\n|---|---|---|---|---|\n", r.Machine.Cores, r.Machine.CPU, r.Machine.Go, r.Machine.Date)
	for _, f := range r.Figures {
		met := map[bool]string{true: "yes", false: "no"}[f.Met]
		if f.Void != "" {
			met = "void: " + f.Void
		}
		fmt.Fprintf(&b, "| `%s` | %s %s | %s | %s | %s |\n", f.Name, short(f.Value), f.Unit, ratio(f.Ratio), f.Required, met)
	}
	return b.String()
}

func (r report) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nOthers, the same five no-op steps on SQLite with `synchronous=FULL` (`cmd/peerbench`, %s): a rate beside S1, bare single-row transactions/s; a time beside its p50.\n\n| figure | measured | ratio to S1 |\n|---|---|---|\n", r.Machine.Date[:10])
	for _, f := range r.Figures {
		if f.Name == "s1_transactions_per_s" {
			continue
		}
		void := ""
		if f.Void {
			void = " (void: S1 drifted)"
		}
		fmt.Fprintf(&b, "| `%s` | %s %s | %s%s |\n", f.Name, short(f.Value), f.Unit, ratio(f.Ratio), void)
	}
	return b.String()
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

func ratio(v float64) string {
	switch {
	case v == 0:
		return ""
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
