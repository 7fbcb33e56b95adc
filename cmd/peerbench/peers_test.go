package main

import (
	"io"
	"slices"
	"testing"
	"time"
)

// TestPeersRun measures every peer once, as briefly as can be, so that the benchmark cannot rot.
func TestPeersRun(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real peers for some seconds")
	}
	b := bench{dir: t.TempDir(), progress: io.Discard, start: time.Now(), readLimit: probeLimit}
	b.effort = effort{probe: 10 * time.Millisecond, window: 50 * time.Millisecond, chains: 1, patience: 2 * time.Second}
	figures, err := b.all(t.Context(), measurements(fakeDagu(t)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range figures {
		got = append(got, f.Name)
		if f.Value <= 0 || f.Samples <= 0 {
			t.Errorf("%s = %v of %d samples", f.Name, f.Value, f.Samples)
		}
	}
	want := []string{
		"dbos_steps_per_s_1", "dbos_workflow_ms", "dbos_start_to_first_step_ms", "dbos_steps_per_s_4", "dbos_steps_per_s_64",
		"river_chain_ms", "river_transitions_per_s", "river_tuned_chain_ms", "river_tuned_transitions_per_s",
		"dagu_chain5_ms", "s1_transactions_per_s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("figures = %v, want %v", got, want)
	}
}
