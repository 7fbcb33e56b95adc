package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadme(t *testing.T) {
	dir := t.TempDir()
	readme, figures := filepath.Join(dir, "README.md"), filepath.Join(dir, "figures.json")
	write := func(path, content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(readme, "before\n"+tableBegins+"old\n"+tableEnds+"\nafter\n")
	write(figures, `{"machine":{"cores":2,"cpu":"C","go":"go1","date":"2026-11-30"},"figures":[
		{"name":"a_vs_b","value":23456.7,"unit":"stages/s","ratio":2.345,"required":">= 2.5","met":false},
		{"name":"c_ms","value":3.5,"unit":"ms","required":"<= 40","met":true},{"name":"d","value":1,"unit":"x","required":"= 1","void":"it drifted"}]}`)
	peers := report{Machine: machine{Date: "2026-11-30T10:00:00Z"}, Figures: []figure{{Name: "river", Value: 700, Unit: "steps/s", Ratio: 0.07, Void: true}, {Name: "s1_transactions_per_s", Value: 9000}}}
	for range 2 { // writing again changes nothing
		if err := writeReadme(readme, figures, peers); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(readme)
		if err != nil {
			t.Fatal(err)
		}
		text := string(content)
		for _, line := range []string{"before\n" + tableBegins, "| `a_vs_b` | 2.346e+04 stages/s | 2.35 | >= 2.5 | no |\n", "| `c_ms` | 3.5 ms |  | <= 40 | yes |\n",
			"| `d` | 1 x |  | = 1 | void: it drifted |\n", "| `river` | 700 steps/s | 0.07 (void: S1 drifted) |\n", tableEnds + "\nafter\n"} {
			if strings.Count(text, line) != 1 {
				t.Errorf("not once: %q in\n%s", line, text)
			}
		}
		if strings.Contains(text, "old") || strings.Contains(text, "s1_trans") {
			t.Errorf("left over:\n%s", text)
		}
	}
	write(readme, "nothing to fill")
	if err := writeReadme(readme, figures, peers); err == nil {
		t.Error("a README without a place was written")
	}
	write(figures, `{}`)
	if err := writeReadme(readme, figures, peers); err == nil {
		t.Error("no figures were written")
	}
}
